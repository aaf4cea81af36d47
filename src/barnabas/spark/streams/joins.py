"""Joins by key: events with a table that says more of them, and two kinds of events that happen near in time."""

from __future__ import annotations

from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from barnabas.errors import ConfigurationError
from barnabas.spark.streams.durations import Duration, duration_ms
from barnabas.spark.streams.event_time import Columns, column, names_of, timed

How = Literal["inner", "left"]
_HOW = ("inner", "left")
_KEY = "__right_key_{}"


def enrich(
    frame: DataFrame,
    table: DataFrame,
    on: Columns,
    *,
    newest_by: str | None = None,
    how: How = "left",
    prefix: str = "table_",
) -> DataFrame:
    """Put the columns of a table beside the events whose key it has.

    :param frame: events, of a stream or not.
    :param table: no stream; it is read again for each batch of a stream.
    :param on: columns that both have.
    :param newest_by: where the table has several rows for a key, as a topic of changes has, the row with the largest
        value of this column counts. Without it each of them makes a row of the result.
    :param how: what becomes of events whose key the table does not have: `left` keeps them, `inner` leaves them out.
    :param prefix: for columns of the table that are named like one of the frame's.
    :raises ConfigurationError: a column is not there; the table is a stream.
    """
    if table.isStreaming:
        raise ConfigurationError("table: it is a stream; for two streams there is join_within")
    keys = _join_keys(frame, table, on, how)
    if newest_by is not None:
        names_of(table, newest_by, "newest_by")
        whole = F.struct(*map(column, table.columns))
        newest = table.groupBy(*map(column, keys)).agg(F.max_by(whole, F.struct(column(newest_by))).alias("newest"))
        table = newest.select("newest.*")
    right = _renamed(frame, table, keys, prefix)
    return _joined(frame, right, keys, F.lit(True), how)


def join_within(
    left: DataFrame,
    right: DataFrame,
    on: Columns,
    within: Duration,
    *,
    before: Duration = "0 s",
    left_time: str = "timestamp",
    right_time: str = "timestamp",
    how: How = "inner",
    late: Duration | None = None,
    prefix: str = "right_",
) -> DataFrame:
    """Join events with those of the same key that happen at most `within` after them.

    A stream remembers events only for as long as others may still come that match, so its memory is bounded. With
    `left`, an event that nothing matches comes out when that is certain.

    :param on: columns that both have.
    :param before: by how much the right one may also happen earlier.
    :param left_time, right_time: the columns of event times.
    :param how: `left` keeps events of the left that nothing matches.
    :param late: for streams, how late events of either may come.
    :param prefix: for columns of the right that are named like one of the left's.
    :returns: all columns of the left, and those of the right but for the key.
    :raises ConfigurationError: a column is not there, or a length does not fit.
    """
    keys = _join_keys(left, right, on, how)
    after_ms, before_ms = duration_ms(within, "within", least_ms=0), duration_ms(before, "before", least_ms=0)
    left, right = timed(left, left_time, late, "left_time"), timed(right, right_time, late, "right_time")
    other_time = prefix + right_time if right_time in left.columns else right_time
    if right_time in keys or left_time in keys:
        raise ConfigurationError("on: the column of event times is no key")
    at, other = column(left_time), column(other_time)
    near = (other >= at - _interval(before_ms)) & (other <= at + _interval(after_ms))
    return _joined(left, _renamed(left, right, keys, prefix), keys, near, how)


def _interval(milliseconds: int) -> Column:
    return F.expr(f"INTERVAL {milliseconds} MILLISECONDS")


def _join_keys(left: DataFrame, right: DataFrame, on: Columns, how: str) -> list[str]:
    if how not in _HOW:
        raise ConfigurationError(f"how: {how!r} is none of {', '.join(_HOW)}")
    keys = names_of(left, on, "on")
    names_of(right, on, "on")
    if not keys:
        raise ConfigurationError("on: name at least one column that both have")
    return keys


def _renamed(left: DataFrame, right: DataFrame, keys: list[str], prefix: str) -> DataFrame:
    """Return the right one with names that the left one does not have."""
    taken = set(left.columns)
    names = {name: prefix + name if name in taken else name for name in right.columns if name not in keys}
    for name, new in names.items():
        if new in taken or (new != name and new in right.columns):
            raise ConfigurationError(f"prefix: {prefix!r} makes {name!r} to {new!r}, which is there already")
    others = [column(name).alias(new) for name, new in names.items()]
    return right.select(*(column(name).alias(_KEY.format(at)) for at, name in enumerate(keys)), *others)


def _joined(left: DataFrame, right: DataFrame, keys: list[str], condition: Column, how: str) -> DataFrame:
    for at, name in enumerate(keys):
        condition = (column(name) == F.col(_KEY.format(at))) & condition
    return left.join(right, condition, how).drop(*(_KEY.format(at) for at in range(len(keys))))

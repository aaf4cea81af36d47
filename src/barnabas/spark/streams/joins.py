"""Joins by key: events with a table of further columns, and two kinds of events that happen close in time."""

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
    """Add the columns of a table to the events with the same key.

        enrich(clicks, members, "member", newest_by="offset")

    :param frame: The events; may be a stream.
    :param table: The table. It must not be a stream; for a streaming `frame` it is read again in each batch.
    :param on: The names of the key columns, which both frames have.
    :param newest_by: For a table with several rows per key, such as a changelog topic: use the row with the largest
        value of this column. None returns one row for each of them.
    :param how: `left` keeps events without a matching row, `inner` drops them.
    :param prefix: The prefix of table columns that have the name of a column of `frame`.
    :return: The columns of `frame`, and those of the table except the key.
    :raises ConfigurationError: A column does not exist, or the table is a stream.
    """
    if table.isStreaming:
        raise ConfigurationError("table: it must not be a stream; use join_within for two streams")
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
    """Join events with the events of the same key that happen up to `within` after them.

        join_within(impressions, clicks, "impression_id", "30 minutes", late="10 minutes")

    A stream keeps events only as long as matching events may arrive, so the memory is bounded. With `left`, an event
    without a match is emitted when no match can arrive any more.

    :param left: The first events; may be a stream.
    :param right: The later events; may be a stream.
    :param on: The names of the key columns, which both frames have.
    :param within: The largest time from the left to the right event.
    :param before: The largest time from the right to the left event, if the right one is earlier.
    :param left_time: The name of the left column with event times.
    :param right_time: The name of the right column with event times.
    :param how: `left` keeps left events without a match, `inner` drops them.
    :param late: The largest delay of events; only for streams.
    :param prefix: The prefix of right columns that have the name of a left column.
    :return: The columns of the left frame, and those of the right one except the key.
    :raises ConfigurationError: A column does not exist, or a duration is invalid.
    """
    keys = _join_keys(left, right, on, how)
    after_ms, before_ms = duration_ms(within, "within", least_ms=0), duration_ms(before, "before", least_ms=0)
    left, right = timed(left, left_time, late, "left_time"), timed(right, right_time, late, "right_time")
    other_time = prefix + right_time if right_time in left.columns else right_time
    if right_time in keys or left_time in keys:
        raise ConfigurationError("on: the column of event times cannot be a key")
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
        raise ConfigurationError("on: set at least one column that both frames have")
    return keys


def _renamed(left: DataFrame, right: DataFrame, keys: list[str], prefix: str) -> DataFrame:
    """Return the right frame with column names that the left frame does not have."""
    taken = set(left.columns)
    names = {name: prefix + name if name in taken else name for name in right.columns if name not in keys}
    for name, new in names.items():
        if new in taken or (new != name and new in right.columns):
            raise ConfigurationError(f"prefix: with {prefix!r}, {name!r} becomes {new!r}, which already exists")
    others = [column(name).alias(new) for name, new in names.items()]
    return right.select(*(column(name).alias(_KEY.format(at)) for at, name in enumerate(keys)), *others)


def _joined(left: DataFrame, right: DataFrame, keys: list[str], condition: Column, how: str) -> DataFrame:
    for at, name in enumerate(keys):
        condition = (column(name) == F.col(_KEY.format(at))) & condition
    return left.join(right, condition, how).drop(*(_KEY.format(at) for at in range(len(keys))))

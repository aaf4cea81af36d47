"""Removes events that arrived twice (at-least-once delivery): one of them remains."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from barnabas.errors import ConfigurationError
from barnabas.spark.streams.durations import Duration
from barnabas.spark.streams.event_time import Columns, column, names_of, timed


def drop_repeats(frame: DataFrame, ids: Columns, *, time: str = "timestamp", late: Duration | None = None) -> DataFrame:
    """Return one event of each id.

    Of a table it is the one with the earliest time. Of a stream it is the one that came first; its id is forgotten when
    the watermark is `late` behind its time, so the memory is bounded. A repeat whose time is no more than `late` after
    that of the first is always found, or is itself too late.

    :param ids: the columns that name an event.
    :param time: the column of event times.
    :param late: for streams, how late events, and so repeats, may come.
    :raises ConfigurationError: a column is not there.
    """
    keys = names_of(frame, ids, "ids")
    if not keys:
        raise ConfigurationError("ids: name at least one column")
    events = timed(frame, time, late)
    if events.isStreaming:
        return events.dropDuplicatesWithinWatermark(keys)
    whole = F.struct(*map(column, frame.columns))
    first = events.groupBy(*map(column, keys)).agg(F.min_by(whole, column(time)).alias("first"))
    return first.select("first.*")

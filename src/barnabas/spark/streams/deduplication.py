"""The removal of duplicate events, which at-least-once delivery may cause."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from barnabas.errors import ConfigurationError
from barnabas.spark.streams.durations import Duration
from barnabas.spark.streams.event_time import Columns, column, names_of, timed


def drop_repeats(frame: DataFrame, ids: Columns, *, time: str = "timestamp", late: Duration | None = None) -> DataFrame:
    """Return one event of each id.

        drop_repeats(clicks, "click_id", time="event_time", late="1 hour")

    For a table, it is the event with the earliest time. For a stream, it is the first one to arrive. Spark removes the
    id of an event when the watermark passes its time by `late`, so the memory is bounded. A duplicate with a time up to
    `late` after the first event is always dropped.

    :param frame: The events.
    :param ids: The names of the columns that identify an event.
    :param time: The name of the column with event times.
    :param late: The largest delay of events and duplicates; only for streams.
    :return: The events with the columns of `frame`.
    :raises ConfigurationError: A column does not exist, or `late` is missing.
    """
    keys = names_of(frame, ids, "ids")
    if not keys:
        raise ConfigurationError("ids: set at least one column")
    events = timed(frame, time, late)
    if events.isStreaming:
        return events.dropDuplicatesWithinWatermark(keys)
    whole = F.struct(*map(column, frame.columns))
    first = events.groupBy(*map(column, keys)).agg(F.min_by(whole, column(time)).alias("first"))
    return first.select("first.*")

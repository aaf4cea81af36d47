"""Checks of a frame's columns, and the watermark of a stream."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name in Spark's documentation
from pyspark.sql.types import TimestampNTZType, TimestampType

from barnabas.errors import ConfigurationError
from barnabas.spark.streams.durations import Duration, duration_ms, spark_interval

Columns = str | Sequence[str]
_WATERMARK = "spark.watermarkDelayMs"
"""The key in a column's metadata under which Spark stores its watermark."""


def column(name: str) -> Column:
    """Return the column with exactly this name, which may contain special characters."""
    return F.col("`" + name.replace("`", "``") + "`")


def names_of(frame: DataFrame, given: Columns, argument: str) -> list[str]:
    """Return column names as a list.

    :raises ConfigurationError: The frame has no such column.
    """
    names = [given] if isinstance(given, str) else list(given)
    for name in names:
        if name not in frame.columns:
            raise ConfigurationError(
                f"{argument}: there is no column {name!r}; the columns are {', '.join(frame.columns)}"
            )
    return names


def timed(frame: DataFrame, time: str, late: Duration | None, argument: str = "time") -> DataFrame:
    """Return the rows that have a time; add a watermark to a stream.

    :param late: The largest delay of events in a stream; None if the stream already has a watermark.
    :raises ConfigurationError: The column is not a timestamp, or `late` is missing, or the stream has a watermark
        already.
    """
    names_of(frame, time, argument)
    field = frame.schema[time]
    if not isinstance(field.dataType, TimestampType | TimestampNTZType):
        raise ConfigurationError(
            f"{argument}: the column {time!r} is of type {field.dataType.simpleString()}; it must be a timestamp, "
            f"for example F.timestamp_millis({time!r}) of milliseconds"
        )
    delay_ms = None if late is None else duration_ms(late, "late", least_ms=0)
    if not frame.isStreaming:
        return frame.where(column(time).isNotNull())
    if _WATERMARK not in field.metadata:
        if delay_ms is None:
            raise ConfigurationError("late: set the largest delay of events in the stream, as in late='10 minutes'")
        frame = frame.withWatermark(time, spark_interval(delay_ms))
    elif delay_ms is not None:
        raise ConfigurationError(f"late: the column {time!r} has a watermark already; omit `late`")
    return frame.where(column(time).isNotNull())

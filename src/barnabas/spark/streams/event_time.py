"""Columns of a frame, checked; and the watermark that says when what is asked of a stream is complete."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation has
from pyspark.sql.types import TimestampNTZType, TimestampType

from barnabas.errors import ConfigurationError
from barnabas.spark.streams.durations import Duration, duration_ms, spark_interval

Columns = str | Sequence[str]
_WATERMARK = "spark.watermarkDelayMs"
"""Where Spark notes in a column's metadata that it has a watermark."""


def column(name: str) -> Column:
    """Return the column of exactly this name, whatever letters it has."""
    return F.col("`" + name.replace("`", "``") + "`")


def names_of(frame: DataFrame, given: Columns, argument: str) -> list[str]:
    """Return names of columns as a list.

    :raises ConfigurationError: the frame has no such column; the message lists those that it has.
    """
    names = [given] if isinstance(given, str) else list(given)
    for name in names:
        if name not in frame.columns:
            raise ConfigurationError(f"{argument}: there is no column {name!r}; there are {', '.join(frame.columns)}")
    return names


def timed(frame: DataFrame, time: str, late: Duration | None, argument: str = "time") -> DataFrame:
    """Return the rows that have a time; those of a stream with a watermark on it.

    :param late: how late events of a stream may come; None where the stream has a watermark already.
    :raises ConfigurationError: the column is no timestamp; or it is not said how late events may be.
    """
    names_of(frame, time, argument)
    field = frame.schema[time]
    if not isinstance(field.dataType, TimestampType | TimestampNTZType):
        raise ConfigurationError(
            f"{argument}: the column {time!r} is of type {field.dataType.simpleString()}; a timestamp is needed, "
            f"such as F.timestamp_millis({time!r}) makes of milliseconds"
        )
    delay_ms = None if late is None else duration_ms(late, "late", least_ms=0)
    if not frame.isStreaming:
        return frame.where(column(time).isNotNull())
    if _WATERMARK not in field.metadata:
        if delay_ms is None:
            raise ConfigurationError("late: say how late events of a stream may come, as in late='10 minutes'")
        frame = frame.withWatermark(time, spark_interval(delay_ms))
    elif delay_ms is not None:
        raise ConfigurationError(f"late: the column {time!r} has a watermark already; leave `late` out")
    return frame.where(column(time).isNotNull())

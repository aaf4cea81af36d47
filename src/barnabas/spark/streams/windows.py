"""Counts by windows of event time (tumbling, sliding and session windows), and the most frequent values per window."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from barnabas.errors import ConfigurationError
from barnabas.spark.streams.durations import Duration, duration_ms, spark_interval
from barnabas.spark.streams.event_time import Columns, column, names_of, timed

WINDOW, SESSION, COUNT, RANK, ITEMS = "window", "session", "count", "rank", "items"
"""Column names of the results. WINDOW and SESSION are structs of `start` and `end`, exclusive."""
K_MAX = 1_000
SLIDES_MAX = 1_000
"""The maximum number of windows that contain the same event."""


def count_windows(
    frame: DataFrame,
    size: Duration,
    *,
    by: Columns = (),
    time: str = "timestamp",
    slide: Duration | None = None,
    late: Duration | None = None,
) -> DataFrame:
    """Count events by windows of event time.

        count_windows(clicks, "10 minutes", by="page", time="event_time", late="1 hour")

    Rows without a time are not counted. Windows start at multiples of `slide` since 1970.

    :param frame: The events; may be a stream.
    :param size: The length of a window.
    :param by: The names of the columns to group by.
    :param time: The name of the column with event times.
    :param slide: The time between the starts of two windows. None means `size`: each event is in one window (tumbling).
        With a shorter slide the windows overlap (sliding), and each event is in several.
    :param late: The largest delay of events; only for streams.
    :return: The columns `window`, those of `by`, and `count`. A window without events has no row.
    :raises ConfigurationError: A column does not exist, or a duration is invalid.
    """
    size_ms, slide_ms = _lengths(size, slide)
    keys = _keys(frame, by, (WINDOW, COUNT))
    window = F.window(column(time), spark_interval(size_ms), spark_interval(slide_ms))
    return _counted(timed(frame, time, late), window.alias(WINDOW), keys)


def top_k(
    frame: DataFrame,
    k: int,
    of: Columns,
    size: Duration,
    *,
    by: Columns = (),
    time: str = "timestamp",
    slide: Duration | None = None,
    late: Duration | None = None,
) -> DataFrame:
    """Return the most frequent values in each window.

        top_k(clicks, 10, "page", "1 hour", time="event_time", late="10 minutes")

    The parameters `frame`, `size`, `time`, `slide` and `late` are those of `count_windows`.

    :param k: The maximum number of values per window, from 1 to 1,000.
    :param of: The names of the columns whose combined values are counted. With equal counts, smaller values come first.
    :param by: The names of the columns to group by. Each group has its own most frequent values.
    :return: The columns `window`, those of `by`, `rank` from 1, those of `of`, and `count`.
    :raises ConfigurationError: A column does not exist, a duration is invalid, or `k` is out of range.
    """
    if not 1 <= k <= K_MAX:
        raise ConfigurationError(f"k: {k} is not from 1 to {K_MAX:,}")
    items, keys = names_of(frame, of, "of"), _keys(frame, by, (WINDOW, RANK, COUNT))
    counts = count_windows(frame, size, by=[*keys, *items], time=time, slide=slide, late=late)
    chosen = F.struct(*(column(name) for name in (*items, COUNT)))
    order = F.struct((-column(COUNT)).alias("order"), *(column(name) for name in items))
    # Streams do not support rank functions, so this aggregates a second time. Both aggregations have the same
    # watermark.
    tops = counts.groupBy(WINDOW, *map(column, keys)).agg(F.min_by(chosen, order, k).alias("tops"))
    ranked = tops.select(WINDOW, *map(column, keys), F.posexplode("tops").alias("at", "top"))
    found = (F.col("top")[name].alias(name) for name in (*items, COUNT))
    return ranked.select(WINDOW, *map(column, keys), (F.col("at") + 1).alias(RANK), *found)


def count_sessions(
    frame: DataFrame,
    gap: Duration,
    *,
    by: Columns,
    time: str = "timestamp",
    collect: str | None = None,
    late: Duration | None = None,
) -> DataFrame:
    """Count events by sessions: events of the same key with pauses of at most `gap`.

        count_sessions(clicks, "30 minutes", by="member", time="event_time", late="1 hour")

    The parameters `frame`, `time` and `late` are those of `count_windows`.

    :param gap: The longest pause within a session.
    :param by: The names of the columns that identify the owner of a session; at least one.
    :param collect: The name of a column whose distinct values are collected, in no order; None collects none.
    :return: The columns `session` (from the first event to `gap` after the last), those of `by`, `count`, and with
        `collect` also `items`.
    :raises ConfigurationError: A column does not exist, or a duration is invalid.
    """
    keys = _keys(frame, by, (SESSION, COUNT, ITEMS))
    if not keys:
        raise ConfigurationError("by: set the columns that identify a session's owner, as in by='member'")
    window = F.session_window(column(time), spark_interval(duration_ms(gap, "gap"))).alias(SESSION)
    return _counted(timed(frame, time, late), window, keys, collect)


def _counted(frame: DataFrame, window: Column, keys: list[str], collect: str | None = None) -> DataFrame:
    figures = [F.count(F.lit(1)).alias(COUNT)]
    if collect is not None:
        names_of(frame, collect, "collect")
        figures.append(F.collect_set(column(collect)).alias(ITEMS))
    return frame.groupBy(window, *map(column, keys)).agg(*figures)


def _keys(frame: DataFrame, by: Columns, taken: tuple[str, ...]) -> list[str]:
    keys = names_of(frame, by, "by")
    for name in keys:
        if name in taken:
            raise ConfigurationError(f"by: the result has its own column {name!r}; rename that of the frame")
    return keys


def _lengths(size: Duration, slide: Duration | None) -> tuple[int, int]:
    size_ms = duration_ms(size, "size")
    slide_ms = size_ms if slide is None else duration_ms(slide, "slide")
    if slide_ms > size_ms:
        raise ConfigurationError(f"slide: {slide!r} is longer than the window's {size!r}; events between would be lost")
    if size_ms > slide_ms * SLIDES_MAX:
        raise ConfigurationError(f"slide: each event would be in more than {SLIDES_MAX:,} windows; take a longer slide")
    return size_ms, slide_ms

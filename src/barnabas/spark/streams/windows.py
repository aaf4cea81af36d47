"""Counts by windows of event time: tumbling, sliding and session windows; and the most frequent in each window."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from barnabas.errors import ConfigurationError
from barnabas.spark.streams.durations import Duration, duration_ms, spark_interval
from barnabas.spark.streams.event_time import Columns, column, names_of, timed

WINDOW, SESSION, COUNT, RANK, ITEMS = "window", "session", "count", "rank", "items"
"""Columns of the results. WINDOW and SESSION are structs of `start` and `end`, the end not included."""
K_MAX = 1_000
SLIDES_MAX = 1_000
"""In so many windows may one event be."""


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

    Rows without a time do not count. Windows begin at multiples of `slide` since 1970.

    :param size: how long a window is.
    :param by: count for each value of these columns apart.
    :param time: the column of event times.
    :param slide: how far it is from the start of one window to that of the next; None is `size`, so that each event is
        in one window (tumbling). If it is less, they overlap (sliding), and each event is in several.
    :param late: for streams, how late events may come.
    :returns: `window`, the columns of `by`, `count`. A window without events has no row.
    :raises ConfigurationError: a column is not there, or a length does not fit.
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

    :param k: how many of them; fewer where a window has fewer.
    :param of: the columns whose values are counted together. Of those with the same count the smaller ones come first.
    :param by: the k most frequent for each value of these columns.
    :returns: `window`, the columns of `by`, `rank` from 1, the columns of `of`, `count`.
    :raises ConfigurationError: as `count_windows` does, or `k` is not from 1 to 1,000.

    The other parameters are those of `count_windows`.
    """
    if not 1 <= k <= K_MAX:
        raise ConfigurationError(f"k: {k} is not from 1 to {K_MAX:,}")
    items, keys = names_of(frame, of, "of"), _keys(frame, by, (WINDOW, RANK, COUNT))
    counts = count_windows(frame, size, by=[*keys, *items], time=time, slide=slide, late=late)
    chosen = F.struct(*(column(name) for name in (*items, COUNT)))
    order = F.struct((-column(COUNT)).alias("order"), *(column(name) for name in items))
    # A second aggregation and not a rank, which a stream does not have. Both end with the same watermark.
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
    """Count events by sessions: events of the same key that are no more than `gap` apart.

    :param by: the columns that say whose session it is; at least one.
    :param collect: a column whose distinct values are gathered, without an order.
    :returns: `session` (from the first event to `gap` behind the last), the columns of `by`, `count`, and with
        `collect` also `items`.
    :raises ConfigurationError: a column is not there, or a length does not fit.

    The other parameters are those of `count_windows`.
    """
    keys = _keys(frame, by, (SESSION, COUNT, ITEMS))
    if not keys:
        raise ConfigurationError("by: say whose sessions they are, as in by='member'")
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
            raise ConfigurationError(f"by: the result has a column {name!r} of its own; rename that of the frame")
    return keys


def _lengths(size: Duration, slide: Duration | None) -> tuple[int, int]:
    size_ms = duration_ms(size, "size")
    slide_ms = size_ms if slide is None else duration_ms(slide, "slide")
    if slide_ms > size_ms:
        raise ConfigurationError(f"slide: {slide!r} is longer than the window's {size!r}; events between would be lost")
    if size_ms > slide_ms * SLIDES_MAX:
        raise ConfigurationError(f"slide: each event would be in more than {SLIDES_MAX:,} windows; take a longer slide")
    return size_ms, slide_ms

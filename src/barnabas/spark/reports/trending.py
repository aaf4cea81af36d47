"""The report of trending items: the best window of each item, compared with the item's other windows."""

from __future__ import annotations

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from barnabas.reports.report import Column, Kind, Lines, Report
from barnabas.reports.roles import Role
from barnabas.spark.reports.report_options import ReportOptions
from barnabas.spark.streams.durations import duration_ms
from barnabas.spark.streams.event_time import column
from barnabas.spark.streams.windows import COUNT, WINDOW, count_windows

LEAST_EVENTS = 5
LINES = 5


def trending(frame: DataFrame, options: ReportOptions) -> Report:
    """Find the items whose best window exceeds the mean of their other windows the most.

    The score is (events - usual) / sqrt(usual + 1): the approximate number of standard deviations above the mean, if
    events are independent of each other.
    """
    item, time = options.roles.need(Role.ITEM), options.roles.need(Role.TIME)
    events = frame.where(column(item).isNotNull()).withColumn("__item", column(item).cast("string"))
    counted = count_windows(events, options.window, by="__item", time=time)
    counts = counted.select(
        F.col("__item").alias("item"), F.unix_millis(F.col(WINDOW)["start"]).alias("start_ms"), COUNT
    )
    counts = counts.cache()
    try:
        windows = _windows(counts, options)
        best = _best(counts, windows, options.top).collect()
        names = [row.item for row in best[:LINES]]
        lines = counts.where(F.col("item").isin(names)).orderBy("start_ms").collect()
    finally:
        counts.unpersist()
    return Report(
        "trending",
        f"What was wanted more than usual, in {windows:,} windows of {options.window}",
        (
            Column("item"),
            Column("from", Kind.TIME),
            Column("events", Kind.COUNT),
            Column("usual", Kind.NUMBER),
            Column("score", Kind.NUMBER),
        ),
        [(row.item, row.start_ms, row[COUNT], row.usual, row.score) for row in best],
        panels=(Lines(f"Events {options.per_window}", {name: _line(lines, name, options) for name in names}),),
        figures={"windows": windows},
    )


def _windows(counts: DataFrame, options: ReportOptions) -> int:
    """Return the number of windows from the first to the last, including windows without events."""
    first, last = counts.select(F.min("start_ms"), F.max("start_ms")).first() or (None, None)
    return 0 if first is None else 1 + (last - first) // duration_ms(options.window, "window")


def _best(counts: DataFrame, windows: int, top: int) -> DataFrame:
    of_items = counts.groupBy("item").agg(
        F.sum(COUNT).alias("total"),
        F.max_by(F.struct("start_ms", COUNT), F.struct(COUNT, -F.col("start_ms"))).alias("best"),
    )
    flat = of_items.select("item", "best.*", "total").where(F.col(COUNT) >= LEAST_EVENTS)
    usual = (F.col("total") - F.col(COUNT)) / F.lit(max(windows - 1, 1))
    scored = flat.withColumn("usual", usual).withColumn("score", (F.col(COUNT) - usual) / F.sqrt(usual + 1))
    return scored.where("score > 0").orderBy(F.desc("score"), "item").limit(top)


def _line(counts: list[Row], item: str, options: ReportOptions) -> list[tuple[int, float]]:
    """Return the points of an item, with 0 for windows without events."""
    size_ms = duration_ms(options.window, "window")
    found = {row.start_ms: row[COUNT] for row in counts if row.item == item}
    starts = [row.start_ms for row in counts]
    return [(at, found.get(at, 0)) for at in range(min(starts), max(starts) + 1, size_ms)]

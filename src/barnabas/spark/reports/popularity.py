"""The report of the most popular items: events and visitors of each item, and events over time."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from barnabas.reports.report import Bars, Column, Kind, Lines, Report
from barnabas.reports.roles import Role
from barnabas.spark.reports.report_options import ReportOptions
from barnabas.spark.streams.event_time import column
from barnabas.spark.streams.windows import COUNT, WINDOW, count_windows

POINTS_MAX = 10_000


def popularity(frame: DataFrame, options: ReportOptions) -> Report:
    """Count events by item. Rows without an item are not counted."""
    item, visitor = options.roles.need(Role.ITEM), options.roles.find(Role.VISITOR)
    events = frame.where(column(item).isNotNull())
    visitors = F.lit(None) if visitor is None else F.count_distinct(column(visitor))
    by_item = events.groupBy(column(item).cast("string").alias("item"))
    counts = by_item.agg(F.count(F.lit(1)).alias("events"), visitors.alias("visitors"))
    first = counts.orderBy(F.desc("events"), "item").limit(options.top).collect()
    total, different = events.select(F.count(F.lit(1)), F.count_distinct(column(item))).first() or (0, 0)
    rows = [(at, row.item, row.events, row.visitors, row.events / total) for at, row in enumerate(first, 1)]
    return Report(
        "popularity",
        f"{total:,} events of {different:,} items",
        (
            Column("rank", Kind.COUNT),
            Column("item"),
            Column("events", Kind.COUNT),
            Column("visitors", Kind.COUNT),
            Column("share", Kind.SHARE),
        ),
        rows,
        panels=(
            Lines(f"Events {options.per_window}", {"events": events_over_time(events, options)}),
            Bars("Most popular", [(row.item, row.events) for row in first]),
        ),
        figures={"events": total, "items": different},
    )


def events_over_time(events: DataFrame, options: ReportOptions) -> list[tuple[int, float]]:
    """Return the start, in ms since 1970, and the number of events of each window."""
    windows = count_windows(events, options.window, time=options.roles.need(Role.TIME))
    start = F.unix_millis(F.col(WINDOW)["start"]).alias("start_ms")
    found = windows.select(start, COUNT).orderBy("start_ms").limit(POINTS_MAX).collect()
    return [(row.start_ms, row[COUNT]) for row in found]

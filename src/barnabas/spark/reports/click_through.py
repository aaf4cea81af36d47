"""The report of the share of clicked impressions per hour."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from barnabas.reports.report import Column, Kind, Lines, Report
from barnabas.reports.roles import Role
from barnabas.spark.reports.report_options import ReportOptions
from barnabas.spark.streams.deduplication import drop_repeats
from barnabas.spark.streams.event_time import column
from barnabas.spark.streams.joins import join_within
from barnabas.spark.streams.windows import WINDOW, count_windows

WINDOWS_MAX = 10_000


def click_through(frame: DataFrame, options: ReportOptions) -> Report:
    """Count impressions and clicked impressions, by windows of the impression's time.

    If clicks have the id of their impression, each impression counts once and is clicked or not. Otherwise the report
    compares the number of clicks in a window with the number of impressions.
    """
    roles = options.roles
    of_type, own_id, impression = roles.need(Role.TYPE), roles.find(Role.ID), roles.find(Role.IMPRESSION)
    time = roles.need(Role.TIME)
    names_impression = own_id is not None and impression is not None
    events = frame.select(
        column(time).alias("time"),
        column(of_type).alias("type"),
        column(own_id).alias("id") if own_id is not None else F.lit(None).alias("id"),
        column(impression).alias("impression") if impression is not None else F.lit(None).alias("impression"),
    ).where(F.col("type").isin(options.impression, options.click))
    counts = _joined(events, options) if names_impression else _side_by_side(events, options)
    start = F.unix_millis(F.col(WINDOW)["start"]).alias("start_ms")
    found = counts.select(start, "impressions", "clicked").orderBy("start_ms").limit(WINDOWS_MAX).collect()
    rows = [
        (row.start_ms, row.impressions, row.clicked, row.clicked / row.impressions if row.impressions else None)
        for row in found
    ]
    impressions, clicked = sum(row.impressions for row in found), sum(row.clicked for row in found)
    rate = clicked / impressions if impressions else None
    return Report(
        "ctr",
        f"{impressions:,} impressions" + ("" if rate is None else f", of which {100 * rate:.2f} % were clicked"),
        (
            Column("from", Kind.TIME),
            Column("impressions", Kind.COUNT),
            Column("clicked", Kind.COUNT),
            Column("ctr", Kind.SHARE),
        ),
        rows,
        remarks=() if names_impression else ("clicks do not say of what: they are counted beside the impressions",),
        panels=(
            Lines(
                "Click-through rate", {"ctr": [(row[0], row[3]) for row in rows if row[3] is not None]}, percent=True
            ),
            Lines(f"Impressions {options.per_window}", {"impressions": [(row[0], row[1]) for row in rows]}),
        ),
        figures={"impressions": impressions, "clicked": clicked, "ctr": rate},
    )


def _joined(events: DataFrame, options: ReportOptions) -> DataFrame:
    shown = drop_repeats(events.where(F.col("type") == options.impression).select("time", "id"), "id", time="time")
    clicks = events.where(F.col("type") == options.click)
    clicks = clicks.select(F.col("time").alias("click_time"), F.col("impression").alias("id"))
    once = drop_repeats(clicks, "id", time="click_time")
    pairs = join_within(shown, once, "id", options.within, left_time="time", right_time="click_time", how="left")
    flagged = pairs.withColumn("was_clicked", F.col("click_time").isNotNull())
    counts = count_windows(flagged, options.window, by="was_clicked", time="time")
    return counts.groupBy(WINDOW).agg(
        F.sum("count").alias("impressions"),
        F.sum(F.when(F.col("was_clicked"), F.col("count")).otherwise(0)).alias("clicked"),
    )


def _side_by_side(events: DataFrame, options: ReportOptions) -> DataFrame:
    counts = count_windows(events, options.window, by="type", time="time")
    return counts.groupBy(WINDOW).agg(
        *(
            F.sum(F.when(F.col("type") == kind, F.col("count")).otherwise(0)).alias(name)
            for kind, name in ((options.impression, "impressions"), (options.click, "clicked"))
        )
    )

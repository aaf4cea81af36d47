"""The report of addresses with more events per minute than a person can cause."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from barnabas.reports.report import Bars, Column, Kind, Report
from barnabas.reports.roles import Role
from barnabas.spark.reports.report_options import ReportOptions
from barnabas.spark.streams.event_time import column
from barnabas.spark.streams.windows import COUNT, WINDOW, count_windows

MINUTE, SLIDE = "1 minute", "20 seconds"
"""The length and the slide of the windows. Windows overlap, so that each burst is completely inside one window."""
ABOVE_MAX = 10_000


def abuse(frame: DataFrame, options: ReportOptions) -> Report:
    """Compare the highest rate of each address with the threshold.

    The rows are all addresses above the threshold. If there are fewer than `top`, the addresses with the next highest
    rates follow.
    """
    address, time = options.roles.need(Role.ADDRESS), options.roles.need(Role.TIME)
    events = frame.where(column(address).isNotNull()).withColumn("__address", column(address).cast("string"))
    windows = count_windows(events, MINUTE, by="__address", time=time, slide=SLIDE)
    highest = windows.groupBy(F.col("__address").alias("address")).agg(
        F.max(COUNT).alias("peak"),
        F.min_by(F.col(WINDOW)["start"], F.struct(-F.col(COUNT), F.col(WINDOW)["start"])).alias("at"),
    )
    totals = events.groupBy(F.col("__address").alias("address")).agg(F.count(F.lit(1)).alias("events"))
    rates = highest.join(totals, "address").withColumn("above", F.col("peak") > options.threshold).cache()
    try:
        sums = rates.agg(
            F.count(F.lit(1)), F.count_if("above"), F.sum("events"), F.sum(F.when(F.col("above"), F.col("events")))
        ).first()
        shown = F.unix_millis("at").alias("at_ms")
        ordered = rates.select("address", "peak", shown, "events", "above").orderBy(F.desc("peak"), "address")
        addresses, above, total, total_above = sums or (0, 0, 0, 0)
        found = ordered.limit(max(options.top, min(above, ABOVE_MAX))).collect()
    finally:
        rates.unpersist()
    share = (total_above or 0) / total if total else 0.0
    return Report(
        "abuse",
        f"{above:,} of {addresses:,} addresses are above {options.threshold:,} events a minute",
        (
            Column("address"),
            Column("most a minute", Kind.COUNT),
            Column("from", Kind.TIME),
            Column("events", Kind.COUNT),
            Column("verdict"),
        ),
        [(row.address, row.peak, row.at_ms, row.events, "abuse" if row.above else "usual") for row in found],
        remarks=(f"{100 * share:.1f} % of all events come from addresses above the threshold",),
        panels=(
            Bars(
                "Most events in a minute",
                [(row.address, row.peak) for row in found[:20]],
                options.threshold,
                f"threshold {options.threshold:,}",
            ),
        ),
        figures={"addresses": addresses, "above": above, "events": total or 0, "events_above": total_above or 0},
    )

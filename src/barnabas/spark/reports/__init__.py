"""Reports on loaded tables, or on any DataFrame of events: popularity, trends, item pairs, click-through, abuse.

    from barnabas.spark.reports import REPORTS, ReportOptions

    find_popular = REPORTS["popularity"]
    report = find_popular(frame, ReportOptions(Roles(frame.columns)))

Each report is a function from a DataFrame to a `Report`, in its own module. `barnabas.spark.streams` has the windows.
Only the rows that a report shows are collected on the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.extras import naming_extra

with naming_extra("spark"):
    from pyspark.sql import DataFrame

    from barnabas.reports.report import Report
    from barnabas.spark.reports.abuse import abuse
    from barnabas.spark.reports.click_through import click_through
    from barnabas.spark.reports.item_pairs import co_occurrence, recommendations
    from barnabas.spark.reports.newsfeed import newsfeed
    from barnabas.spark.reports.popularity import popularity
    from barnabas.spark.reports.report_options import ReportOptions
    from barnabas.spark.reports.trending import trending

__all__ = ["REPORTS", "ReportOptions"]

REPORTS: Mapping[str, Callable[[DataFrame, ReportOptions], Report]] = {
    "popularity": popularity,
    "trending": trending,
    "co-occurrence": co_occurrence,
    "recommendations": recommendations,
    "ctr": click_through,
    "abuse": abuse,
    "newsfeed": newsfeed,
}

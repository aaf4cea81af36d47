"""The report of newsfeeds: the shares of the people that a member follows, combined into entries."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from barnabas.reports.report import Bars, Column, Kind, Lines, Report
from barnabas.reports.roles import Role
from barnabas.spark.reports.popularity import events_over_time
from barnabas.spark.reports.report_options import ReportOptions
from barnabas.spark.streams.deduplication import drop_repeats
from barnabas.spark.streams.event_time import column
from barnabas.spark.streams.joins import join_within

FOREVER = "36500 days"
NAMES_SHOWN = 3


def newsfeed(frame: DataFrame, options: ReportOptions) -> Report:
    """Find the items with the most shares among the people that a member follows.

    Shares before the start of following are not in the feed.
    """
    roles = options.roles
    shares, feeds = _shares(frame, options), _feeds(frame, options).cache()
    try:
        sums = feeds.agg(F.sum("sharers"), F.count(F.lit(1)), F.count_distinct("member")).first()
        updates, entries, members = (value or 0 for value in sums or (0, 0, 0))
        first = feeds.orderBy(F.desc("sharers"), F.desc("latest_ms"), "member", "item").limit(options.top).collect()
    finally:
        feeds.unpersist()
    most = shares.groupBy("item").agg(F.count_distinct("actor").alias("actors"))
    items = most.orderBy(F.desc("actors"), "item").limit(options.top).collect()
    over_time = events_over_time(frame.where(column(roles.need(Role.TYPE)) == options.share), options)
    return Report(
        "newsfeed",
        f"{updates:,} updates become {entries:,} entries in the feeds of {members:,} members",
        (Column("member"), Column("item"), Column("shared by", Kind.COUNT), Column("who"), Column("last", Kind.TIME)),
        [(row.member, row.item, row.sharers, _who(row.who, row.sharers), row.latest_ms) for row in first],
        panels=(
            Lines(f"Shares {options.per_window}", {"shares": over_time}),
            Bars("Shared by most", [(row.item, row.actors) for row in items]),
        ),
        figures={"updates": updates, "entries": entries, "members": members},
    )


def _shares(frame: DataFrame, options: ReportOptions) -> DataFrame:
    roles = options.roles
    is_share = column(roles.need(Role.TYPE)) == options.share
    return frame.where(is_share).select(
        column(roles.need(Role.VISITOR)).cast("string").alias("actor"),
        column(roles.need(Role.ITEM)).cast("string").alias("item"),
        column(roles.need(Role.TIME)).alias("shared"),
    )


def _feeds(frame: DataFrame, options: ReportOptions) -> DataFrame:
    """Return the columns member, item, number of sharers, some sharers, and the time of the last share."""
    roles = options.roles
    follows = frame.where(column(roles.need(Role.TYPE)) == options.follow).select(
        column(roles.need(Role.VISITOR)).cast("string").alias("member"),
        column(roles.need(Role.FOLLOWS)).cast("string").alias("actor"),
        column(roles.need(Role.TIME)).alias("since"),
    )
    first = drop_repeats(follows, ["member", "actor"], time="since")
    updates = join_within(first, _shares(frame, options), "actor", FOREVER, left_time="since", right_time="shared")
    return updates.groupBy("member", "item").agg(
        F.count_distinct("actor").alias("sharers"),
        F.slice(F.array_sort(F.collect_set("actor")), 1, NAMES_SHOWN).alias("who"),
        F.unix_millis(F.max("shared")).alias("latest_ms"),
    )


def _who(names: list[str], count: int) -> str:
    """Return a short list of sharers.

    >>> _who(["m2"], 1), _who(["m2", "m7"], 5)
    ('m2', 'm2, m7 and 3 more')
    """
    shown = ", ".join(names)
    return shown if count == len(names) else f"{shown} and {count - len(names)} more"

"""Items that appear together in sessions: the most frequent pairs, and recommendations for an item."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from barnabas.reports.report import Bars, Column, Kind, Report, pair_label
from barnabas.reports.roles import Role
from barnabas.spark.reports.report_options import ReportOptions
from barnabas.spark.streams.event_time import column
from barnabas.spark.streams.windows import ITEMS, count_sessions

ITEMS_MAX = 100
"""The maximum number of different items in a session. Larger sessions are probably caused by programs, and have too
many pairs.
"""
LEAST_SESSIONS = 3
RECOMMENDED = 3


def co_occurrence(frame: DataFrame, options: ReportOptions) -> Report:
    """Count the sessions that contain both items of a pair."""
    sessions = _sessions(frame, options).cache()
    try:
        counted, left_out = _sizes(sessions)
        pairs = _pairs(sessions).orderBy(F.desc("together"), "a", "b").limit(options.top).collect()
    finally:
        sessions.unpersist()
    rows = [(row.a, row.b, row.together, row.together * counted / (row.sessions_a * row.sessions_b)) for row in pairs]
    return Report(
        "co-occurrence",
        f"Seen together, in {counted:,} sessions",
        (Column("item"), Column("with"), Column("sessions", Kind.COUNT), Column("lift", Kind.NUMBER)),
        rows,
        remarks=_remarks(left_out),
        panels=(Bars("Sessions with both", [(pair_label(row.a, "+", row.b), row.together) for row in pairs]),),
        figures={"sessions": counted, "sessions_left_out": left_out},
    )


def recommendations(frame: DataFrame, options: ReportOptions) -> Report:
    """Find the most similar items for the most frequent ones. The measure is the cosine of their sets of sessions."""
    sessions = _sessions(frame, options).cache()
    try:
        counted, left_out = _sizes(sessions)
        pairs = _pairs(sessions).where(F.col("together") >= LEAST_SESSIONS)
        found = _nearest(pairs).orderBy(F.desc("sessions"), "item").limit(options.top).collect()
    finally:
        sessions.unpersist()
    rows = []
    for row in found:
        others = [*((near.item, near.score) for near in row.nearest), *((None, None),) * RECOMMENDED][:RECOMMENDED]
        rows.append((row.item, row.sessions, *(cell for other in others for cell in other)))
    numbered = [(Column(f"{at}"), Column(f"score {at}", Kind.NUMBER)) for at in range(1, RECOMMENDED + 1)]
    best = sorted(((row.nearest[0].score, row.item, row.nearest[0].item) for row in found), reverse=True)
    return Report(
        "recommendations",
        f"Who has seen this has also seen, in {counted:,} sessions",
        (Column("item"), Column("sessions", Kind.COUNT), *(part for each in numbered for part in each)),
        rows,
        remarks=_remarks(left_out),
        panels=(
            Bars(
                "The nearest of each (cosine)", [(pair_label(item, "→", other), score) for score, item, other in best]
            ),
        ),
        figures={"sessions": counted, "sessions_left_out": left_out},
    )


def _sessions(frame: DataFrame, options: ReportOptions) -> DataFrame:
    """Return the distinct items of each session, as the column `items`."""
    roles = options.roles
    item, session = roles.need(Role.ITEM), roles.find(Role.SESSION)
    events = frame.where(column(item).isNotNull()).withColumn("__item", column(item).cast("string"))
    if session is not None:
        known = events.where(column(session).isNotNull()).groupBy(column(session))
        return known.agg(F.collect_set("__item").alias(ITEMS)).select(ITEMS)
    visitor, time = roles.need(Role.VISITOR), roles.need(Role.TIME)
    return count_sessions(events, options.gap, by=visitor, time=time, collect="__item").select(ITEMS)


def _sizes(sessions: DataFrame) -> tuple[int, int]:
    """Return the number of counted sessions, and the number of sessions that are too large."""
    large = F.count_if(F.size(ITEMS) > ITEMS_MAX)
    counted, left_out = sessions.select(F.count(F.lit(1)) - large, large).first() or (0, 0)
    return counted, left_out


def _pairs(sessions: DataFrame) -> DataFrame:
    """Return each pair of items `a` < `b`, with the number of sessions that contain both, and that contain each of
    them.
    """
    usual = sessions.where(F.size(ITEMS) <= ITEMS_MAX).select(F.array_sort(ITEMS).alias(ITEMS))
    singles = usual.select(F.explode(ITEMS).alias("item")).groupBy("item").agg(F.count(F.lit(1)).alias("sessions"))
    first = usual.select(ITEMS, F.posexplode(ITEMS).alias("at", "a"))
    both = first.select("a", F.explode(F.slice(ITEMS, F.col("at") + 2, F.lit(ITEMS_MAX))).alias("b"))
    together = both.groupBy("a", "b").agg(F.count(F.lit(1)).alias("together"))
    of_a = singles.withColumnsRenamed({"item": "a", "sessions": "sessions_a"})
    of_b = singles.withColumnsRenamed({"item": "b", "sessions": "sessions_b"})
    return together.join(of_a, "a").join(of_b, "b")


def _nearest(pairs: DataFrame) -> DataFrame:
    """Return each item with its number of sessions and its most similar items, in descending order of similarity."""
    score = F.col("together") / F.sqrt(F.col("sessions_a") * F.col("sessions_b"))
    one = pairs.select(
        F.col("a").alias("item"), F.col("sessions_a").alias("sessions"), F.col("b").alias("other"), score.alias("score")
    )
    other = pairs.select(
        F.col("b").alias("item"), F.col("sessions_b").alias("sessions"), F.col("a").alias("other"), score.alias("score")
    )
    near = F.struct(F.col("other").alias("item"), "score")
    order = F.struct((-F.col("score")).alias("order"), "other")
    return one.unionByName(other).groupBy("item", "sessions").agg(F.min_by(near, order, RECOMMENDED).alias("nearest"))


def _remarks(left_out: int) -> tuple[str, ...]:
    if not left_out:
        return ()
    return (f"{left_out:,} sessions with more than {ITEMS_MAX} different items are left out",)

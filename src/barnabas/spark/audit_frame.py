"""The audit over months, as a DataFrame: what was told in `_audit`, and the rows of a table, counted by Spark.

It looks at no log: what producers say was acknowledged is compared with what loads have told of themselves, producer by
producer, and that with the rows, partition by partition. So it also speaks of times that retention has taken from the
log. What is in doubt is left to `barnabas audit`, which reads the log.

What is compared was read one after the other, while all of it goes on. So a frame is of the moment when it was made
(`audit_cutoff.py`), and what may still be on its way then is open.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users call it

from barnabas.audit.account import offsets_of
from barnabas.audit.events import COMMITTED, CONSUMED, LOADED, MIRRORED, PRODUCED
from barnabas.audit.identities import FIELD, coefficients
from barnabas.audit.loaded_table import instance_of_load
from barnabas.audit.windows import DAY_MS, NO_WINDOW_MS, WINDOW_MS
from barnabas.client.audit.event_sender import AUDIT_TOPIC
from barnabas.errors import ConfigurationError
from barnabas.model import NO_TIMESTAMP
from barnabas.spark.audit_cutoff import find_cutoff, find_source_cutoff
from barnabas.spark.source import register
from barnabas.spark.table_audit import TableAudit
from barnabas.spark.table_names import table_name_of_topic
from barnabas.spark.table_place import TablePlace

TABLE = "table"
"""Tier: rows of the table."""

_EVENT = (
    "topic string, topic_id string, tier string, window bigint, instance string, number bigint, host string, "
    "application string, counted array<array<bigint>>, offsets array<array<bigint>>, reached array<array<bigint>>, "
    "upstream struct<topic string, counted array<array<bigint>>, reached array<array<bigint>>>"
)
_WIDE = "decimal(38,0)"
_PLACE = ["window_ms", "producer_id", "producer_epoch", "partition"]
_OFFSETS = ["window_ms", "partition"]


def audit(
    spark: SparkSession,
    topic: str,
    *,
    bootstrap: str,
    warehouse: str | Path | None = None,
    catalog: str | None = None,
    table: str | None = None,
    group: str | None = None,
    source: str | None = None,
    from_: datetime | None = None,
    to: datetime | None = None,
    window_ms: int = WINDOW_MS,
) -> DataFrame:
    """Return what was produced, mirrored, loaded and consumed of a topic, and is in the table, window by window.

    Columns: `window` (when it begins; null for records without a timestamp), `tier` (produced, mirrored,
    loaded, consumed, table), `host` and `application` of who sent it to this cluster (null where it tells nothing, and
    for the table; for consumed the group, which has many hosts), `count`, `bytes` (null where a
    tier does not know), `fingerprint`, and `status` against the tier before: complete; lost n; doubled n; exchanged n;
    open n: there, and not told of by its producer, or not there yet; expired; not audited. What a group was handed is
    compared with what loads have told: again n; open n: not handed to it, for whatever reason, or not loaded yet.

    The frame is of the moment when it was made. For later, make another one.

    :param warehouse: the folder of the embedded warehouse; or `catalog`: a catalog of pyiceberg's configuration.
    :param table: None for the table that is named after the topic.
    :param group: whose members have told what they were handed; None: no tier consumed.
    :param source: brokers of the cluster that the topic is mirrored from. What was produced there is among the rows of
        the tier produced, and rows of the tier mirrored are by who sent it there, with a status against that.
    :param from_: leave out windows that begin before; `to`: or then and later. Without a time zone they are UTC.
    :param window_ms: how wide windows are: a multiple of those of producers and loads, and a whole part of a day.
    :raises WarehouseError: there is no such table, or rows of it were deleted in Iceberg's way.
    :raises NotAuditableError: the table has nothing of this topic.
    :raises ConfigurationError: a width that cannot be.
    """
    if window_ms <= 0 or DAY_MS % window_ms:
        raise ConfigurationError(f"window_ms={window_ms} must be a whole part of a day, as 60000 or 3600000 is")
    name = table or table_name_of_topic(topic)
    place = TablePlace.of(warehouse, catalog=catalog)
    moment = find_cutoff(bootstrap, topic, lambda: TableAudit(place, name, topic, ""))
    side, span = moment.side, _Span(_utc(from_), _utc(to))
    # Where a mirror began to tell is to be known, whatever is left out.
    from_ms = span.from_ms if source is None else None
    events = _events(spark, topic, bootstrap, side.topic_id, moment.told_to, from_ms, window_ms)
    told = _Told(events, side, group)
    rows = _rows(spark, side.frame(spark, span.where), topic, side.next_offsets, window_ms)
    judged_from_ms = None if side.state is None or side.state.is_whole else side.state.judged_from_ms
    behind = _behind(spark, {**dict.fromkeys(side.next_offsets, 0), **moment.behind}, judged_from_ms)
    whole = _brought(told.sent, told.loaded, behind, LOADED, "not audited")
    if source is None:
        whole = whole.unionByName(_sent(told.sent))
    else:
        there = _source(spark, topic, source, events, window_ms)
        produced = there.sent.unionByName(told.sent.filter(F.col("tier") == PRODUCED))
        whole = whole.unionByName(_sent(produced.withColumn("tier", F.lit(PRODUCED))))
        whole = whole.unionByName(_brought(there.sent, there.mirrored, there.behind, MIRRORED, "expired"))
    whole = whole.unionByName(_table(told.offsets, rows))
    if group is not None:
        whole = whole.unionByName(_consumed(told.offsets, told.handed, side.next_offsets, group))
    window = F.when(F.col("window_ms") >= 0, F.timestamp_millis("window_ms")).alias("window")
    columns = ("tier", "host", "application", "count", "bytes", "fingerprint", "status")
    return whole.filter(span.has("window_ms")).select(window, *columns).orderBy("window", "tier", "application", "host")


@dataclass(frozen=True, slots=True)
class _Span:
    """From when to when; None for no limit."""

    begin: datetime | None
    end: datetime | None

    @property
    def from_ms(self) -> int | None:
        return None if self.begin is None else _milliseconds(self.begin)

    @property
    def where(self) -> str | None:
        """A filter of the table that leaves out files."""
        limits = [f"timestamp >= '{self.begin.isoformat()}'"] if self.begin else []
        # A window that begins before the end may last longer; a day at most.
        limits += [f"timestamp < '{(self.end + timedelta(days=1)).isoformat()}'"] if self.end else []
        return " and ".join(limits) or None

    def has(self, column: str) -> Column:
        found = F.lit(True)
        if self.begin is not None:
            found &= F.col(column) >= _milliseconds(self.begin)
        if self.end is not None:
            found &= F.col(column) < _milliseconds(self.end)
        return found


def _utc(time: datetime | None) -> datetime | None:
    if time is None:
        return None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1_000)


def _events(
    spark: SparkSession,
    topic: str,
    bootstrap: str,
    topic_id: str,
    told_to: Mapping[int, int],
    from_ms: int | None,
    width_ms: int,
) -> DataFrame:
    """Return the last word of each instance about each window.

    :param told_to: by partition of the topic of events, up to where it is read.
    """
    register(spark)
    ends = json.dumps({AUDIT_TOPIC: {str(partition): end for partition, end in told_to.items()}})
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": AUDIT_TOPIC, "endingOffsets": ends}
    if from_ms is not None:
        # The timestamp of an event's record is its window.
        options |= {"startingTimestamp": str(max(from_ms, 0)), "startingOffsetsByTimestampStrategy": "latest"}
    records = spark.read.format("barnabas").schema("value binary").options(**options).load()
    events = records.select(F.from_json(F.col("value").cast("string"), _EVENT).alias("event")).select("event.*")
    events = events.filter(_is_of(topic, topic_id))
    latest = events.groupBy("topic_id", "tier", "window", "instance").agg(
        F.max_by(F.struct("host", "application", "counted", "offsets", "reached", "upstream"), "number").alias("last")
    )
    begin = F.when(F.col("window") < 0, F.col("window")).otherwise(F.col("window") - F.col("window") % width_ms)
    return latest.select("tier", "instance", begin.alias("window_ms"), "last.*")


def _is_of(topic: str, topic_id: str) -> str:
    """Return the condition that an event is of a topic, and of no other one that had its name.

    :param topic_id: in hex; empty where brokers have none, and only the name tells topics apart.
    """
    names = f"topic = '{topic}'"  # a table has it: it is a topic's name, which has no quotes
    return f"{names} and topic_id in ('', '{topic_id}')" if topic_id else names


class _Told:
    """What producers, mirrors, the loads of a table and the members of a group have told."""

    def __init__(self, events: DataFrame, side: TableAudit, group: str | None) -> None:
        self.sent = _counted(events.filter(F.col("tier").isin(PRODUCED, MIRRORED)), "tier", "host", "application")
        loads = events.filter(F.lit(False))
        if side.state is not None:
            state = side.state
            of_table = events.filter(F.col("instance").startswith(f"{state.audit_id}."))
            done = (
                of_table.filter(F.col("tier") == COMMITTED)
                .select("instance")
                .distinct()
                .withColumn("done", F.lit(True))
            )
            last = F.col("instance") == instance_of_load(state.audit_id, state.load_id)
            told = of_table.filter(F.col("tier") == LOADED).join(done, "instance", "left")
            loads = told.filter(F.coalesce("done", F.lit(False)) | last)
        self.loaded = _counted(loads)
        self.offsets = _by_offsets(loads)
        members = events.filter((F.col("tier") == CONSUMED) & (F.col("application") == F.lit(group)))
        reached = members.select("window_ms", F.explode("reached").alias("of"))
        reached = reached.select("window_ms", _at(0, "partition"), _at(2, "next"))
        self.handed = _by_offsets(members).join(
            reached.groupBy("window_ms", "partition").agg(F.max("next").alias("next")), _OFFSETS, "left"
        )


def _by_offsets(events: DataFrame) -> DataFrame:
    each = events.select("window_ms", F.explode("offsets").alias("of"))
    return _summed(each.select("window_ms", _at(0, "partition"), _at(1, "count"), _at(3, "fingerprint")), *_OFFSETS)


def _at(place: int, name: str) -> Column:
    return F.col("of")[place].alias(name)


def _counted(events: DataFrame, *more: str) -> DataFrame:
    each = events.select("window_ms", *more, F.explode("counted").alias("of"))
    parts = ("producer_id", "producer_epoch", "partition", "count", "bytes", "fingerprint")
    columns = [_at(place, name) for place, name in enumerate(parts)]
    return _summed(each.select("window_ms", *more, *columns), *_PLACE, *more)


def _summed(counted: DataFrame, *by: str) -> DataFrame:
    sums = [F.sum("count").alias("count"), _fingerprint("fingerprint")]
    if "bytes" in counted.columns:
        sums.append(F.sum("bytes").alias("bytes"))
    return counted.groupBy(*by).agg(*sums)


def _fingerprint(column: str) -> Column:
    return (F.sum(F.col(column).cast(_WIDE)) % FIELD).cast("bigint").alias("fingerprint")


def _rows(spark: SparkSession, table: DataFrame, topic: str, partitions: Iterable[int], width_ms: int) -> DataFrame:
    """Return how many rows there are by window and partition, with offsets for numbers.

    A fingerprint is the sum of the powers of all numbers, each times a coefficient of its partition.

    :param partitions: of which the table has rows.
    """
    sent_ms = F.coalesce(F.unix_millis("timestamp"), "raw_timestamp_ms")
    number = F.col("offset").cast(_WIDE) % FIELD
    wanted = table.filter(F.col("topic") == topic).select("partition", sent_ms.alias("ms"), number.alias("x1"))
    begin = F.when(F.col("ms") <= NO_TIMESTAMP, NO_WINDOW_MS).otherwise(F.col("ms") - F.col("ms") % width_ms)
    powers = wanted.select("partition", begin.alias("window_ms"), "x1", _times("x1", "x1").alias("x2"))
    powers = powers.withColumn("x3", _times("x2", "x1"))
    sums = [(F.sum(power) % FIELD).cast(_WIDE).alias(power) for power in ("x1", "x2", "x3")]
    counted = powers.groupBy("window_ms", "partition").agg(F.count("*").alias("count"), *sums)
    factors = [(each, *map(Decimal, coefficients(offsets_of(each)))) for each in sorted(partitions)]
    columns = ", ".join(f"c{power} {_WIDE}" for power in range(4))
    whole = counted.withColumn("x0", F.col("count").cast(_WIDE)).join(
        F.broadcast(spark.createDataFrame(factors, f"partition int, {columns}")), "partition"
    )
    parts = [_times(f"c{power}", f"x{power}") for power in range(4)]
    fingerprint = ((parts[0] + parts[1] + parts[2] + parts[3]) % FIELD).cast("bigint").alias("fingerprint")
    return whole.select("window_ms", F.col("partition").cast("bigint").alias("partition"), "count", fingerprint)


def _times(one: str, other: str) -> Column:
    """Return a product in the field of the fingerprints; both factors are in it."""
    return ((F.col(one).cast(_WIDE) * F.col(other).cast(_WIDE)) % FIELD).cast(_WIDE)


def _sent(sent: DataFrame) -> DataFrame:
    """Return what producers and mirrors were told is stored: nothing is before that in this cluster."""
    return _summed(sent, "window_ms", "tier", "host", "application").withColumn("status", F.lit("complete"))


def _behind(spark: SparkSession, behind: Mapping[int, int], judged_from_ms: int | None = None) -> DataFrame:
    """Return by partition how many records a tier may lack, and from which window on it can be judged; None: all."""
    rows = [(partition, records, judged_from_ms) for partition, records in behind.items()]
    return spark.createDataFrame(rows, "partition bigint, behind bigint, judged_from_ms bigint")


def _brought(sent: DataFrame, found: DataFrame, behind: DataFrame, tier: str, unjudged: str) -> DataFrame:
    """Return what loads, or mirrors, have told, against what those have from whom they have it.

    :param behind: by partition, how many records they may not have reached yet, and from which window on they told.
    :param unjudged: the status of earlier windows that lack something.
    """
    senders = sent.groupBy("producer_id").agg(
        F.any_value("host").alias("host"), F.any_value("application").alias("application"), F.lit(True).alias("tells")
    )
    whole = _together(_summed(sent, *_PLACE), found, _PLACE).join(senders, "producer_id", "left")
    whole = whole.join(F.broadcast(behind), "partition", "left")
    # What is not there yet is what came last; so is its time, nearly always.
    newer = Window.partitionBy("partition").orderBy(F.desc("window_ms"), "producer_id", "producer_epoch")
    missing, more = F.greatest(-F.col("more"), F.lit(0)), F.greatest("more", F.lit(0))
    newer_missing = F.coalesce(F.sum(missing).over(newer.rowsBetween(Window.unboundedPreceding, -1)), F.lit(0))
    waiting = F.least(missing, F.greatest(F.coalesce("behind", F.lit(0)) - newer_missing, F.lit(0)))
    whole = whole.withColumns({"missing": missing, "waiting": waiting})
    tells = F.col("tells").isNotNull()
    is_judged = tells & (F.col("judged_from_ms").isNull() | (F.col("window_ms") >= F.col("judged_from_ms")))
    status = _status(
        (F.sum(F.when(is_judged, F.col("missing") - F.col("waiting")).otherwise(0)), "lost"),
        (F.sum(F.when(tells, more).otherwise(0) + F.when(is_judged, F.col("waiting")).otherwise(0)), "open"),
        (F.sum(F.when(is_judged & F.col("differs"), 1).otherwise(0)), "exchanged"),
    )
    differs = (F.col("missing") > 0) | F.col("differs")
    is_unjudged = F.count(F.when(tells & ~is_judged & differs, 1)) > 0
    known = F.when((status == "complete") & is_unjudged, unjudged).otherwise(status)
    audited = F.when(F.count(F.when(tells, 1)) > 0, known).otherwise("not audited").alias("status")
    return _found(whole.groupBy("window_ms", "host", "application"), tier, audited)


@dataclass(frozen=True, slots=True)
class _Source:
    """What was told in the cluster that a topic is mirrored from, and what mirrors have told of it."""

    sent: DataFrame
    mirrored: DataFrame
    behind: DataFrame


def _source(spark: SparkSession, topic: str, bootstrap: str, events: DataFrame, width_ms: int) -> _Source:
    """Return the source of a topic.

    :param events: what was told in the cluster that it is mirrored to.
    """
    mirrors = events.filter((F.col("tier") == MIRRORED) & F.col("upstream").isNotNull())
    mirrors = mirrors.select("window_ms", "upstream.*")
    (name,) = mirrors.agg(F.max("topic")).head() or (None,)
    moment = find_source_cutoff(bootstrap, name or topic)
    there = _events(spark, name or topic, bootstrap, moment.topic_id, moment.told_to, None, width_ms)
    sent = _counted(there.filter(F.col("tier").isin(PRODUCED, MIRRORED)), "tier", "host", "application")
    each = mirrors.select("window_ms", F.explode("reached").alias("of"))
    each = each.select("window_ms", _at(0, "partition"), _at(1, "first"), _at(2, "next"))
    reached = each.groupBy("partition").agg(
        F.max("next").alias("next"), F.min(F.struct("first", "window_ms")).alias("begin")
    )
    whole = _behind(spark, moment.ends).join(reached, "partition", "left")
    # Up to the window in which mirrors began to tell, in the middle of a partition, it cannot be told what is missing.
    began = F.when(F.col("begin.first") > 0, F.col("begin.window_ms") + 1)
    behind = whole.select(
        "partition",
        F.greatest(F.col("behind") - F.coalesce("next", F.lit(0)), F.lit(0)).alias("behind"),
        began.alias("judged_from_ms"),
    )
    return _Source(sent, _counted(mirrors), behind)


def _table(offsets: DataFrame, rows: DataFrame) -> DataFrame:
    """Return what is in the table, against what its loads have told."""
    whole = _together(offsets, rows, _OFFSETS)
    told = F.col("told") > 0
    status = _status(
        (F.sum(F.greatest(-F.col("more"), F.lit(0))), "lost"),
        (F.sum(F.when(told, F.greatest("more", F.lit(0))).otherwise(0)), "doubled"),
        (F.sum(F.when(F.col("differs"), 1).otherwise(0)), "exchanged"),
    )
    audited = F.when(F.sum("told") > 0, status).otherwise("not audited").alias("status")
    nobody = whole.withColumns({"host": F.lit(None).cast("string"), "application": F.lit(None).cast("string")})
    return _found(nobody.groupBy("window_ms", "host", "application"), TABLE, audited)


def _consumed(offsets: DataFrame, handed: DataFrame, next_offsets: Mapping[int, int], group: str) -> DataFrame:
    """Return what a group was handed, against what loads have told.

    :param next_offsets: by partition, how far it is loaded: what the group was handed behind that is not had again.
    """
    ends = F.create_map(*(F.lit(each) for end in next_offsets.items() for each in end))
    whole = _together(offsets, handed, _OFFSETS).join(handed.select(*_OFFSETS, "next"), _OFFSETS, "left")
    is_ahead = F.coalesce(F.col("next") > F.coalesce(ends[F.col("partition").cast("int")], F.lit(0)), F.lit(False))
    missing, more = F.greatest(-F.col("more"), F.lit(0)), F.greatest("more", F.lit(0))
    status = _status(
        (F.sum(F.when(is_ahead, missing + more).otherwise(missing)), "open"),
        (F.sum(F.when(is_ahead, 0).otherwise(more)), "again"),
        (F.sum(F.when(F.col("differs") & ~is_ahead, 1).otherwise(0)), "exchanged"),
    )
    audited = F.when(F.sum("told") > 0, status).otherwise("not audited").alias("status")
    of_group = whole.withColumns({"host": F.lit(None).cast("string"), "application": F.lit(group)})
    return _found(of_group.groupBy("window_ms", "host", "application"), CONSUMED, audited)


def _together(before: DataFrame, after: DataFrame, by: list[str]) -> DataFrame:
    """Join two tiers: what the later one has, `more` than the earlier one, and whether as many are others."""
    told = before.select(*by, F.col("count").alias("told"), F.col("fingerprint").alias("told_fingerprint"))
    whole = after.select(*by, "count", "fingerprint").join(told, by, "full").na.fill(0)
    more = F.col("count") - F.col("told")
    differs = (F.col("count") == F.col("told")) & (F.col("fingerprint") != F.col("told_fingerprint"))
    return whole.withColumns({"more": more, "differs": differs})


def _found(grouped: object, tier: str, status: Column) -> DataFrame:
    found: DataFrame = grouped.agg(F.sum("count").alias("count"), _fingerprint("fingerprint"), status)  # type: ignore[attr-defined]
    return found.withColumns({"tier": F.lit(tier), "bytes": F.lit(None).cast("bigint")})


def _status(*counts: tuple[Column, str]) -> Column:
    """Return in words what of it is not 0, or `complete`."""
    words = [F.when(count > 0, F.concat(F.lit(f"{kind} "), count.cast("string"))) for count, kind in counts]
    text = F.concat_ws(", ", *words)
    return F.when(text == "", "complete").otherwise(text)

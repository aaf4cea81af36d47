"""The audit over months as a DataFrame: Spark counts the events in `_audit` and the rows of a table.

This audit reads no log. It compares the records acknowledged to each producer with the records reported by loads, and
those with the rows of each partition. So it also covers times whose records retention has deleted from the log.
`barnabas audit` reads the log, and can decide cases that this audit leaves open.

Producers and loads continue during the audit. A frame therefore shows the state at one cutoff (`audit_cutoff.py`), and
records that may still be in transit at the cutoff are open.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name in programs for Spark

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
"""The name of the tier with the rows of the table."""

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
    client_options: Mapping[str, str] | None = None,
    source_client_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Compare the records of a topic that were produced, mirrored, loaded, consumed and stored in a table, by time
    window.

        audited = barnabas.spark.audit(spark, "clicks", bootstrap="localhost:9092", warehouse="./warehouse")
        audited.filter("status <> 'complete'").show()

    Columns of the result:

    - `window`: the start of the time window; null for records without a timestamp.
    - `tier`: produced, mirrored, loaded, consumed or table.
    - `host`, `application`: the client that sent the records to this cluster; null for clients without audit events and
      for the tier table. For the tier consumed, `application` is the group.
    - `count`, `bytes`, `fingerprint`: `bytes` is null if the tier does not count bytes.
    - `status`: the comparison with the tier before: complete, lost n, doubled n, exchanged n, open n, expired, or not
      audited. Open records are present but not reported by their producer, or not present yet. The tier consumed is
      compared with the loads: again n records were consumed twice, and open n records were not consumed or not loaded.

    The frame shows the state at the time of this call; call the function again for a later state.

    :param spark: The Spark session.
    :param topic: The name of the topic.
    :param bootstrap: `"host:port"` of one or more brokers, separated by commas.
    :param warehouse: The directory of the embedded warehouse; None with `catalog`.
    :param catalog: The name of a catalog in pyiceberg's configuration.
    :param table: The name of the table; None for the table named after the topic.
    :param group: The consumer group to compare; its members must publish audit events. None: no tier consumed.
    :param source: Brokers of the cluster that the topic is mirrored from. Its producers are then part of the tier
        produced, and the tier mirrored has a status for each of them.
    :param from_: The start of the first window. A time without a zone is UTC. None: no limit.
    :param to: The end of the range; windows that start at this time or later are left out. None: no limit.
    :param window_ms: The width of a window, in milliseconds: a divisor of a day, and a multiple of the widths that
        producers and loads use.
    :param client_options: Client settings for `bootstrap` under Kafka's dotted names, such as those of TLS and SASL.
    :param source_client_options: Client settings for `source`.
    :return: A DataFrame with one row per window, tier, host and application.
    :raises WarehouseError: The table does not exist, or Iceberg's delete files remove rows of it.
    :raises NotAuditableError: The table was not loaded from this topic.
    :raises ConfigurationError: `window_ms` does not divide a day.
    """
    if window_ms <= 0 or DAY_MS % window_ms:
        raise ConfigurationError(f"window_ms={window_ms} does not divide a day; use a divisor such as 60000 or 3600000")
    name = table or table_name_of_topic(topic)
    place = TablePlace.of(warehouse, catalog=catalog)
    brokers = {**(client_options or {}), "bootstrap.servers": bootstrap}
    moment = find_cutoff(brokers, topic, lambda: TableAudit(place, name, topic, ""))
    side, span = moment.side, _Span(_utc(from_), _utc(to))
    # Read all events: the first events of a mirror determine the first window that the audit checks.
    from_ms = span.from_ms if source is None else None
    events = _events(spark, topic, brokers, side.topic_id, moment.audit_ends, from_ms, window_ms)
    reported = _Reported(events, side, group)
    judged_from_ms = None if side.state is None or side.state.is_whole else side.state.judged_from_ms
    behind = _behind(spark, {**dict.fromkeys(side.next_offsets, 0), **moment.behind}, judged_from_ms)
    whole = _brought(reported.sent, reported.loaded, behind, LOADED, "not audited")
    if source is None:
        whole = whole.unionByName(_sent(reported.sent))
    else:
        there_brokers = {**(source_client_options or {}), "bootstrap.servers": source}
        there = _source(spark, topic, there_brokers, events, window_ms)
        produced = there.sent.unionByName(reported.sent.filter(F.col("tier") == PRODUCED))
        whole = whole.unionByName(_sent(produced.withColumn("tier", F.lit(PRODUCED))))
        whole = whole.unionByName(_brought(there.sent, there.mirrored, there.behind, MIRRORED, "expired"))
    if not side.is_state:  # the rows of a state table are not those of the records
        rows = _rows(spark, side.frame(spark, span.where), topic, side.next_offsets, window_ms)
        whole = whole.unionByName(_table(reported.offsets, rows))
    if group is not None:
        whole = whole.unionByName(_consumed(reported.offsets, reported.handed, side.next_offsets, group))
    window = F.when(F.col("window_ms") >= 0, F.timestamp_millis("window_ms")).alias("window")
    columns = ("tier", "host", "application", "count", "bytes", "fingerprint", "status")
    return whole.filter(span.has("window_ms")).select(window, *columns).orderBy("window", "tier", "application", "host")


@dataclass(frozen=True, slots=True)
class _Span:
    """A range of time: `begin` inclusive, `end` exclusive. None is no limit."""

    begin: datetime | None
    end: datetime | None

    @property
    def from_ms(self) -> int | None:
        return None if self.begin is None else _milliseconds(self.begin)

    @property
    def where(self) -> str | None:
        """A filter on the table that skips whole files."""
        limits = [f"timestamp >= '{self.begin.isoformat()}'"] if self.begin else []
        # A window that starts before `end` may contain records up to a day later.
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
    brokers: Mapping[str, str],
    topic_id: str,
    audit_ends: Mapping[int, int],
    from_ms: int | None,
    width_ms: int,
) -> DataFrame:
    """Return the latest event of each instance for each window.

    :param brokers: The client settings under Kafka's dotted names, with the brokers' addresses.
    :param audit_ends: The end offset of each partition of the topic `_audit`.
    """
    register(spark)
    ends = json.dumps({AUDIT_TOPIC: {str(partition): end for partition, end in audit_ends.items()}})
    options = {f"kafka.{name}": value for name, value in brokers.items()}
    options |= {"subscribe": AUDIT_TOPIC, "endingOffsets": ends}
    if from_ms is not None:
        # The record of an event has the start of the event's window as its timestamp.
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
    """Return a filter for events that belong to a topic, and not to a deleted topic of the same name.

    :param topic_id: The topic id in hex; empty if the brokers have no topic ids.
    """
    # The topic exists, so its name has no quotes and needs no escaping.
    names = f"topic = '{topic}'"
    return f"{names} and topic_id in ('', '{topic_id}')" if topic_id else names


class _Reported:
    """The counts that producers, mirrors, the loads of a table and the members of a group have reported."""

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
            loaded = of_table.filter(F.col("tier") == LOADED).join(done, "instance", "left")
            loads = loaded.filter(F.coalesce("done", F.lit(False)) | last)
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
    """Count the rows by window and partition, with fingerprints of their offsets.

    A fingerprint is the sum of the powers of all offsets, each multiplied by a coefficient of the partition.

    :param partitions: The partitions with rows in the table.
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
    """Return the product of two columns modulo `FIELD`. Both factors are less than `FIELD`."""
    return ((F.col(one).cast(_WIDE) * F.col(other).cast(_WIDE)) % FIELD).cast(_WIDE)


def _sent(sent: DataFrame) -> DataFrame:
    """Return the acknowledged records. Their status is complete, because this cluster has no earlier tier."""
    return _summed(sent, "window_ms", "tier", "host", "application").withColumn("status", F.lit("complete"))


def _behind(spark: SparkSession, behind: Mapping[int, int], judged_from_ms: int | None = None) -> DataFrame:
    """Return the records that a tier may lack, by partition.

    :param behind: The number of records behind the last load or mirrored offset, by partition.
    :param judged_from_ms: The first window that the audit checks; None checks all windows.
    """
    rows = [(partition, records, judged_from_ms) for partition, records in behind.items()]
    return spark.createDataFrame(rows, "partition bigint, behind bigint, judged_from_ms bigint")


def _brought(sent: DataFrame, found: DataFrame, behind: DataFrame, tier: str, unjudged: str) -> DataFrame:
    """Compare the records that loads or mirrors reported with the records that their producers reported.

    :param behind: The number of records that loads or mirrors may not have reached, and the first checked window, by
        partition.
    :param unjudged: The status of windows with differences before the first checked window.
    """
    senders = sent.groupBy("producer_id").agg(
        F.any_value("host").alias("host"), F.any_value("application").alias("application"), F.lit(True).alias("reports")
    )
    whole = _together(_summed(sent, *_PLACE), found, _PLACE).join(senders, "producer_id", "left")
    whole = whole.join(F.broadcast(behind), "partition", "left")
    # Missing records are nearly always the newest of a partition, so assign them to the newest windows first.
    newer = Window.partitionBy("partition").orderBy(F.desc("window_ms"), "producer_id", "producer_epoch")
    missing, more = F.greatest(-F.col("more"), F.lit(0)), F.greatest("more", F.lit(0))
    newer_missing = F.coalesce(F.sum(missing).over(newer.rowsBetween(Window.unboundedPreceding, -1)), F.lit(0))
    waiting = F.least(missing, F.greatest(F.coalesce("behind", F.lit(0)) - newer_missing, F.lit(0)))
    whole = whole.withColumns({"missing": missing, "waiting": waiting})
    reports = F.col("reports").isNotNull()
    is_judged = reports & (F.col("judged_from_ms").isNull() | (F.col("window_ms") >= F.col("judged_from_ms")))
    status = _status(
        (F.sum(F.when(is_judged, F.col("missing") - F.col("waiting")).otherwise(0)), "lost"),
        (F.sum(F.when(reports, more).otherwise(0) + F.when(is_judged, F.col("waiting")).otherwise(0)), "open"),
        (F.sum(F.when(is_judged & F.col("differs"), 1).otherwise(0)), "exchanged"),
    )
    differs = (F.col("missing") > 0) | F.col("differs")
    is_unjudged = F.count(F.when(reports & ~is_judged & differs, 1)) > 0
    known = F.when((status == "complete") & is_unjudged, unjudged).otherwise(status)
    audited = F.when(F.count(F.when(reports, 1)) > 0, known).otherwise("not audited").alias("status")
    return _found(whole.groupBy("window_ms", "host", "application"), tier, audited)


@dataclass(frozen=True, slots=True)
class _Source:
    """The counts in the source cluster of a mirrored topic, and the counts that mirrors reported about that cluster."""

    sent: DataFrame
    mirrored: DataFrame
    behind: DataFrame


def _source(spark: SparkSession, topic: str, brokers: Mapping[str, str], events: DataFrame, width_ms: int) -> _Source:
    """Return the source of a mirrored topic.

    :param events: The audit events in the target cluster.
    """
    mirrors = events.filter((F.col("tier") == MIRRORED) & F.col("upstream").isNotNull())
    mirrors = mirrors.select("window_ms", "upstream.*")
    (name,) = mirrors.agg(F.max("topic")).head() or (None,)
    moment = find_source_cutoff(brokers, name or topic)
    there = _events(spark, name or topic, brokers, moment.topic_id, moment.audit_ends, None, width_ms)
    sent = _counted(there.filter(F.col("tier").isin(PRODUCED, MIRRORED)), "tier", "host", "application")
    each = mirrors.select("window_ms", F.explode("reached").alias("of"))
    each = each.select("window_ms", _at(0, "partition"), _at(1, "first"), _at(2, "next"))
    reached = each.groupBy("partition").agg(
        F.max("next").alias("next"), F.min(F.struct("first", "window_ms")).alias("begin")
    )
    whole = _behind(spark, moment.ends).join(reached, "partition", "left")
    # A mirror that began in the middle of a partition has partial counts for its first window and none before it.
    began = F.when(F.col("begin.first") > 0, F.col("begin.window_ms") + 1)
    behind = whole.select(
        "partition",
        F.greatest(F.col("behind") - F.coalesce("next", F.lit(0)), F.lit(0)).alias("behind"),
        began.alias("judged_from_ms"),
    )
    return _Source(sent, _counted(mirrors), behind)


def _table(offsets: DataFrame, rows: DataFrame) -> DataFrame:
    """Compare the rows of the table with the records that its loads reported."""
    whole = _together(offsets, rows, _OFFSETS)
    is_reported = F.col("earlier") > 0
    status = _status(
        (F.sum(F.greatest(-F.col("more"), F.lit(0))), "lost"),
        (F.sum(F.when(is_reported, F.greatest("more", F.lit(0))).otherwise(0)), "doubled"),
        (F.sum(F.when(F.col("differs"), 1).otherwise(0)), "exchanged"),
    )
    audited = F.when(F.sum("earlier") > 0, status).otherwise("not audited").alias("status")
    nobody = whole.withColumns({"host": F.lit(None).cast("string"), "application": F.lit(None).cast("string")})
    return _found(nobody.groupBy("window_ms", "host", "application"), TABLE, audited)


def _consumed(offsets: DataFrame, handed: DataFrame, next_offsets: Mapping[int, int], group: str) -> DataFrame:
    """Compare the records that a group consumed with the records that loads reported.

    :param next_offsets: The next offset to load, by partition. Consumed records from this offset on are open.
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
    audited = F.when(F.sum("earlier") > 0, status).otherwise("not audited").alias("status")
    of_group = whole.withColumns({"host": F.lit(None).cast("string"), "application": F.lit(group)})
    return _found(of_group.groupBy("window_ms", "host", "application"), CONSUMED, audited)


def _together(before: DataFrame, after: DataFrame, by: list[str]) -> DataFrame:
    """Join two tiers. `more` is the later count minus the earlier one; `differs` is true if only the fingerprints
    differ.
    """
    earlier = before.select(*by, F.col("count").alias("earlier"), F.col("fingerprint").alias("earlier_fingerprint"))
    whole = after.select(*by, "count", "fingerprint").join(earlier, by, "full").na.fill(0)
    more = F.col("count") - F.col("earlier")
    differs = (F.col("count") == F.col("earlier")) & (F.col("fingerprint") != F.col("earlier_fingerprint"))
    return whole.withColumns({"more": more, "differs": differs})


def _found(grouped: object, tier: str, status: Column) -> DataFrame:
    found: DataFrame = grouped.agg(F.sum("count").alias("count"), _fingerprint("fingerprint"), status)  # type: ignore[attr-defined]
    return found.withColumns({"tier": F.lit(tier), "bytes": F.lit(None).cast("bigint")})


def _status(*counts: tuple[Column, str]) -> Column:
    """Return a status text with all counts above 0, or `complete` if there are none."""
    words = [F.when(count > 0, F.concat(F.lit(f"{kind} "), count.cast("string"))) for count, kind in counts]
    text = F.concat_ws(", ", *words)
    return F.when(text == "", "complete").otherwise(text)

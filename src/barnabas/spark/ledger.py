"""The ledger of a table: the loaded offsets, stored in the properties of the table's snapshots. Pure.

Each load adds one snapshot with these properties, in one commit:

    barnabas.load-id   the id of the load
    barnabas.added     {"clicks": [130, 12]}: the number of offsets added to each partition. They end at the ledger's
                       offsets: here partition 0 got the offsets 120 to 249.
    barnabas.ranges    {"clicks": {"0": [120, 250]}}: the same for a backfill, which leaves the ledger unchanged. Older
                       releases wrote it for all loads.
    barnabas.records   the number of records added
    barnabas.missing   {"clicks": {"0": [100, 120]}}: offsets that the log had lost before the load read them, so the
                       table will never have them
    barnabas.ledger    {"clicks": {"id": "...", "next": [250, 99]}}: for each topic ever loaded into the table, the
                       topic id and the offset of each partition where the next load starts (compact_json.py)
    barnabas.bad-records   {"not JSON": 2}: the number of records that could not be decoded, by reason
    barnabas.complete      the event time up to which the table is complete (completeness.py)

The ledger belongs to a snapshot, so the next load of a table that was rolled back starts at the offsets of that
snapshot. Snapshots expire. The table therefore has a copy of the last ledger in its own properties, which never expire:

    barnabas.ledger            the same value
    barnabas.ledger-sequence   the sequence number of the snapshot that the ledger belongs to
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from barnabas.audit.watermark import AUDIT
from barnabas.model import TopicPartition
from barnabas.spark.compact_json import dump_compact, pack, unpack
from barnabas.spark.completeness import COMPLETE
from barnabas.spark.errors import HistoryExpiredError
from barnabas.spark.offset_ranges import OffsetRange

LOAD_ID = "barnabas.load-id"
ADDED = "barnabas.added"
RANGES = "barnabas.ranges"
RECORDS = "barnabas.records"
MISSING = "barnabas.missing"
BAD_RECORDS = "barnabas.bad-records"
LEDGER = "barnabas.ledger"
LEDGER_SEQUENCE = "barnabas.ledger-sequence"
KEPT_PROPERTIES = (LEDGER, COMPLETE, BAD_RECORDS, MISSING, AUDIT)
"""The snapshot properties that a commit of compacted files copies from the last load."""


@dataclass(frozen=True, slots=True)
class LoadedTopic:
    """The loaded part of a topic: its id ("" if the brokers have no topic ids), and the next offset per partition."""

    topic_id: str
    next_offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The loaded part of each topic in a table.

    >>> ledger = Ledger().advanced({"clicks": "id-1"}, [OffsetRange("clicks", 0, 0, 250)])
    >>> Ledger.parse(ledger.dump()).topics["clicks"].next_offsets
    {0: 250}
    """

    topics: Mapping[str, LoadedTopic] = field(default_factory=dict)

    def advanced(self, topic_ids: Mapping[str, str], ranges: Iterable[OffsetRange]) -> Ledger:
        """Return the ledger after a load of `ranges`."""
        topics = dict(self.topics)
        for loaded in ranges:
            before = topics.get(loaded.topic)
            offsets = dict(before.next_offsets) if before else {}
            offsets[loaded.partition] = loaded.end_offset
            topics[loaded.topic] = LoadedTopic(topic_ids.get(loaded.topic, ""), offsets)
        return Ledger(topics)

    def dump(self) -> str:
        """Return the value of the snapshot property."""
        return dump_compact(
            {
                topic: {"id": loaded.topic_id, "next": pack(loaded.next_offsets)}
                for topic, loaded in sorted(self.topics.items())
            }
        )

    @classmethod
    def parse(cls, text: str) -> Ledger:
        """Parse the output of `dump` of this or an older release."""
        return cls(
            {topic: LoadedTopic(entry["id"], unpack(entry["next"])) for topic, entry in json.loads(text).items()}
        )


def snapshot_properties(
    load_id: str, ledger: Ledger, ranges: Iterable[OffsetRange], records: int, missing: Iterable[OffsetRange] = ()
) -> dict[str, str]:
    """Return the snapshot properties of one load.

    :param ledger: The ledger after the load.
    """
    return {
        LOAD_ID: load_id,
        ADDED: _dump_counts(ranges),
        RECORDS: str(records),
        MISSING: _dump_ranges(missing),
        LEDGER: ledger.dump(),
    }


def backfill_properties(
    load_id: str, ledger: Ledger | None, ranges: Iterable[OffsetRange], records: int, missing: Iterable[OffsetRange]
) -> dict[str, str]:
    """Return the snapshot properties of a backfill.

    :param ledger: The ledger, which the backfill does not change; None if it has expired.
    """
    return {
        LOAD_ID: load_id,
        RANGES: _dump_ranges(ranges),
        RECORDS: str(records),
        MISSING: _dump_ranges(missing),
        **({} if ledger is None else {LEDGER: ledger.dump()}),
    }


def _dump_counts(ranges: Iterable[OffsetRange]) -> str:
    by_topic: dict[str, dict[int, int]] = {}
    for each in sorted(ranges):
        if each.count:
            by_topic.setdefault(each.topic, {})[each.partition] = each.count
    return dump_compact({topic: pack(counts) for topic, counts in by_topic.items()})


def _dump_ranges(ranges: Iterable[OffsetRange]) -> str:
    by_topic: dict[str, dict[str, list[int]]] = {}
    for each in sorted(ranges):
        if each.count:
            by_topic.setdefault(each.topic, {})[str(each.partition)] = [each.start_offset, each.end_offset]
    return json.dumps(by_topic)


def dump_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    """Return offsets in the format of `--starting-offsets`.

    >>> dump_offsets({TopicPartition("clicks", 0): 23})
    '{"clicks": {"0": 23}}'
    """
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(by_topic)


def unknown_position_error(table: str, what_expires: str, rows: Mapping[TopicPartition, int]) -> HistoryExpiredError:
    """Return the error for a table that has rows, but no record of the end of its last load.

    :param what_expires: The part of the table's history that recorded the end of the load, for example snapshots.
    :param rows: The offset after the last row of each partition.
    """
    return HistoryExpiredError(
        f"table {table}: the end of the last load is unknown because {what_expires} expired; the table's rows end "
        f"before {dump_offsets(rows)}: check these offsets and pass them as starting_offsets (--starting-offsets)"
    )


def ends_of_rows(batches: Iterable[pa.RecordBatch]) -> dict[TopicPartition, int]:
    """Return the offset after the last row of each partition.

    :param batches: Batches with the columns `topic`, `partition` and `offset`.
    """
    ends: dict[TopicPartition, int] = {}
    for batch in batches:
        last = pa.Table.from_batches([batch]).group_by(["topic", "partition"]).aggregate([("offset", "max")])
        for row in last.to_pylist():
            partition = TopicPartition(row["topic"], row["partition"])
            ends[partition] = max(ends.get(partition, 0), row["offset_max"] + 1)
    return ends

"""What a table says about where its records came from: the properties of its snapshots. Pure.

Each load adds one snapshot, and with it in one commit these properties:

    barnabas.load-id   which load wrote it
    barnabas.added     {"clicks": [130, 12]}: how many offsets it added, those before the ledger's (here of partition 0
                       the offsets 120 to 249); loads of older releases have `barnabas.ranges` instead
    barnabas.records   how many records these were
    barnabas.missing   {"clicks": {"0": [100, 120]}}: the offsets before these that the log had lost, so the table
                       will never have them
    barnabas.ledger    {"clicks": {"id": "...", "next": [250, 99]}}: for all topics ever loaded into the table, the
                       topic's id and the offset of each partition where the next load goes on (compact_json.py)
    barnabas.bad-records   {"not JSON": 2}: records that could not be decoded, by reason
    barnabas.complete      how far the table is complete (completeness.py)

The ledger belongs to a snapshot, so a table that is rolled back goes on from where it then is. Snapshots expire, so
the table itself has it too, since the last load, as properties that nobody's expiry removes:

    barnabas.ledger            the same
    barnabas.ledger-sequence   the sequence number of the snapshot that it belongs to
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
RECORDS = "barnabas.records"
MISSING = "barnabas.missing"
BAD_RECORDS = "barnabas.bad-records"
LEDGER = "barnabas.ledger"
LEDGER_SEQUENCE = "barnabas.ledger-sequence"
KEPT_PROPERTIES = (LEDGER, COMPLETE, BAD_RECORDS, MISSING, AUDIT)
"""What a commit that puts files together takes over from the last load."""


@dataclass(frozen=True, slots=True)
class LoadedTopic:
    """How far a topic has been loaded: its id ("" where brokers give none), the next offset per partition."""

    topic_id: str
    next_offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Ledger:
    """How far each topic has been loaded into a table.

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
        """Return the text that a snapshot carries."""
        return dump_compact(
            {
                topic: {"id": loaded.topic_id, "next": pack(loaded.next_offsets)}
                for topic, loaded in sorted(self.topics.items())
            }
        )

    @classmethod
    def parse(cls, text: str) -> Ledger:
        """Read what `dump` wrote, in this release or an older one."""
        return cls(
            {topic: LoadedTopic(entry["id"], unpack(entry["next"])) for topic, entry in json.loads(text).items()}
        )


def snapshot_properties(
    load_id: str, ledger: Ledger, ranges: Iterable[OffsetRange], records: int, missing: Iterable[OffsetRange] = ()
) -> dict[str, str]:
    """Return the properties of the snapshot of one load.

    :param ledger: as it is after the load.
    """
    return {
        LOAD_ID: load_id,
        ADDED: _dump_counts(ranges),
        RECORDS: str(records),
        MISSING: _dump_ranges(missing),
        LEDGER: ledger.dump(),
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
    """Return offsets as `--starting-offsets` takes them.

    >>> dump_offsets({TopicPartition("clicks", 0): 23})
    '{"clicks": {"0": 23}}'
    """
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(by_topic)


def unknown_position_error(table: str, what_expires: str, rows: Mapping[TopicPartition, int]) -> HistoryExpiredError:
    """Return the error for a table that has rows, of which nothing that is left says where the last load ended.

    :param rows: the offset after the last row of each partition.
    """
    return HistoryExpiredError(
        f"table {table}: nothing that is left says where the last load ended ({what_expires} expire); the table's rows "
        f"go on at {dump_offsets(rows)}: check these and give them as starting_offsets (--starting-offsets)"
    )


def ends_of_rows(batches: Iterable[pa.RecordBatch]) -> dict[TopicPartition, int]:
    """Return the offset after the last row of each partition.

    :param batches: with the columns `topic`, `partition` and `offset`.
    """
    ends: dict[TopicPartition, int] = {}
    for batch in batches:
        last = pa.Table.from_batches([batch]).group_by(["topic", "partition"]).aggregate([("offset", "max")])
        for row in last.to_pylist():
            partition = TopicPartition(row["topic"], row["partition"])
            ends[partition] = max(ends.get(partition, 0), row["offset_max"] + 1)
    return ends

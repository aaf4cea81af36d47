"""What the logs say of values that are in them twice: which producer sent which batch, with which sequence, in which
epochs.

Two copies with the same producer, producer epoch and sequence were taken by brokers twice. Two with different ones were
sent twice: `librdkafka-producer.log` says why.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from barnabas.cli.segment_dump import DumpedBatch, dump_batches
from barnabas.model import TopicPartition
from barnabas.records import BatchHeader

Copies = tuple[tuple[TopicPartition, int], ...]
"""Where a value is: places and offsets."""

SEEN = "SELECT DISTINCT value, topic, partition, position FROM seen JOIN places USING (place) ORDER BY 1, 2, 3, 4"


def what_is_doubled(folder: Path) -> list[str]:
    """Return a line for each set of batches that have values in common, with what their headers say.

    :param folder: of a run, with its history and the folders of its brokers.
    """
    doubled = list(_doubled(folder / "history"))
    places = {place for copies in doubled for place, _ in copies}
    headers = {place: _headers(folder, place) for place in places}
    found: Counter[tuple[str, ...]] = Counter()
    for copies in doubled:
        found[tuple(_told(place, headers[place].get(offset)) for place, offset in copies)] += 1
    return [f"{count} values are in {'; and in '.join(batches)}" for batches, count in found.items()]


def _doubled(history: Path) -> Iterator[Copies]:
    with contextlib.closing(sqlite3.connect(history)) as database:
        known: dict[object, list[tuple[TopicPartition, int]]] = {}
        for value, topic, partition, offset in database.execute(SEEN):
            known.setdefault(value, []).append((TopicPartition(topic, partition), offset))
    return (tuple(copies) for copies in known.values() if len(copies) > 1)


def _headers(folder: Path, place: TopicPartition) -> dict[int, BatchHeader]:
    """Return by offset the header of the batch that holds it, of all replicas: the first one that has it counts."""
    found: dict[int, BatchHeader] = {}
    for path in sorted(folder.glob(f"broker-*/{place}/*.log")):
        with path.open("rb") as file:
            for each in dump_batches(file, int(path.stem), place, with_records=False):
                if isinstance(each, DumpedBatch):
                    for offset in range(each.header.base_offset, each.header.next_offset):
                        found.setdefault(offset, each.header)
    return found


def _told(place: TopicPartition, header: BatchHeader | None) -> str:
    if header is None:
        return f"{place}, no longer there"
    return (
        f"{place} at {header.base_offset} to {header.last_offset}: producer {header.producer_id}, epoch"
        f" {header.producer_epoch}, sequence {header.base_sequence} to {header.last_sequence}, leader epoch"
        f" {header.leader_epoch}, {header.base_timestamp_ms} ms"
    )

"""What the logs say of values that are in them twice: which producer sent which batch, with which sequence, in which
epochs.

Two copies with the same producer, producer epoch and sequence were taken by brokers twice. Two with different ones were
sent twice: the producer's log says why.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from barnabas.cli.segment_dump import DumpedBatch, dump_batches
from barnabas.model import TopicPartition
from barnabas.records import BatchHeader

Copies = tuple[tuple[TopicPartition, int], ...]
"""Where a value is: places and offsets."""


def told_of(doubled: Iterable[Copies], folder: Path) -> list[str]:
    """Return a line for each set of batches that have values in common, with what their headers say.

    :param folder: with the data folders of the brokers. Of all replicas the first one that has an offset counts.
    """
    copies = list(doubled)
    headers: dict[TopicPartition, dict[int, BatchHeader]] = {}
    for place in {place for each in copies for place, _ in each}:
        known = headers[place] = {}
        for replica in _replicas(folder, place):
            for batch in _batches(replica, place, with_records=False):
                for offset in range(batch.header.base_offset, batch.header.next_offset):
                    known.setdefault(offset, batch.header)
    return _lines([(place, headers[place].get(offset)) for place, offset in each] for each in copies)


def doubled_in_logs(folder: Path, place: TopicPartition) -> list[str]:
    """Return the same for the values that a replica of one place has twice, whatever clients may read of it, and of
    each line in which data folders it is so.
    """
    lines: defaultdict[str, list[str]] = defaultdict(list)
    for replica in _replicas(folder, place):
        headers: defaultdict[bytes | None, list[BatchHeader]] = defaultdict(list)
        for batch in _batches(replica, place, with_records=True):
            for record in batch.records:
                headers[record.value].append(batch.header)
        for line in _lines([(place, each) for each in found] for found in headers.values() if len(found) > 1):
            lines[line].append(replica.parent.name)
    return [f"{', '.join(replicas)}: {line}" for line, replicas in lines.items()]


def _replicas(folder: Path, place: TopicPartition) -> list[Path]:
    return sorted({path.parent for path in folder.rglob(f"{place}/*.log")})


def _batches(replica: Path, place: TopicPartition, *, with_records: bool) -> Iterator[DumpedBatch]:
    for path in sorted(replica.glob("*.log")):
        with path.open("rb") as file:
            for each in dump_batches(file, int(path.stem), place, with_records=with_records):
                if isinstance(each, DumpedBatch):
                    yield each


def _lines(found: Iterable[list[tuple[TopicPartition, BatchHeader | None]]]) -> list[str]:
    counts = Counter(tuple(_told(place, header) for place, header in each) for each in found)
    return [f"{count} values are in {'; and in '.join(batches)}" for batches, count in counts.items()]


def _told(place: TopicPartition, header: BatchHeader | None) -> str:
    if header is None:
        return f"{place}, no longer there"
    return (
        f"{place} at {header.base_offset} to {header.last_offset}: producer {header.producer_id}, epoch"
        f" {header.producer_epoch}, sequence {header.base_sequence} to {header.last_sequence}, leader epoch"
        f" {header.leader_epoch}, {header.base_timestamp_ms} ms"
    )

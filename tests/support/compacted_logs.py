"""Logs as log compaction leaves them: batches, and folders of segments, made by hand.

What is left of a batch keeps its base offset, its last offset and its sequences; the offsets of its records have gaps,
and where the last batch of a producer has lost all its records, its header stays (KIP-98, KIP-534).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from barnabas.model import NO_PRODUCER_ID, TimestampType
from barnabas.records import BATCH_HEADER_SIZE, Compression
from barnabas.records.compression import compress
from barnabas.records.header import DELETE_HORIZON_MASK, LENGTH_OVERHEAD, MAGIC, pack_header, write_crc

if TYPE_CHECKING:
    from tests.support.broker_process import BrokerProcess


class Kept(NamedTuple):
    """A record that is left."""

    offset: int
    timestamp_ms: int
    key: bytes | None = None
    value: bytes | None = None


class Batch(NamedTuple):
    """What is left of a batch."""

    base_offset: int
    last_offset: int
    records: Sequence[Kept] = ()
    compression: Compression = Compression.NONE
    leader_epoch: int = 0
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    base_sequence: int = -1
    delete_horizon_ms: int | None = None
    max_timestamp_ms: int | None = None
    """What the header says; None: what is true of the records that are left."""
    timestamp_type: TimestampType = TimestampType.CREATE_TIME

    def encode(self) -> bytes:
        """Return the batch as it lies in a segment."""
        times = [record.timestamp_ms for record in self.records]
        greatest_ms = max(times, default=-1) if self.max_timestamp_ms is None else self.max_timestamp_ms
        base_ms = self.delete_horizon_ms
        if base_ms is None:
            base_ms = times[0] if times else greatest_ms
        body = b"".join(_encode_record(record, self.base_offset, base_ms) for record in self.records)
        attributes = int(self.timestamp_type) << 3
        if self.delete_horizon_ms is not None:
            attributes |= DELETE_HORIZON_MASK
        if self.records:
            attributes |= int(self.compression)
            body = compress(self.compression, body)
        batch = bytearray(BATCH_HEADER_SIZE) + body
        pack_header(
            batch,
            (
                self.base_offset,
                len(batch) - LENGTH_OVERHEAD,
                self.leader_epoch,
                MAGIC,
                0,
                attributes,
                self.last_offset - self.base_offset,
                base_ms,
                greatest_ms,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                len(self.records),
            ),
        )
        write_crc(batch, 0, len(batch))
        return bytes(batch)

    def keeping(self, offsets: Collection[int]) -> Batch:
        """Return the batch without the records whose offsets are not among these."""
        return self._replace(records=[record for record in self.records if record.offset in offsets])


def write_segments(folder: Path, segments: Iterable[tuple[int, Sequence[Batch]]]) -> None:
    """Write segments, of each of which the base offset is given, without indexes."""
    folder.mkdir(parents=True, exist_ok=True)
    for base_offset, batches in segments:
        (folder / f"{base_offset:020}.log").write_bytes(b"".join(batch.encode() for batch in batches))


def _encode_record(record: Kept, base_offset: int, base_ms: int) -> bytes:
    fields = b"\0" + _varint(record.timestamp_ms - base_ms) + _varint(record.offset - base_offset)
    for blob in (record.key, record.value):
        fields += _varint(-1) if blob is None else _varint(len(blob)) + blob
    fields += _varint(0)
    return _varint(len(fields)) + fields


def _varint(number: int) -> bytes:
    zigzag = number << 1 if number >= 0 else (-number << 1) - 1
    encoded = bytearray()
    while zigzag >= 0x80:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


_TIME_MS = 1_700_000_000_000


def _kept(*offsets: int) -> list[Kept]:
    return [Kept(each, _TIME_MS + each, b"key %d" % each, b"value %d" % each) for each in offsets]


SAMPLE: Sequence[tuple[int, Sequence[Batch]]] = (
    (0, (Batch(2, 5, _kept(2, 5)), Batch(6, 9, _kept(7), Compression.GZIP))),
    (10, ()),
    (
        12,
        (
            Batch(14, 14, producer_id=3, producer_epoch=0, base_sequence=0, max_timestamp_ms=_TIME_MS + 14),
            Batch(15, 18, _kept(16, 17), Compression.LZ4, producer_id=4, producer_epoch=1, base_sequence=7),
            Batch(20, 23, [Kept(22, _TIME_MS + 22, b"gone")], delete_horizon_ms=1_700_000_009_000),
        ),
    ),
    (30, (Batch(31, 32, _kept(31), Compression.ZSTD), Batch(33, 33, _kept(33), timestamp_type=TimestampType(1)))),
)
"""One of everything: gaps before, between and within batches, merged segments and an empty one, a batch that is kept
for its producer, a tombstone with its delete horizon. It ends with offset 33."""

SAMPLE_RECORDS = [record for _, batches in SAMPLE for batch in batches for record in batch.records]

SAMPLE_END = 40
"""Where a topic of `with_samples` ends."""


def with_samples(broker: BrokerProcess, *topics: str) -> None:
    """Start a broker anew, with the sample as the first partition of topics that exist; their last records are gone."""
    assert broker.stop() == 0
    for topic in topics:
        for path in (broker.data / f"{topic}-0").glob("*0.*"):
            path.unlink()
        write_segments(broker.data / f"{topic}-0", [*SAMPLE, (SAMPLE_END, [])])
    broker.restart()

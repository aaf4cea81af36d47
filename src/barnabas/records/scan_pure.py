"""The loops that run once per batch, over a file or over produce requests, in Python.

The compiled equivalent is `scan_compiled`.

Both have the same names and results. A change of one module must also change the other; the tests of `records` compare
both. If a batch is damaged, the compiled module calls this module for the error text.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from barnabas.errors import CorruptBatchError
from barnabas.model import NO_LEADER_EPOCH, NO_OFFSET, NO_PRODUCER_ID, NO_TIMESTAMP
from barnabas.records.compression import Compression, expanded_bytes_max
from barnabas.records.header import (
    BATCH_HEADER_SIZE,
    COMPRESSED_RECORDS_MAX,
    COMPRESSION_MASK,
    CRC_START,
    HEADER,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    Buffer,
    check_structure,
    stamp,
)

CODEC = "pure"

OFFSET_MAX = 2**63 - 1
RELATIVE_OFFSET_MAX = 2**31 - 1
"""The greatest relative offset.

Kafka's indexes contain signed 32-bit offsets relative to the base offset of the segment.
"""

SEGMENT_BYTES_MAX = 2**31 - 1
"""The greatest position in a segment, a signed 32-bit number."""

BATCHES_KEPT = 5
"""The number of batches to remember per producer.

It is the maximum of `max.in.flight.requests.per.connection` with idempotence (KIP-98).
"""

RECORD_SIZE_MIN = 7
"""The size of a record without key, value and headers, in bytes: the length field and six other fields of one byte."""

PRODUCERS_ATTRIBUTES = COMPRESSION_MASK | TIMESTAMP_TYPE_MASK
"""The attribute bits that a producer without transactions may set."""

ProducerBatches = tuple[int, tuple[tuple[int, int, int, int], ...]]
"""A producer's epoch, and its last batches as tuples of first sequence, last sequence, base offset and last offset."""


StampedBatch = tuple[int, int, int]
"""The size in bytes, the last offset and the greatest timestamp of a batch."""


class Expected(NamedTuple):
    """The expected properties of the next batch of a segment."""

    base_offset: int
    """The base offset of the segment."""
    next_offset: int
    """The expected base offset of the batch; -1 if any offset is valid."""
    epoch: int
    """The leader epoch of the previous batch."""
    end: int
    """The end position of the file; -1 if it is unknown."""
    gaps_up_to: int = 0
    """The offset up to which gaps between batches are accepted."""


class SegmentScan:
    """Scans the batches of a segment: checks each batch, and collects the entries of the indexes.

    The caller feeds chunks of the file, and the scan determines the start of the next chunk. The first damaged batch
    ends the scan. Not thread-safe; different threads may run different scans in parallel.

    >>> scan = SegmentScan(0, check_crc=True)
    >>> scan.feed(b"", 0), scan.wanted_bytes, scan.damage
    (0, 61, None)

    :param base_offset: the base offset of the segment.
    :param next_offset: the expected base offset of the first batch. By default, it is the base offset of the segment at
        position 0, and any offset at other positions.
    :param index_interval_bytes: the number of bytes after which a batch gets an index entry.
    :param check_crc: True to check the CRC-32C of each batch. False to read only headers.
    :param epoch: the leader epoch of the previous batch, or -1.
    :param position: the position of the first batch.
    :param end: the end of the file, or None if it is unknown. A batch that extends beyond the end is damaged.
    :param bytes_since_entry: the number of bytes from the last index entry to `position`. With `index_interval_bytes` +
        1, a scan from an index entry adds this entry again.
    :param max_timestamp_ms: the timestamp in the last remaining entry of the time index; `max_timestamp_offset` is the
        offset in this entry. Both are -1 if there is no entry.
    :param gaps_up_to: the offset up to which gaps between batches are accepted, because compaction leaves gaps. Later
        batches must be contiguous.
    :raises ValueError: a parameter is out of range.
    """

    __slots__ = (
        "_check_crc",
        "_end",
        "_epochs",
        "_gaps_up_to",
        "_index_interval_bytes",
        "_last_time_entry_ms",
        "_offset_entries",
        "_producers",
        "_time_entries",
        "base_offset",
        "batch_count",
        "bytes_since_entry",
        "damage",
        "epoch",
        "first_last_offset",
        "first_timestamp_ms",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "next_offset",
        "size",
        "wanted_bytes",
    )

    def __init__(
        self,
        base_offset: int,
        *,
        next_offset: int | None = None,
        index_interval_bytes: int = 4096,
        check_crc: bool,
        epoch: int = NO_LEADER_EPOCH,
        position: int = 0,
        end: int | None = None,
        bytes_since_entry: int = 0,
        max_timestamp_ms: int = NO_TIMESTAMP,
        max_timestamp_offset: int = NO_OFFSET,
        gaps_up_to: int = 0,
    ) -> None:
        if next_offset is None:
            next_offset = NO_OFFSET if position else base_offset
        check_scan_range(base_offset, next_offset, position, end, max_timestamp_offset)
        self._index_interval_bytes = index_interval_bytes
        self._check_crc = check_crc
        self._gaps_up_to = gaps_up_to
        self._end = -1 if end is None else end
        self._epochs: list[tuple[int, int]] = []
        self._offset_entries: tuple[array[int], array[int]] = array("I"), array("I")
        self._time_entries: tuple[array[int], array[int]] = array("q"), array("I")
        self._last_time_entry_ms = None if max_timestamp_offset == NO_OFFSET else max_timestamp_ms
        self._producers: dict[int, ProducerBatches] = {}
        self.base_offset = base_offset
        self.next_offset = next_offset
        """The offset after the last batch; -1 while it is unknown."""
        self.size = position
        """The position after the last valid batch, where the next batch begins."""
        self.wanted_bytes = BATCH_HEADER_SIZE
        """The minimum size of the next chunk."""
        self.damage: str | None = None
        """A description of the damage at position `size` that ended the scan, or None."""
        self.batch_count = 0
        self.bytes_since_entry = bytes_since_entry
        self.epoch = epoch
        """The leader epoch of the last batch."""
        self.first_last_offset = NO_OFFSET
        """The last offset of the first batch, for a comparison with its index entry.

        It is -1 before the first batch.
        """
        self.first_timestamp_ms: int | None = None
        """The greatest timestamp of the first batch."""
        self.max_timestamp_ms = max_timestamp_ms
        self.max_timestamp_offset = max_timestamp_offset
        """The last offset of the batch with the greatest timestamp, or -1."""

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """The leader epochs that begin in the scanned batches, each with the base offset of its first batch."""
        return list(self._epochs)

    @property
    def offset_entries(self) -> tuple[array[int], array[int]]:
        """New entries of the offset index: relative last offsets ("I"), positions ("I")."""
        offsets, positions = self._offset_entries
        return offsets[:], positions[:]

    @property
    def time_entries(self) -> tuple[array[int], array[int]]:
        """New entries of the time index: timestamps in ms ("q"), relative offsets ("I")."""
        timestamps_ms, offsets = self._time_entries
        return timestamps_ms[:], offsets[:]

    @property
    def producers(self) -> dict[int, ProducerBatches]:
        """The epoch and the last five batches of each idempotent producer, in the order of their first batches."""
        return dict(self._producers)

    def feed(self, chunk: Buffer, position: int) -> int:
        """Process the complete batches in a chunk of the file, up to the first damaged batch.

        :param position: the position of the chunk in the file; must be `size`.
        :returns: the new `size`, at which the next chunk must begin. It is unchanged if the chunk is shorter than
            `wanted_bytes`. Without CRC checks, the scan reads only headers, so `size` may be beyond the end of the
            chunk.
        :raises ValueError: `position` is not `size`.
        """
        if position != self.size:
            raise ValueError(f"the chunk begins at position {position}, but the scan continues at {self.size}")
        with memoryview(chunk) as view:
            while self.damage is None and self._take_batch(view, self.size - position):
                continue
        return self.size

    def _take_batch(self, view: memoryview, at: int) -> bool:
        """Process the batch at index `at` of `view`; return False if the batch is incomplete or damaged."""
        if self._end >= 0 and self.size >= self._end:
            return False
        self.damage = tail_damage(self.size, self._end)
        if self.damage is not None or len(view) - at < BATCH_HEADER_SIZE:
            return False
        header = BatchHeader._make(HEADER.unpack_from(view, at))
        expected = Expected(self.base_offset, self.next_offset, self.epoch, self._end, self._gaps_up_to)
        self.damage = header_damage(header, self.size, expected)
        if self.damage is None and self._check_crc:
            if header.size > len(view) - at:
                self.wanted_bytes = header.size
                return False
            self.damage = crc_damage(view, at, header, self.size)
        if self.damage is not None:
            return False
        self._note(header)
        self.wanted_bytes = BATCH_HEADER_SIZE
        return True

    def _note(self, header: BatchHeader) -> None:
        last_offset, timestamp_ms = header.last_offset, header.max_timestamp_ms
        if not self.batch_count:
            self.first_last_offset, self.first_timestamp_ms = last_offset, timestamp_ms
        self.batch_count += 1
        if timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms, self.max_timestamp_offset = timestamp_ms, last_offset
        if self.bytes_since_entry > self._index_interval_bytes:
            self._add_entries(last_offset)
            self.bytes_since_entry = 0
        self.bytes_since_entry += header.size
        self.size += header.size
        self.next_offset = last_offset + 1
        if header.leader_epoch != self.epoch:
            self.epoch = header.leader_epoch
            self._epochs.append((self.epoch, header.base_offset))
        if header.producer_id != NO_PRODUCER_ID and not header.is_control:
            self._note_producer(header)

    def _add_entries(self, last_offset: int) -> None:
        offsets, positions = self._offset_entries
        offsets.append(last_offset - self.base_offset)
        positions.append(self.size)
        last_ms = self._last_time_entry_ms
        if self.max_timestamp_offset != NO_OFFSET and (last_ms is None or self.max_timestamp_ms > last_ms):
            timestamps_ms, time_offsets = self._time_entries
            timestamps_ms.append(self.max_timestamp_ms)
            time_offsets.append(self.max_timestamp_offset - self.base_offset)
            self._last_time_entry_ms = self.max_timestamp_ms

    def _note_producer(self, header: BatchHeader) -> None:
        batch = (header.base_sequence, header.last_sequence, header.base_offset, header.last_offset)
        known = self._producers.get(header.producer_id)
        earlier = known[1][1 - BATCHES_KEPT :] if known and known[0] == header.producer_epoch else ()
        self._producers[header.producer_id] = (header.producer_epoch, (*earlier, batch))


def check_scan_range(
    base_offset: int, next_offset: int, position: int, end: int | None, max_timestamp_offset: int
) -> None:
    """Check the parameters of a scan.

    :raises ValueError: a parameter is out of range.
    """
    if base_offset < 0 or position < 0 or (end is not None and end < 0) or next_offset < NO_OFFSET:
        raise ValueError(f"base offset {base_offset}, next offset {next_offset}, position {position}, end {end}")
    if max_timestamp_offset != NO_OFFSET and not 0 <= max_timestamp_offset - base_offset <= RELATIVE_OFFSET_MAX:
        raise ValueError(f"offset {max_timestamp_offset} is not in the segment with base offset {base_offset}")


def damage_at(view: memoryview, at: int, position: int, expected: Expected, *, check_crc: bool) -> str | None:
    """Return the damage of the batch at index `at` of `view`, or None. `position` is its position in the file."""
    damage = tail_damage(position, expected.end)
    if damage is None:
        header = BatchHeader._make(HEADER.unpack_from(view, at))
        damage = header_damage(header, position, expected)
        if damage is None and check_crc:
            damage = crc_damage(view, at, header, position)
    return damage


def tail_damage(position: int, end: int) -> str | None:
    """Return the damage of a file that ends within a batch, or None."""
    if 0 <= end < position + BATCH_HEADER_SIZE:
        return f"batch at position {position}: only {end - position} of the header's {BATCH_HEADER_SIZE} bytes"
    return None


def header_damage(header: BatchHeader, position: int, expected: Expected) -> str | None:
    """Return the damage of a header, or its conflict with the expected batch, or None."""
    try:
        check_structure(header, position)
    except CorruptBatchError as error:
        return str(error)
    if 0 <= expected.end < position + header.size:
        return f"batch at position {position} goes on beyond {expected.end}"
    if position + header.size > SEGMENT_BYTES_MAX:
        return f"batch at position {position} goes on beyond {SEGMENT_BYTES_MAX}, the most that a segment may have"
    damage = _offset_damage(header, position, expected)
    if damage is None and header.leader_epoch < expected.epoch:
        return f"leader epoch {header.leader_epoch} at offset {header.base_offset} comes after {expected.epoch}"
    return damage


def _offset_damage(header: BatchHeader, position: int, expected: Expected) -> str | None:
    base_offset, last_offset = header.base_offset, header.last_offset
    follows = expected.next_offset in (NO_OFFSET, base_offset)
    if not follows and not expected.next_offset < base_offset <= expected.gaps_up_to:
        return f"batch with offset {base_offset} instead of {expected.next_offset}"
    if base_offset < expected.base_offset or last_offset >= OFFSET_MAX:
        return f"batch at position {position}: its offsets {base_offset} to {last_offset} are outside of the segment"
    if last_offset - expected.base_offset > RELATIVE_OFFSET_MAX:
        return (
            f"batch at position {position}: last offset {last_offset} is more than {RELATIVE_OFFSET_MAX}"
            f" above {expected.base_offset}"
        )
    return None


def crc_damage(view: memoryview, at: int, header: BatchHeader, position: int) -> str | None:
    """Return the damage of a complete batch with a wrong CRC, or None if the CRC is correct."""
    crc = crc32c(view[at + CRC_START : at + header.size])
    if crc != header.crc:
        return f"batch at position {position}: CRC {crc:#010x} computed, {header.crc:#010x} stored"
    return None


def count_records(body: Buffer, count: int) -> bool:
    """Return whether an uncompressed body consists of exactly `count` records, according to the lengths of the records.

    Each record must have at least the minimum size. The fields of the records are not read.

    >>> count_records(bytes((12, 0, 0, 0, 1, 1, 0)), 1)
    True
    """
    size = len(body)
    if not 0 <= count <= size // RECORD_SIZE_MIN:
        return False
    at = 0
    for _ in range(count):
        if at >= size:
            return False
        zigzag = shift = 0
        while (byte := body[at]) >= 0x80:
            zigzag |= (byte & 0x7F) << shift
            shift += 7
            at += 1
            if at >= size or (shift == 63 and body[at] > 1):
                return False
        zigzag |= byte << shift
        at += 1
        # An odd zigzag number means a negative length.
        if zigzag & 1 or not RECORD_SIZE_MIN - 1 <= zigzag >> 1 <= size - at:
            return False
        at += zigzag >> 1
    return at == size


def max_record_count(body_size: int, compression: Compression) -> int:
    """Return an upper limit for the number of records in a body of `body_size` bytes, which may be compressed.

    >>> max_record_count(70, Compression.NONE), max_record_count(0, Compression.ZSTD)
    (10, 0)
    """
    count = expanded_bytes_max(compression, body_size) // RECORD_SIZE_MIN
    return min(count, COMPRESSED_RECORDS_MAX) if compression else count


def usual_header(records: Buffer, bytes_max: int) -> tuple[int, ...] | None:
    """Return the header fields of a producer's batch on the fast path, or None if the batch is unusual.

    A usual batch is the only batch in its buffer, its content matches its header, and any producer may send it.
    `barnabas.storage.log_appender` would not reject it.
    """
    with memoryview(records) as view:
        return _usual_header(view, bytes_max)


def stamp_plain_batches(
    requests: Sequence[Buffer],
    start: int,
    base_offset: int,
    leader_epoch: int,
    *,
    batch_bytes_max: int,
    bytes_max: int,
    offset_max: int,
    timestamp_ms_max: int,
) -> list[StampedBatch]:
    """Stamp offsets and the leader epoch into plain batches of producers, in place.

    Begin at `requests[start]`, and stop at the first batch that is not plain.

    A plain batch is a usual batch (see `usual_header`) without a producer id. If the first batch has a producer id, the
    caller must have checked it. Then a plain batch is a usual batch of the same producer and epoch that has the next
    sequence. A sequence overflow (`SEQUENCE_MAX`) ends the series. Batches that are not plain are not changed.

    :param requests: batches in writable buffers. A batch in a read-only buffer is not plain.
    :param base_offset: the offset of the first batch. It must not be negative.
    :param batch_bytes_max: the maximum size of each batch.
    :param bytes_max: the maximum size of all batches together.
    :param offset_max: the greatest offset of a record.
    :param timestamp_ms_max: the greatest timestamp of a batch.
    :returns: the stamped batches.
    """
    stamped: list[StampedBatch] = []
    before: BatchHeader | None = None
    for number in range(start, len(requests)):
        with memoryview(requests[number]) as view:
            header = _usual_header(view, min(batch_bytes_max, bytes_max))
            if (
                header is None
                or view.readonly
                or header.last_offset_delta > offset_max - base_offset
                or header.max_timestamp_ms > timestamp_ms_max
                or (before is not None and not _follows(before, header))
            ):
                break
            stamp(view, 0, base_offset, leader_epoch)
        last_offset = base_offset + header.last_offset_delta
        stamped.append((header.size, last_offset, header.max_timestamp_ms))
        base_offset = last_offset + 1
        bytes_max -= header.size
        before = header
    return stamped


def _follows(before: BatchHeader, header: BatchHeader) -> bool:
    """Return whether `header` follows `before` in the sequence of a producer.

    Return True if both batches have no producer id.
    """
    if header.producer_id != before.producer_id:
        return False
    return header.producer_id == NO_PRODUCER_ID or (
        header.producer_epoch == before.producer_epoch
        and header.base_sequence == before.base_sequence + before.record_count
    )


def plain_replicas(
    records: Buffer, next_offset: int, leader_epoch: int, *, offset_max: int, timestamp_ms_max: int
) -> list[StampedBatch]:
    """Return the plain batches at the beginning of a leader's response; stop at the first batch that is not plain.

    A plain batch is valid, has no producer id, and follows the previous batch directly, in the same leader epoch.
    `barnabas.storage.log_appender` would find no error.

    :param next_offset: the offset of the first batch. It must not be negative.
    :param offset_max: the greatest offset of a record.
    :param timestamp_ms_max: the greatest timestamp of a batch.
    """
    found: list[StampedBatch] = []
    at = 0
    with memoryview(records) as view:
        while len(view) - at >= BATCH_HEADER_SIZE:
            header = BatchHeader._make(HEADER.unpack_from(view, at))
            try:
                check_structure(header, at)
            except CorruptBatchError:
                break
            if (
                header.size > len(view) - at
                or header.base_offset != next_offset
                or header.last_offset_delta > offset_max - next_offset
                or header.leader_epoch != leader_epoch
                or header.producer_id != NO_PRODUCER_ID
                or header.attributes & ~PRODUCERS_ATTRIBUTES
                or header.max_timestamp_ms > timestamp_ms_max
                or crc32c(view[at + CRC_START : at + header.size]) != header.crc
            ):
                break
            found.append((header.size, header.last_offset, header.max_timestamp_ms))
            next_offset = header.last_offset + 1
            at += header.size
    return found


def _usual_header(view: memoryview, bytes_max: int) -> BatchHeader | None:
    if not BATCH_HEADER_SIZE <= len(view) <= bytes_max:
        return None
    header = BatchHeader._make(HEADER.unpack_from(view))
    try:
        check_structure(header, 0)
    except CorruptBatchError:
        return None
    has_sequence = header.producer_id >= 0 and header.producer_epoch >= 0 and header.base_sequence >= 0
    is_usual = (
        header.size == len(view)
        and (header.producer_id == NO_PRODUCER_ID or has_sequence)
        and 1 <= header.record_count == header.last_offset_delta + 1
        and not header.attributes & ~PRODUCERS_ATTRIBUTES
        and crc32c(view[CRC_START:]) == header.crc
        and _has_its_records(view[BATCH_HEADER_SIZE:], header)
    )
    return header if is_usual else None


def _has_its_records(body: memoryview, header: BatchHeader) -> bool:
    if header.attributes & COMPRESSION_MASK:
        return header.record_count <= max_record_count(len(body), header.compression)
    return count_records(body, header.record_count)

"""The loops that run once per batch, of a file or of what producers send, in Python. The compiled twin is
`scan_compiled`: same names, same results.

Whoever changes one changes the other; the tests of `records` run on both and compare them. What is wrong with a batch
is said here for both of them.
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
"""Kafka's indexes hold offsets as signed 32-bit numbers above the base offset of the segment."""

SEGMENT_BYTES_MAX = 2**31 - 1
"""Positions in a segment are signed 32-bit numbers."""

BATCHES_KEPT = 5
"""Batches per producer: what `max.in.flight.requests.per.connection` may be with idempotence (KIP-98)."""

RECORD_SIZE_MIN = 7
"""Bytes of a record with neither key nor value nor headers: six fields of one byte, and their length."""

PRODUCERS_ATTRIBUTES = COMPRESSION_MASK | TIMESTAMP_TYPE_MASK
"""What a producer without transactions may say of a batch."""

ProducerBatches = tuple[int, tuple[tuple[int, int, int, int], ...]]
"""A producer's epoch, and first sequence, last sequence, base offset and last offset of its last batches."""


StampedBatch = tuple[int, int, int]
"""Size in bytes, last offset and greatest timestamp of a batch."""


class Expected(NamedTuple):
    """What the next batch of a segment must fit."""

    base_offset: int
    """Of the segment."""
    next_offset: int
    """The base offset of the batch, or -1: any."""
    epoch: int
    """The leader epoch of the batch before."""
    end: int
    """Where the file ends, or -1: not known."""
    gaps_up_to: int = 0
    """Up to which offset a batch may begin later than where the one before ended."""


class SegmentScan:
    """Goes along the batches of a segment, checks each, and keeps what the indexes hold of them.

    A chunk of the file is fed, and the next chunk begins where the scan says. The first batch that is damaged ends
    the scan. Not safe to use from several threads at once; different scans in different threads go on side by side.

    >>> scan = SegmentScan(0, check_crc=True)
    >>> scan.feed(b"", 0), scan.wanted_bytes, scan.damage
    (0, 61, None)

    :param base_offset: of the segment.
    :param next_offset: the base offset of the first batch that is fed; None: the segment's at position 0, else any.
    :param index_interval_bytes: an index entry is made for the batch after more bytes than these.
    :param check_crc: check CRC-32C of each batch; else bodies are neither looked at nor wanted.
    :param epoch: the leader epoch of the batch before, or -1.
    :param position: where the first batch begins that is fed.
    :param end: where the file ends: a batch that goes on beyond it is damaged. None: not known.
    :param bytes_since_entry: bytes from the last index entry to `position`. To scan again from an index entry, and
        to make that entry again: `index_interval_bytes` + 1.
    :param max_timestamp_ms: the last entry of the time index that is kept, with `max_timestamp_offset`; or -1 both.
    :param gaps_up_to: a batch that begins at or below this offset may begin later than where the one before ended, as
        compaction leaves them; the others must follow one another.
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
        """The offset after the last batch; -1 as long as it is not known."""
        self.size = position
        """The position after the last sound batch, where the next one begins."""
        self.wanted_bytes = BATCH_HEADER_SIZE
        """How long the next chunk must be at least for the scan to go on."""
        self.damage: str | None = None
        """What is wrong with the batch at `size`; the scan is over then."""
        self.batch_count = 0
        self.bytes_since_entry = bytes_since_entry
        self.epoch = epoch
        """The leader epoch of the last batch."""
        self.first_last_offset = NO_OFFSET
        """The last offset of the first batch, to be compared with the index entry that led to it; or -1."""
        self.first_timestamp_ms: int | None = None
        """The greatest timestamp of the first batch."""
        self.max_timestamp_ms = max_timestamp_ms
        self.max_timestamp_offset = max_timestamp_offset
        """The last offset of the batch that has the greatest timestamp, or -1."""

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """Leader epochs other than that of the batch before, with the base offset of their first batch."""
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
        """Of each idempotent producer, in the order in which they first wrote, its epoch and last five batches."""
        return dict(self._producers)

    def feed(self, chunk: Buffer, position: int) -> int:
        """Take in the whole sound batches of a chunk of the file.

        :param position: where in the file the chunk begins; must be `size`.
        :returns: the new `size`, where the next chunk must begin. Unchanged where the chunk is shorter than
            `wanted_bytes`. Without CRC it may lie behind the chunk, of which only headers are looked at.
        :raises ValueError: another position.
        """
        if position != self.size:
            raise ValueError(f"a chunk from position {position}, the scan goes on at {self.size}")
        with memoryview(chunk) as view:
            while self.damage is None and self._take_batch(view, self.size - position):
                continue
        return self.size

    def _take_batch(self, view: memoryview, at: int) -> bool:
        """Take in the batch at `at`; return whether it was there, and sound."""
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

    :raises ValueError: one is out of range.
    """
    if base_offset < 0 or position < 0 or (end is not None and end < 0) or next_offset < NO_OFFSET:
        raise ValueError(f"base offset {base_offset}, next offset {next_offset}, position {position}, end {end}")
    if max_timestamp_offset != NO_OFFSET and not 0 <= max_timestamp_offset - base_offset <= RELATIVE_OFFSET_MAX:
        raise ValueError(f"offset {max_timestamp_offset} is not in the segment with base offset {base_offset}")


def damage_at(view: memoryview, at: int, position: int, expected: Expected, *, check_crc: bool) -> str | None:
    """Return what is wrong with the batch at `at`, which lies at `position` of the file."""
    damage = tail_damage(position, expected.end)
    if damage is None:
        header = BatchHeader._make(HEADER.unpack_from(view, at))
        damage = header_damage(header, position, expected)
        if damage is None and check_crc:
            damage = crc_damage(view, at, header, position)
    return damage


def tail_damage(position: int, end: int) -> str | None:
    """Return what is wrong where a file ends so soon that there can be no batch."""
    if 0 <= end < position + BATCH_HEADER_SIZE:
        return f"batch at position {position}: {end - position} bytes left, a batch header has {BATCH_HEADER_SIZE}"
    return None


def header_damage(header: BatchHeader, position: int, expected: Expected) -> str | None:
    """Return what is wrong with a header, by itself or in its place."""
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
        return f"batch at position {position}: offsets from {base_offset} to {last_offset}"
    if last_offset - expected.base_offset > RELATIVE_OFFSET_MAX:
        return (
            f"batch at position {position}: last offset {last_offset} is more than {RELATIVE_OFFSET_MAX}"
            f" above {expected.base_offset}"
        )
    return None


def crc_damage(view: memoryview, at: int, header: BatchHeader, position: int) -> str | None:
    """Return what is wrong with the CRC of a batch that lies in `view` as a whole."""
    crc = crc32c(view[at + CRC_START : at + header.size])
    if crc != header.crc:
        return f"batch at position {position}: CRC {crc:#010x} computed, {header.crc:#010x} stored"
    return None


def count_records(body: Buffer, count: int) -> bool:
    """Return whether an uncompressed body of a batch is exactly `count` records, by their lengths alone.

    Each has at least the bytes that a record without key, value and headers has. Their fields are not looked at.

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
        # An odd zigzag number stands for a negative one.
        if zigzag & 1 or not RECORD_SIZE_MIN - 1 <= zigzag >> 1 <= size - at:
            return False
        at += zigzag >> 1
    return at == size


def max_record_count(body_size: int, compression: Compression) -> int:
    """Return a number of records that a body of `body_size` bytes, as it is stored, cannot hold more of.

    >>> max_record_count(70, Compression.NONE), max_record_count(0, Compression.ZSTD)
    (10, 0)
    """
    count = expanded_bytes_max(compression, body_size) // RECORD_SIZE_MIN
    return min(count, COMPRESSED_RECORDS_MAX) if compression else count


def usual_header(records: Buffer, bytes_max: int) -> tuple[int, ...] | None:
    """Return the fields of the header of a batch that a producer sent, if it is usual; else None.

    Usual is a batch that is alone in its buffer, holds what its header says, and may come from any producer:
    `barnabas.storage.log_appender` would find nothing wrong with it.
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
    """Give batches of producers their offsets and leader epoch, in place, from `requests[start]` on: one after the
    other, up to the first that is not plain.

    Plain is a usual batch without producer id; or, where the first one has a producer id, a usual batch of the same
    producer and epoch whose sequence follows on the one before. Whether the first one may come is for the caller to
    know. Where sequences go round (`SEQUENCE_MAX`) nothing follows. What is not plain is not touched.

    :param requests: of which those that are not writable are not plain.
    :param base_offset: of the first batch; not negative.
    :param batch_bytes_max: of each batch.
    :param bytes_max: of all of them together.
    :param offset_max: the greatest offset that a record may have.
    :param timestamp_ms_max: the greatest timestamp that a batch may have.
    :returns: what became of the plain ones.
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
    """Return whether a batch is of the same producer as the one before, and the next of it; or of none either."""
    if header.producer_id != before.producer_id:
        return False
    return header.producer_id == NO_PRODUCER_ID or (
        header.producer_epoch == before.producer_epoch
        and header.base_sequence == before.base_sequence + before.record_count
    )


def plain_replicas(
    records: Buffer, next_offset: int, leader_epoch: int, *, offset_max: int, timestamp_ms_max: int
) -> list[StampedBatch]:
    """Return the batches at the beginning of what a leader sent that are plain, up to the first that is not.

    Plain is a sound batch without producer id that comes right after the one before, in the same leader epoch.
    `barnabas.storage.log_appender` would find nothing wrong with it.

    :param next_offset: of the first batch; not negative.
    :param offset_max: the greatest offset that a record may have.
    :param timestamp_ms_max: the greatest timestamp that a batch may have.
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

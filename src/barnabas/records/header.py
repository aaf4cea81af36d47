"""The header of a record batch (61 bytes), and functions that read, check and stamp it without parsing records.

A broker needs only this part of a batch. The functions take a buffer (bytes, bytearray or memoryview) and a position in
the buffer, and copy only the header fields.

Layout (format version 2 of Kafka's protocol documentation, KIP-98), big-endian:

    base offset i64 | batch length i32 | leader epoch i32 | magic i8 | CRC-32C u32 | attributes i16 |
    last offset delta i32 | base timestamp i64 | max timestamp i64 | producer id i64 | producer epoch i16 |
    base sequence i32 | record count i32 | records

The batch length is the number of bytes after this field. The CRC covers all bytes from the attributes to the end. So
the broker can stamp the base offset and the leader epoch without a new CRC.

The attributes are bits 0-2 compression, bit 3 timestamp type, bit 4 transactional, bit 5 control, bit 6 delete horizon.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from crc32c import crc32c

from barnabas.errors import CorruptBatchError
from barnabas.model import NO_LEADER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TimestampType
from barnabas.records.compression import Compression

Buffer = bytes | bytearray | memoryview
"""A buffer that contains batches."""

BATCH_HEADER_SIZE = 61
"""The size of a batch header, in bytes."""

MAGIC = 2
"""The only batch format that the broker stores and serves."""

LENGTH_OVERHEAD = 12
"""The number of bytes that the batch length does not include: the base offset and the length field itself."""

CRC_START = 21
"""The position in a batch of the first byte that the CRC covers."""

COMPRESSED_RECORDS_MAX = 4_000_000
"""The maximum number of records in a compressed batch.

Without this limit, a batch of a few KB could expand to a GB of objects.
"""

SEQUENCE_MAX = 2**31 - 1
"""The greatest sequence number of an idempotent producer. After it, the sequence continues at 0 (KIP-98)."""

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40
"""The attribute bit of a batch whose base timestamp is the delete horizon of its tombstones (KIP-534).

The timestamps of its records are relative to this base timestamp.
"""

_COMPRESSION_LAST = max(Compression)
HEADER = struct.Struct(">qiibIhiqqqhii")
"""The fields of `BatchHeader`, in their order."""

CRC = struct.Struct(">I")
CRC_POSITION = 17

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_TIMESTAMPS = struct.Struct(">qq")
_PRODUCER = struct.Struct(">qhi")

_EPOCH_MAGIC_CRC = struct.Struct(">ibI")
_BASE_OFFSET_BYTES = 8
_OFFSET_0 = bytes(_BASE_OFFSET_BYTES)

_LEADER_EPOCH_POSITION = 12
_ATTRIBUTES_POSITION = 21
_BASE_TIMESTAMP_POSITION = 27
_MAX_TIMESTAMP_POSITION = 35
_PRODUCER_POSITION = 43

assert HEADER.size == BATCH_HEADER_SIZE


class BatchHeader(NamedTuple):
    """The header of one batch, unchecked.

    It is a named tuple for speed, because the broker creates a header object for each batch.
    """

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """The size of the whole batch, in bytes."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the last record of this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """The compression of the batch.

        :raises CorruptBatchError: the attributes contain an unknown compression.
        """
        kind = self.attributes & COMPRESSION_MASK
        if kind > _COMPRESSION_LAST:
            raise CorruptBatchError(f"compression {kind} does not exist (0 to {_COMPRESSION_LAST})")
        return Compression(kind)

    @property
    def timestamp_type(self) -> TimestampType:
        if self.attributes & TIMESTAMP_TYPE_MASK:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_MASK)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time after which the tombstones of the batch can be removed, or None if compaction has not set it yet."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON_MASK else None

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; -1 if the batch has no sequence numbers."""
        if self.base_sequence < 0:
            return self.base_sequence
        last = self.base_sequence + self.last_offset_delta
        return last if last <= SEQUENCE_MAX else last - SEQUENCE_MAX - 1


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header that begins at `position`.

    :raises CorruptBatchError: the buffer ends within the header.
    """
    if position + BATCH_HEADER_SIZE > len(buffer):
        raise CorruptBatchError(
            f"batch at position {position}: only {len(buffer) - position} of the header's {BATCH_HEADER_SIZE} bytes"
        )
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def pack_header(buffer: bytearray | memoryview, header: BatchHeader | tuple[int, ...]) -> None:
    """Write a header, or its fields in order, to the beginning of `buffer`. The CRC is not recomputed."""
    HEADER.pack_into(buffer, 0, *header)


def iter_headers(buffer: Buffer, *, partial_ok: bool = False) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and header of each complete batch in `buffer`.

    :param partial_ok: True to stop without an error at an incomplete batch. A fetch response may end with such a batch.
    :raises CorruptBatchError: a batch length is too small, or a batch is incomplete and `partial_ok` is false.
    """
    position = 0
    end = len(buffer)
    while position < end:
        if end - position < BATCH_HEADER_SIZE:
            if partial_ok:
                return
            raise CorruptBatchError(
                f"batch at position {position}: only {end - position} of the header's {BATCH_HEADER_SIZE} bytes"
            )
        header = BatchHeader._make(HEADER.unpack_from(buffer, position))
        next_position = position + header.batch_length + LENGTH_OVERHEAD
        if next_position < position + BATCH_HEADER_SIZE:
            raise CorruptBatchError(f"batch at position {position}: length {header.batch_length} is too small")
        if next_position > end:
            if partial_ok:
                return
            raise CorruptBatchError(
                f"batch at position {position}: only {end - position} of the batch's {header.size} bytes"
            )
        yield position, header
        position = next_position


def check_batch(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Check the format, length, CRC and counts of a batch without parsing records.

    :raises CorruptBatchError: the check failed; the message contains the expected value.
    """
    check_structure(header, position)
    end = position + header.batch_length + LENGTH_OVERHEAD
    if end > len(buffer):
        raise CorruptBatchError(
            f"batch at position {position}: only {len(buffer) - position} of the batch's {header.size} bytes"
        )
    view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    crc = crc32c(view[position + CRC_START : end])
    if crc != header.crc:
        raise CorruptBatchError(f"batch at position {position}: CRC {crc:#010x} computed, {header.crc:#010x} stored")


def check_structure(header: BatchHeader, position: int) -> None:
    """Check the fields of a header.

    :raises CorruptBatchError: the check failed; the message contains the expected value.
    """
    if header.magic != MAGIC:
        raise CorruptBatchError(f"batch at position {position}: magic {header.magic}, should be {MAGIC}")
    if header.batch_length < BATCH_HEADER_SIZE - LENGTH_OVERHEAD:
        raise CorruptBatchError(f"batch at position {position}: length {header.batch_length} is too small")
    if header.base_offset < 0 or header.last_offset_delta < 0:
        raise CorruptBatchError(
            f"batch at position {position}: its offsets {header.base_offset} to {header.last_offset} are no valid range"
        )
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise CorruptBatchError(
            f"batch at position {position}: {header.record_count} records in {header.last_offset_delta + 1} offsets"
        )
    if header.attributes & COMPRESSION_MASK > _COMPRESSION_LAST:
        raise CorruptBatchError(
            f"batch at position {position}: compression {header.attributes & COMPRESSION_MASK}"
            f" does not exist (0 to {_COMPRESSION_LAST})"
        )


def stamp(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write the base offset and the leader epoch of the batch at `position`, in place.

    The CRC does not cover these fields.
    """
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + _LEADER_EPOCH_POSITION, leader_epoch)


def set_identity(batch: bytearray | memoryview, producer_id: int, epoch: int, sequence: int) -> None:
    """Set the producer id, epoch and base sequence of a batch, in place (KIP-98).

    The batch also gets base offset 0, no leader epoch and a new CRC. The other fields do not change.
    """
    _PRODUCER.pack_into(batch, _PRODUCER_POSITION, producer_id, epoch, sequence)
    batch[:_BASE_OFFSET_BYTES] = _OFFSET_0
    _EPOCH_MAGIC_CRC.pack_into(
        batch, _LEADER_EPOCH_POSITION, NO_LEADER_EPOCH, MAGIC, crc32c(memoryview(batch)[CRC_START:])
    )


read_producer: Callable[[Buffer], tuple[int, int, int]] = functools.partial(
    _PRODUCER.unpack_from, offset=_PRODUCER_POSITION
)
"""A function that returns the producer id, epoch and base sequence of the batch in a buffer.

All three are -1 if the batch has no producer id.
"""


def set_timestamp(buffer: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Set the timestamp of all records of the batch at `position`, in place.

    The records must share one timestamp. The CRC is not updated.
    """
    _TIMESTAMPS.pack_into(buffer, position + _BASE_TIMESTAMP_POSITION, timestamp_ms, timestamp_ms)


def set_log_append_time(buffer: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Set the log append time of the batch at `position`, in place, and update the CRC.

    The records keep the producer's timestamps, but readers use the max timestamp of the batch for all records (KIP-32).
    """
    header = read_header(buffer, position)
    _ATTRIBUTES.pack_into(buffer, position + _ATTRIBUTES_POSITION, header.attributes | TIMESTAMP_TYPE_MASK)
    _MAX_TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, timestamp_ms)
    write_crc(buffer, position, header.size)


def write_crc(buffer: bytearray | memoryview, position: int, size: int) -> None:
    """Compute and store the CRC of the batch of `size` bytes at `position`, in place."""
    with memoryview(buffer) as view:
        crc = crc32c(view[position + CRC_START : position + size])
    CRC.pack_into(buffer, position + CRC_POSITION, crc)


def empty_batch(base_offset: int, last_offset: int, leader_epoch: int) -> bytearray:
    """Return a batch without records that covers the offsets from `base_offset` to `last_offset`.

    Clients skip such a batch.
    """
    batch = bytearray(BATCH_HEADER_SIZE)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=BATCH_HEADER_SIZE - LENGTH_OVERHEAD,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=last_offset - base_offset,
        base_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=0,
    )
    pack_header(batch, header)
    write_crc(batch, 0, len(batch))
    return batch

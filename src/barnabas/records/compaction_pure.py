"""The loops of log compaction over single records, in Python. The compiled equivalent is `compaction_compiled`.

Both have the same names and results. A change of one module must also change the other; the tests of `records` compare
both. If a batch is damaged, the compiled module calls this module to raise the error.

The rules are the same as in Kafka's cleaner (KIP-58, KIP-98, KIP-534). `filter_batches` describes them.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from barnabas.errors import CorruptBatchError
from barnabas.model import NO_OFFSET, NO_PRODUCER_ID, NO_TIMESTAMP, TimestampType
from barnabas.records.codec_pure.decoding import Lists, decode_batch
from barnabas.records.codec_pure.limits import BATCH_BYTES_MAX, OFFSET_MAX, wrapped_timestamp
from barnabas.records.codec_pure.varints import decode_varint, varint
from barnabas.records.compression import DECOMPRESSED_BYTES_MAX, Compression, Decompressor, compress
from barnabas.records.header import (
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    DELETE_HORIZON_MASK,
    LENGTH_OVERHEAD,
    BatchHeader,
    Buffer,
    check_batch,
    check_structure,
    pack_header,
    read_header,
    write_crc,
)

CODEC = "pure"

SECRET_BYTES = 16
DIGEST_BYTES = 16
OFFSET_BYTES = 5
ENTRY_BYTES = DIGEST_BYTES + OFFSET_BYTES
RELATIVE_OFFSET_MAX = 2 ** (8 * OFFSET_BYTES) - 2
"""The maximum relative offset in an entry.

An entry stores the offset relative to the map's base offset, plus one; 0 marks a free slot.
"""

SLOTS_MAX = 2**32 - 1
"""The maximum number of slots (84 GiB of memory).

It is limited because slot positions are computed with 64-bit numbers.
"""

DELETE_HORIZON_MAX_MS = 2**61 - 1
"""The maximum delete horizon. Up to this limit, its difference from usual timestamps fits into 64 bits."""

KEYLESS_MAX = 1_000
"""The maximum number of records without keys that are reported for a batch."""


class Added(NamedTuple):
    """The result of `OffsetMap.add`."""

    size: int
    """The size of the added batches, in bytes.

    The next batch in the buffer is incomplete, or did not fit into the map.
    """
    next_offset: int
    """The offset below which the map contains the keys of all records."""
    is_full: bool
    """True if the next batch did not fit into the map. If the map was empty before, it is too small for this batch."""


class Filtering(NamedTuple):
    """The parameters of `filter_batches`, in addition to the offset map."""

    now_ms: int
    """The current time. Tombstones are removed if the current time has reached the delete horizon of their batch."""
    delete_retention_ms: int
    """The time from the first cleaning of a tombstone to the delete horizon of its batch."""
    last_of_producers: Mapping[int, int]
    """For each active producer id, the last offset of its newest batch in the log."""
    decompressed_bytes_max: int
    """The maximum decompressed size of the records of a batch."""
    round_end_offset: int = NO_OFFSET
    """The end of the range to clean.

    The batch that ends there remains, even if it becomes empty. Otherwise, the log end offset would be lost if all
    later segments are empty.
    """


class Filtered(NamedTuple):
    """The remaining batches. The caller feeds the written bytes to a `SegmentScan` to build the indexes."""

    chunks: list[Buffer]
    """The remaining batches in order. Unchanged batches are views of the input buffer."""
    bytes_read: int
    """The size of the complete batches in the input buffer, in bytes."""
    bytes_kept: int
    """The size of all chunks, in bytes."""
    batches_read: int
    batches_kept: int
    records_read: int
    records_kept: int
    next_offset: int
    """The offset after the last batch in the input; -1 if there was no batch."""


class OffsetMap:
    """The latest offset of each key in a range of the log, in memory of a fixed size.

    All entries are in one allocation, and the operating system provides its memory as entries are added. An entry has
    21 bytes: a keyed hash of 128 bits instead of the key, and the offset. At most 90 % of the slots are used, so a key
    takes less than 24 bytes.

    If two keys had the same hash, the map would treat them as one key, and a record would be lost. Clients choose the
    keys and know the hash function, but not the secret. So clients cannot construct equal hashes. The probability of a
    random collision among n keys is about n * n / 2**129, which is less than 10**-20 for a billion keys. Kafka's
    cleaner relies on MD5 in the same way, without a secret.

    >>> OffsetMap(24 * 1000, 0, bytes(16)).capacity
    1027

    :param memory_bytes: the memory for the entries. It need not exceed 24 bytes per record to add.
    :param base_offset: the lowest offset of a record to add. Entries contain offsets relative to it, up to 2**40 - 2.
    :param secret: 16 random bytes that no client knows.
    :raises ValueError: the memory is too small for one key, the base offset is out of range, or the secret has the
        wrong size.
    """

    def __init__(self, memory_bytes: int, base_offset: int, secret: bytes) -> None:
        self._slots = check_map_parameters(memory_bytes, base_offset, secret)
        self.base_offset = base_offset
        self.end_offset = base_offset
        """The offset below which all records were added. Records from this offset on always remain."""
        self.capacity = capacity_of(self._slots)
        """The maximum number of different keys."""
        self._count = 0
        self._secret = secret
        # mmap, unlike a bytearray, does not write all of its memory at creation.
        self._table = mmap.mmap(-1, self._slots * ENTRY_BYTES)

    def __len__(self) -> int:
        return self._count

    def latest(self, key: Buffer) -> int | None:
        """Return the latest offset of a key, or None if the key was not added."""
        slot, _, is_there = self._find(self._digest(key))
        return self.base_offset + self._relative_offset(slot) if is_there else None

    def add(self, batches: Buffer, first_offset: int, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Added:
        """Add the keys of the records in complete batches, as many batches as fit.

        Control batches have no keys. The map may contain some keys of the batch that does not fit. These keys are
        harmless, because their offsets are not below `end_offset`.

        :param batches: contiguous batches of a log; the last one may be incomplete.
        :param first_offset: records below this offset are skipped.
        :param decompressed_bytes_max: the maximum decompressed size of the records of a batch.
        :raises CorruptBatchError: a batch is damaged. The map may contain some of its keys and must not be used.
        :raises ValueError: `first_offset` is below the map's base offset.
        """
        check_first_offset(first_offset, self.base_offset)
        decompressor = Decompressor(decompressed_bytes_max)
        size = 0
        with memoryview(batches) as view:
            for position, header in whole_batches(view):
                if not self._add_batch(view, position, header, first_offset, decompressor):
                    self.end_offset = max(self.end_offset, header.base_offset)
                    return Added(size, self.end_offset, is_full=True)
                size += header.size
                self.end_offset = max(self.end_offset, header.next_offset)
        return Added(size, self.end_offset, is_full=False)

    def _add_batch(
        self, view: memoryview, position: int, header: BatchHeader, first_offset: int, decompressor: Decompressor
    ) -> bool:
        if header.is_control or header.last_offset < first_offset:
            return True
        if header.last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return False
        _, lists = records_of(view, position, header, decompressor)
        return all(
            key is None or offset < first_offset or self._put(key, offset)
            for key, offset in zip(lists.keys, lists.offsets, strict=True)
        )

    def _digest(self, key: Buffer) -> bytes:
        return hashlib.blake2b(key, digest_size=DIGEST_BYTES, key=self._secret).digest()

    def _put(self, key: bytes, offset: int) -> bool:
        """Store the offset of a key, unless a later offset is stored.

        Return False if there is no space for another key.
        """
        digest = self._digest(key)
        relative_offset = offset - self.base_offset
        slot, free, is_there = self._find(digest)
        if is_there:
            relative_offset = max(relative_offset, self._relative_offset(slot))
        elif self._count == self.capacity:
            return False
        else:
            self._make_room(slot, free)
            self._count += 1
        at = slot * ENTRY_BYTES
        self._table[at : at + ENTRY_BYTES] = digest + (relative_offset + 1).to_bytes(OFFSET_BYTES, "little")
        return True

    def _relative_offset(self, slot: int) -> int:
        """Return the relative offset in a slot; -1 if the slot is free."""
        end = (slot + 1) * ENTRY_BYTES
        return int.from_bytes(self._table[end - OFFSET_BYTES : end], "little") - 1

    def _home(self, digest: bytes) -> int:
        return int.from_bytes(digest[:8], "little") * self._slots >> 64

    def _find(self, digest: bytes) -> tuple[int, int, bool]:
        """Find a key; return its slot or insertion slot, the next free slot, and whether the key was found.

        Entries are in the order of their home slots (linear probing with Robin Hood hashing). A search ends at an entry
        that is closer to its own home slot than the key would be at this slot.
        """
        slot = self._home(digest)
        distance = 0
        while self._relative_offset(slot) >= 0:
            found = self._table[slot * ENTRY_BYTES : slot * ENTRY_BYTES + DIGEST_BYTES]
            if found == digest:
                return slot, slot, True
            if (slot - self._home(found)) % self._slots < distance:
                break
            slot = (slot + 1) % self._slots
            distance += 1
        free = slot
        while self._relative_offset(free) >= 0:
            free = (free + 1) % self._slots
        return slot, free, False

    def _make_room(self, slot: int, free: int) -> None:
        """Move all entries from `slot` to the slot before `free` by one slot, so that `slot` becomes free."""
        table = self._table
        if free < slot:
            table.move(ENTRY_BYTES, 0, free * ENTRY_BYTES)
            free = self._slots - 1
            table.move(0, free * ENTRY_BYTES, ENTRY_BYTES)
        table.move((slot + 1) * ENTRY_BYTES, slot * ENTRY_BYTES, (free - slot) * ENTRY_BYTES)


def check_map_parameters(memory_bytes: int, base_offset: int, secret: bytes) -> int:
    """Check the parameters of a map; return its number of slots.

    :raises ValueError: a parameter is out of range.
    """
    slots = min(memory_bytes // ENTRY_BYTES, SLOTS_MAX)
    if capacity_of(slots) < 1:
        raise ValueError(f"{memory_bytes} bytes are too few for a key; at least {2 * ENTRY_BYTES} are needed")
    if not 0 <= base_offset < OFFSET_MAX:
        raise ValueError(f"base offset {base_offset} is out of range")
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"the secret has {len(secret)} bytes, not {SECRET_BYTES}")
    return slots


def check_first_offset(first_offset: int, base_offset: int) -> None:
    """Check that records from `first_offset` on can be added to a map.

    :raises ValueError: the offset is below the map's base offset.
    """
    if first_offset < base_offset:
        raise ValueError(f"records from offset {first_offset} for a map from offset {base_offset}")


def capacity_of(slots: int) -> int:
    """Return the maximum number of keys in a map with this number of slots."""
    return slots * 9 // 10


def filter_batches(batches: Buffer, offset_map: OffsetMap, filtering: Filtering) -> Filtered:
    """Remove superseded records from batches; return the remaining batches.

    - Batches at or above the map's `end_offset`, and control batches, remain unchanged.
    - A record remains if the map contains no later offset for its key. Records without a key are removed.
    - Tombstones (records without a value) remain until the delete horizon of their batch. The first cleaning sets the
      horizon to `now_ms + delete_retention_ms`. The horizon replaces the base timestamp, and bit 6 of the attributes
      marks this. The timestamps of the records become relative to the horizon (KIP-534).
    - A batch without records is removed, with two exceptions: it ends at `round_end_offset`, or it is the newest batch
      of an active producer and contains the producer's last sequence.

    Offsets, timestamps, headers, producer, sequence, leader epoch and compression do not change. The max timestamp of a
    changed batch becomes the greatest timestamp of the remaining records, unless the batch has a log append time. A
    batch without removed records is not encoded again.

    :param batches: contiguous batches of a log; the last one may be incomplete.
    :raises CorruptBatchError: a batch is damaged.
    """
    chunks: list[Buffer] = []
    bytes_read = bytes_kept = batches_read = batches_kept = records_read = records_kept = 0
    next_offset = NO_OFFSET
    decompressor = Decompressor(filtering.decompressed_bytes_max)
    view = memoryview(batches)
    run_start = 0
    for position, header in whole_batches(view):
        changed = _filter_batch(view, position, header, offset_map, filtering, decompressor)
        bytes_read += header.size
        batches_read += 1
        records_read += header.record_count
        next_offset = header.next_offset
        if changed is None:
            bytes_kept += header.size
            batches_kept += 1
            records_kept += header.record_count
            continue
        if run_start < position:
            chunks.append(view[run_start:position])
        run_start = bytes_read
        if changed:
            chunks.append(changed)
            bytes_kept += len(changed)
            batches_kept += 1
            records_kept += read_header(changed).record_count
    if run_start < bytes_read:
        chunks.append(view[run_start:bytes_read])
    return Filtered(chunks, bytes_read, bytes_kept, batches_read, batches_kept, records_read, records_kept, next_offset)


def _filter_batch(
    view: memoryview,
    position: int,
    header: BatchHeader,
    offset_map: OffsetMap,
    filtering: Filtering,
    decompressor: Decompressor,
) -> bytes | bytearray | None:
    """Return the new bytes of a batch. Return empty bytes if the batch is removed, and None if it remains unchanged."""
    if header.is_control or header.base_offset >= offset_map.end_offset:
        return None
    body, lists = records_of(view, position, header, decompressor)
    kept = _rows_kept(lists, header, offset_map, filtering.now_ms)
    if not kept:
        if not must_stay(header, filtering):
            return b""
        return None if header.size == BATCH_HEADER_SIZE else empty_batch(header)
    parts = [body[start:end] for start, end in record_spans(body)]
    if header.delete_horizon_ms is None and any(lists.values[row] is None for row in kept):
        horizon_ms = delete_horizon(filtering)
        counted = _parts_from(horizon_ms, parts, header, kept)
        if counted is not None:
            attributes = header.attributes | DELETE_HORIZON_MASK
            header = header._replace(base_timestamp_ms=horizon_ms, attributes=attributes)
            return _rebuilt(header, lists, kept, counted)
    if len(kept) == header.record_count:
        return None
    return _rebuilt(header, lists, kept, [parts[row] for row in kept])


def _rows_kept(lists: Lists, header: BatchHeader, offset_map: OffsetMap, now_ms: int) -> list[int]:
    """Return the indexes of the remaining records of a batch."""
    horizon_ms = header.delete_horizon_ms
    keeps_tombstones = horizon_ms is None or now_ms < horizon_ms
    kept = []
    for row, (offset, key, value) in enumerate(zip(lists.offsets, lists.keys, lists.values, strict=True)):
        if offset < offset_map.end_offset:
            if key is None or (value is None and not keeps_tombstones):
                continue
            latest = offset_map.latest(key)
            if latest is not None and latest > offset:
                continue
        kept.append(row)
    return kept


def must_stay(header: BatchHeader, filtering: Filtering) -> bool:
    """Return whether a batch remains even without records."""
    is_newest = (
        header.producer_id != NO_PRODUCER_ID
        and filtering.last_of_producers.get(header.producer_id) == header.last_offset
    )
    return is_newest or header.next_offset == filtering.round_end_offset


def delete_horizon(filtering: Filtering) -> int:
    """Return the delete horizon of newly cleaned tombstones, in ms.

    It is limited, so that its difference from usual timestamps does not overflow.

    >>> delete_horizon(Filtering(5, 10, {}, 0))
    15
    """
    return max(0, min(filtering.now_ms + filtering.delete_retention_ms, DELETE_HORIZON_MAX_MS))


def empty_batch(header: BatchHeader) -> bytearray:
    """Return a batch without records that keeps offsets, producer and sequence, as Kafka's cleaner does."""
    return _batch(
        header._replace(
            attributes=header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_MASK),
            base_timestamp_ms=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


def _parts_from(horizon_ms: int, parts: list[bytes], header: BatchHeader, kept: list[int]) -> list[bytes] | None:
    """Return the remaining records with timestamps relative to the horizon.

    Return None if a batch of nearly 2 GiB would become too large. Such a batch gets no horizon, and its tombstones
    remain.
    """
    counted = []
    for row in kept:
        part = parts[row]
        _, attributes_at = decode_varint(part, 0)
        delta, rest = decode_varint(part, attributes_at + 1)
        delta = wrapped_timestamp(delta + header.base_timestamp_ms - horizon_ms)
        content = part[attributes_at : attributes_at + 1] + varint(delta) + part[rest:]
        counted.append(varint(len(content)) + content)
    fits = BATCH_HEADER_SIZE + sum(map(len, counted)) <= BATCH_BYTES_MAX
    return counted if fits else None


def _rebuilt(header: BatchHeader, lists: Lists, kept: list[int], parts: list[bytes]) -> bytearray:
    """Return a batch that contains the remaining records. `parts` are the encoded records."""
    if header.timestamp_type is TimestampType.CREATE_TIME:
        latest_ms = max(lists.timestamps_ms[row] for row in kept)
        header = header._replace(max_timestamp_ms=max(NO_TIMESTAMP, latest_ms))
    body = compress(header.compression, b"".join(parts))
    return _batch(header._replace(record_count=len(kept)), body)


def _batch(header: BatchHeader, body: bytes) -> bytearray:
    batch = bytearray(BATCH_HEADER_SIZE) + body
    pack_header(batch, header._replace(batch_length=len(batch) - LENGTH_OVERHEAD))
    write_crc(batch, 0, len(batch))
    return batch


def record_spans(body: bytes) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each record of a valid body."""
    start = 0
    while start < len(body):
        length, position = decode_varint(body, start)
        yield start, position + length
        start = position + length


def whole_batches(view: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and the header of each complete batch in `view`.

    :raises CorruptBatchError: a header is invalid, a CRC is wrong, or the offsets do not ascend.
    """
    position = next_offset = 0
    while (header := sound_header(view, position, next_offset)) is not None:
        yield position, header
        next_offset = header.next_offset
        position += header.size


def sound_header(view: memoryview, position: int, next_offset: int) -> BatchHeader | None:
    """Return the header of the batch at `position`, or None if the batch is incomplete.

    :param next_offset: the lowest valid base offset.
    :raises CorruptBatchError: the header is invalid, the CRC is wrong, or the offsets do not ascend.
    """
    if len(view) - position < BATCH_HEADER_SIZE:
        return None
    header = read_header(view, position)
    check_structure(header, position)
    if header.base_offset < next_offset or header.next_offset > OFFSET_MAX:
        raise CorruptBatchError(
            f"batch at position {position}: its offsets {header.base_offset} to {header.last_offset} do not follow"
            f" offset {next_offset - 1}"
        )
    if header.size > len(view) - position:
        return None
    check_batch(view, position, header)
    return header


def records_without_key(batch: Buffer, decompressed_bytes_max: int) -> list[int]:
    """Return the indexes of at most `KEYLESS_MAX` records in a batch that have no key.

    The function checks all fields that the cleaner will read later, except the base offset.

    :param batch: one batch, whose header and CRC were checked.
    :raises CorruptBatchError: a record is damaged, or the records are larger than `decompressed_bytes_max`.
    """
    with memoryview(batch) as view:
        header = read_header(view)._replace(base_offset=0)
        _, lists = records_of(view, 0, header, Decompressor(decompressed_bytes_max))
    return list(islice((number for number, key in enumerate(lists.keys) if key is None), KEYLESS_MAX))


def body_of(view: memoryview, position: int, header: BatchHeader, decompressor: Decompressor) -> Buffer:
    """Return the decompressed body of a batch.

    :raises CorruptBatchError: the body is damaged, or exceeds the limit of the decompressor.
    """
    stored = view[position + BATCH_HEADER_SIZE : position + header.size]
    if header.compression is Compression.NONE or (not stored and not header.record_count):
        return bytes(stored)
    try:
        return decompressor.decompress(header.compression, stored)
    except CorruptBatchError as error:
        raise _corrupt(position, header, error) from error


def records_of(view: memoryview, position: int, header: BatchHeader, decompressor: Decompressor) -> tuple[bytes, Lists]:
    """Return the decompressed body of a batch, and the fields of its records.

    :raises CorruptBatchError: the body is damaged, exceeds the limit of the decompressor, or does not match the header.
    """
    body = bytes(body_of(view, position, header, decompressor))
    try:
        # The remaining records keep their offset deltas, so the deltas must be correct.
        lists, _ = decode_batch(body, header, 0, OFFSET_MAX, any_deltas=False)
    except CorruptBatchError as error:
        raise _corrupt(position, header, error) from error
    return body, lists


def _corrupt(position: int, header: BatchHeader, error: CorruptBatchError) -> CorruptBatchError:
    return CorruptBatchError(f"batch at position {position}, offset {header.base_offset}: {error}")

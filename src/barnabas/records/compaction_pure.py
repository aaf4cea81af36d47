"""The work of log compaction per record, in Python. The compiled equivalent is `compaction_compiled`.

Both have the same names and results. A change of one must change the other, too; the tests of `records` run on both and
compare them. If a batch is damaged, this module makes the error texts for both.

The rules are those of Kafka's cleaner (KIP-58, KIP-98, KIP-534); `filter_batches` describes them.
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
"""The stored value of an entry is the offset relative to the map's base offset, plus one. 0 marks a free slot."""

SLOTS_MAX = 2**32 - 1
"""The maximum number of slots, 84 GiB of memory, because slot positions are computed with 64 bits."""

DELETE_HORIZON_MAX_MS = 2**61 - 1
"""The limit of times whose differences from usual timestamps fit into 64 bits."""

KEYLESS_MAX = 1_000
"""The maximum number of records without keys that are reported for a batch."""


class Added(NamedTuple):
    """The result of `OffsetMap.add`."""

    size: int
    """The size of the batches that were added, in bytes. The next batch is incomplete, or did not fit."""
    next_offset: int
    """The offset below which the map contains all added records."""
    is_full: bool
    """True if the next batch did not fit. If it was the first one for an empty map, the map is too small for it."""


class Filtering(NamedTuple):
    """The parameters of `filter_batches` besides the map."""

    now_ms: int
    """The current time. Tombstones whose delete horizon is not later are removed."""
    delete_retention_ms: int
    """The time from the first cleaning of a tombstone to the delete horizon of its batch."""
    last_of_producers: Mapping[int, int]
    """For each active producer id, the last offset of its newest batch in the log."""
    decompressed_bytes_max: int
    """The maximum decompressed size of the records of a batch."""
    round_end_offset: int = NO_OFFSET
    """The end of the range to clean. The batch that ends there remains, even if it becomes empty. Otherwise the files
    would not show the log end offset if all later segments are empty."""


class Filtered(NamedTuple):
    """The remaining batches. The caller feeds the written bytes to a `SegmentScan` to build the indexes."""

    chunks: list[Buffer]
    """The remaining batches in order; views of the input buffer for unchanged batches."""
    bytes_read: int
    """The size of the whole batches in the input buffer, in bytes."""
    bytes_kept: int
    """The size of all chunks, in bytes."""
    batches_read: int
    batches_kept: int
    records_read: int
    records_kept: int
    next_offset: int
    """The offset after the last batch in the input; -1 if there was none."""


class OffsetMap:
    """The latest offset of each key in a range of the log, in memory of a fixed size.

    One allocation contains all entries; the operating system provides the memory as entries are added. An entry has 21
    bytes: a keyed hash of 128 bits instead of the key, and the offset. At most nine of ten slots are used, so a key
    takes less than 24 bytes.

    Two keys with the same hash would count as one key, and a record would be lost. Untrusted clients choose the keys;
    they know the hash function, but not the secret. So they cannot do better than chance: the probability of two equal
    hashes among n keys is about n * n / 2**129, less than 10**-20 for a thousand million keys. Kafka's cleaner relies
    on MD5 in the same way, without a secret.

    >>> OffsetMap(24 * 1000, 0, bytes(16)).capacity
    1027

    :param memory_bytes: the memory for the entries. More than 24 bytes per added record is not useful.
    :param base_offset: the least offset of a record. Entries contain the distance from it, up to 2**40 - 2.
    :param secret: 16 random bytes that no client knows.
    :raises ValueError: the memory is too small for one key, the offset is negative, or the secret has another size.
    """

    def __init__(self, memory_bytes: int, base_offset: int, secret: bytes) -> None:
        self._slots = check_map_parameters(memory_bytes, base_offset, secret)
        self.base_offset = base_offset
        self.end_offset = base_offset
        """The offset below which records were added. The map cannot decide on records at or above it."""
        self.capacity = capacity_of(self._slots)
        """The maximum number of different keys."""
        self._count = 0
        self._secret = secret
        # Unlike a bytearray, this memory is not written before the first entry.
        self._table = mmap.mmap(-1, self._slots * ENTRY_BYTES)

    def __len__(self) -> int:
        return self._count

    def latest(self, key: Buffer) -> int | None:
        """Return the latest offset of a key, or None if the key was not added."""
        slot, _, is_there = self._find(self._digest(key))
        return self.base_offset + self._relative_offset(slot) if is_there else None

    def add(self, batches: Buffer, first_offset: int, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Added:
        """Add the keys of records in whole batches, as many batches as fit.

        Control batches have no keys. The map may contain some keys of the batch that does not fit. These keys are
        harmless, because the records they belong to are not below `end_offset`.

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
        """Store an offset, unless a later one is stored; return False if there is no space for another key."""
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
        """Return the slot of a key or its insertion slot, the next free slot from there on, and whether the key was
        found.

        Entries are in the order of their home slots (linear probing with Robin Hood hashing). A search ends at an entry
        that is nearer to its home slot than the key would be.
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
        """Move the entries from `slot` up to the one before `free` by one slot."""
        table = self._table
        if free < slot:
            table.move(ENTRY_BYTES, 0, free * ENTRY_BYTES)
            free = self._slots - 1
            table.move(0, free * ENTRY_BYTES, ENTRY_BYTES)
        table.move((slot + 1) * ENTRY_BYTES, slot * ENTRY_BYTES, (free - slot) * ENTRY_BYTES)


def check_map_parameters(memory_bytes: int, base_offset: int, secret: bytes) -> int:
    """Return the number of slots of a map.

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
    """Check that a map can contain records from an offset on.

    :raises ValueError: the offset is below the map's base offset.
    """
    if first_offset < base_offset:
        raise ValueError(f"records from offset {first_offset} for a map from offset {base_offset}")


def capacity_of(slots: int) -> int:
    """Return the maximum number of keys in a number of slots."""
    return slots * 9 // 10


def filter_batches(batches: Buffer, offset_map: OffsetMap, filtering: Filtering) -> Filtered:
    """Remove superseded records from batches; return the remaining batches.

    - Batches at or above the map's `end_offset`, and control batches, remain unchanged.
    - A record remains if the map contains no later offset of its key. Records without a key are removed.
    - Tombstones (records without a value) remain until the delete horizon of their batch. The first cleaning sets it to
      `now_ms + delete_retention_ms`. The horizon replaces the base timestamp, bit 6 of the attributes marks it, and
      timestamps of records become relative to it (KIP-534).
    - A batch without records is removed, unless it ends at `round_end_offset`, or is the newest batch of an active
      producer, whose sequence it contains.

    Offsets, timestamps, headers, producer, sequence, leader epoch and compression do not change. A changed batch gets
    the greatest timestamp of its remaining records, unless it has a log append time. A batch without removed records is
    not encoded again.

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
    """Return the new bytes of a batch, empty bytes if it is removed, or None if it remains unchanged."""
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
    """Return the indexes of the records of a batch that remain."""
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
    """Return the delete horizon of newly cleaned tombstones, in ms. It is limited so that differences from usual
    timestamps do not overflow.

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

    None: a batch of nearly 2 GiB would become too large. Such a batch gets no horizon, and keeps its tombstones.
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
    """Return a batch of the remaining records, whose encoded bytes are `parts`."""
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
    """Yield position and header of each valid batch that `view` contains as a whole.

    :raises CorruptBatchError: as `sound_header` does.
    """
    position = next_offset = 0
    while (header := sound_header(view, position, next_offset)) is not None:
        yield position, header
        next_offset = header.next_offset
        position += header.size


def sound_header(view: memoryview, position: int, next_offset: int) -> BatchHeader | None:
    """Return the header of the batch at `position`, or None if the batch is incomplete.

    :param next_offset: the least valid base offset.
    :raises CorruptBatchError: the header is invalid, the CRC is wrong, or the offsets do not ascend.
    """
    if len(view) - position < BATCH_HEADER_SIZE:
        return None
    header = read_header(view, position)
    check_structure(header, position)
    if header.base_offset < next_offset or header.next_offset > OFFSET_MAX:
        raise CorruptBatchError(
            f"batch at position {position}: offsets from {header.base_offset} to {header.last_offset}"
            f" after {next_offset - 1}"
        )
    if header.size > len(view) - position:
        return None
    check_batch(view, position, header)
    return header


def records_without_key(batch: Buffer, decompressed_bytes_max: int) -> list[int]:
    """Return the indexes of the records of a batch without a key, at most `KEYLESS_MAX`.

    This checks everything that the cleaner will read later, regardless of the base offset.

    :param batch: one batch, whose header and CRC were checked.
    :raises CorruptBatchError: a record is damaged, or the records are larger than `decompressed_bytes_max`.
    """
    with memoryview(batch) as view:
        header = read_header(view)._replace(base_offset=0)
        _, lists = records_of(view, 0, header, Decompressor(decompressed_bytes_max))
    return list(islice((number for number, key in enumerate(lists.keys) if key is None), KEYLESS_MAX))


def body_of(view: memoryview, position: int, header: BatchHeader, decompressor: Decompressor) -> Buffer:
    """Return the decompressed body of a batch.

    :raises CorruptBatchError: the body is damaged, or larger than the decompressor allows.
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

    :raises CorruptBatchError: as `body_of` does, or the body does not match the header.
    """
    body = bytes(body_of(view, position, header, decompressor))
    try:
        # The remaining records keep their offset deltas, so these must be correct.
        lists, _ = decode_batch(body, header, 0, OFFSET_MAX, any_deltas=False)
    except CorruptBatchError as error:
        raise _corrupt(position, header, error) from error
    return body, lists


def _corrupt(position: int, header: BatchHeader, error: CorruptBatchError) -> CorruptBatchError:
    return CorruptBatchError(f"batch at position {position}, offset {header.base_offset}: {error}")

"""What log compaction does for each record, in Python. The compiled twin is `compaction_compiled`: same names, same
results.

Whoever changes one changes the other; the tests of `records` run on both and compare them. What is wrong with a batch
is said here for both of them.

The rules are those of Kafka's cleaner (KIP-58, KIP-98, KIP-534): what stays is told at `filter_batches`.
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
"""An entry holds the offset above the map's base offset, plus one: 0 is a free slot."""

SLOTS_MAX = 2**32 - 1
"""More memory than 84 GiB is of no use: places are computed with 64 bits."""

DELETE_HORIZON_MAX_MS = 2**61 - 1
"""The differences between this time and usual timestamps fit 64 bits."""

KEYLESS_MAX = 1_000
"""So many records without keys are told of a batch."""


class Added(NamedTuple):
    """What became of batches given to `OffsetMap.add`."""

    size: int
    """Bytes of the batches that were taken; what follows is partial, or did not fit."""
    next_offset: int
    """Records below this offset are in the map, as far as they were given to it."""
    is_full: bool
    """The next batch did not fit. Where it was the first that an empty map was given, the map is too small for it."""


class Filtering(NamedTuple):
    """What `filter_batches` decides by, beside the map."""

    now_ms: int
    """Tombstones whose delete horizon is not later than this go."""
    delete_retention_ms: int
    """The delete horizon of a batch is this much later than the time when its tombstones are first seen."""
    last_of_producers: Mapping[int, int]
    """Of each active producer, by its id, the last offset of its newest batch in the log."""
    decompressed_bytes_max: int
    """The size that the records of a batch may have when decompressed."""
    round_end_offset: int = NO_OFFSET
    """Where the range to be cleaned ends. The batch that ends there stays, empty if it must: or else nobody could tell
    from the files where the log ends, once all behind is empty."""


class Filtered(NamedTuple):
    """What is left of batches. Indexes of what is written are made by feeding it to a `SegmentScan`."""

    chunks: list[Buffer]
    """The batches that stay, in order; views of the given buffer where batches are as they were."""
    bytes_read: int
    """Bytes of the whole batches in the given buffer."""
    bytes_kept: int
    """Bytes of all chunks."""
    batches_read: int
    batches_kept: int
    records_read: int
    records_kept: int
    next_offset: int
    """The offset after the last batch that was read; -1 if there was none."""


class OffsetMap:
    """The latest offset of each key in a range of the log, in memory of a fixed size.

    One allocation holds all entries; the system gives it memory as entries come. An entry is 21 bytes: a keyed hash
    of 128 bits in place of the key, and the offset. At most nine of ten slots are used, so that a key costs less than
    24 bytes.

    Two keys with the same hash would be taken for one, and the record of one of them be lost. Keys come from
    strangers, who know the hash function but not the secret; so they can do no better than chance, and chance gives
    n keys a pair of equal hashes with a probability of about n * n / 2**129: less than 10**-20 for a thousand million.
    Kafka's cleaner relies on MD5 in the same way, and MD5 has no secret.

    >>> OffsetMap(24 * 1000, 0, bytes(16)).capacity
    1027

    :param memory_bytes: memory for the entries. No more than 24 bytes for each record that will be added helps.
    :param base_offset: nothing below it is added; offsets are kept as their distance from it, up to 2**40 - 2.
    :param secret: 16 random bytes that no client knows.
    :raises ValueError: the memory does not suffice for one key, the offset is negative, or the secret is of another
        size.
    """

    def __init__(self, memory_bytes: int, base_offset: int, secret: bytes) -> None:
        self._slots = check_map_parameters(memory_bytes, base_offset, secret)
        self.base_offset = base_offset
        self.end_offset = base_offset
        """Records below this offset were added; records at or above it are not for this map to judge."""
        self.capacity = capacity_of(self._slots)
        """How many different keys fit."""
        self._count = 0
        self._secret = secret
        # Unlike a bytearray, it is not written to before there is something to write.
        self._table = mmap.mmap(-1, self._slots * ENTRY_BYTES)

    def __len__(self) -> int:
        return self._count

    def latest(self, key: Buffer) -> int | None:
        """Return the latest offset of a key, or None: it was not added."""
        slot, _, is_there = self._find(self._digest(key))
        return self.base_offset + self._relative_offset(slot) if is_there else None

    def add(self, batches: Buffer, first_offset: int, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Added:
        """Take in the keys of records in whole batches, as many batches as fit.

        Control batches have no keys. Of the batch that does not fit some keys may be in the map: that does no harm,
        since the records they belong to are not below `end_offset`.

        :param batches: as they stand in the log, one after the other; the last one may be there in part.
        :param first_offset: records below it are passed over.
        :param decompressed_bytes_max: the size that the records of a batch may have when decompressed.
        :raises CorruptBatchError: a batch is damaged. The map may hold keys of it then: do not filter by it.
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
        """Remember an offset, unless a later one is known; return False where there is no room for another key."""
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
        """Return the offset in a slot; -1 if it is free."""
        end = (slot + 1) * ENTRY_BYTES
        return int.from_bytes(self._table[end - OFFSET_BYTES : end], "little") - 1

    def _home(self, digest: bytes) -> int:
        return int.from_bytes(digest[:8], "little") * self._slots >> 64

    def _find(self, digest: bytes) -> tuple[int, int, bool]:
        """Return the slot of a key or where it belongs, the next free slot from there on, and whether it is there.

        Entries stand in the order of their home slots (linear probing after Robin Hood): a search is over at an entry
        that is nearer to its home than the key would be.
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
    """Return how many slots a map has.

    :raises ValueError: a parameter is out of range.
    """
    slots = min(memory_bytes // ENTRY_BYTES, SLOTS_MAX)
    if capacity_of(slots) < 1:
        raise ValueError(f"{memory_bytes} bytes hold no key, it takes {2 * ENTRY_BYTES}")
    if not 0 <= base_offset < OFFSET_MAX:
        raise ValueError(f"base offset {base_offset} is out of range")
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret of {len(secret)} bytes, it must have {SECRET_BYTES}")
    return slots


def check_first_offset(first_offset: int, base_offset: int) -> None:
    """:raises ValueError: an offset that the map cannot hold."""
    if first_offset < base_offset:
        raise ValueError(f"records from offset {first_offset} for a map from offset {base_offset}")


def capacity_of(slots: int) -> int:
    """Return how many keys may be in so many slots."""
    return slots * 9 // 10


def filter_batches(batches: Buffer, offset_map: OffsetMap, filtering: Filtering) -> Filtered:
    """Return what stays of batches.

    - Batches from the map's `end_offset` on stay as they are, and so do control batches.
    - A record stays if the map knows no later one with its key. Records without a key go.
    - Tombstones (no value) stay until the delete horizon of their batch, which the first cleaning sets:
      `now_ms + delete_retention_ms`. It stands in place of the base timestamp, bit 6 of the attributes says so, and
      timestamps of records count from it (KIP-534).
    - A batch without records goes, unless it is the newest of an active producer, whose sequence it tells, or ends at
      `round_end_offset`.

    Offsets, timestamps, headers, producer, sequence, leader epoch and compression stay as they were. A batch that
    changed has the greatest timestamp of the records that are left, unless its time is that of the append. One from
    which nothing was taken is not encoded anew.

    :param batches: as they stand in the log, one after the other; the last one may be there in part.
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
    """Return what a batch becomes, empty where it goes, or None: it stays as it is."""
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
    """Return which records of a batch stay."""
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
    """Return whether a batch stays even without records."""
    is_newest = (
        header.producer_id != NO_PRODUCER_ID
        and filtering.last_of_producers.get(header.producer_id) == header.last_offset
    )
    return is_newest or header.next_offset == filtering.round_end_offset


def delete_horizon(filtering: Filtering) -> int:
    """Return the delete horizon that tombstones get now, in ms; never such that usual timestamps could not count
    from it.

    >>> delete_horizon(Filtering(5, 10, {}, 0))
    15
    """
    return max(0, min(filtering.now_ms + filtering.delete_retention_ms, DELETE_HORIZON_MAX_MS))


def empty_batch(header: BatchHeader) -> bytearray:
    """Return a batch without records that tells the same offsets, producer and sequence; as Kafka's cleaner does it."""
    return _batch(
        header._replace(
            attributes=header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_MASK),
            base_timestamp_ms=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


def _parts_from(horizon_ms: int, parts: list[bytes], header: BatchHeader, kept: list[int]) -> list[bytes] | None:
    """Return the records that stay, with timestamps that count from the horizon.

    None: a batch of 2 GiB would become larger. Such a batch gets no horizon, and keeps its tombstones.
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
    """Return a batch of the records that stay; `parts` are these only."""
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
    """Yield where each record of a sound body begins and ends."""
    start = 0
    while start < len(body):
        length, position = decode_varint(body, start)
        yield start, position + length
        start = position + length


def whole_batches(view: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each sound batch that `view` holds as a whole.

    :raises CorruptBatchError: as `sound_header` does.
    """
    position = next_offset = 0
    while (header := sound_header(view, position, next_offset)) is not None:
        yield position, header
        next_offset = header.next_offset
        position += header.size


def sound_header(view: memoryview, position: int, next_offset: int) -> BatchHeader | None:
    """Return the header of the batch at `position`, or None: it is not there as a whole.

    :param next_offset: the least offset that it may have.
    :raises CorruptBatchError: a header that no batch can have, a wrong CRC, or offsets that go back.
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
    """Return the numbers of the records of a batch that have no key, of the first `KEYLESS_MAX` of them.

    All that a cleaner will look at is checked, whatever the base offset.

    :param batch: one batch, whose header and CRC were checked.
    :raises CorruptBatchError: a record is damaged, or the records are larger than `decompressed_bytes_max`.
    """
    with memoryview(batch) as view:
        header = read_header(view)._replace(base_offset=0)
        _, lists = records_of(view, 0, header, Decompressor(decompressed_bytes_max))
    return list(islice((number for number, key in enumerate(lists.keys) if key is None), KEYLESS_MAX))


def body_of(view: memoryview, position: int, header: BatchHeader, decompressor: Decompressor) -> Buffer:
    """Return the body of a batch as it is without compression.

    :raises CorruptBatchError: it is damaged, or larger than the decompressor allows.
    """
    stored = view[position + BATCH_HEADER_SIZE : position + header.size]
    if header.compression is Compression.NONE or (not stored and not header.record_count):
        return bytes(stored)
    try:
        return decompressor.decompress(header.compression, stored)
    except CorruptBatchError as error:
        raise _corrupt(position, header, error) from error


def records_of(view: memoryview, position: int, header: BatchHeader, decompressor: Decompressor) -> tuple[bytes, Lists]:
    """Return the body of a batch as it is without compression, and the fields of its records.

    :raises CorruptBatchError: as `body_of` does, or the body is not what the header announces and nothing else.
    """
    body = bytes(body_of(view, position, header, decompressor))
    try:
        # The records that stay are copied with their offset deltas, so these have to be right.
        lists, _ = decode_batch(body, header, 0, OFFSET_MAX, any_deltas=False)
    except CorruptBatchError as error:
        raise _corrupt(position, header, error) from error
    return body, lists


def _corrupt(position: int, header: BatchHeader, error: CorruptBatchError) -> CorruptBatchError:
    return CorruptBatchError(f"batch at position {position}, offset {header.base_offset}: {error}")

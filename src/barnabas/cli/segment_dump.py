"""Reads segment files without a lock and without a broker, and continues after damage where possible.

Each function reads one file and yields its entries and any damage. The log may be in use: before a function reports an
incomplete batch as damage, it checks whether the file has grown. `barnabas.records.header` and
`barnabas.storage.segment_index` describe the formats.
"""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from barnabas.errors import CorruptBatchError
from barnabas.model import TopicPartition
from barnabas.portable import pread
from barnabas.records import BATCH_HEADER_SIZE, BatchHeader, Record, check_batch, read_header, read_records
from barnabas.records.header import check_structure
from barnabas.storage.segment_index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE

_OFFSET_ENTRY = struct.Struct(">II")
_TIME_ENTRY = struct.Struct(">qI")

assert _OFFSET_ENTRY.size == OFFSET_ENTRY_SIZE
assert _TIME_ENTRY.size == TIME_ENTRY_SIZE

_PLACE = re.compile(r"^batch at position \d+: ")


class Damage(NamedTuple):
    """The position in bytes and the description of damage in a file."""

    position: int
    reason: str


class DumpedBatch(NamedTuple):
    """A valid batch, with its records if the caller requested them."""

    position: int
    header: BatchHeader
    records: list[Record]


class OffsetEntry(NamedTuple):
    """An entry of an offset index: the batch at `log_position` ends at `offset`.

    In an index written by Apache Kafka, the batch may end earlier, because one entry may cover several batches of a
    write.
    """

    offset: int
    log_position: int


class TimeEntry(NamedTuple):
    """An entry of a time index: no record up to `offset` has a timestamp greater than `timestamp_ms`."""

    timestamp_ms: int
    offset: int


def dump_batches(
    file: BinaryIO, base_offset: int, place: TopicPartition, *, with_records: bool
) -> Iterator[DumpedBatch | Damage]:
    """Yield the batches of a `.log` file, continuing after a damaged batch of known length.

    :param base_offset: the offset in the file's name.
    :param place: the partition to set in the records.
    """
    position, next_offset = 0, base_offset
    while position < (size := _size(file)):
        try:
            header = _header(file, position, size)
        except CorruptBatchError as error:
            if _size(file) > size:
                continue  # a broker is appending
            yield Damage(position, _PLACE.sub("", str(error)))
            return
        if header.base_offset < next_offset:
            yield Damage(position, f"offsets from {header.base_offset}, must be {next_offset} or more")
        try:
            records = _checked(file, position, header, place, with_records=with_records)
        except CorruptBatchError as error:
            yield Damage(position, _PLACE.sub("", str(error)))
        else:
            yield DumpedBatch(position, header, records)
        position, next_offset = position + header.size, header.next_offset


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _header(file: BinaryIO, position: int, size: int) -> BatchHeader:
    """Return the header at a position, after checking its structure and that the file has the complete batch."""
    header = read_header(pread(file.fileno(), BATCH_HEADER_SIZE, position))
    check_structure(header, position)
    if position + header.size > size:
        raise CorruptBatchError(f"the batch has {header.size} bytes, but the file has only {size - position} more")
    return header


def _checked(
    file: BinaryIO, position: int, header: BatchHeader, place: TopicPartition, *, with_records: bool
) -> list[Record]:
    data = pread(file.fileno(), header.size, position)
    check_batch(data, 0, header)
    return read_records(data, *place, check_crc=False) if with_records else []


class _Batches:
    """The positions of the readable batches of a `.log` file, for the verification of its indexes."""

    def __init__(self, log: BinaryIO) -> None:
        self._bases: list[int] = []
        self._headers: list[BatchHeader] = []
        self._at: dict[int, BatchHeader] = {}
        position, size = 0, _size(log)
        while position < size:
            try:
                header = _header(log, position, size)
            except CorruptBatchError:
                break  # ignore damage here; the dump of the log file itself reports it
            self._at[position] = header
            self._bases.append(header.base_offset)
            self._headers.append(header)
            position += header.size

    def last_offset_at(self, position: int) -> int:
        """Return the last offset of the batch at a position; -1 if no batch starts there."""
        header = self._at.get(position)
        return -1 if header is None else header.last_offset

    def max_timestamp_ms_at(self, offset: int) -> int | None:
        """Return the highest timestamp of the batch that contains an offset; None if there is no such batch."""
        number = bisect_right(self._bases, offset) - 1
        if number < 0 or self._headers[number].last_offset < offset:
            return None
        return self._headers[number].max_timestamp_ms


def dump_offset_index(data: bytes, base_offset: int, log: BinaryIO | None) -> Iterator[OffsetEntry | Damage]:
    """Yield the entries of an `.index` file, compared with the batches of its log if that exists."""
    batches = None if log is None else _Batches(log)
    before = OffsetEntry(base_offset - 1, -1)
    for position, (relative, log_position) in _entries(_OFFSET_ENTRY, data):
        entry = OffsetEntry(base_offset + relative, log_position)
        yield entry
        if entry.offset <= before.offset or entry.log_position <= before.log_position:
            yield Damage(position, f"the entry {tuple(entry)} is not after {tuple(before)}")
        elif batches is not None and not -1 < (last := batches.last_offset_at(log_position)) <= entry.offset:
            ends = "no batch starts there" if last < 0 else f"the batch there ends with {last}"
            yield Damage(position, f"offset {entry.offset} at position {log_position} of the log: {ends}")
        before = entry
    yield from _rest(_OFFSET_ENTRY, data)


def dump_time_index(data: bytes, base_offset: int, log: BinaryIO | None) -> Iterator[TimeEntry | Damage]:
    """Yield the entries of a `.timeindex` file, compared with the batches of its log if that exists."""
    batches = None if log is None else _Batches(log)
    before: TimeEntry | None = None
    for position, (timestamp_ms, relative) in _entries(_TIME_ENTRY, data):
        entry = TimeEntry(timestamp_ms, base_offset + relative)
        yield entry
        if before is not None and (entry.timestamp_ms <= before.timestamp_ms or entry.offset <= before.offset):
            yield Damage(position, f"the entry {tuple(entry)} is not after {tuple(before)}")
        elif batches is not None and (newest := batches.max_timestamp_ms_at(entry.offset)) != timestamp_ms:
            said = "is in no batch" if newest is None else f"is in a batch whose highest timestamp is {newest}"
            yield Damage(position, f"timestamp {timestamp_ms} at offset {entry.offset}, which {said}")
        before = entry
    yield from _rest(_TIME_ENTRY, data)


def _entries(kind: struct.Struct, data: bytes) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the position and content of each index entry. Skip the zeros at the end, which Kafka preallocates."""
    whole = data[: len(data) - len(data) % kind.size]
    used = -(-len(whole.rstrip(b"\0")) // kind.size)
    for number, entry in enumerate(kind.iter_unpack(whole[: used * kind.size])):
        yield number * kind.size, (entry[0], entry[1])


def _rest(kind: struct.Struct, data: bytes) -> Iterator[Damage]:
    if rest := len(data) % kind.size:
        yield Damage(len(data) - rest, f"{rest} extra bytes at the end; an entry has {kind.size} bytes")

"""Scans the batches of a segment file: a few by their headers, or all with a `SegmentScan`.

Files are read with pread into bounded memory and never mapped: an I/O error on a map would kill the process, and is an
OSError here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.errors import CorruptBatchError
from barnabas.records import BATCH_HEADER_SIZE, BatchHeader, read_header
from barnabas.records.header import check_structure
from barnabas.records.scan import SegmentScan
from barnabas.storage.filesystem import DataFile, FileSystem

_HEADERS_BYTES = 8 * 1024
"""Two index intervals, so that a lookup usually needs one read."""

_SCAN_BYTES = 1024 * 1024


class PlacedBatch(NamedTuple):
    """The position of a batch in the file, and its header."""

    position: int
    header: BatchHeader

    @property
    def end(self) -> int:
        """The position after the batch."""
        return self.position + self.header.size


def scan_headers(filesystem: FileSystem, file: DataFile, position: int, end: int) -> Iterator[PlacedBatch]:
    """Yield the batches from `position`, where one must begin, to `end`.

    :raises CorruptBatchError: there is no batch, or it extends beyond `end`.
    """
    chunk = b""
    chunk_position = position
    while position < end:
        if position + BATCH_HEADER_SIZE > chunk_position + len(chunk):
            chunk = filesystem.pread(file, min(_HEADERS_BYTES, end - position), position)
            chunk_position = position
        batch = PlacedBatch(position, read_header(chunk, position - chunk_position))
        check_structure(batch.header, position)
        if batch.end > end:
            raise CorruptBatchError(f"{file.path}: batch at position {position} extends beyond {end}")
        yield batch
        position = batch.end


def scan_segment(filesystem: FileSystem, file: DataFile, scan: SegmentScan, end: int) -> None:
    """Feed a file to a scan, from its position to `end`, to the first damage, or to the end of the file.

    :raises OSError: the file cannot be read.
    """
    read_bytes = _SCAN_BYTES
    while scan.damage is None and scan.size < end:
        before, count = scan.size, scan.batch_count
        wanted = max(scan.wanted_bytes, read_bytes)
        chunk = filesystem.pread(file, min(wanted, end - before), before)
        if scan.feed(chunk, before) == before and len(chunk) < wanted:
            return
        # Where batches are large and the scan needs their headers only, the bytes between are not read.
        sparse = scan.batch_count == count + 1 and scan.size > before + len(chunk)
        read_bytes = BATCH_HEADER_SIZE if sparse else _SCAN_BYTES

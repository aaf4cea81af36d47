"""Copies segments and leaves out superseded records, so that only the last record of each key remains.

The cleaner first reads the keys of the dirty part into a map from each key to its latest offset, until the map is full.
Then it rewrites the groups of segments, one after the other, into new files in the same directory. The cleaner does not
change files of the log; the broker swaps the files. `barnabas.records.compaction` decides which records remain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from barnabas.errors import CorruptBatchError
from barnabas.records.compaction import Filtering, OffsetMap, filter_batches
from barnabas.records.compression import DECOMPRESSED_BYTES_MAX
from barnabas.records.header import BATCH_HEADER_SIZE, Buffer, read_header
from barnabas.records.scan import ANY_GAPS, SegmentScan
from barnabas.storage.cleaner.job import CleanedGroup, CleaningFailedError, CleaningJob, CleaningPlan, UncleanableError
from barnabas.storage.cleaner.planning import IndexedExtent, group_segments
from barnabas.storage.cleaner.swap import cleaned_paths, remove_cleaned
from barnabas.storage.filesystem import DataFile, FileSystem, write_fully
from barnabas.storage.segment import SealedSegment
from barnabas.storage.segment_index import OffsetIndex, TimeIndex

MAP_BYTES_PER_RECORD = 24
"""The memory of the map in bytes for each record that may be added. More memory would not be used."""
MAP_BYTES_MIN = 1024

Pace = Callable[[int], None]
"""A throttle. The cleaner calls it with the size of each read and write, and the throttle may wait."""


class Cleaning:
    """One cleaning job.

    :param secret: 16 random bytes for the hash. They prevent clients from choosing keys with equal hashes.
    """

    def __init__(self, filesystem: FileSystem, job: CleaningJob, secret: bytes, pace: Pace = lambda _: None) -> None:
        self._filesystem = filesystem
        self._folder = Path(job.folder)
        self._job = job
        self._secret = secret
        self._pace = pace
        self._groups: Iterator[list[IndexedExtent]] = iter(())

    def plan(self) -> CleaningPlan:
        """Read the keys of the dirty part into the map; return the plan.

        :raises UncleanableError: a batch is damaged, or has more keys than fit into the map.
        :raises CleaningFailedError: the file system returned an error.
        """
        with _naming_the_log(self._folder):
            remove_cleaned(self._filesystem, self._folder)
            job = self._job
            useful_bytes = max(MAP_BYTES_MIN, (job.end_offset - job.first_dirty_offset) * MAP_BYTES_PER_RECORD)
            self._map = OffsetMap(min(job.map_bytes, useful_bytes), job.first_dirty_offset, self._secret)
            end_offset = self._take_in_keys()
            extents = [self._extent(*ref) for ref in job.segments if ref.base_offset < end_offset]
            self._groups = iter(group_segments(extents, job.segment_bytes, job.segment_index_bytes))
            self._filtering = Filtering(
                job.now_ms, job.delete_retention_ms, job.last_of_producers, DECOMPRESSED_BYTES_MAX, end_offset
            )
            return CleaningPlan(end_offset, len(self._map))

    def next_group(self) -> CleanedGroup | None:
        """Rewrite the next group of segments; return None if there are no more groups.

        :raises UncleanableError: a batch is damaged.
        :raises CleaningFailedError: the file system returned an error.
        """
        group = next(self._groups, None)
        if group is None:
            return None
        with _naming_the_log(self._folder):
            return _Rewriting(self._filesystem, self._folder, self._job, self._map, self._filtering, self._pace).of(
                group
            )

    def _extent(self, base_offset: int, next_offset: int, size: int) -> IndexedExtent:
        paths = SealedSegment(self._filesystem, self._folder, base_offset, size=size, next_offset=next_offset).paths
        return IndexedExtent(
            base_offset,
            next_offset,
            size,
            _size_if_there(self._filesystem, paths.index),
            _size_if_there(self._filesystem, paths.time_index),
        )

    def _take_in_keys(self) -> int:
        """Read keys into the map; return the offset up to which all keys are in the map."""
        job, offsets = self._job, self._map
        for base_offset, next_offset, size in job.segments:
            if next_offset <= job.first_dirty_offset or not size:
                continue
            segment = SealedSegment(self._filesystem, self._folder, base_offset, size=size, next_offset=next_offset)
            first = segment.locate(job.first_dirty_offset)
            start = size if first is None else first.position
            for chunk in _Chunks(self._filesystem, segment.file, start, size, job.buffer_bytes):
                added = offsets.add(chunk.data, job.first_dirty_offset)
                self._pace(added.size)
                chunk.take(added.size)
                if added.is_full:
                    return self._checked_end(offsets.end_offset)
        return job.end_offset

    def _checked_end(self, end_offset: int) -> int:
        if end_offset <= self._job.first_dirty_offset:
            raise UncleanableError(
                f"{self._folder}: the batch at offset {end_offset} has more keys than fit into"
                f" {self._job.map_bytes} bytes, a thread's share of log.cleaner.dedupe.buffer.size; raise this setting"
            )
        return end_offset


class _Rewriting:
    def __init__(
        self,
        filesystem: FileSystem,
        folder: Path,
        job: CleaningJob,
        offset_map: OffsetMap,
        filtering: Filtering,
        pace: Pace,
    ) -> None:
        self._filesystem = filesystem
        self._folder = folder
        self._job = job
        self._map = offset_map
        self._filtering = filtering
        self._pace = pace
        self._records_read = self._records_kept = self._bytes_read = 0

    def of(self, group: list[IndexedExtent]) -> CleanedGroup:
        base_offset = group[0].base_offset
        log, index, time_index = cleaned_paths(self._folder, base_offset)
        scan = SegmentScan(
            base_offset,
            index_interval_bytes=self._job.index_interval_bytes,
            check_crc=False,
            gaps_up_to=ANY_GAPS,
        )
        target = self._filesystem.open(log, create=True)
        modified_ms = 0
        try:
            for extent in group:
                modified_ms = max(modified_ms, self._rewrite(extent, target, scan))
            self._filesystem.fsync(target)
        finally:
            target.close()
        # The new file keeps this time, because retention uses it for records without timestamps.
        self._filesystem.set_modified_ms(log, modified_ms)
        self._write(time_index, TimeIndex.of_scan(scan).encode())
        self._write(index, OffsetIndex.of_scan(scan).encode())
        bases = tuple(extent.base_offset for extent in group)
        return CleanedGroup(bases, scan.size, self._bytes_read, self._records_read, self._records_kept)

    def _rewrite(self, extent: IndexedExtent, target: DataFile, scan: SegmentScan) -> int:
        """Write the remaining records of a segment; return the time of its last write."""
        segment = SealedSegment(
            self._filesystem, self._folder, extent.base_offset, size=extent.size, next_offset=extent.next_offset
        )
        for chunk in _Chunks(self._filesystem, segment.file, 0, extent.size, self._job.buffer_bytes):
            filtered = filter_batches(chunk.data, self._map, self._filtering)
            if filtered.chunks:
                kept = filtered.chunks[0] if len(filtered.chunks) == 1 else b"".join(filtered.chunks)
                write_fully(self._filesystem, target, [kept])
                _note(scan, kept, target)
            self._bytes_read += filtered.bytes_read
            self._records_read += filtered.records_read
            self._records_kept += filtered.records_kept
            self._pace(filtered.bytes_read + filtered.bytes_kept)
            chunk.take(filtered.bytes_read)
        return self._filesystem.modified_ms(segment.paths.log)

    def _write(self, path: Path, content: bytes) -> None:
        file = self._filesystem.open(path, create=True)
        try:
            write_fully(self._filesystem, file, [content])
            self._filesystem.fsync(file)
        finally:
            file.close()


def _note(scan: SegmentScan, batches: Buffer, target: DataFile) -> None:
    end = scan.size + len(batches)
    if scan.feed(batches, scan.size) != end or scan.damage is not None:
        raise UncleanableError(f"{target.path}: the remaining batches are inconsistent: {scan.damage}")


class _Chunk:
    """A range of bytes in a segment. It starts with a batch."""

    __slots__ = ("data", "taken")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.taken = 0

    def take(self, size: int) -> None:
        """Record that the first `size` bytes of this chunk were processed. They are complete batches."""
        self.taken = size


class _Chunks:
    """Iterates over the batches of a segment from `start` to `end`, in chunks."""

    def __init__(self, filesystem: FileSystem, file: DataFile, start: int, end: int, chunk_bytes: int) -> None:
        self._filesystem = filesystem
        self._file = file
        self._position = start
        self._end = end
        self._chunk_bytes = max(chunk_bytes, BATCH_HEADER_SIZE)

    def __iter__(self) -> Iterator[_Chunk]:
        wanted = self._chunk_bytes
        while self._position < self._end:
            chunk = _Chunk(self._filesystem.pread(self._file, min(wanted, self._end - self._position), self._position))
            yield chunk
            wanted = self._chunk_bytes if chunk.taken else self._size_of_batch(chunk.data)
            self._position += chunk.taken

    def _size_of_batch(self, data: bytes) -> int:
        """Return the size of the first batch in a chunk that is too small for it."""
        left = self._end - self._position
        size = read_header(data).size if len(data) >= BATCH_HEADER_SIZE else left + 1
        if not len(data) < size <= left:
            raise CorruptBatchError(f"batch at position {self._position} extends beyond {self._end}")
        return size


@contextmanager
def _naming_the_log(folder: Path) -> Iterator[None]:
    """Convert errors to CleaningFailedError if another attempt may succeed, otherwise to UncleanableError."""
    try:
        yield
    except CorruptBatchError as error:
        raise UncleanableError(f"{folder} is damaged: {error}") from error
    except OSError as error:
        raise CleaningFailedError(f"{folder}: {error}") from error


def _size_if_there(filesystem: FileSystem, path: Path) -> int:
    try:
        return filesystem.size(path)
    except FileNotFoundError:
        return 0

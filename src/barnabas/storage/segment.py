"""One segment of a log: a file of batches, and two sparse indexes.

The last segment of a log is an `ActiveSegment`, which receives the appends. Its indexes are in memory; a flush and a
roll store them in files. A full segment becomes a `SealedSegment`, which opens its files at the first read and closes
them on request.

Retention renames files to `.deleted`, and unlinks them after a delay (Kafka's file.delete.delay.ms). A start unlinks
files with such names. Reads use pread with limited memory and not mmap, because an I/O error in a mapped page would
kill the process, whereas pread raises OSError.

Invariants. Batches are contiguous from position 0, and their offsets ascend. A segment covers the offsets from
`base_offset` up to `next_offset`, the base offset of the next segment. Compaction leaves gaps: the first batch may
begin after the base offset, a batch may begin after the end of the previous batch, and a segment may be empty. A lookup
of an offset in a gap returns the first batch after the gap. `ActiveSegment.write` writes batches to the file, and
`note_all` makes them visible: readers see only `size` bytes.

Threads. The owner of the log reads. Other threads read a `snapshot`. Any thread may call `rebuild_indexes`. Only one
append may write at a time. `note_all` and `encode_indexes` run under the state lock of the log.

Errors. A lookup reads only a few pages. If an index is missing or wrong, the lookup would have to read the whole file.
It raises `IndexDamagedError` instead, and the caller rebuilds the indexes on a background thread. Damaged batches raise
CorruptBatchError. If a segment was compacted before its file was opened, reads of the segment raise
`SegmentReplacedError`. If disk space, file descriptors or memory are short, `ActiveSegment.append` truncates the
written bytes. If the truncation fails, or the write fails for another reason, the log goes offline.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from barnabas.errors import BarnabasError, CorruptBatchError
from barnabas.model import NO_OFFSET, NO_TIMESTAMP, FileRegion
from barnabas.records.header import BATCH_HEADER_SIZE, BatchHeader, check_structure, read_header
from barnabas.records.scan import ANY_GAPS, SegmentScan, StampedBatch
from barnabas.storage.file_names import DELETED_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, offset_name
from barnabas.storage.filesystem import (
    Chunk,
    DataFile,
    FilePath,
    FileSystem,
    LogHealth,
    is_shortage,
    replace_file,
    write_fully,
)
from barnabas.storage.segment_index import (
    OFFSET_ENTRY_SIZE,
    FileOffsetIndex,
    FileTimeIndex,
    OffsetIndex,
    OffsetLookup,
    OffsetPosition,
    TimeIndex,
    TimeLookup,
    TimeOffset,
)

# The `.log` file is the last one. So an interruption leaves a segment whose indexes can be rebuilt.
_SUFFIXES = (TIME_INDEX_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX)


class SegmentPaths:
    __slots__ = ("_base_offset", "_folder")

    def __init__(self, folder: FilePath, base_offset: int) -> None:
        self._folder = folder
        self._base_offset = base_offset

    @property
    def log(self) -> Path:
        return self._of(LOG_SUFFIX)

    @property
    def index(self) -> Path:
        return self._of(INDEX_SUFFIX)

    @property
    def time_index(self) -> Path:
        return self._of(TIME_INDEX_SUFFIX)

    def _of(self, suffix: str) -> Path:
        return Path(f"{self._folder}/{offset_name(self._base_offset, suffix)}")


def delete_segment_files(filesystem: FileSystem, folder: Path, base_offsets: Sequence[int]) -> None:
    """Delete the files of segments, in the given order.

    :raises OSError: the file system returned an error. Some files may remain.
    """
    for path in _files_there(filesystem, folder, base_offsets):
        filesystem.unlink(path)


def rename_deleted_segments(filesystem: FileSystem, folder: Path, base_offsets: Sequence[int]) -> list[Path]:
    """Rename the files of segments so that later starts ignore them; return the new paths.

    :raises OSError: the file system returned an error. Some files may still have their old names.
    """
    renamed = []
    for path in _files_there(filesystem, folder, base_offsets):
        target = path.with_name(path.name + DELETED_SUFFIX)
        filesystem.replace(path, target)
        renamed.append(target)
    return renamed


def _files_there(filesystem: FileSystem, folder: Path, base_offsets: Sequence[int]) -> list[Path]:
    names = set(filesystem.list_folder(folder))  # one listing for all segments
    wanted = [offset_name(base, suffix) for base in base_offsets for suffix in _SUFFIXES]
    return [folder / name for name in wanted if name in names]


_HEADERS_BYTES = 8 * 1024
"""The number of bytes per read in a scan of headers.

It is two index intervals, so a lookup usually needs only one read.
"""

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
    """Yield the batches from `position`, where a batch must begin, up to `end`.

    :raises CorruptBatchError: there is no valid batch header, or a batch extends beyond `end`.
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
    """Feed a file to a scan, from the scan's position on.

    Stop at `end`, at the first damage, or at the end of the file.

    :raises OSError: the file cannot be read.
    """
    read_bytes = _SCAN_BYTES
    while scan.damage is None and scan.size < end:
        before, count = scan.size, scan.batch_count
        wanted = max(scan.wanted_bytes, read_bytes)
        chunk = filesystem.pread(file, min(wanted, end - before), before)
        if scan.feed(chunk, before) == before and len(chunk) < wanted:
            return
        # If the batches are large and the scan needs only the headers, the bytes between the headers are not read.
        sparse = scan.batch_count == count + 1 and scan.size > before + len(chunk)
        read_bytes = BATCH_HEADER_SIZE if sparse else _SCAN_BYTES


T = TypeVar("T")

_HINTS_MAX = 256

SCANNED_BYTES_MAX = 1024 * 1024
"""The maximum distance in bytes between a batch and the previous index entry.

An undamaged index has an entry every few KiB.
"""


class IndexDamagedError(CorruptBatchError):
    """An index is missing or does not match the batches.

    `SealedSegment.rebuild_indexes` must rebuild it from the batches.
    """

    def __init__(self, segment: SealedSegment, reason: str) -> None:
        super().__init__(reason)
        self.segment = segment


class SegmentReplacedError(BarnabasError):
    """The cleaner has replaced the segment before the file of the segment was opened.

    Another segment contains the records now.
    """


class Replacement:
    """Shows whether a segment is being replaced by a compacted segment.

    The segment and its snapshots share this object.

    `has_begun` is set before the first file is renamed. So if it is still false after a file was opened, the file
    belongs to the old segment.
    """

    __slots__ = ("has_begun",)

    def __init__(self) -> None:
        self.has_begun = False

    def open(self, filesystem: FileSystem, path: FilePath) -> DataFile:
        """Open a file of the segment for reading.

        :raises SegmentReplacedError: the file may belong to the new segment, or was removed.
        :raises OSError: the file cannot be opened.
        """
        try:
            file = filesystem.open(path, writable=False)
        except FileNotFoundError:
            self._check(path)
            raise
        self._check(path)
        return file

    def _check(self, path: FilePath) -> None:
        if self.has_begun:
            raise SegmentReplacedError(f"{path} was compacted")


class Segment(ABC):
    """The base class of active and sealed segments, with the reads that both have in common."""

    def __init__(
        self, filesystem: FileSystem, folder: FilePath, base_offset: int, *, size: int, next_offset: int
    ) -> None:
        self.filesystem = filesystem
        self._folder = str(folder)
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.size = size
        # The hints: for some offsets, the position of the first batch that ends at or after the offset. A consumer
        # continues at the end of its previous read. So the end of each read becomes a hint, and the next read needs
        # neither an index lookup nor a scan.
        self._hints: dict[int, int] = {}

    @property
    def folder(self) -> Path:
        """The partition directory."""
        return Path(self._folder)

    @property
    def paths(self) -> SegmentPaths:
        """The paths of the files of the segment."""
        return SegmentPaths(self._folder, self.base_offset)

    @property
    @abstractmethod
    def file(self) -> DataFile:
        """The open file of batches.

        :raises OSError: the file cannot be opened.
        """

    @property
    @abstractmethod
    def offset_index(self) -> OffsetLookup: ...

    @property
    @abstractmethod
    def time_index(self) -> TimeLookup: ...

    @property
    @abstractmethod
    def max_timestamp_ms(self) -> int:
        """The greatest timestamp in the segment according to the indexes, or -1."""

    @abstractmethod
    def snapshot(self) -> SealedSegment:
        """Return a copy of the segment, with its own open files, for a reader on another thread."""

    def position_of(self, offset: int) -> int:
        """Return the position of the first batch that ends at or after `offset`, or the size of the segment if there is
        none.

        :raises IndexDamagedError: an index does not match the batches.
        :raises CorruptBatchError: the batches are damaged.
        """
        position = self._hints.get(offset)
        if position is not None:
            return position
        try:
            batch = self._locate(offset)
        except CorruptBatchError as error:
            raise self._blamed(error) from error
        return self.size if batch is None else batch.position

    def read(self, start: int, max_bytes: int, max_offset: int, *, min_one_batch: bool) -> FileRegion | None:
        """Return whole batches, from the batch at position `start` on.

        :param max_bytes: the maximum size of the result.
        :param max_offset: the end of the readable offsets. Batches that do not end below it are left out.
        :param min_one_batch: True to return the first batch even if it is larger than `max_bytes`.
        :returns: None if there is no such batch.
        :raises IndexDamagedError: an index does not match the batches.
        :raises CorruptBatchError: the batches are damaged.
        """
        try:
            return self._read(start, max_bytes, max_offset, min_one_batch=min_one_batch)
        except CorruptBatchError as error:
            raise self._blamed(error) from error

    def header_at(self, position: int) -> BatchHeader:
        """Return the header of the batch at `position`.

        :raises CorruptBatchError: there is no valid batch header at this position.
        """
        return next(scan_headers(self.filesystem, self.file, position, self.size)).header

    def hint(self, offset: int, position: int) -> None:
        """Remember the position of the first batch that ends at or after `offset`. The batch may not exist yet."""
        if len(self._hints) >= _HINTS_MAX:
            del self._hints[next(iter(self._hints))]
        self._hints[offset] = position

    def forget_hints(self) -> None:
        """Remove all hints, because the segment was truncated."""
        self._hints.clear()

    def locate(self, offset: int) -> PlacedBatch | None:
        """Return the first batch that ends at or after `offset`.

        If needed, rebuild the indexes, which may take a long time.

        :returns: None if this segment has no such batch.
        :raises CorruptBatchError: the batches are damaged.
        """
        return self._surely(lambda: self._locate(offset))

    def end_before(self, offset: int) -> int:
        """Return the offset after the last batch that ends before `offset`.

        Return the base offset if there is no such batch.

        Like `locate`, this may take a long time.

        :raises CorruptBatchError: the batches are damaged.
        """
        return self._surely(lambda: self._end_before(offset))

    def headers(self, offset: int) -> Iterator[PlacedBatch]:
        """Yield the batches of the segment, beginning with the first batch that ends at or after `offset`."""
        first = self.locate(offset)
        if first is not None:
            yield from scan_headers(self.filesystem, self.file, first.position, self.size)

    def read_batch(self, batch: PlacedBatch) -> bytes:
        return self.filesystem.pread(self.file, batch.header.size, batch.position)

    def _surely(self, look: Callable[[], T]) -> T:
        """Run a lookup. If an index is wrong, rebuild the indexes and run the lookup again."""
        try:
            return look()
        except CorruptBatchError as error:
            blamed = self._blamed(error)
            if not isinstance(blamed, IndexDamagedError):
                raise
            blamed.segment.rebuild_indexes()
            return look()

    def _read(self, start: int, max_bytes: int, max_offset: int, *, min_one_batch: bool) -> FileRegion | None:
        limit = self.size if max_offset >= self.next_offset else self.position_of(max_offset)
        end = limit
        if limit - start > max_bytes:
            end = self._end_within(start, limit, max_bytes, min_one_batch=min_one_batch)
        elif limit == self.size:
            self.hint(self.next_offset, limit)
        return FileRegion(self.file, start, end - start) if end > start else None

    def _locate(self, offset: int) -> PlacedBatch | None:
        if not self.size:
            return None
        # A reader that starts at the base offset needs no index lookup.
        entry = self.offset_index.floor(offset - self.base_offset) if offset > self.base_offset else None
        for batch in self._scan_from(entry, self.size):
            if batch.header.last_offset >= offset:
                return batch
        return None

    def _end_before(self, offset: int) -> int:
        end = self.base_offset
        if self.size:
            for batch in self._scan_from(self.offset_index.floor(offset - 1 - self.base_offset), self.size):
                if batch.header.last_offset >= offset:
                    break
                end = batch.header.next_offset
        return end

    def _end_within(self, start: int, limit: int, max_bytes: int, *, min_one_batch: bool) -> int:
        """Return the end position of the last complete batch within `max_bytes` after `start`."""
        next_offset = NO_OFFSET
        entry = self.offset_index.floor_position(start + max_bytes)
        if entry and entry.position > start:
            batches = self._scan_from(entry, limit)
        else:
            batches = scan_headers(self.filesystem, self.file, start, limit)
        for batch in batches:
            if batch.end > start + max_bytes:
                if batch.position == start and min_one_batch:
                    self.hint(batch.header.next_offset, batch.end)
                    return batch.end
                self.hint(batch.header.base_offset if next_offset == NO_OFFSET else next_offset, batch.position)
                return batch.position
            next_offset = batch.header.next_offset
        raise CorruptBatchError(f"{self.paths.log}: no batch ends after {start + max_bytes}")

    def _scan_from(self, entry: OffsetPosition | None, end: int) -> Iterator[PlacedBatch]:
        """Yield the batches from an index entry on, or all batches if there is no entry.

        The offset of an entry may be above the last offset of its batch, because Kafka adds only one entry for all
        batches of a write.

        :raises CorruptBatchError: the entry does not match its batch, or a later entry is missing.
        """
        start = entry.position if entry else 0
        for batch in scan_headers(self.filesystem, self.file, start, end):
            if entry and batch.header.last_offset > self.base_offset + entry.relative_offset:
                raise CorruptBatchError(f"{self.paths.index}: {entry} does not match {batch.header}")
            if batch.position - start > SCANNED_BYTES_MAX + batch.header.size and not self._has_sure_indexes:
                raise CorruptBatchError(f"{self.paths.index}: no entry between {start} and {batch.position}")
            entry = None
            yield batch

    @property
    @abstractmethod
    def _has_sure_indexes(self) -> bool:
        """True if this object built the indexes from the batches."""

    @abstractmethod
    def close(self) -> None:
        """Close all files; `FileRegion`s in use keep their files open."""

    def _blamed(self, error: CorruptBatchError) -> CorruptBatchError:
        """Return the error to raise: `error`, or an `IndexDamagedError` if an index may be the cause."""
        return error


class SealedSegment(Segment):
    """A segment that gets no further appends. It opens its files at the first read."""

    def __init__(
        self,
        filesystem: FileSystem,
        folder: FilePath,
        base_offset: int,
        *,
        size: int,
        next_offset: int,
        unflushed_file: DataFile | None = None,
        replacement: Replacement | None = None,
    ) -> None:
        super().__init__(filesystem, folder, base_offset, size=size, next_offset=next_offset)
        self.replacement = replacement or Replacement()
        # The file stays open until it is flushed, because an fsync through another descriptor might not report an
        # earlier write error.
        self.unflushed_file = unflushed_file
        self.confirmed_timestamp_ms: int | None = None
        """The greatest timestamp of all batches; None until all headers were read."""
        self._file: DataFile | None = None
        self._offset_index: OffsetLookup | None = None
        self._time_index: TimeLookup | None = None
        self._rebuilt = False

    @property
    def file(self) -> DataFile:
        file = self._file
        if file is None:
            file = self._file = self.unflushed_file or self.replacement.open(self.filesystem, self.paths.log)
        return file

    @property
    def offset_index(self) -> OffsetLookup:
        index = self._offset_index
        if index is None:
            index = self._offset_index = FileOffsetIndex(self.filesystem, *self._open_index(self.paths.index))
        return index

    @property
    def time_index(self) -> TimeLookup:
        index = self._time_index
        if index is None:
            index = self._time_index = FileTimeIndex(self.filesystem, *self._open_index(self.paths.time_index))
        return index

    @property
    def max_timestamp_ms(self) -> int:
        if self.confirmed_timestamp_ms is not None:
            return self.confirmed_timestamp_ms
        last = self.time_index.last()
        return last.timestamp_ms if last else NO_TIMESTAMP

    def check_time_index(self) -> None:
        """Compare the last entry of the time index with its batch. If they do not match, rebuild the indexes.

        :raises CorruptBatchError: the batches are damaged.
        """
        try:
            self._check_time(self.time_index.last(), must_exist=self.size > 0 and not self._rebuilt)
        except CorruptBatchError as error:
            if not isinstance(self._blamed(error), IndexDamagedError):
                raise
            self.rebuild_indexes()

    def find_timestamp(self, timestamp_ms: int) -> Iterator[PlacedBatch]:
        """Yield, in order, the batches whose greatest timestamp is not before `timestamp_ms`.

        If the indexes are wrong, rebuild them, which may take a long time.

        :raises CorruptBatchError: the batches are damaged.
        """
        try:
            entry = self.time_index.floor(timestamp_ms)
            self._check_time(entry)
        except CorruptBatchError as error:
            if not isinstance(self._blamed(error), IndexDamagedError):
                raise
            self.rebuild_indexes()
            entry = self.time_index.floor(timestamp_ms)
        start = self.base_offset + entry.relative_offset if entry else self.base_offset
        for batch in self.headers(start):
            if batch.header.max_timestamp_ms >= timestamp_ms:
                yield batch

    def _check_time(self, entry: TimeOffset | None, *, must_exist: bool = False) -> None:
        """Check that a time index entry exists and matches its batch.

        :raises CorruptBatchError: the entry does not match its batch, or is missing.
        """
        if entry is None:
            if must_exist:
                raise CorruptBatchError(f"{self.paths.time_index} is empty")
            return
        batch = self.locate(self.base_offset + entry.relative_offset)
        if batch is None or batch.header.max_timestamp_ms != entry.timestamp_ms:
            raise CorruptBatchError(f"{self.paths.time_index}: {entry} does not match {batch}")

    def confirm_timestamp(self) -> int:
        """Return the greatest timestamp of all batches, or -1.

        The first call reads all headers, which takes a long time.

        Retention calls this method, because a wrong index must not cause a deletion.

        :raises CorruptBatchError: a batch is damaged.
        """
        if self.confirmed_timestamp_ms is None:
            scan = self._scan()
            if scan.damage is not None:
                raise CorruptBatchError(f"{self.paths.log}: {scan.damage}")
            self.confirmed_timestamp_ms = scan.max_timestamp_ms
        return self.confirmed_timestamp_ms

    def snapshot(self) -> SealedSegment:
        copy = SealedSegment(
            self.filesystem,
            self._folder,
            self.base_offset,
            size=self.size,
            next_offset=self.next_offset,
            unflushed_file=self.unflushed_file,
            replacement=self.replacement,
        )
        copy.confirmed_timestamp_ms = self.confirmed_timestamp_ms
        return copy

    def rebuild_indexes(self, *, store: bool = False) -> None:
        """Rebuild the indexes from the batches. Any thread may call this method.

        :param store: True to also write the index files. If the write fails, the indexes exist only in memory.
        :raises OSError: the batches cannot be read.
        """
        scan = self._scan()
        offset_index, time_index = OffsetIndex.of_scan(scan), TimeIndex.of_scan(scan)
        if store and not self.replacement.has_begun:
            with suppress(OSError):
                # The time index comes first, so a crash in between leaves no offset entry without its time entry.
                replace_file(self.filesystem, self.paths.time_index, time_index.encode(), durable=False)
                replace_file(self.filesystem, self.paths.index, offset_index.encode(), durable=False)
        self._time_index, self._offset_index = time_index, offset_index
        self._rebuilt = True

    def release(self) -> None:
        """Close the files. The next read opens them again. `FileRegion`s in use keep their files open."""
        self._file = self._offset_index = self._time_index = None
        self._rebuilt = False

    def close(self) -> None:
        """Close all files, even if the file of batches is not flushed."""
        self.release()
        self.unflushed_file = None

    @property
    def _has_sure_indexes(self) -> bool:
        return self._rebuilt

    def _blamed(self, error: CorruptBatchError) -> CorruptBatchError:
        return error if self._rebuilt else IndexDamagedError(self, str(error))

    def _open_index(self, path: Path) -> tuple[DataFile, int]:
        try:
            file = self.replacement.open(self.filesystem, path)
        except FileNotFoundError:
            raise CorruptBatchError(f"{path} is missing") from None
        return file, self.filesystem.size_of(file)

    def _scan(self) -> SegmentScan:
        """Scan all batches, up to the first damage."""
        scan = SegmentScan(self.base_offset, check_crc=False, end=self.size, gaps_up_to=ANY_GAPS)
        scan_segment(self.filesystem, self.file, scan, self.size)
        return scan


class ActiveSegment(Segment):
    """A segment that gets appends: `write` writes bytes to the file, and then `note_all` makes the batches visible."""

    def __init__(
        self,
        filesystem: FileSystem,
        folder: FilePath,
        base_offset: int,
        file: DataFile,
        *,
        size: int = 0,
        index_interval_bytes: int = 4096,
    ) -> None:
        super().__init__(filesystem, folder, base_offset, size=size, next_offset=base_offset)
        self._file: DataFile | None = file
        self._index_interval_bytes = index_interval_bytes
        self._offset_index = OffsetIndex()
        self._time_index = TimeIndex()
        self.index_bytes = 0
        """The size of the offset index as a file, in bytes."""
        self._bytes_since_entry = 0
        self._max_timestamp_ms = NO_TIMESTAMP
        self._max_timestamp_offset = NO_OFFSET
        self._noted_all = True  # False if the greatest timestamp comes from a stored index
        self.first_timestamp_ms: int | None = None
        self.is_changed = False
        """True if batches were written since this object was created."""
        self.is_sealed = False
        """True if the final indexes are stored. No more batches are appended then."""

    @classmethod
    def create(cls, filesystem: FileSystem, folder: Path, base_offset: int, index_interval_bytes: int) -> ActiveSegment:
        """Create an empty segment. Its index files are created when the indexes are first stored.

        :raises OSError: the segment was not created.
        """
        paths = SegmentPaths(folder, base_offset)
        file = filesystem.open(paths.log, create=True)
        return cls(filesystem, folder, base_offset, file, index_interval_bytes=index_interval_bytes)

    @property
    def file(self) -> DataFile:
        assert self._file is not None, "the segment is closed"
        return self._file

    @property
    def offset_index(self) -> OffsetIndex:
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        return self._time_index

    @property
    def max_timestamp_ms(self) -> int:
        return self._max_timestamp_ms

    def write(self, chunks: Sequence[Chunk]) -> None:
        """Write batches to the end of the file.

        :raises OSError: the write failed. The file may end with a part of the batches.
        """
        write_fully(self.filesystem, self.file, chunks)

    def append(self, chunks: Sequence[Chunk], health: LogHealth) -> None:
        """Write batches to the end of the file.

        If the content of the file is unknown after an error, put the log offline.

        :raises StorageError: the write failed.
        """
        self.is_changed = True
        try:
            self.write(chunks)
        except OSError as error:
            if is_shortage(error) and self._is_taken_back():
                raise health.refused("append", error) from error
            raise health.go_offline("append", error) from error
        except BaseException as error:
            raise health.go_offline("append", error) from error

    def _is_taken_back(self) -> bool:
        """Remove the written part of a failed append from the file. Return False if the removal also fails."""
        try:
            self.filesystem.truncate(self.file, self.size)
        except OSError:
            return False
        return True

    def note(self, position: int, size: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Make the batch at `position` visible. It must follow all visible batches."""
        self.size = position
        self.note_all([(size, last_offset, max_timestamp_ms)])

    def note_all(self, batches: Sequence[StampedBatch]) -> None:
        """Make contiguous batches in the file visible, and add their index entries.

        The batches must follow all visible batches.
        """
        if self.first_timestamp_ms is None:
            self.first_timestamp_ms = batches[0][2]
        position, since_entry, interval = self.size, self._bytes_since_entry, self._index_interval_bytes
        for size, last_offset, max_timestamp_ms in batches:
            if max_timestamp_ms > self._max_timestamp_ms:
                self._max_timestamp_ms = max_timestamp_ms
                self._max_timestamp_offset = last_offset
            if since_entry > interval:
                self._offset_index.append(last_offset - self.base_offset, position)
                self.index_bytes += OFFSET_ENTRY_SIZE
                self._note_time()
                since_entry = 0
            since_entry += size
            position += size
        self.size, self._bytes_since_entry = position, since_entry
        self.next_offset = batches[-1][1] + 1

    def begin_scan(self, entry: OffsetPosition | None, end: int, epoch: int, gaps_up_to: int) -> SegmentScan:
        """Return a scan that checks the batches from an index entry on, or all batches if there is no entry.

        `load_indexes` returns the entry.

        :param gaps_up_to: see `SegmentScan`.
        :raises ValueError, OverflowError: the stored indexes contradict each other.
        """
        interval = self._index_interval_bytes
        return SegmentScan(
            self.base_offset,
            index_interval_bytes=interval,
            check_crc=True,
            epoch=epoch,
            position=entry.position if entry else 0,
            end=end,
            # With this value, the scan adds the entry of this batch again.
            bytes_since_entry=interval + 1 if entry else 0,
            max_timestamp_ms=self._max_timestamp_ms,
            max_timestamp_offset=self._max_timestamp_offset,
            gaps_up_to=gaps_up_to,
        )

    def note_scan(self, scan: SegmentScan) -> None:
        """Make the valid batches of a scan visible. `begin_scan` has created the scan."""
        self._offset_index.extend(*scan.offset_entries)
        self._time_index.extend(*scan.time_entries)
        self.index_bytes = len(self._offset_index) * OFFSET_ENTRY_SIZE
        self.size = scan.size
        self._bytes_since_entry = scan.bytes_since_entry
        self._max_timestamp_ms, self._max_timestamp_offset = scan.max_timestamp_ms, scan.max_timestamp_offset
        if scan.batch_count:
            self.first_timestamp_ms = scan.first_timestamp_ms
            self.next_offset = scan.next_offset

    def load_indexes(self, offset_index: OffsetIndex, time_index: TimeIndex, trust_below: int) -> OffsetPosition | None:
        """Load the entries below an offset from the stored indexes.

        :returns: the last entry. Its batch and all later batches must be scanned. None if all batches must be scanned.
        """
        offset_index.truncate(max(0, trust_below - self.base_offset))
        offset_index.truncate_positions(self.size)
        last = offset_index.last()
        if last is None:
            time_index.truncate(0)
        else:
            # A time entry is only added together with an offset entry, or when the segment is sealed.
            time_index.truncate(last.relative_offset + 1)
            offset_index.truncate(last.relative_offset)
            # With this value, `note` adds the entry of this batch again.
            self._bytes_since_entry = self._index_interval_bytes + 1
        self._offset_index, self._time_index = offset_index, time_index
        self.index_bytes = len(offset_index) * OFFSET_ENTRY_SIZE
        if (last_time := time_index.last()) is not None:
            self._noted_all = False
            self._max_timestamp_ms = last_time.timestamp_ms
            self._max_timestamp_offset = self.base_offset + last_time.relative_offset
        return last

    def truncate(self, batch: PlacedBatch) -> None:
        """Truncate the segment before one of its batches.

        :raises OSError: the file system returned an error. The file may be truncated.
        """
        self.filesystem.truncate(self.file, batch.position)
        self.size = batch.position
        self.next_offset = self.base_offset  # `note` raises it again, to the end of the last remaining batch
        self._hints.clear()
        self._bytes_since_entry = 0
        self._max_timestamp_ms, self._max_timestamp_offset = NO_TIMESTAMP, NO_OFFSET
        entry = self.load_indexes(self._offset_index, self._time_index, batch.header.base_offset)
        start = entry.position if entry else 0
        for kept in scan_headers(self.filesystem, self.file, start, batch.position):
            self.note(kept.position, kept.header.size, kept.header.last_offset, kept.header.max_timestamp_ms)

    def encode_indexes(self, *, closing: bool) -> tuple[bytes, bytes]:
        """Return the contents of the offset index file and the time index file.

        :param closing: True if no batch will follow. Then the greatest timestamp also gets an entry.
        """
        if closing:
            self._note_time()
        return self._offset_index.encode(), self._time_index.encode()

    def write_indexes(self, offset_index: bytes, time_index: bytes, *, durable: bool = False) -> None:
        """Store the indexes. The caller must make the new file names durable.

        :raises OSError: the write failed. Each file has either its old or its new content.
        """
        # The time index comes first, so a crash in between leaves no offset entry without its time entry.
        replace_file(self.filesystem, self.paths.time_index, time_index, durable=durable)
        replace_file(self.filesystem, self.paths.index, offset_index, durable=durable, name_later=True)

    def seal(self) -> SealedSegment:
        """Return a sealed segment for this segment. The indexes must have been written."""
        sealed = SealedSegment(
            self.filesystem,
            self._folder,
            self.base_offset,
            size=self.size,
            next_offset=self.next_offset,
            unflushed_file=self._file,
        )
        sealed.confirmed_timestamp_ms = self._max_timestamp_ms if self._noted_all else None
        sealed._hints = self._hints
        return sealed

    def snapshot(self) -> SealedSegment:
        copy = self.seal()
        copy._hints = {}
        copy._offset_index, copy._time_index = self._offset_index.copy(), self._time_index.copy()
        copy._rebuilt = True
        if self._max_timestamp_offset != NO_OFFSET:
            copy._time_index.maybe_append(self._max_timestamp_ms, self._max_timestamp_offset - self.base_offset)
        return copy

    def close(self) -> None:
        """Close the file."""
        self._file = None

    @property
    def _has_sure_indexes(self) -> bool:
        return True

    def _note_time(self) -> None:
        if self._max_timestamp_offset != NO_OFFSET:
            self._time_index.maybe_append(self._max_timestamp_ms, self._max_timestamp_offset - self.base_offset)

"""One segment of a log: a file of batches, and two sparse indexes into it.

`ActiveSegment` is the last one of a log, the one that is appended to; its indexes are in memory. When it is full
it becomes a `SealedSegment`, which opens its files when it is read and can be asked to let them go.

Invariants: batches lie one after the other from position 0; the first one's base offset is the segment's; each
begins with the offset after the one before; `next_offset` is the one after the last.

A read touches a few pages and is quick. Where it would have to read a whole file, because an index is missing or
wrong, it raises `IndexDamagedError` instead, and the reader calls `rebuild_indexes` on a thread that may wait.

Not safe to use from several threads, but for `rebuild_indexes`; others work on a `snapshot`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from barnabas.errors import CorruptBatchError
from barnabas.model import NO_OFFSET, NO_TIMESTAMP, FileRegion
from barnabas.records.scan import SegmentScan, StampedBatch
from barnabas.storage.batch_scan import PlacedBatch, scan_headers, scan_segment
from barnabas.storage.filesystem import Chunk, DataFile, FilePath, FileSystem, replace_file, write_fully
from barnabas.storage.offset_index import FileOffsetIndex, OffsetIndex, OffsetLookup, OffsetPosition
from barnabas.storage.segment_files import SegmentPaths
from barnabas.storage.time_index import FileTimeIndex, TimeIndex, TimeLookup, TimeOffset

_HINTS_MAX = 256

SCANNED_BYTES_MAX = 1024 * 1024
"""How far from an index entry a batch may begin; a sound index has an entry every few KiB."""


class IndexDamagedError(CorruptBatchError):
    """An index is missing or wrong. It can be rebuilt from the batches."""

    def __init__(self, segment: SealedSegment, reason: str) -> None:
        super().__init__(reason)
        self.segment = segment


class Segment(ABC):
    """What can be read from any segment."""

    def __init__(
        self, filesystem: FileSystem, folder: FilePath, base_offset: int, *, size: int, next_offset: int
    ) -> None:
        self.filesystem = filesystem
        self._folder = str(folder)
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.size = size
        # Where the batch that begins with an offset lies. Readers go on where they stopped, so the end of one
        # read is the beginning of the next one, which then needs neither index nor scan.
        self._hints: dict[int, int] = {}

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return Path(self._folder)

    @property
    def paths(self) -> SegmentPaths:
        """Where each of its files is."""
        return SegmentPaths(self._folder, self.base_offset)

    @property
    @abstractmethod
    def file(self) -> DataFile:
        """The open file of batches. :raises OSError: it cannot be opened."""

    @property
    @abstractmethod
    def offset_index(self) -> OffsetLookup: ...

    @property
    @abstractmethod
    def time_index(self) -> TimeLookup: ...

    @property
    @abstractmethod
    def max_timestamp_ms(self) -> int:
        """The greatest timestamp in the segment, or -1, as far as is known without reading it."""

    @abstractmethod
    def snapshot(self) -> SealedSegment:
        """Return the segment as it is now, with files of its own, for another thread to read."""

    def read(self, offset: int, max_bytes: int, max_offset: int, *, min_one_batch: bool) -> FileRegion | None:
        """Return whole batches, beginning with the one that holds `offset`; it must be in this segment.

        :param max_bytes: of the result.
        :param max_offset: batches that reach this offset are left out.
        :param min_one_batch: return the first batch even if it is larger than `max_bytes`.
        :raises IndexDamagedError: an index does not lead there.
        :raises CorruptBatchError: there are no batches where they should be.
        """
        if max_bytes <= 0 and not min_one_batch:
            return None
        try:
            return self._read(offset, max_bytes, max_offset, min_one_batch=min_one_batch)
        except CorruptBatchError as error:
            raise self._blamed(error) from error

    def hint(self, offset: int, position: int) -> None:
        """Remember that the batch that begins with `offset` lies, or will lie, at `position`."""
        if len(self._hints) >= _HINTS_MAX:
            del self._hints[next(iter(self._hints))]
        self._hints[offset] = position

    def locate(self, offset: int) -> PlacedBatch:
        """Return the batch that holds `offset`; make the indexes anew if that is needed, which may take long.

        :raises CorruptBatchError: there is none.
        """
        try:
            return self._locate(offset)
        except CorruptBatchError as error:
            blamed = self._blamed(error)
            if not isinstance(blamed, IndexDamagedError):
                raise
            blamed.segment.rebuild_indexes()
            return self._locate(offset)

    def headers(self, offset: int) -> Iterator[PlacedBatch]:
        """Yield the batches from the one that holds `offset` to the last."""
        offset = max(offset, self.base_offset)
        if offset < self.next_offset:
            start = self.locate(offset).position
            yield from scan_headers(self.filesystem, self.file, start, self.size)

    def read_batch(self, batch: PlacedBatch) -> bytes:
        """Return the bytes of one batch."""
        return self.filesystem.pread(self.file, batch.header.size, batch.position)

    def _read(self, offset: int, max_bytes: int, max_offset: int, *, min_one_batch: bool) -> FileRegion | None:
        start = self._position_of(offset)
        limit = self.size if max_offset >= self.next_offset else self._position_of(max_offset)
        end = limit
        if limit - start > max_bytes:
            end = self._end_within(start, limit, max_bytes, min_one_batch=min_one_batch)
        elif limit == self.size:
            self.hint(self.next_offset, limit)
        if start >= self.size and offset < self.next_offset:
            raise CorruptBatchError(f"{self.paths.log}: records from {offset} to {self.next_offset - 1} are missing")
        return FileRegion(self.file, start, end - start) if end > start else None

    def _position_of(self, offset: int) -> int:
        position = self._hints.get(offset)
        return self._locate(offset).position if position is None else position

    def _locate(self, offset: int) -> PlacedBatch:
        entry = self.offset_index.floor(offset - self.base_offset)
        for batch in self._scan_from(entry, self.size):
            if batch.header.last_offset >= offset:
                if batch.header.base_offset > offset:
                    break
                return batch
        raise CorruptBatchError(f"{self.paths.log}: there is no batch with offset {offset}")

    def _end_within(self, start: int, limit: int, max_bytes: int, *, min_one_batch: bool) -> int:
        """Return where the last whole batch ends that lies within `max_bytes` after `start`."""
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
                self.hint(batch.header.base_offset, batch.position)
                return batch.position
        raise CorruptBatchError(f"{self.paths.log}: no batch ends after {start + max_bytes}")

    def _scan_from(self, entry: OffsetPosition | None, end: int) -> Iterator[PlacedBatch]:
        """Yield the batches from an index entry on, or all.

        :raises CorruptBatchError: the entry is wrong, or a nearer one is missing.
        """
        start = entry.position if entry else 0
        for batch in scan_headers(self.filesystem, self.file, start, end):
            if entry and batch.header.last_offset != self.base_offset + entry.relative_offset:
                raise CorruptBatchError(f"{self.paths.index}: {entry} is not where {batch.header} is")
            if batch.position - start > SCANNED_BYTES_MAX + batch.header.size and not self._has_sure_indexes:
                raise CorruptBatchError(f"{self.paths.index}: no entry between {start} and {batch.position}")
            entry = None
            yield batch

    @property
    @abstractmethod
    def _has_sure_indexes(self) -> bool:
        """Whether the indexes were made from the batches by this object."""

    @abstractmethod
    def close(self) -> None:
        """Let go of all files; regions in use keep theirs."""

    def _blamed(self, error: CorruptBatchError) -> CorruptBatchError:
        """Return what the error is, given that it may be the index that is damaged."""
        return error


class SealedSegment(Segment):
    """A segment that is not appended to. Opens its files when needed."""

    def __init__(
        self,
        filesystem: FileSystem,
        folder: FilePath,
        base_offset: int,
        *,
        size: int,
        next_offset: int,
        unflushed_file: DataFile | None = None,
    ) -> None:
        super().__init__(filesystem, folder, base_offset, size=size, next_offset=next_offset)
        # Kept until it is flushed: an fsync through another descriptor might not report an earlier error.
        self.unflushed_file = unflushed_file
        self.confirmed_timestamp_ms: int | None = None
        """The greatest timestamp, once every batch was asked for it."""
        self._file: DataFile | None = None
        self._offset_index: OffsetLookup | None = None
        self._time_index: TimeLookup | None = None
        self._rebuilt = False

    @property
    def file(self) -> DataFile:
        file = self._file
        if file is None:
            file = self._file = self.unflushed_file or self.filesystem.open(self.paths.log, writable=False)
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
        """Check the last entry of the time index against its batch; rebuild the indexes if it is wrong.

        :raises CorruptBatchError: the batches are damaged.
        """
        try:
            self._check_time(self.time_index.last(), must_exist=self.size > 0 and not self._rebuilt)
        except CorruptBatchError as error:
            if not isinstance(self._blamed(error), IndexDamagedError):
                raise
            self.rebuild_indexes()

    def find_timestamp(self, timestamp_ms: int) -> Iterator[PlacedBatch]:
        """Yield, in order, the batches whose greatest timestamp is `timestamp_ms` or later.

        The indexes are made anew if they are wrong, which may take long.

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
        for batch in self.headers(min(start, self.next_offset - 1)):
            if batch.header.max_timestamp_ms >= timestamp_ms:
                yield batch

    def _check_time(self, entry: TimeOffset | None, *, must_exist: bool = False) -> None:
        """:raises CorruptBatchError: an entry is not what its batch says, or is missing."""
        if entry is None:
            if must_exist:
                raise CorruptBatchError(f"{self.paths.time_index} is empty")
            return
        header = self.locate(self.base_offset + entry.relative_offset).header
        if header.max_timestamp_ms != entry.timestamp_ms:
            raise CorruptBatchError(f"{self.paths.time_index}: {entry} is not what {header} says")

    def confirm_timestamp(self) -> int:
        """Return the greatest timestamp of all batches, or -1. The first call reads all headers, which takes long.

        Retention uses this, since a wrong index must not delete anything.

        :raises CorruptBatchError: a batch cannot be understood.
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
        )
        copy.confirmed_timestamp_ms = self.confirmed_timestamp_ms
        return copy

    def rebuild_indexes(self, *, store: bool = False) -> None:
        """Make the indexes anew from the batches. May be called from any thread.

        :param store: write them into their files too; if the disk refuses, they are kept in memory.
        :raises OSError: the batches cannot be read.
        """
        scan = self._scan()
        offset_index, time_index = OffsetIndex.of_scan(scan), TimeIndex.of_scan(scan)
        if store:
            with suppress(OSError):
                # In this order, so that a crash between the two leaves no offset entry without its time entry.
                replace_file(self.filesystem, self.paths.time_index, time_index.encode(), durable=False)
                replace_file(self.filesystem, self.paths.index, offset_index.encode(), durable=False)
        self._time_index, self._offset_index = time_index, offset_index
        self._rebuilt = True

    def release(self) -> None:
        """Let go of the files; the next read opens them again, and regions in use keep theirs."""
        self._file = self._offset_index = self._time_index = None
        self._rebuilt = False

    def close(self) -> None:
        """Let go of all files, flushed or not."""
        self.release()
        self.unflushed_file = None

    @property
    def _has_sure_indexes(self) -> bool:
        return self._rebuilt

    def _blamed(self, error: CorruptBatchError) -> CorruptBatchError:
        return error if self._rebuilt else IndexDamagedError(self, str(error))

    def _open_index(self, path: Path) -> tuple[DataFile, int]:
        try:
            return self.filesystem.open(path, writable=False), self.filesystem.size(path)
        except FileNotFoundError:
            raise CorruptBatchError(f"{path} is missing") from None

    def _scan(self) -> SegmentScan:
        """Go along all batches, up to damage if there is some."""
        scan = SegmentScan(self.base_offset, check_crc=False, end=self.size)
        scan_segment(self.filesystem, self.file, scan, self.size)
        return scan


class ActiveSegment(Segment):
    """The segment that is appended to: `write` puts bytes into the file, `note` then accounts for each batch."""

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
        self._bytes_since_entry = 0
        self._max_timestamp_ms = NO_TIMESTAMP
        self._max_timestamp_offset = NO_OFFSET
        self._noted_all = True  # and nothing was taken from a stored index
        self.first_timestamp_ms: int | None = None
        self.is_sealed = False
        """Its last indexes were stored; nothing is written any more."""

    @classmethod
    def create(cls, filesystem: FileSystem, folder: Path, base_offset: int, index_interval_bytes: int) -> ActiveSegment:
        """Make a new, empty segment. Its indexes get their files when they are first stored.

        :raises OSError: it was not made.
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

    @property
    def index_bytes(self) -> int:
        """The size that the offset index has as a file."""
        return len(self._offset_index) * 8

    def write(self, chunks: Sequence[Chunk]) -> None:
        """Write batches to the end of the file.

        :raises OSError: the file may then end with a part of them.
        """
        write_fully(self.filesystem, self.file, chunks)

    def note(self, position: int, size: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Account for a batch that is in the file at `position`, the one after all those noted before."""
        self.size = position
        self.note_all([(size, last_offset, max_timestamp_ms)])

    def note_all(self, batches: Sequence[StampedBatch]) -> None:
        """Account for batches that are in the file, one after the other behind all those noted before."""
        if self.first_timestamp_ms is None:
            self.first_timestamp_ms = batches[0][2]
        position, since_entry, interval = self.size, self._bytes_since_entry, self._index_interval_bytes
        for size, last_offset, max_timestamp_ms in batches:
            if max_timestamp_ms > self._max_timestamp_ms:
                self._max_timestamp_ms = max_timestamp_ms
                self._max_timestamp_offset = last_offset
            if since_entry > interval:
                self._offset_index.append(last_offset - self.base_offset, position)
                self._note_time()
                since_entry = 0
            since_entry += size
            position += size
        self.size, self._bytes_since_entry = position, since_entry
        self.next_offset = batches[-1][1] + 1

    def begin_scan(self, entry: OffsetPosition | None, end: int, epoch: int) -> SegmentScan:
        """Return a scan that checks the batches from an entry on that `load_indexes` returned, or all.

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
            # So that the batch is given its entry again.
            bytes_since_entry=interval + 1 if entry else 0,
            max_timestamp_ms=self._max_timestamp_ms,
            max_timestamp_offset=self._max_timestamp_offset,
        )

    def note_scan(self, scan: SegmentScan) -> None:
        """Account for the batches that a scan found to be sound, which `begin_scan` began."""
        self._offset_index.extend(*scan.offset_entries)
        self._time_index.extend(*scan.time_entries)
        self.size = scan.size
        self._bytes_since_entry = scan.bytes_since_entry
        self._max_timestamp_ms, self._max_timestamp_offset = scan.max_timestamp_ms, scan.max_timestamp_offset
        if scan.batch_count:
            self.first_timestamp_ms = scan.first_timestamp_ms
            self.next_offset = scan.next_offset

    def load_indexes(self, offset_index: OffsetIndex, time_index: TimeIndex, trust_below: int) -> OffsetPosition | None:
        """Take over the entries below an offset from indexes that were stored.

        :returns: the last entry; the batch it is for and all after it must be noted again, or all if there is none.
        """
        offset_index.truncate(max(0, trust_below - self.base_offset))
        offset_index.truncate_positions(self.size)
        last = offset_index.last()
        if last is None:
            time_index.truncate(0)
        else:
            # Time entries are made with offset entries, after the batch was looked at, or when a segment ends.
            time_index.truncate(last.relative_offset + 1)
            offset_index.truncate(last.relative_offset)
            # So that the batch is given its entry again when it is noted.
            self._bytes_since_entry = self._index_interval_bytes + 1
        self._offset_index, self._time_index = offset_index, time_index
        if (last_time := time_index.last()) is not None:
            self._noted_all = False
            self._max_timestamp_ms = last_time.timestamp_ms
            self._max_timestamp_offset = self.base_offset + last_time.relative_offset
        return last

    def truncate(self, batch: PlacedBatch) -> None:
        """Cut the segment before a batch of its own.

        :raises OSError: the file may have been cut.
        """
        self.filesystem.truncate(self.file, batch.position)
        self.size = batch.position
        self.next_offset = batch.header.base_offset
        self._hints.clear()
        self._bytes_since_entry = 0
        self._max_timestamp_ms, self._max_timestamp_offset = NO_TIMESTAMP, NO_OFFSET
        entry = self.load_indexes(self._offset_index, self._time_index, batch.header.base_offset)
        start = entry.position if entry else 0
        for kept in scan_headers(self.filesystem, self.file, start, batch.position):
            self.note(kept.position, kept.header.size, kept.header.last_offset, kept.header.max_timestamp_ms)

    def encode_indexes(self, *, closing: bool) -> tuple[bytes, bytes]:
        """Return the content of the two index files.

        :param closing: nothing more will be noted, so that the greatest timestamp gets its entry.
        """
        if closing:
            self._note_time()
        return self._offset_index.encode(), self._time_index.encode()

    def write_indexes(self, offset_index: bytes, time_index: bytes, *, durable: bool = False) -> None:
        """Store the indexes. The name of the last file is made durable by the caller, with others.

        :raises OSError: each is as it was, or new.
        """
        # In this order, so that a crash between the two leaves no offset entry without its time entry.
        replace_file(self.filesystem, self.paths.time_index, time_index, durable=durable)
        replace_file(self.filesystem, self.paths.index, offset_index, durable=durable, name_later=True)

    def seal(self) -> SealedSegment:
        """Return the segment as one that will not be appended to; the indexes must have been written."""
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
        """Let go of the file."""
        self._file = None

    @property
    def _has_sure_indexes(self) -> bool:
        return True

    def _note_time(self) -> None:
        if self._max_timestamp_offset != NO_OFFSET:
            self._time_index.maybe_append(self._max_timestamp_ms, self._max_timestamp_offset - self.base_offset)

"""The segment that a log appends to. Its indexes are in memory; a checkpoint and the roll store them in files.

Invariants. `write` puts batches into the file, and `note_all` accounts for them: readers see `size` bytes only. The
others are those of `barnabas.storage.segment`.

Threads. One append at a time writes. `note_all` and `encode_indexes` run under the state lock of the log.

Errors. If room, file descriptors or memory are short, `append` cuts off what was written. If that fails too, or the
disk refuses for another reason, the log goes offline.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from barnabas.model import NO_OFFSET, NO_TIMESTAMP
from barnabas.records.scan import SegmentScan, StampedBatch
from barnabas.storage.batch_scan import PlacedBatch, scan_headers
from barnabas.storage.filesystem import Chunk, DataFile, FilePath, FileSystem, is_shortage, replace_file, write_fully
from barnabas.storage.health import LogHealth
from barnabas.storage.offset_index import OffsetIndex, OffsetPosition
from barnabas.storage.segment import SealedSegment, Segment
from barnabas.storage.segment_files import SegmentPaths
from barnabas.storage.time_index import TimeIndex


class ActiveSegment(Segment):
    """A segment that grows: `write` puts bytes into the file, `note_all` then accounts for the batches."""

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
        self._noted_all = True  # no entry was taken from a stored index
        self.first_timestamp_ms: int | None = None
        self.is_changed = False
        """Whether batches were written since this object was made."""
        self.is_sealed = False
        """Its last indexes are stored, and no batch follows."""

    @classmethod
    def create(cls, filesystem: FileSystem, folder: Path, base_offset: int, index_interval_bytes: int) -> ActiveSegment:
        """Make a new, empty segment. Its indexes get their files when they are first stored.

        :raises OSError: the disk refuses; there is no segment.
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

        :raises OSError: the disk refuses; the file may end with a part of the batches.
        """
        write_fully(self.filesystem, self.file, chunks)

    def append(self, chunks: Sequence[Chunk], health: LogHealth) -> None:
        """Do as `write` does; if the content of the file is unknown afterwards, take the log offline.

        :raises StorageError: the disk refused.
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
        """Cut off a part that was written; return False if that fails too."""
        try:
            self.filesystem.truncate(self.file, self.size)
        except OSError:
            return False
        return True

    def note(self, position: int, size: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Account for the batch at `position`, which follows all batches noted before."""
        self.size = position
        self.note_all([(size, last_offset, max_timestamp_ms)])

    def note_all(self, batches: Sequence[StampedBatch]) -> None:
        """Account for batches in the file, which follow one another and all batches noted before."""
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

    def begin_scan(self, entry: OffsetPosition | None, end: int, epoch: int, gaps_up_to: int) -> SegmentScan:
        """Return a scan that checks the batches from an entry of `load_indexes` on, or all batches.

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
            # So the batch gets its entry again.
            bytes_since_entry=interval + 1 if entry else 0,
            max_timestamp_ms=self._max_timestamp_ms,
            max_timestamp_offset=self._max_timestamp_offset,
            gaps_up_to=gaps_up_to,
        )

    def note_scan(self, scan: SegmentScan) -> None:
        """Account for the sound batches of a scan that `begin_scan` returned."""
        self._offset_index.extend(*scan.offset_entries)
        self._time_index.extend(*scan.time_entries)
        self.size = scan.size
        self._bytes_since_entry = scan.bytes_since_entry
        self._max_timestamp_ms, self._max_timestamp_offset = scan.max_timestamp_ms, scan.max_timestamp_offset
        if scan.batch_count:
            self.first_timestamp_ms = scan.first_timestamp_ms
            self.next_offset = scan.next_offset

    def load_indexes(self, offset_index: OffsetIndex, time_index: TimeIndex, trust_below: int) -> OffsetPosition | None:
        """Take over the entries below an offset from stored indexes.

        :returns: the last entry; its batch and all after it must be noted again. None: all batches must.
        """
        offset_index.truncate(max(0, trust_below - self.base_offset))
        offset_index.truncate_positions(self.size)
        last = offset_index.last()
        if last is None:
            time_index.truncate(0)
        else:
            # A time entry is made together with an offset entry, after the batch was noted, or when the segment ends.
            time_index.truncate(last.relative_offset + 1)
            offset_index.truncate(last.relative_offset)
            # So the batch gets its entry again when it is noted.
            self._bytes_since_entry = self._index_interval_bytes + 1
        self._offset_index, self._time_index = offset_index, time_index
        if (last_time := time_index.last()) is not None:
            self._noted_all = False
            self._max_timestamp_ms = last_time.timestamp_ms
            self._max_timestamp_offset = self.base_offset + last_time.relative_offset
        return last

    def truncate(self, batch: PlacedBatch) -> None:
        """Cut the segment before one of its batches.

        :raises OSError: the disk refuses; the file may be cut.
        """
        self.filesystem.truncate(self.file, batch.position)
        self.size = batch.position
        self.next_offset = self.base_offset  # `note` moves it behind the last batch that is kept
        self._hints.clear()
        self._bytes_since_entry = 0
        self._max_timestamp_ms, self._max_timestamp_offset = NO_TIMESTAMP, NO_OFFSET
        entry = self.load_indexes(self._offset_index, self._time_index, batch.header.base_offset)
        start = entry.position if entry else 0
        for kept in scan_headers(self.filesystem, self.file, start, batch.position):
            self.note(kept.position, kept.header.size, kept.header.last_offset, kept.header.max_timestamp_ms)

    def encode_indexes(self, *, closing: bool) -> tuple[bytes, bytes]:
        """Return the content of the two index files.

        :param closing: no batch follows, so the greatest timestamp gets its entry.
        """
        if closing:
            self._note_time()
        return self._offset_index.encode(), self._time_index.encode()

    def write_indexes(self, offset_index: bytes, time_index: bytes, *, durable: bool = False) -> None:
        """Store the indexes. The caller makes the name of the last file durable, together with others.

        :raises OSError: the disk refuses; each file is the old one or the new one.
        """
        # In this order, so that a crash between the two leaves no offset entry without its time entry.
        replace_file(self.filesystem, self.paths.time_index, time_index, durable=durable)
        replace_file(self.filesystem, self.paths.index, offset_index, durable=durable, name_later=True)

    def seal(self) -> SealedSegment:
        """Return the segment as a sealed one; its indexes must have been written."""
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

"""A compacted segment that takes its place in a log while its files still have other names."""

from __future__ import annotations

from pathlib import Path

from barnabas.storage.cleaner.swap import cleaned_paths
from barnabas.storage.filesystem import FileSystem
from barnabas.storage.segment import SealedSegment
from barnabas.storage.segment_index import FileOffsetIndex, FileTimeIndex


class CleanedSegment(SealedSegment):
    """A segment as a cleaner wrote it. Its files are open from the beginning, and stay so until they have their names.

    :param size: that it must have, in bytes.
    :raises OSError: it cannot be opened, or has another size.
    """

    def __init__(self, filesystem: FileSystem, folder: Path, base_offset: int, *, size: int, next_offset: int) -> None:
        super().__init__(filesystem, folder, base_offset, size=size, next_offset=next_offset)
        self._is_held = True
        log, index, time_index = cleaned_paths(folder, base_offset)
        self._file = filesystem.open(log, writable=False)
        self._offset_index = FileOffsetIndex(filesystem, *self._open_index(index))
        self._time_index = FileTimeIndex(filesystem, *self._open_index(time_index))
        if (found := filesystem.size_of(self._file)) != size:
            raise OSError(f"{log} has {found} bytes; the cleaner wrote {size}")

    def snapshot(self) -> SealedSegment:
        copy = super().snapshot()
        if self._is_held:
            # What has the name of a file is still that of the old segment, or nothing.
            copy._file, copy._offset_index, copy._time_index = self._file, self._offset_index, self._time_index
        return copy

    def release(self) -> None:
        if not self._is_held:
            super().release()

    def end_hold(self) -> None:
        """The files have their own names now."""
        self._is_held = False
        self.release()

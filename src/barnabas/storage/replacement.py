"""A compacted segment takes the place of others, while threads may be about to open the files of those."""

from __future__ import annotations

from barnabas.errors import BarnabasError
from barnabas.storage.filesystem import DataFile, FilePath, FileSystem


class SegmentReplacedError(BarnabasError):
    """A segment whose file was not open yet has been compacted: the log has another one in its place."""


class Replacement:
    """Whether a compacted segment takes the place of one; shared by the segment and its snapshots.

    It begins before the first file is renamed. So a file that was opened before it began is the segment's own.
    """

    __slots__ = ("has_begun",)

    def __init__(self) -> None:
        self.has_begun = False

    def open(self, filesystem: FileSystem, path: FilePath) -> DataFile:
        """Open a file of the segment to read it.

        :raises SegmentReplacedError: it may be that of another segment by now, or be gone.
        :raises OSError: it cannot be opened.
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

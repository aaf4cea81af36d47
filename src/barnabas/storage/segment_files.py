"""The files of a segment as a group: their paths, deletion at once, and renaming.

Files that retention removes are renamed to `.deleted`, and unlinked later (Kafka's file.delete.delay.ms). A start
unlinks files with such names.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from barnabas.storage.file_names import DELETED_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, offset_name
from barnabas.storage.filesystem import FilePath, FileSystem

# The batches last: an interruption leaves a segment whose indexes can be rebuilt.
_SUFFIXES = (TIME_INDEX_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX)


class SegmentPaths:
    """The paths of the files of a segment."""

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

    :raises OSError: the disk refuses; some files may be left.
    """
    for path in _files_there(filesystem, folder, base_offsets):
        filesystem.unlink(path)


def rename_deleted_segments(filesystem: FileSystem, folder: Path, base_offsets: Sequence[int]) -> list[Path]:
    """Rename the files of segments, so that no start finds them; return their new names.

    :raises OSError: the disk refuses; some files may have their old names.
    """
    renamed = []
    for path in _files_there(filesystem, folder, base_offsets):
        target = path.with_name(path.name + DELETED_SUFFIX)
        filesystem.replace(path, target)
        renamed.append(target)
    return renamed


def _files_there(filesystem: FileSystem, folder: Path, base_offsets: Sequence[int]) -> list[Path]:
    names = set(filesystem.list_folder(folder))  # once, since it may be long
    wanted = [offset_name(base, suffix) for base in base_offsets for suffix in _SUFFIXES]
    return [folder / name for name in wanted if name in names]

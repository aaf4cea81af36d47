"""A segment's files as a group: deleted at once, or set aside first.

What retention removes is renamed to `.deleted`, and unlinked a while later (Kafka's file.delete.delay.ms). A start
unlinks what bears such a name.
"""

from __future__ import annotations

from pathlib import Path

from barnabas.storage.file_names import DELETED_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, offset_name
from barnabas.storage.filesystem import FileSystem

# The batches last: if this is interrupted, what is left is a segment whose indexes can be made anew.
_SUFFIXES = (TIME_INDEX_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX)


def delete_segment_files(filesystem: FileSystem, folder: Path, base_offset: int) -> None:
    """Delete the files of a segment.

    :raises OSError: some of them may be left.
    """
    for path in _files_there(filesystem, folder, base_offset):
        filesystem.unlink(path)


def set_segment_files_aside(filesystem: FileSystem, folder: Path, base_offset: int) -> list[Path]:
    """Rename the files of a segment so that nothing finds them any more; return their new names.

    :raises OSError: some of them may have the old name.
    """
    renamed = []
    for path in _files_there(filesystem, folder, base_offset):
        target = path.with_name(path.name + DELETED_SUFFIX)
        filesystem.replace(path, target)
        renamed.append(target)
    return renamed


def _files_there(filesystem: FileSystem, folder: Path, base_offset: int) -> list[Path]:
    names = set(filesystem.list_folder(folder))
    wanted = [offset_name(base_offset, suffix) for suffix in _SUFFIXES]
    return [folder / name for name in wanted if name in names]

"""Renames damaged files at start. Damaged files are never deleted, so an administrator can recover their content.

For example, `00000000000000000100.log` or its tail becomes `00000000000000000100.log.damaged`. If this name exists, the
new name ends with `.damaged-2`. Barnabas never reads or removes files with these names.
"""

from __future__ import annotations

from itertools import chain, count
from pathlib import Path

from barnabas.errors import CorruptBatchError
from barnabas.records.header import check_batch, read_header
from barnabas.storage.file_names import DAMAGED_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, offset_name
from barnabas.storage.filesystem import DataFile, FileSystem, write_fully

SEARCHED_BYTES_MAX = 4 * 1024 * 1024
"""The number of bytes that are searched for a valid batch, from the damaged position on."""

_CANDIDATES_MAX = 10_000
_MAGIC = b"\x02"
_MAGIC_POSITION = 16
_COPIED_BYTES = 1024 * 1024


def unused_name(filesystem: FileSystem, path: Path, suffix: str = DAMAGED_SUFFIX) -> Path:
    """Return the first unused name of `<path><suffix>`, `<path><suffix>-2`, ..."""
    names = set(filesystem.list_folder(path.parent))
    numbered = (f"{path.name}{suffix}-{number}" for number in count(2))
    return path.with_name(next(name for name in chain([path.name + suffix], numbered) if name not in names))


def rename_damaged(filesystem: FileSystem, path: Path, suffix: str = DAMAGED_SUFFIX) -> Path:
    """Rename a damaged file so that later starts ignore it; return its new path.

    :raises OSError: the file system returned an error. The file keeps its old name.
    """
    target = unused_name(filesystem, path, suffix)
    filesystem.replace(path, target)
    return target


def rename_damaged_segment(
    filesystem: FileSystem, folder: Path, base_offset: int, suffix: str = DAMAGED_SUFFIX
) -> None:
    """Rename the files of a damaged segment, the `.log` file last.

    If this is interrupted, a segment without indexes remains.

    :raises OSError: the file system returned an error. Some files may keep their old names.
    """
    names = set(filesystem.list_folder(folder))
    for name in (offset_name(base_offset, each) for each in (TIME_INDEX_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX)):
        if name in names:
            rename_damaged(filesystem, folder / name, suffix)


def copy_damaged_tail(filesystem: FileSystem, file: DataFile, position: int, size: int) -> Path:
    """Copy the bytes of a file from `position` on to a new file, and make the copy durable.

    :raises OSError: the file system returned an error. No copy exists in this case.
    """
    target = unused_name(filesystem, file.path)
    copy = filesystem.open(target, create=True)
    try:
        while position < size:
            chunk = filesystem.pread(file, min(_COPIED_BYTES, size - position), position)
            if not chunk:
                break
            write_fully(filesystem, copy, [chunk])
            position += len(chunk)
        filesystem.fsync(copy)
    except OSError:
        copy.close()
        filesystem.unlink(target)
        raise
    copy.close()
    return target


def has_valid_batch(filesystem: FileSystem, file: DataFile, position: int, size: int) -> bool:
    """Return whether a complete batch with a correct CRC begins at `position` or soon after it.

    If a crash interrupts a write, no such batch follows the damage. A valid batch shows that the damage has another
    cause, and the bytes may be worth recovering.
    """
    searched = filesystem.pread(file, min(SEARCHED_BYTES_MAX, size - position), position)
    at = searched.find(_MAGIC, _MAGIC_POSITION)
    candidates = 0
    while at >= 0 and candidates < _CANDIDATES_MAX:
        candidates += 1
        if _is_sound(filesystem, file, searched, at - _MAGIC_POSITION, position, size):
            return True
        at = searched.find(_MAGIC, at + 1)
    return False


def _is_sound(filesystem: FileSystem, file: DataFile, searched: bytes, at: int, position: int, size: int) -> bool:
    try:
        header = read_header(searched, at)
        if position + at + header.size > size:
            return False
        if at + header.size > len(searched):
            searched, at = filesystem.pread(file, header.size, position + at), 0
        check_batch(searched, at, header)
    except CorruptBatchError:
        return False
    return True

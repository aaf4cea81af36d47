"""The files of a cleaned segment take the place of those that it was made of, as in Kafka:

1. The cleaner writes `.log.cleaned` and its indexes, with fsync. A start removes such files.
2. They are renamed to `.swap`, the batches last. From `.log.swap` on, a start goes on with the next steps.
3. The old segments are renamed to `.deleted`, from the first to the last, and removed later.
4. The new files lose the suffix `.swap`, the batches last.

Invariants. Between these steps the folder is fsynced, so a loss of power cannot change their order. After a crash at
any step, each segment of the log is the old one or has its new content, and no old segment comes before a new one:
newer records supersede all that a cleaning removes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from barnabas.log_lines import LogEvent, event
from barnabas.records.scan import ANY_GAPS, SegmentScan
from barnabas.storage.damaged_files import rename_damaged
from barnabas.storage.file_names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    offset_name,
    offsets_by_suffix,
    segment_file_of,
)
from barnabas.storage.filesystem import FileSystem
from barnabas.storage.segment import SealedSegment, delete_segment_files, rename_deleted_segments, scan_segment
from barnabas.storage.segment_index import FileOffsetIndex, FileTimeIndex

logger = logging.getLogger(__name__)

_BATCHES_LAST = (TIME_INDEX_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX)


def cleaned_paths(folder: Path, base_offset: int) -> tuple[Path, Path, Path]:
    """Return where a cleaner writes the batches of a segment, its index by offset, and that by time."""
    log, index, time_index = (
        folder / (offset_name(base_offset, suffix) + CLEANED_SUFFIX)
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)
    )
    return log, index, time_index


def remove_cleaned(filesystem: FileSystem, folder: Path) -> None:
    """Remove what a cleaning left that was not swapped.

    :raises OSError: some of it may be left.
    """
    for name in filesystem.list_folder(folder):
        if segment_file_of(name, CLEANED_SUFFIX) is not None:
            filesystem.unlink(folder / name)


def begin_swap(filesystem: FileSystem, folder: Path, base_offset: int) -> None:
    """Rename the files of a cleaned segment so that a start completes the swap.

    :raises OSError: it is not known what a start will find.
    """
    for suffix in _BATCHES_LAST:
        name = offset_name(base_offset, suffix)
        filesystem.replace(folder / (name + CLEANED_SUFFIX), folder / (name + SWAP_SUFFIX))
    filesystem.fsync_folder(folder)


def end_swap(filesystem: FileSystem, folder: Path, base_offset: int, replaced: Sequence[int]) -> list[Path]:
    """Set the files of old segments aside, and give those of the new one their names.

    :param replaced: where the old segments begin, in order.
    :returns: the new names of the old files, to be deleted later.
    :raises OSError: it is not known how far this came.
    """
    set_aside_paths = rename_deleted_segments(filesystem, folder, replaced)
    filesystem.fsync_folder(folder)
    _name_as_segment(filesystem, folder, base_offset)
    return set_aside_paths


def _name_as_segment(filesystem: FileSystem, folder: Path, base_offset: int) -> None:
    names = set(filesystem.list_folder(folder))
    for suffix in _BATCHES_LAST:
        name = offset_name(base_offset, suffix)
        if name + SWAP_SUFFIX in names:
            filesystem.replace(folder / (name + SWAP_SUFFIX), folder / name)
    filesystem.fsync_folder(folder)


def finish_swaps(filesystem: FileSystem, folder: Path, names: list[str]) -> list[str]:
    """Complete the interrupted swaps, and remove cleaned files that were not to be swapped yet.

    :param names: of the files in a log's folder.
    :returns: their names now.
    :raises OSError: the disk refuses; the next start goes on.
    """
    cleaned = [found for name in names if (found := segment_file_of(name, CLEANED_SUFFIX)) is not None]
    swaps = [found for name in names if (found := segment_file_of(name, SWAP_SUFFIX)) is not None]
    if not cleaned and not swaps:
        return names
    whole = sorted(base for base, suffix in swaps if suffix == LOG_SUFFIX)
    if cleaned:
        # Kafka splits a segment into several: if not all of them were renamed, none is to be used.
        first_cleaned = min(base for base, _ in cleaned)
        whole = [base for base in whole if base < first_cleaned]
    for base, suffix in swaps:
        if base not in whole:
            filesystem.unlink(folder / (offset_name(base, suffix) + SWAP_SUFFIX))
    for base, suffix in cleaned:
        filesystem.unlink(folder / (offset_name(base, suffix) + CLEANED_SUFFIX))
    for base in whole:
        _finish_swap(filesystem, folder, base)
    return filesystem.list_folder(folder)


def _finish_swap(filesystem: FileSystem, folder: Path, base_offset: int) -> None:
    bases = sorted(offsets_by_suffix(filesystem.list_folder(folder))[LOG_SUFFIX])
    path = folder / (offset_name(base_offset, LOG_SUFFIX) + SWAP_SUFFIX)
    end_offset, damage = _end_of(filesystem, path, base_offset)
    if damage is not None and base_offset in bases:
        # It was fsynced, so the disk has lost it since; the old segments are still there.
        message = "%s, made by log compaction, is damaged, and left out: %s"
        logger.error(message, path, damage, extra=event(LogEvent.COMPACTED_DAMAGED))
        for suffix in _BATCHES_LAST:
            swap = folder / (offset_name(base_offset, suffix) + SWAP_SUFFIX)
            if swap.name in filesystem.list_folder(folder):
                rename_damaged(filesystem, swap)
        return
    replaced = [base for base in bases if base_offset <= base < max(end_offset, base_offset + 1)]
    logger.info("%s: the swap of compacted segment %d is completed; it replaces %s", folder, base_offset, replaced)
    delete_segment_files(filesystem, folder, replaced)
    filesystem.fsync_folder(folder)
    _name_as_segment(filesystem, folder, base_offset)


def _end_of(filesystem: FileSystem, path: Path, base_offset: int) -> tuple[int, str | None]:
    """Return the offset after the last batch of a file, and its damage, or None."""
    file = filesystem.open(path, writable=False)
    try:
        size = filesystem.size_of(file)
        scan = SegmentScan(base_offset, check_crc=True, end=size, gaps_up_to=ANY_GAPS)
        scan_segment(filesystem, file, scan, size)
    finally:
        file.close()
    return scan.next_offset, scan.damage


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

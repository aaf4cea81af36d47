"""The swap: replaces segments with a cleaned segment, in the same steps as Kafka:

1. The cleaner writes and fsyncs `.log.cleaned` and its indexes. If the broker restarts now, it removes these files.
2. The broker renames these files to `.swap`, the `.log` file last. If the broker restarts when `.log.swap` exists, it
   completes the swap.
3. The broker renames the files of the old segments to `.deleted`, in ascending order, and removes them later.
4. The broker removes the suffix `.swap` from the new files, the `.log` file last.

Invariants. The directory is fsynced between the steps, so a power failure cannot reorder them. After a crash at any
step, each segment has either its old or its new content, and no old segment precedes a new one. This order is safe,
because the records that supersede removed records are never lost.
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
    """Return the paths of a cleaned segment: its batches, its offset index and its time index."""
    log, index, time_index = (
        folder / (offset_name(base_offset, suffix) + CLEANED_SUFFIX)
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)
    )
    return log, index, time_index


def remove_cleaned(filesystem: FileSystem, folder: Path) -> None:
    """Remove the files of cleaned segments whose swap has not started.

    :raises OSError: some of the files may remain.
    """
    for name in filesystem.list_folder(folder):
        if segment_file_of(name, CLEANED_SUFFIX) is not None:
            filesystem.unlink(folder / name)


def begin_swap(filesystem: FileSystem, folder: Path, base_offset: int) -> None:
    """Start a swap: rename the files of a cleaned segment to `.swap`. After a crash, the next start completes the swap.

    :raises OSError: the state of the files is unknown. The next start either completes the swap or removes the cleaned
        segment.
    """
    for suffix in _BATCHES_LAST:
        name = offset_name(base_offset, suffix)
        filesystem.replace(folder / (name + CLEANED_SUFFIX), folder / (name + SWAP_SUFFIX))
    filesystem.fsync_folder(folder)


def end_swap(filesystem: FileSystem, folder: Path, base_offset: int, replaced: Sequence[int]) -> list[Path]:
    """Complete a swap: rename the files of the old segments, and remove the suffix `.swap` from the new files.

    :param replaced: the base offsets of the old segments, in order.
    :returns: the new paths of the old files, which the caller removes later.
    :raises OSError: the state of the files is unknown. The next start completes the swap.
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
    """Complete interrupted swaps, and remove cleaned files whose swap had not started.

    :param names: the names of the files in the partition directory.
    :returns: the names after the swaps.
    :raises OSError: the file system returned an error. The next start continues with the swaps.
    """
    cleaned = [found for name in names if (found := segment_file_of(name, CLEANED_SUFFIX)) is not None]
    swaps = [found for name in names if (found := segment_file_of(name, SWAP_SUFFIX)) is not None]
    if not cleaned and not swaps:
        return names
    whole = sorted(base for base, suffix in swaps if suffix == LOG_SUFFIX)
    if cleaned:
        # Kafka also splits a segment into several `.swap` segments. If some of them are still `.cleaned`, none of them
        # may be used.
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
        # The file was intact when it was fsynced, so the disk has damaged it. The old segments still exist.
        message = "compacted segment %s is damaged: %s; keeping the old segments"
        logger.error(message, path, damage, extra=event(LogEvent.COMPACTED_DAMAGED))
        for suffix in _BATCHES_LAST:
            swap = folder / (offset_name(base_offset, suffix) + SWAP_SUFFIX)
            if swap.name in filesystem.list_folder(folder):
                rename_damaged(filesystem, swap)
        return
    replaced = [base for base in bases if base_offset <= base < max(end_offset, base_offset + 1)]
    logger.info(
        "%s: completing the swap of compacted segment %d, which replaces segments %s", folder, base_offset, replaced
    )
    delete_segment_files(filesystem, folder, replaced)
    filesystem.fsync_folder(folder)
    _name_as_segment(filesystem, folder, base_offset)


def _end_of(filesystem: FileSystem, path: Path, base_offset: int) -> tuple[int, str | None]:
    """Return the offset after the last valid batch of a file, and the damage that follows it, or None."""
    file = filesystem.open(path, writable=False)
    try:
        size = filesystem.size_of(file)
        scan = SegmentScan(base_offset, check_crc=True, end=size, gaps_up_to=ANY_GAPS)
        scan_segment(filesystem, file, scan, size)
    finally:
        file.close()
    return scan.next_offset, scan.damage


class CleanedSegment(SealedSegment):
    """A segment that the cleaner wrote.

    Its files stay open until the end of the swap, when they have their final names.

    :param size: the expected size, in bytes.
    :raises OSError: the file cannot be opened, or has another size.
    """

    def __init__(self, filesystem: FileSystem, folder: Path, base_offset: int, *, size: int, next_offset: int) -> None:
        super().__init__(filesystem, folder, base_offset, size=size, next_offset=next_offset)
        self._is_held = True
        log, index, time_index = cleaned_paths(folder, base_offset)
        self._file = filesystem.open(log, writable=False)
        self._offset_index = FileOffsetIndex(filesystem, *self._open_index(index))
        self._time_index = FileTimeIndex(filesystem, *self._open_index(time_index))
        if (found := filesystem.size_of(self._file)) != size:
            raise OSError(f"{log} has {found} bytes, but the cleaner wrote {size}")

    def snapshot(self) -> SealedSegment:
        copy = super().snapshot()
        if self._is_held:
            # The snapshot shares the open files, because the final names may still belong to the files of the old
            # segment.
            copy._file, copy._offset_index, copy._time_index = self._file, self._offset_index, self._time_index
        return copy

    def release(self) -> None:
        if not self._is_held:
            super().release()

    def end_hold(self) -> None:
        """Release the open files after the swap, because they have their final names now."""
        self._is_held = False
        self.release()

"""Loads a log from its folder, and mends what a crash left behind. `docs/storage.md` tells it step by step.

The batches in the `.log` files are the log; all other files say again, in short, what the batches say. Nothing of
them is trusted beyond the recovery point, the offset up to which everything was fsynced: from there on every
batch is checked (length, CRC, offset contiguity, epoch order), the log is cut before the first one that fails,
and later segments are deleted. After a clean shutdown the recovery point is the end of the log.

So the time this takes depends on what was not flushed, and on the number of segments, but not on their size.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from barnabas.errors import CorruptBatchError
from barnabas.model import NO_LEADER_EPOCH, NO_PRODUCER_ID
from barnabas.storage.batch_scan import PlacedBatch, scan_checked
from barnabas.storage.checkpoints import decode_leader_epochs
from barnabas.storage.config import LogConfig
from barnabas.storage.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    offset_name,
    offset_of,
)
from barnabas.storage.filesystem import FileSystem, read_file
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.offset_index import OffsetIndex, OffsetPosition
from barnabas.storage.producer_state import ProducerStates, decode_snapshot
from barnabas.storage.segment import ActiveSegment, SealedSegment, Segment, SegmentPaths
from barnabas.storage.segment_files import delete_segment_files
from barnabas.storage.time_index import TimeIndex

logger = logging.getLogger(__name__)

TRUST_ALL = 2**63 - 1
"""The recovery point of a log that was closed cleanly."""


@dataclass(slots=True)
class LoadedLog:
    """A log as it was found, mended."""

    sealed: list[SealedSegment]
    active: ActiveSegment
    epochs: LeaderEpochs
    epochs_changed: bool
    """The checkpoint of the epochs does not say what `epochs` says."""
    log_start_offset: int
    damage: str | None = None
    """Why the log was cut, if it was."""

    @property
    def segments(self) -> list[Segment]:
        return [*self.sealed, self.active]


def load_log(
    filesystem: FileSystem, folder: Path, config: LogConfig, recovery_point: int, log_start_offset: int = 0
) -> LoadedLog:
    """Load a log, or make an empty one that begins with offset 0.

    :param recovery_point: all below it was fsynced; TRUST_ALL after a clean shutdown.
    :param log_start_offset: records before it were deleted; what is left of their segments is removed.
    :raises OSError: the disk fails; nothing that is sound was changed.
    """
    bases = _tidy_folder(filesystem, folder)
    if not bases:
        active = ActiveSegment.create(filesystem, folder, 0, config.index_interval_bytes)
        return LoadedLog([], active, LeaderEpochs(), epochs_changed=False, log_start_offset=0)
    first = max(0, bisect_right(bases, log_start_offset) - 1)
    loaded = _load_segments(filesystem, folder, config, bases[first:], recovery_point)
    if log_start_offset > loaded.active.next_offset:
        # The log was flushed up to there before this was written down, so the one of the two is damaged that has
        # no CRC. To believe it would be to delete everything.
        logger.error(
            "%s: said to begin with offset %d, but it ends with %d; what is there is kept",
            folder, log_start_offset, loaded.active.next_offset,
        )  # fmt: skip
        return _load_segments(filesystem, folder, config, bases, recovery_point)
    for base in bases[:first]:
        delete_segment_files(filesystem, folder, base)
    loaded.log_start_offset = max(log_start_offset, bases[first])
    return loaded


def _load_segments(
    filesystem: FileSystem, folder: Path, config: LogConfig, bases: list[int], recovery_point: int
) -> LoadedLog:
    epochs = _read_epochs(filesystem, folder, bases[0])
    epoch_check = EpochCheck(epochs)
    first_checked = max(0, bisect_right(bases, recovery_point) - 1)
    sealed = [
        SealedSegment(
            filesystem,
            folder,
            base,
            size=filesystem.size(SegmentPaths(folder, base).log),
            next_offset=following,
        )
        for base, following in pairwise(bases[: first_checked + 1])
    ]
    active, damage = _check_segments(
        filesystem, folder, config, bases[first_checked:], sealed, recovery_point, epoch_check
    )
    loaded = LoadedLog(sealed, active, epoch_check.epochs, False, log_start_offset=bases[0], damage=damage)
    if epochs is None or epoch_check.contradicted:
        loaded.epochs = _epochs_of_batches(loaded.segments)
        loaded.epochs_changed = True
    elif loaded.epochs.truncate_from(active.next_offset):
        loaded.epochs_changed = True
    loaded.epochs.truncate_before(bases[0])
    return loaded


def load_segment(
    filesystem: FileSystem,
    folder: Path,
    base_offset: int,
    index_interval_bytes: int,
    trust_below: int,
    epoch_check: EpochCheck,
) -> tuple[ActiveSegment, str | None]:
    """Load one segment to append to it; check what comes after the last index entry below `trust_below`.

    :returns: the segment, up to the last sound batch, and what is wrong with the bytes after it, if any.
        The file is not cut yet.
    """
    paths = SegmentPaths(folder, base_offset)
    file = filesystem.open(paths.log)
    size = filesystem.size(paths.log)
    segment = ActiveSegment(filesystem, folder, base_offset, file, size=size, index_interval_bytes=index_interval_bytes)
    indexes = _read_indexes(filesystem, paths)
    entry = segment.load_indexes(*indexes, trust_below) if indexes else None
    epoch_before = epoch_check.last_epoch
    damage = _note_batches(segment, entry, size, epoch_check)
    if entry and segment.size == entry.position:
        logger.warning("the indexes of %s are wrong and rebuilt: %s", paths.log, damage)
        epoch_check.last_epoch = epoch_before
        segment = ActiveSegment(filesystem, folder, base_offset, file, index_interval_bytes=index_interval_bytes)
        damage = _note_batches(segment, None, size, epoch_check)
    return segment, damage


def load_producers(
    filesystem: FileSystem, folder: Path, segments: list[Segment], end_offset: int, now_ms: int
) -> ProducerStates:
    """Return the producers as they were when the log ended at `end_offset`.

    Begins with the latest sound snapshot, and replays the headers of the batches after it. Snapshots of a later
    end, and damaged ones, are deleted.
    """
    states, offset = ProducerStates(), segments[0].base_offset
    for snapshot_offset in sorted(snapshot_offsets(filesystem, folder), reverse=True):
        path = folder / offset_name(snapshot_offset, SNAPSHOT_SUFFIX)
        if snapshot_offset <= end_offset:
            try:
                states, offset = decode_snapshot(read_file(filesystem, path)), snapshot_offset
                break
            except ValueError as error:
                logger.warning("%s is damaged and deleted: %s", path, error)
        filesystem.unlink(path)
    for batch in _headers_from(segments, offset):
        header = batch.header
        if header.producer_id != NO_PRODUCER_ID and not header.is_control:
            states.update(header, header.base_offset, now_ms)
    states.expire(now_ms)
    return states


def snapshot_offsets(filesystem: FileSystem, folder: Path) -> list[int]:
    """Return the offsets of the producer snapshots in a log's folder."""
    offsets = (offset_of(name, SNAPSHOT_SUFFIX) for name in filesystem.list_folder(folder))
    return [offset for offset in offsets if offset is not None]


class EpochCheck:
    """Compares the epochs of checked batches with each other and with the checkpoint.

    :param epochs: as stored; None: not known, to be learned from the batches.
    """

    def __init__(self, epochs: LeaderEpochs | None) -> None:
        self.epochs = epochs or LeaderEpochs()
        self.contradicted = False
        self.last_epoch = NO_LEADER_EPOCH
        self._learning = epochs is None

    def see(self, batch: PlacedBatch) -> None:
        """Take note of a batch; they must come in order.

        :raises CorruptBatchError: its epoch is before that of an earlier batch; or after all in the checkpoint,
            which is written before the first batch of an epoch.
        """
        epoch, offset = batch.header.leader_epoch, batch.header.base_offset
        if epoch < self.last_epoch:
            raise CorruptBatchError(f"leader epoch {epoch} at offset {offset} comes after {self.last_epoch}")
        if self._learning:
            self.epochs.assign(epoch, offset)
        elif epoch > self.epochs.latest:
            raise CorruptBatchError(f"leader epoch {epoch} at offset {offset}, the last was {self.epochs.latest}")
        elif epoch != self.epochs.epoch_for_offset(offset):
            self.contradicted = True
        self.last_epoch = epoch


def _tidy_folder(filesystem: FileSystem, folder: Path) -> list[int]:
    """Delete what an interrupted operation left; return the base offsets of the segments."""
    names = filesystem.list_folder(folder)
    bases = {base for name in names if (base := offset_of(name, LOG_SUFFIX)) is not None}
    for name in names:
        index_bases = [offset_of(name, suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
        orphan = any(base is not None and base not in bases for base in index_bases)
        if orphan or name.endswith((DELETED_SUFFIX, TEMPORARY_SUFFIX)):
            filesystem.unlink(folder / name)
    return sorted(bases)


def _check_segments(
    filesystem: FileSystem,
    folder: Path,
    config: LogConfig,
    bases: list[int],
    sealed: list[SealedSegment],
    recovery_point: int,
    epoch_check: EpochCheck,
) -> tuple[ActiveSegment, str | None]:
    """Check segments in order; add them to `sealed`, and return the one where the log ends, and why there."""
    for number, base in enumerate(bases):
        later = bases[number + 1 :]
        segment, damage = load_segment(
            filesystem, folder, base, config.index_interval_bytes, recovery_point, epoch_check
        )
        if damage is None and later and segment.next_offset != later[0]:
            damage = f"the next segment begins with offset {later[0]}"
        if damage is not None:
            logger.warning(
                "%s: log cut at offset %d, position %d of %s: %s; %d later segments deleted",
                folder, segment.next_offset, segment.size, segment.paths.log.name, damage, len(later),
            )  # fmt: skip
            for later_base in reversed(later):
                delete_segment_files(filesystem, folder, later_base)
            filesystem.truncate(segment.file, segment.size)
            return segment, damage
        if not later:
            return segment, None
        segment.write_indexes(*segment.encode_indexes(closing=True))
        sealed.append(segment.seal())
    raise AssertionError("there is at least one segment")


def _note_batches(
    segment: ActiveSegment, entry: OffsetPosition | None, end: int, epoch_check: EpochCheck
) -> str | None:
    """Check and note the batches from an index entry on, or all; return what is wrong with the first bad one."""
    segment.size = entry.position if entry else 0
    expected = segment.base_offset
    try:
        for batch in scan_checked(segment.filesystem, segment.file, segment.size, end):
            header = batch.header
            if entry and header.last_offset != segment.base_offset + entry.relative_offset:
                return f"{entry} is not where {header} is"
            if not entry and header.base_offset != expected:
                return f"batch with offset {header.base_offset} instead of {expected}"
            entry = None
            expected = header.next_offset
            epoch_check.see(batch)
            segment.note(batch.position, header.size, header.last_offset, header.max_timestamp_ms)
    except CorruptBatchError as error:
        return str(error)
    return None


def _read_indexes(filesystem: FileSystem, paths: SegmentPaths) -> tuple[OffsetIndex, TimeIndex] | None:
    """Return the stored indexes, or None if they are missing or damaged."""
    try:
        offset_index = OffsetIndex.decode(read_file(filesystem, paths.index))
        time_index = TimeIndex.decode(read_file(filesystem, paths.time_index))
    except FileNotFoundError:
        return None
    except ValueError as error:
        logger.warning("the indexes of %s are damaged and rebuilt: %s", paths.log, error)
        return None
    # The first offset entry never comes without a time entry.
    return None if len(offset_index) and not len(time_index) else (offset_index, time_index)


def _read_epochs(filesystem: FileSystem, folder: Path, log_start_offset: int) -> LeaderEpochs | None:
    """Return the stored epochs, or None if they are missing or damaged."""
    path = folder / LEADER_EPOCH_CHECKPOINT
    try:
        entries = decode_leader_epochs(read_file(filesystem, path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        logger.warning("%s is damaged and rebuilt: %s", path, error)
        return None
    return LeaderEpochs(entries) if entries and entries[0].start_offset <= log_start_offset else None


def _epochs_of_batches(segments: list[Segment]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for batch in _headers_from(segments, segments[0].base_offset):
        epochs.assign(batch.header.leader_epoch, batch.header.base_offset)
    return epochs


def _headers_from(segments: list[Segment], offset: int) -> Iterator[PlacedBatch]:
    """Yield all batches from an offset on; leave out what cannot be read below the recovery point.

    Such damage came after the batches were flushed. The rest of the log can still be used, and reading the
    damaged place fails with CorruptBatchError.
    """
    for segment in segments:
        try:
            yield from segment.headers(offset)
        except CorruptBatchError as error:
            logger.warning("%s is damaged: %s", segment.paths.log, error)

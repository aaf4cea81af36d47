"""Log recovery: loads a log from its partition directory, and repairs the effects of a crash.

`docs/explanation/storage.md` lists the steps.

Invariants. The batches in the `.log` files are the log, and all other files are derived from them. Recovery trusts
derived files only below the recovery point. From the recovery point on, recovery checks each batch (length, CRC,
contiguous offsets, order of epochs), and truncates the log before the first damaged batch. After a clean shutdown, the
recovery point is the log end offset.

Gaps. Compaction leaves gaps between batches and between segments, and it leaves empty segments. Recovery accepts gaps
below the recovery point. In a compacted log, recovery accepts gaps everywhere, because an administrator may have copied
the directory without its checkpoints. In other logs, a gap above the recovery point is treated as damage: a crash of
the machine may have removed the end of a segment, but not the next segment. After a crash of the machine, a gap above
the recovery point between two segments of a compacted log is also treated as damage. Neither the cleaner nor a follower
makes such a gap: the cleaner compacts only below the stored recovery point, and a follower starts a segment at the end
of the previous segment.

Recovery does not delete files that may be useful, but renames them (`barnabas.storage.damaged_files`): segments after
the damage, a tail that contains a valid batch, and damaged files. The duration of a recovery depends on the number of
unflushed bytes and segments, not on the size of the log.

Threads. One thread loads a log; several threads load several logs.

Errors. Damaged files never raise an error. OSError is raised if the file system returns an error.
"""

from __future__ import annotations

import errno
import logging
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from barnabas.clock import Clock
from barnabas.errors import CorruptBatchError
from barnabas.log_lines import LogEvent, event
from barnabas.records.scan import ANY_GAPS, RELATIVE_OFFSET_MAX, SegmentScan
from barnabas.storage.checkpoints import EpochStart, StoredOffsets, decode_leader_epochs
from barnabas.storage.cleaner.swap import finish_swaps
from barnabas.storage.damaged_files import copy_damaged_tail, has_valid_batch, rename_damaged, rename_damaged_segment
from barnabas.storage.file_names import (
    BEFORE_START_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    is_deleted_file,
    is_temporary_file,
    offset_name,
    offsets_by_suffix,
)
from barnabas.storage.filesystem import FilePath, FileSystem, read_file
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log_config import LogConfig
from barnabas.storage.producer_state import ProducerStates, decode_snapshot
from barnabas.storage.segment import ActiveSegment, SealedSegment, Segment, scan_segment
from barnabas.storage.segment_recovery import EpochCheck, fill_gap, gap_at_end, load_segment

logger = logging.getLogger(__name__)

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})

TRUST_ALL = 2**63 - 1
"""The recovery point that stands for a cleanly closed log."""


class GapsAllowed(NamedTuple):
    """The offsets up to which gaps are accepted."""

    within: int
    """The offset up to which gaps between two batches of a segment are accepted."""
    between: int
    """The offset up to which gaps between two segments are accepted."""


@dataclass(slots=True)
class LoadedLog:
    """A log after recovery."""

    sealed: list[SealedSegment]
    active: ActiveSegment
    epochs: LeaderEpochs
    epochs_changed: bool
    """True if `epochs` differs from the leader epoch checkpoint."""
    log_start_offset: int
    damage: str | None = None
    """The reason if recovery has truncated the log, otherwise None."""
    lost_from: int | None = None
    """The first lost offset if the log has lost records and continues after them; otherwise None."""
    snapshots: list[int] = field(default_factory=list)
    """The offsets of the producer snapshots."""
    stored_epochs: tuple[EpochStart, ...] | None = None
    """The entries of the leader epoch checkpoint, or None if the checkpoint is missing or damaged."""
    producers: ProducerStates = field(default_factory=ProducerStates)

    @property
    def is_changed(self) -> bool:
        """True if the log differs from its files, so that the next flush must write them."""
        return self.damage is not None or self.epochs_changed

    @property
    def segments(self) -> list[Segment]:
        return [*self.sealed, self.active]


def load_log(
    filesystem: FileSystem,
    folder: Path,
    config: LogConfig,
    stored: StoredOffsets,
    clock: Clock,
    *,
    clean: bool = False,
    lost_memory: bool = False,
) -> LoadedLog:
    """Load a log, or create it.

    A log without segments starts at the greatest stored offset, so no offset is used twice.

    :param stored: the offsets of the log in the checkpoints of the data directory.
    :param clean: True if the log was closed cleanly, so that all its records were fsynced.
    :param lost_memory: True if the machine has crashed since the last write to the log. Each file may then lack bytes
        that were not fsynced.
    :raises OSError: the file system returned an error. Recovery has not changed undamaged files.
    """
    try:
        names = filesystem.list_folder(folder)
    except FileNotFoundError:
        filesystem.make_folder(folder)
        names = []
    names = finish_swaps(filesystem, folder, names)
    found = offsets_by_suffix(names)
    bases, snapshots = sorted(found[LOG_SUFFIX]), found[SNAPSHOT_SUFFIX]
    _tidy_folder(filesystem, folder, names, found)
    if not bases:
        loaded = _begin(filesystem, folder, config, max(*stored, *snapshots, *found[INDEX_SUFFIX], 0))
    else:
        trust_below = TRUST_ALL if clean else stored.recovery_point
        gaps = GapsAllowed(
            within=ANY_GAPS if config.is_compacted else trust_below,
            between=ANY_GAPS if config.is_compacted and not lost_memory else trust_below,
        )
        loaded = _load_from(filesystem, folder, config, bases, stored, trust_below, gaps)
        _check_end(loaded, folder, stored, config)
        if not clean and (gap := gap_at_end(loaded.active)) is not None:
            # The empty batch at the end may come from an earlier start, and no replica has filled the gap since then.
            loaded.lost_from = gap
        if not clean and _begins_behind_a_loss(loaded, stored):
            loaded.lost_from = 0
    loaded.snapshots = snapshots
    end_offset = loaded.active.next_offset
    loaded.producers = load_producers(filesystem, folder, loaded.segments, end_offset, clock, snapshots)
    return loaded


def _begin(filesystem: FileSystem, folder: Path, config: LogConfig, offset: int) -> LoadedLog:
    if offset:
        logger.error(
            "%s: all segments are missing; the log starts again at offset %d. If you can restore the files,"
            " stop the broker, copy them back, and remove the empty %s",
            folder, offset, offset_name(offset, LOG_SUFFIX), extra=event(LogEvent.LOG_MISSING),
        )  # fmt: skip
    active = ActiveSegment.create(filesystem, folder, offset, config.index_interval_bytes)
    return LoadedLog(
        [], active, LeaderEpochs(), epochs_changed=False, log_start_offset=offset, lost_from=0 if offset else None
    )


def _begins_behind_a_loss(loaded: LoadedLog, stored: StoredOffsets) -> bool:
    """Return whether an earlier start created this log with `_begin`, because all segments were missing.

    Such a log is empty, and its log start offset is above the stored log start offset. A deletion of records would have
    stored the log start offset first.
    """
    return not loaded.sealed and not loaded.active.size and loaded.log_start_offset > stored.log_start_offset


def _load_from(
    filesystem: FileSystem,
    folder: Path,
    config: LogConfig,
    bases: list[int],
    stored: StoredOffsets,
    trust_below: int,
    gaps: GapsAllowed,
) -> LoadedLog:
    """Load the segments from the log start offset on, and rename the earlier segments."""
    start = stored.log_start_offset
    first = max(0, bisect_right(bases, start) - 1)
    loaded = _load_segments(filesystem, folder, config, bases[first:], trust_below, gaps)
    if start > loaded.active.next_offset:
        # The log is always flushed up to its log start offset before the checkpoint is written. So a checkpoint with a
        # higher offset is damaged; checkpoints have no CRC. If recovery trusted this offset, all records would be
        # removed.
        logger.error(
            "%s: the checkpoint has log start offset %d, but the log ends at offset %d; ignoring the checkpoint",
            folder, start, loaded.active.next_offset, extra=event(LogEvent.RECORDS_LOST),
        )  # fmt: skip
        loaded = _load_segments(filesystem, folder, config, bases, trust_below, gaps)
        loaded.lost_from = loaded.active.next_offset
        return loaded
    for base in bases[:first]:
        logger.warning(
            "%s: segment %d is below log start offset %d in %s; renamed the segment. If the offset is wrong,"
            " stop the broker, remove the line from that file, and rename %s* back",
            folder, base, start, LOG_START_CHECKPOINT, offset_name(base, ""),
        )  # fmt: skip
        rename_damaged_segment(filesystem, folder, base, BEFORE_START_SUFFIX)
    loaded.log_start_offset = max(start, bases[first])
    return loaded


def _check_end(loaded: LoadedLog, folder: Path, stored: StoredOffsets, config: LogConfig) -> None:
    """If the log ends below the stored offsets, raise the log end offset, so that no offset is used twice."""
    end, reached = loaded.active.next_offset, max(stored)
    if end >= reached:
        return
    logger.error(
        "%s: the log ends at offset %d, below recovery point %d or high watermark %d of the checkpoints: records are"
        " lost, unless a checkpoint is damaged",
        folder, end, stored.recovery_point, stored.high_watermark, extra=event(LogEvent.RECORDS_LOST),
    )  # fmt: skip
    if end < stored.reached_by_two:
        message = "%s: the log continues at offset %d, so that no offset is used twice"
        logger.error(message, folder, stored.reached_by_two, extra=event(LogEvent.RECORDS_LOST))
        loaded.lost_from = end
        _go_on_at(loaded, stored.reached_by_two, config.index_interval_bytes)
        loaded.damage = loaded.damage or "records are lost at its end"


def _go_on_at(loaded: LoadedLog, offset: int, index_interval_bytes: int) -> None:
    """Raise the log end offset to `offset` by appending an empty batch.

    If the relative offset is too large for the segment, create a new segment.
    """
    active = loaded.active
    if offset - 1 - active.base_offset <= RELATIVE_OFFSET_MAX:
        fill_gap(active, offset, loaded.epochs.latest)
        return
    loaded.active = ActiveSegment.create(active.filesystem, active.folder, offset, index_interval_bytes)
    _store_indexes(active)
    sealed = active.seal()
    sealed.next_offset = offset
    loaded.sealed.append(sealed)


def _load_segments(
    filesystem: FileSystem, folder: Path, config: LogConfig, bases: list[int], recovery_point: int, gaps: GapsAllowed
) -> LoadedLog:
    epochs = _read_epochs(filesystem, folder, bases[0])
    epoch_check = EpochCheck(epochs, may_have_gaps=config.is_compacted)
    first_checked = max(0, bisect_right(bases, recovery_point) - 1)
    sealed = [
        SealedSegment(
            filesystem,
            folder,
            base,
            size=filesystem.size(f"{folder}/{offset_name(base, LOG_SUFFIX)}"),
            next_offset=following,
        )
        for base, following in pairwise(bases[: first_checked + 1])
    ]
    for segment in sealed:
        if not segment.size and not config.is_compacted:
            message = "%s is empty; its records are lost, unless compaction removed them"
            logger.error(message, segment.paths.log, extra=event(LogEvent.RECORDS_LOST))
    active, damage = _check_segments(
        filesystem, folder, config, bases[first_checked:], sealed, recovery_point, epoch_check, gaps
    )
    loaded = LoadedLog(sealed, active, LeaderEpochs(), False, log_start_offset=bases[0], damage=damage)
    loaded.stored_epochs = epochs.entries if epochs else None
    learned = epoch_check.epoch_history(bases[0], active.next_offset)
    loaded.epochs = _epochs_of_batches(loaded.segments) if learned is None else learned
    loaded.epochs.truncate_from(active.next_offset)
    loaded.epochs_changed = loaded.epochs.entries != (epochs.entries if epochs else ())
    loaded.epochs.truncate_before(bases[0])
    return loaded


def load_producers(
    filesystem: FileSystem,
    folder: Path,
    segments: list[Segment],
    end_offset: int,
    clock: Clock,
    snapshots: list[int] | None = None,
) -> ProducerStates:
    """Return the states of idempotent producers at log end offset `end_offset`.

    The function loads the latest valid producer snapshot, and applies the headers of the batches after the snapshot. It
    renames damaged snapshots.

    :param snapshots: the offsets of the snapshots found at start, or None after a truncation of the log. At start,
        snapshots above `end_offset` are renamed, because the log has lost its end, and they are removed from this list.
        After a truncation, snapshots above `end_offset` are deleted.
    """
    states, offset, now_s = ProducerStates(), segments[0].base_offset, clock.monotonic()
    found = snapshot_offsets(filesystem, folder) if snapshots is None else snapshots
    for snapshot_offset in sorted(found, reverse=True):
        name = offset_name(snapshot_offset, SNAPSHOT_SUFFIX)
        if snapshot_offset <= end_offset:
            try:
                states, offset = decode_snapshot(read_file(filesystem, f"{folder}/{name}"), now_s), snapshot_offset
                break
            except ValueError as error:
                renamed = rename_damaged(filesystem, folder / name)
                logger.warning(
                    "producer snapshot %s/%s is damaged; renamed it to %s: %s", folder, name, renamed.name, error
                )
        elif snapshots is None:
            filesystem.unlink(folder / name)
        else:
            renamed = rename_damaged(filesystem, folder / name)
            logger.warning(
                "producer snapshot %s/%s is above the log end offset; renamed it to %s", folder, name, renamed.name
            )
        found.remove(snapshot_offset)
    for scan in _scans_from(segments, offset):
        for producer_id, (epoch, batches) in scan.producers.items():
            states.add_batches(producer_id, epoch, batches, now_s)
    # The states expire last, so that `highest_id` also includes expired producers.
    states = ProducerStates(states.entries())
    states.expire(now_s)
    return states


def snapshot_offsets(filesystem: FileSystem, folder: FilePath) -> list[int]:
    """Return the offsets of the producer snapshots in a partition directory."""
    return offsets_by_suffix(filesystem.list_folder(folder))[SNAPSHOT_SUFFIX]


def _tidy_folder(filesystem: FileSystem, folder: Path, names: list[str], found: dict[str, list[int]]) -> None:
    """Remove the files of interrupted operations, and rename index files without a segment."""
    for name in names:
        if name.endswith((DELETED_SUFFIX, TEMPORARY_SUFFIX)) and (is_deleted_file(name) or is_temporary_file(name)):
            filesystem.unlink(folder / name)
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        for base in sorted(set(found[suffix]).difference(found[LOG_SUFFIX])):
            name = offset_name(base, suffix)
            renamed = rename_damaged(filesystem, folder / name)
            logger.warning("index %s/%s has no segment; renamed it to %s", folder, name, renamed.name)


def _check_segments(
    filesystem: FileSystem,
    folder: Path,
    config: LogConfig,
    bases: list[int],
    sealed: list[SealedSegment],
    recovery_point: int,
    epoch_check: EpochCheck,
    gaps: GapsAllowed,
) -> tuple[ActiveSegment, str | None]:
    """Check segments in order, and append them to `sealed`.

    Return the last segment of the log, and the damage in it or None.
    """
    for number, base in enumerate(bases):
        later = bases[number + 1 :]
        segment, damage = load_segment(
            filesystem, folder, base, config.index_interval_bytes, recovery_point, epoch_check, gaps.within
        )
        if damage is None and later and not segment.next_offset <= later[0] <= max(segment.next_offset, gaps.between):
            damage = f"the next segment begins with offset {later[0]}"
        if damage is not None:
            return _cut(segment, damage, later, config.index_interval_bytes), damage
        if not later:
            return segment, None
        _store_indexes(segment)
        segment.next_offset = later[0]
        sealed.append(segment.seal())
    raise AssertionError("there is at least one segment")


def _cut(segment: ActiveSegment, damage: str, later: list[int], index_interval_bytes: int) -> ActiveSegment:
    """Truncate the log after the last valid batch of a segment.

    If the removed tail contains valid batches, keep a copy of it.
    """
    filesystem, path = segment.filesystem, segment.paths.log
    size = filesystem.size(path)
    logger.warning(
        "%s: truncated the log at offset %d, position %d of %s: %s; removed %d bytes and %d later segments",
        segment.folder, segment.next_offset, segment.size, path.name, damage, size - segment.size, len(later),
    )  # fmt: skip
    # The copy is the first step. If it fails because the disk is full, no file has been changed.
    whole = size > segment.size and has_valid_batch(filesystem, segment.file, segment.size, size)
    if whole and segment.size:
        copy = copy_damaged_tail(filesystem, segment.file, segment.size, size)
        logger.warning("%s: the removed tail contains valid batches; copied it to %s", path, copy.name)
    for base in reversed(later):
        rename_damaged_segment(filesystem, segment.folder, base)
        logger.warning("%s: renamed segment %d to .damaged", segment.folder, base)
    if whole and not segment.size:
        logger.warning("%s: the offsets of its batches do not match its name; renamed the segment", path)
        rename_damaged_segment(filesystem, segment.folder, segment.base_offset)
        return ActiveSegment.create(filesystem, segment.folder, segment.base_offset, index_interval_bytes)
    filesystem.truncate(segment.file, segment.size)
    return segment


def _store_indexes(segment: ActiveSegment) -> None:
    """Store the indexes of a segment before it is sealed.

    If the disk is full, do not store them; a later read rebuilds the indexes.
    """
    try:
        segment.write_indexes(*segment.encode_indexes(closing=True))
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        logger.warning("cannot store the indexes of %s: %s; a later read rebuilds them", segment.paths.log, error)


def _read_epochs(filesystem: FileSystem, folder: Path, log_start_offset: int) -> LeaderEpochs | None:
    """Return the entries of the leader epoch checkpoint, or None if it is missing or damaged."""
    try:
        entries = decode_leader_epochs(read_file(filesystem, f"{folder}/{LEADER_EPOCH_CHECKPOINT}"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        path = folder / LEADER_EPOCH_CHECKPOINT
        renamed = rename_damaged(filesystem, path)
        logger.warning(
            "leader epoch checkpoint %s is damaged: %s; renamed it to %s and rebuilding it from the batches",
            path,
            error,
            renamed.name,
        )
        return None
    return LeaderEpochs(entries) if entries and entries[0].start_offset <= log_start_offset else None


def _epochs_of_batches(segments: list[Segment]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for scan in _scans_from(segments, segments[0].base_offset):
        for epoch, offset in scan.epochs:
            epochs.assign(epoch, offset)
    return epochs


def _scans_from(segments: list[Segment], offset: int) -> list[SegmentScan]:
    """Scan the headers of all batches from `offset` on; skip unreadable segments.

    Damage below the recovery point has occurred after the flush. The rest of the log stays usable, and reads of the
    damaged batches raise CorruptBatchError.
    """
    scans = []
    for segment in segments:
        if segment.size and segment.next_offset > offset:
            try:
                first = segment.locate(offset) if offset > segment.base_offset else None
                if first is None and offset > segment.base_offset:
                    continue
                start = first.position if first else 0
                scan = SegmentScan(
                    segment.base_offset, check_crc=False, position=start, end=segment.size, gaps_up_to=ANY_GAPS
                )
                scan_segment(segment.filesystem, segment.file, scan, segment.size)
            except CorruptBatchError as error:
                logger.warning("%s is damaged: %s", segment.paths.log, error)
                continue
            if scan.damage is not None:
                logger.warning("%s is damaged: %s", segment.paths.log, scan.damage)
            scans.append(scan)
    return scans

"""Recovery of one segment: checks its batches, rebuilds its indexes, and finds the end of the valid batches.

`fill_gap` writes an empty batch for lost offsets, which must not be used again. Kafka's cleaner writes similar batches.

Invariants. The valid part of a segment ends before the first batch that is damaged or out of order. Recovery does not
change the valid part.

Threads. One thread loads a segment.

Errors. Damaged files never raise an error. OSError is raised if the file system returns an error.
"""

from __future__ import annotations

import logging
from pathlib import Path

from barnabas.model import NO_LEADER_EPOCH, NO_TIMESTAMP
from barnabas.records.header import BATCH_HEADER_SIZE, BatchHeader, empty_batch, read_header
from barnabas.records.scan import SegmentScan
from barnabas.storage.checkpoints import EpochStart
from barnabas.storage.file_names import LOG_SUFFIX, offset_name
from barnabas.storage.filesystem import FileSystem, read_file
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.segment import ActiveSegment, PlacedBatch, SegmentPaths, scan_headers, scan_segment
from barnabas.storage.segment_index import OffsetIndex, OffsetPosition, TimeIndex

logger = logging.getLogger(__name__)

EPOCH_JUMP_MAX = 2**20
"""The maximum plausible difference between one leader epoch and the next in a log.

A greater difference is treated as damage, because the CRC does not cover the epoch.
"""


class EpochCheck:
    """Compares the leader epochs of batches with the checkpoint, and collects later epochs from the batches.

    The checkpoint may lack the latest epochs, because the first batch of an epoch may be written before the checkpoint.

    :param stored: the checkpoint, or None if it is missing or damaged.
    :param may_have_gaps: True if compaction may have removed some or all batches of an epoch. In this case, the
        checkpoint is valid unless a batch contradicts it.
    """

    def __init__(self, stored: LeaderEpochs | None, *, may_have_gaps: bool = False) -> None:
        self.last_epoch = NO_LEADER_EPOCH
        """The epoch of the last scanned batch, or -1."""
        self.seen: list[EpochStart] = []
        """The epochs of the scanned batches. The first epoch may have started before these batches."""
        self._stored = stored.entries if stored else ()
        self._may_have_gaps = may_have_gaps

    def add_scan(self, scan: SegmentScan) -> None:
        """Add the epochs of the valid batches of a scan. Scans must be added in the order of offsets."""
        self.seen += [EpochStart(*each) for each in scan.epochs if each[0] >= 0]
        self.last_epoch = scan.epoch

    def implausible_epoch(self, scan: SegmentScan, following: BatchHeader | None) -> EpochStart | None:
        """Return the first implausible epoch in a scan, or None.

        :param following: the header of the batch at which the scan ended; None if it cannot be read.
        """
        latest = self.latest
        for epoch, start_offset in scan.epochs:
            if epoch > latest + EPOCH_JUMP_MAX:
                return EpochStart(epoch, start_offset)
            latest = max(latest, epoch)
        if scan.epochs and following is not None and following.leader_epoch < scan.epoch:
            last = EpochStart(*scan.epochs[-1])
            # One of the two epochs is wrong. The checkpoint shows which one.
            if following.base_offset >= scan.next_offset and last.epoch > self._latest_stored:
                return last
        return None

    def epoch_history(self, log_start_offset: int, end_offset: int) -> LeaderEpochs | None:
        """Return the history of epochs from `log_start_offset` to `end_offset`, from the checkpoint and the batches.

        :returns: None if the checkpoint and the batches contradict each other, or the start of an epoch is unknown.
        """
        stored, seen = LeaderEpochs(self._stored), self.seen
        if not seen:
            return stored if self._stored else None
        known = [each for each in seen if each.epoch <= self._latest_stored]
        later = seen[len(known) :]
        if known and self._may_have_gaps:
            if any(each.epoch != stored.epoch_for_offset(each.start_offset) for each in known):
                return None
        elif known:
            expected = [each for each in self._stored if seen[0].start_offset < each.start_offset < end_offset]
            if known[0].epoch != stored.epoch_for_offset(seen[0].start_offset) or known[1:] != expected:
                return None
        elif seen[0].start_offset > log_start_offset:
            return None
        for epoch, offset in later:
            stored.assign(epoch, offset)
        return stored

    @property
    def latest(self) -> int:
        """The latest known epoch before the next scan, or -1."""
        return max(self._latest_stored, self.last_epoch)

    @property
    def _latest_stored(self) -> int:
        return self._stored[-1].epoch if self._stored else NO_LEADER_EPOCH


def load_segment(
    filesystem: FileSystem,
    folder: Path,
    base_offset: int,
    index_interval_bytes: int,
    trust_below: int,
    epoch_check: EpochCheck,
    gaps_up_to: int,
) -> tuple[ActiveSegment, str | None]:
    """Load one segment as an active segment. Check all batches from the last index entry below `trust_below` on.

    :param gaps_up_to: the offset up to which gaps between two batches are accepted.
    :returns: the segment up to the last valid batch, and the damage after this batch or None. The file is not truncated
        yet.
    """
    file = filesystem.open(f"{folder}/{offset_name(base_offset, LOG_SUFFIX)}")
    size = filesystem.size_of(file)
    segment = ActiveSegment(filesystem, folder, base_offset, file, size=size, index_interval_bytes=index_interval_bytes)
    # A smaller segment is expected to have no index entries.
    entry = _load_indexes(segment, trust_below) if size > index_interval_bytes else None
    scan = _scan(segment, entry, size, epoch_check.last_epoch, gaps_up_to)
    if scan is None or (entry and not 0 <= scan.first_last_offset <= base_offset + entry.relative_offset):
        logger.warning("the indexes of %s do not match its batches; rebuilding them", file.path)
        segment = ActiveSegment(filesystem, folder, base_offset, file, index_interval_bytes=index_interval_bytes)
        entry = None
        scan = _scan(segment, None, size, epoch_check.last_epoch, gaps_up_to)
    assert scan is not None, "without an entry there is a scan"
    damage = scan.damage
    unbelievable = _find_implausible_epoch(segment, entry, scan, epoch_check)
    if unbelievable is not None:
        epoch, start_offset, position = unbelievable
        damage = f"leader epoch {epoch} at offset {start_offset} is implausible"
        segment, entry = _without_entry(segment, entry, position, index_interval_bytes)
        scan = _scan(segment, entry, position, epoch_check.last_epoch, gaps_up_to) or scan
    epoch_check.add_scan(scan)
    segment.note_scan(scan)
    return segment, damage


def _load_indexes(segment: ActiveSegment, trust_below: int) -> OffsetPosition | None:
    """Load the stored index entries below an offset. Return the last entry, at which the scan starts."""
    indexes = _read_indexes(segment.filesystem, segment.paths)
    return segment.load_indexes(*indexes, trust_below) if indexes else None


def _scan(
    segment: ActiveSegment, entry: OffsetPosition | None, end: int, epoch: int, gaps_up_to: int
) -> SegmentScan | None:
    """Scan the batches from an index entry on, or all batches if there is no entry.

    Return None if the stored indexes are invalid.
    """
    try:
        scan = segment.begin_scan(entry, end, epoch, gaps_up_to)
    except (ValueError, OverflowError):
        if entry is None:
            raise
        return None
    scan_segment(segment.filesystem, segment.file, scan, end)
    return scan


def _find_implausible_epoch(
    segment: ActiveSegment, entry: OffsetPosition | None, scan: SegmentScan, epoch_check: EpochCheck
) -> tuple[int, int, int] | None:
    """Return the first implausible epoch in a scan with the offset and the position of its first batch, or None."""
    wrong = epoch_check.implausible_epoch(scan, _header_behind(segment, scan))
    if wrong is None:
        return None
    start = entry.position if entry else 0
    for batch in scan_headers(segment.filesystem, segment.file, start, scan.size):
        if batch.header.base_offset == wrong.start_offset:
            # If the epochs of two adjacent batches contradict each other, the second batch is treated as damaged. But
            # if no other batch has the epoch of the first batch, the first batch is treated as damaged.
            if wrong.epoch > epoch_check.latest + EPOCH_JUMP_MAX or batch.end == scan.size:
                return wrong.epoch, wrong.start_offset, batch.position
            break
    return None


def _header_behind(segment: ActiveSegment, scan: SegmentScan) -> BatchHeader | None:
    """Return the header of the batch at which a scan ended, or None if it cannot be read."""
    if scan.damage is None:
        return None
    data = segment.filesystem.pread(segment.file, BATCH_HEADER_SIZE, scan.size)
    return read_header(data) if len(data) == BATCH_HEADER_SIZE else None


def _without_entry(
    segment: ActiveSegment, entry: OffsetPosition | None, position: int, index_interval_bytes: int
) -> tuple[ActiveSegment, OffsetPosition | None]:
    """Return the segment without the batches from `position` on, and the index entry at which the next scan starts.

    If there is no entry, the segment is empty.
    """
    if entry is not None and entry.position < position:
        return segment, entry
    file = segment.file
    return ActiveSegment(
        segment.filesystem, segment.folder, segment.base_offset, file, index_interval_bytes=index_interval_bytes
    ), None


def _read_indexes(filesystem: FileSystem, paths: SegmentPaths) -> tuple[OffsetIndex, TimeIndex] | None:
    """Return the stored indexes, or None if they are missing or damaged."""
    try:
        offset_index = OffsetIndex.decode(read_file(filesystem, paths.index))
        time_index = TimeIndex.decode(read_file(filesystem, paths.time_index))
    except FileNotFoundError:
        return None
    except ValueError as error:
        logger.warning("cannot use the indexes of %s: %s; rebuilding them", paths.log, error)
        return None
    # An offset index with entries requires a time index with entries, because no offset entry is stored without a time
    # entry.
    return None if len(offset_index) and not len(time_index) else (offset_index, time_index)


def fill_gap(segment: ActiveSegment, end_offset: int, leader_epoch: int) -> None:
    """Append an empty batch, so that the segment ends at `end_offset`. The offset must fit into the indexes.

    :raises OSError: the write failed.
    """
    batch = empty_batch(segment.next_offset, end_offset - 1, max(leader_epoch, 0))
    segment.write([batch])
    segment.note(segment.size, len(batch), end_offset - 1, NO_TIMESTAMP)


def gap_at_end(segment: ActiveSegment) -> int | None:
    """Return the first offset of the gap that `fill_gap` has filled at the end of a segment; None without a gap.

    :raises CorruptBatchError: the batches are damaged.
    """
    start, end_offset, position = None, segment.next_offset, segment.size - BATCH_HEADER_SIZE
    while position >= 0:
        found = segment.locate(end_offset - 1)
        if found is None or found.position != position or not _is_gap(segment, found):
            break
        start = end_offset = found.header.base_offset
        position -= BATCH_HEADER_SIZE
    return start


def _is_gap(segment: ActiveSegment, found: PlacedBatch) -> bool:
    header = found.header
    made = empty_batch(header.base_offset, header.last_offset, header.leader_epoch)
    return segment.read_batch(found) == made

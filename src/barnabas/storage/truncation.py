"""Cuts the files of a log's segments, for a truncation. `Log` says when, and makes everything else agree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from barnabas.records.scan import ANY_GAPS
from barnabas.storage.active_segment import ActiveSegment
from barnabas.storage.filesystem import FileSystem, is_shortage, remove_if_there
from barnabas.storage.log_config import LogConfig
from barnabas.storage.recovery import TRUST_ALL
from barnabas.storage.segment import SealedSegment, Segment
from barnabas.storage.segment_files import delete_segment_files
from barnabas.storage.segment_list import SegmentList
from barnabas.storage.segment_recovery import EpochCheck, load_segment


def cut_segments(
    filesystem: FileSystem, folder: Path, segments: SegmentList, offset: int, config: LogConfig
) -> tuple[list[SealedSegment], ActiveSegment]:
    """Remove the first batch that ends at or after `offset` and all behind it; return the segments that remain.

    :raises OSError: the disk refuses, or a segment is damaged that was sealed.
    """
    delete_segments(filesystem, folder, [segment for segment in segments.all if segment.base_offset > offset])
    kept = [segment for segment in segments.sealed if segment.base_offset <= offset]
    active = segments.active
    if active.base_offset > offset:
        last = kept.pop()
        active, damage = load_segment(
            filesystem, folder, last.base_offset, config.index_interval_bytes, TRUST_ALL, EpochCheck(None), ANY_GAPS
        )
        last.close()
        if damage is not None:
            raise OSError(f"{last.paths.log} is damaged: {damage}")
    if (batch := active.locate(offset)) is not None:
        active.truncate(batch)
    _store_indexes(filesystem, active)
    filesystem.fsync_folder(folder)
    return kept, active


def _store_indexes(filesystem: FileSystem, active: ActiveSegment) -> None:
    """Store the indexes of the segment that was cut. Where there is no room for them, remove those that were stored:
    they name what is gone, and are made anew when they are needed."""
    try:
        active.write_indexes(*active.encode_indexes(closing=False), durable=True)
    except OSError as error:
        if not is_shortage(error):
            raise
        # In this order, so that a crash between the two leaves no offset entry without its time entry.
        for path in (active.paths.index, active.paths.time_index):
            remove_if_there(filesystem, path)


def delete_segments(filesystem: FileSystem, folder: Path, segments: Sequence[Segment]) -> None:
    """Delete from the end, so that a crash in between leaves a log without a gap.

    :raises OSError: some of the files may be left.
    """
    delete_segment_files(filesystem, folder, [segment.base_offset for segment in reversed(segments)])
    for segment in segments:
        segment.close()

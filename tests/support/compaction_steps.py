"""What a broker does to compact a log, here one step after the other; and what is in a log that was compacted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas.model import NO_OFFSET, FileRegion
from barnabas.records import BatchBuilder, Compression, Record, iter_headers, read_records
from barnabas.storage import FileSystem, Log
from barnabas.storage.cleaner.cleaner import Cleaner
from barnabas.storage.cleaner.job import CleanedGroup, CleaningJob, CleaningPlan, SegmentRef
from barnabas.storage.cleaner.planning import CleanableRange
from barnabas.storage.log_reader import Batches
from barnabas.storage.segment import IndexDamagedError

SECRET = bytes(range(16))


class Keyed(NamedTuple):
    """A record to append."""

    key: bytes
    value: bytes | None
    timestamp_ms: int


def keyed_batch(records: Iterable[Keyed], compression: Compression = Compression.NONE, **producer: int) -> bytearray:
    """Return a batch of records with keys, as a producer sends it."""
    builder = BatchBuilder(compression)
    for key, value, timestamp_ms in records:
        builder.append(timestamp_ms, key, value)
    return bytearray(builder.build(**producer))


def job_for(log: Log, found: CleanableRange, now_ms: int, *, map_bytes: int, buffer_bytes: int) -> CleaningJob:
    """Return the job to clean a part of a log."""
    segments = tuple(
        SegmentRef(each.base_offset, each.next_offset, each.size) for each in log.segments_before(found.end_offset)
    )
    return CleaningJob(
        folder=str(log.folder),
        segments=segments,
        first_dirty_offset=found.first_dirty_offset,
        now_ms=now_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        last_of_producers={key: entry.batches[-1].last_offset for key, entry in log.producers.items()},
        segment_bytes=log.config.segment_bytes,
        segment_index_bytes=log.config.segment_index_bytes,
        index_interval_bytes=log.config.index_interval_bytes,
        map_bytes=map_bytes,
        buffer_bytes=buffer_bytes,
        bytes_per_second=1e300,
    )


def compact(
    log: Log, filesystem: FileSystem, now_ms: int, *, map_bytes: int = 1024 * 1024, buffer_bytes: int = 200
) -> CleaningPlan | None:
    """Compact all of a log that can be; return what was done, or None: there was nothing to do.

    :raises BarnabasError: what ended it.
    """
    search = log.cleaning_search()
    found = search.find() if search else None
    if found is None:
        return None
    cleaner = Cleaner(filesystem, new_secret=lambda size: SECRET[:size])
    old = log.segments_before(found.end_offset)
    truncations = log.truncation_count
    plan = cleaner.ask(job_for(log, found, now_ms, map_bytes=map_bytes, buffer_bytes=buffer_bytes))
    if isinstance(plan, Exception):
        raise plan
    assert isinstance(plan, CleaningPlan)
    while (group := cleaner.ask(None)) is not None:
        if isinstance(group, Exception):
            raise group
        assert isinstance(group, CleanedGroup)
        replaced, old = old[: len(group.base_offsets)], old[len(group.base_offsets) :]
        assert tuple(each.base_offset for each in replaced) == group.base_offsets
        for path in log.replace_segments(replaced, group.size):
            filesystem.unlink(path)
    log.mark_compacted(plan.end_offset, truncations)
    return plan


def read_gapped(log: Log, offset: int | None = None, max_bytes: int = 300) -> list[Record]:
    """Read a log as a consumer does, from an offset or from its beginning on: all that has been left of it."""
    at = log.log_start_offset if offset is None else offset
    records: list[Record] = []
    while region := _read(log, at, max_bytes):
        if isinstance(region, FileRegion):
            data = os.pread(region.file.fileno(), region.length, region.position)
            assert len(data) == region.length
        else:
            data = bytes(region)
        found = read_records(data, *log.partition, min_offset=at)
        assert all(record.offset >= at for record in found)
        records += found
        last = max((header.last_offset for _, header in iter_headers(data)), default=NO_OFFSET)
        assert last >= at
        at = last + 1
    return records


def _read(log: Log, offset: int, max_bytes: int) -> Batches:
    try:
        return log.read(offset, max_bytes, log.high_watermark).batches
    except IndexDamagedError as error:
        error.segment.rebuild_indexes(store=True)
        return log.read(offset, max_bytes, log.high_watermark).batches


def last_values(records: Sequence[Record]) -> dict[bytes | None, bytes]:
    """Return what a reader from the beginning ends with: the last value of each key that has one."""
    values: dict[bytes | None, bytes] = {}
    for record in records:
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
    return values

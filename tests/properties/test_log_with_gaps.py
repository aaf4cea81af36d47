"""A log that was compacted gives every record that is left, from every offset, whatever it lost: records, batches,
whole segments, and the files beside them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.clock import ManualClock
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder, Compression, Record, iter_headers, read_records
from barnabas.storage import Log, LogConfig
from barnabas.storage.log_config import CleanupPolicy
from tests.support.compacted_logs import Batch, Kept, write_segments
from tests.support.log_steps import delete_records_before, read
from tests.support.searches import examples
from tests.support.unsynced_files import UnsyncedFileSystem

PARTITION = TopicPartition("clicks", 0)
START_MS = 1_700_000_000_000


@dataclass
class Compacted:
    """What a cleaner left: segments by base offset, and what they hold together."""

    segments: list[tuple[int, list[Batch]]]
    index_interval_bytes: int

    @property
    def batches(self) -> list[Batch]:
        return [batch for _, batches in self.segments for batch in batches]

    @property
    def end(self) -> int:
        base, batches = self.segments[-1]
        return batches[-1].last_offset + 1 if batches else base

    def records(self, start: int = 0) -> list[Kept]:
        return [record for batch in self.batches for record in batch.records if record.offset >= start]


@st.composite
def compacted_logs(draw: st.DrawFn) -> Compacted:
    batches: list[Batch] = []
    offset = first = draw(st.integers(0, 3))
    for _ in range(draw(st.integers(0, 14))):
        count = draw(st.integers(1, 5))
        records = [
            Kept(offset + delta, START_MS + draw(st.integers(-20, 100)) + 30 * len(batches), b"k", b"v" * delta)
            for delta in range(count)
        ]
        kept = [record for record in records if draw(st.booleans())]
        if kept or draw(st.booleans()):
            is_known = not kept or draw(st.booleans())
            batches.append(
                Batch(
                    offset,
                    offset + count - 1,
                    kept,
                    draw(st.sampled_from([Compression.NONE, Compression.LZ4])),
                    producer_id=7 if is_known else -1,
                    producer_epoch=0 if is_known else -1,
                    base_sequence=offset if is_known else -1,
                    max_timestamp_ms=None if kept else max(record.timestamp_ms for record in records),
                    delete_horizon_ms=START_MS - 5 if kept and draw(st.booleans()) else None,
                )
            )
        offset += count
    segments: list[tuple[int, list[Batch]]] = [(draw(st.integers(0, first)), [])]
    for batch in batches:
        base, held = segments[-1]
        end = held[-1].last_offset + 1 if held else base
        if draw(st.integers(0, 3)) == 0 and batch.base_offset > base:
            segments.append((draw(st.integers(max(end, base + 1), batch.base_offset)), []))
        segments[-1][1].append(batch)
    if draw(st.booleans()) and offset > segments[-1][0]:
        # What was appended last is gone, but for the name of the segment that comes next.
        base, held = segments[-1]
        segments.append((max(offset, held[-1].last_offset + 1 if held else 0), []))
    return Compacted(segments, draw(st.sampled_from([0, 60, 200, 4096])))


@contextmanager
def opened(made: Compacted) -> Iterator[Callable[..., Log]]:
    """Write such a log without any file beside its segments; return what opens it, for the first time or again."""
    config = LogConfig(
        cleanup_policy=frozenset({CleanupPolicy.COMPACT}), index_interval_bytes=made.index_interval_bytes
    )
    with tempfile.TemporaryDirectory(prefix="barnabas-gaps-") as name:
        folder = Path(name) / str(PARTITION)
        write_segments(folder, made.segments)
        logs: list[Log] = []

        def again(clean: bool = False, recovery_point: int = 0, log_start_offset: int = 0) -> Log:
            if logs:
                logs[-1].abandon()
            log = Log.open(
                folder,
                PARTITION,
                config,
                ManualClock(START_MS),
                UnsyncedFileSystem(),
                clean,
                recovery_point,
                log_start_offset,
            )
            assert not list(folder.glob("*.damaged*"))
            logs.append(log)
            return log

        yield again
        logs[-1].abandon()


def read_from(log: Log, offset: int, max_bytes: int = 10**6, max_offset: int | None = None) -> list[Record]:
    """Read as a consumer does, which goes on after the last offset of the last batch that it was given."""
    end = log.log_end_offset if max_offset is None else max_offset
    records: list[Record] = []
    while offset < end:
        region = read(log, offset, max_bytes, end)
        assert region
        if isinstance(region, bytearray):
            data = bytes(region)
        else:
            data = os.pread(region.file.fileno(), region.length, region.position)
        headers = [header for _, header in iter_headers(data)]
        assert headers[0].last_offset >= offset
        assert len(headers) == 1 or len(data) <= max_bytes
        records += read_records(data, *PARTITION, min_offset=offset)
        offset = headers[-1].next_offset
    assert offset == end
    return records


def as_kept(records: list[Record]) -> list[Kept]:
    return [Kept(record.offset, record.timestamp_ms, record.key, record.value) for record in records]


def check_reads(log: Log, made: Compacted, max_bytes: int, start: int = 0) -> None:
    assert log.log_end_offset == made.end
    for offset in range(max(start, log.log_start_offset), made.end + 1):
        assert as_kept(read_from(log, offset, max_bytes)) == made.records(offset)


def check_times(log: Log, records: list[Kept]) -> None:
    for target in {record.timestamp_ms + step for record in records for step in (-1, 0, 1)} | {0, START_MS * 2}:
        expected = next((record for record in records if record.timestamp_ms >= target), None)
        found = log.time_search().first_at(target)
        assert (found and tuple(found)) == (expected and (expected.offset, expected.timestamp_ms))
    latest = max(records, key=lambda record: (record.timestamp_ms, -record.offset), default=Kept(-1, -1))
    assert tuple(log.time_search().latest()) == (latest.offset, latest.timestamp_ms)


@settings(max_examples=examples(60))
@given(made=compacted_logs(), max_bytes=st.integers(0, 400))
def test_every_record_left_is_read_from_every_offset(made: Compacted, max_bytes: int) -> None:
    with opened(made) as again:
        log = again()
        check_reads(log, made, max_bytes)
        check_times(log, made.records())
        log.close()
        log = again(clean=True)
        check_reads(log, made, max_bytes)
        check_times(log, made.records())
        for path in [*log.folder.glob("*.index"), *log.folder.glob("*.timeindex"), *log.folder.glob("*.snapshot")]:
            path.unlink()
        for recovery_point in (0, made.end // 2, made.end):
            check_reads(again(recovery_point=recovery_point), made, max_bytes)
            for path in log.folder.glob("*.*index"):
                path.unlink()


@settings(max_examples=examples(60))
@given(made=compacted_logs(), data=st.data())
def test_nothing_is_read_beyond_what_is_shown(made: Compacted, data: st.DataObject) -> None:
    with opened(made) as again:
        log = again()
        offset = data.draw(st.integers(log.log_start_offset, made.end))
        max_offset = data.draw(st.integers(offset, made.end))
        if any(batch.base_offset < max_offset <= batch.last_offset for batch in made.batches):
            return  # the high watermark is never within a batch
        shown = read_from(log, offset, data.draw(st.integers(0, 200)), max_offset)
        assert as_kept(shown) == [record for record in made.records(offset) if record.offset < max_offset]


@settings(max_examples=examples(100))
@given(made=compacted_logs(), data=st.data())
def test_log_with_gaps_is_cut_and_goes_on(made: Compacted, data: st.DataObject) -> None:
    with opened(made) as again:
        log = again()
        start = data.draw(st.integers(log.log_start_offset, made.end))
        assert delete_records_before(log, start) == max(start, log.log_start_offset)
        assert as_kept(read_from(log, start)) == made.records(start)
        check_times(log, made.records(start))
        log.flush()
        log.rename_deleted_files()
        offset = data.draw(st.integers(start, made.end))
        log.truncate_to(offset)
        left = [
            record
            for batch in made.batches
            for record in batch.records
            if start <= record.offset and (batch.last_offset < offset or offset == made.end)
        ]
        end = log.log_end_offset
        assert start == log.log_start_offset <= end <= offset
        assert as_kept(read_from(log, start)) == left
        if data.draw(st.booleans()):
            log = again(recovery_point=log.recovery_point, log_start_offset=start)
            assert (log.log_start_offset, log.log_end_offset) == (start, end)
        builder = BatchBuilder()
        builder.append(START_MS, b"k", b"new")
        assert log.append(builder.build(), 0).base_offset == end
        assert as_kept(read_from(log, start)) == [*left, Kept(end, START_MS, b"k", b"new")]


@settings(max_examples=examples(60))
@given(made=compacted_logs())
def test_empty_batches_count_for_the_sequences_of_producers(made: Compacted) -> None:
    with opened(made) as again:
        log = again()
        known = [batch for batch in made.batches if batch.producer_id == 7][-5:]
        for _ in range(2):
            entry = log.producers.get(7)
            batches = entry.batches if entry else ()
            assert [(each.last_sequence, each.last_offset) for each in batches] == [
                (batch.last_offset, batch.last_offset) for batch in known
            ]
            log.close()
            log = again(clean=True)

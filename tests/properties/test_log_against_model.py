"""A log does what a list would do, whatever is asked of it, in whatever order, over restarts clean and unclean."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.clock import ManualClock
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder, Compression, read_header, read_records
from barnabas.storage import Log, LogConfig
from tests.support.log_steps import delete_old_segments
from tests.support.searches import examples
from tests.support.unsynced_files import UnsyncedFileSystem

PARTITION = TopicPartition("clicks", 0)
START_MS = 1_700_000_000_000


class LogMachine(RuleBasedStateMachine):
    """Model: a list of batches, each a list of (timestamp, value), and what the producer sent last."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="barnabas-log-"))
        self.clock = ManualClock(START_MS)
        self.batches: list[list[tuple[int, bytes]]] = []
        self.epochs: list[int] = []
        self.epoch = 0
        self.flushed = 0
        self.start = 0
        """Where the log begins: within a batch, perhaps."""
        self.stored_start = 0

    @initialize(segment_bytes=st.integers(400, 3_000), index_interval_bytes=st.integers(0, 500))
    def begin(self, segment_bytes: int, index_interval_bytes: int) -> None:
        self.config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes)
        self.log = self.open(clean=False)

    def open(self, *, clean: bool) -> Log:
        return Log.open(
            self.folder / "clicks-0",
            PARTITION,
            self.config,
            self.clock,
            UnsyncedFileSystem(),
            clean,
            self.flushed,
            self.stored_start,
        )

    @property
    def end(self) -> int:
        return sum(map(len, self.batches))

    @rule(
        sizes=st.lists(st.integers(0, 60), min_size=1, max_size=5),
        step_ms=st.integers(-500, 2_000),
        read_only=st.booleans(),
        compression=st.sampled_from(Compression),
    )
    def append(self, sizes: Sequence[int], step_ms: int, read_only: bool, compression: Compression) -> None:
        timestamp_ms = START_MS + len(self.batches) * 500 + step_ms
        content = [(timestamp_ms + index, os.urandom(size)) for index, size in enumerate(sizes)]
        batch = self.build(content, self.end, compression)
        info = self.log.append(bytes(batch) if read_only else batch, self.epoch)
        assert info[:2] == (self.end, self.end + len(sizes) - 1)
        assert not info.duplicate
        self.batches.append(content)
        self.epochs.append(self.epoch)

    @precondition(lambda self: self.batches)
    @rule(back=st.integers(1, 5))
    def retry(self, back: int) -> None:
        """The producer did not hear of one of its last batches."""
        number = max(0, len(self.batches) - back)
        base = sum(map(len, self.batches[:number]))
        info = self.log.append(self.build(self.batches[number], base), self.epoch)
        assert info.duplicate
        assert info.base_offset == base

    @rule()
    def elect(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.end
        assert self.log.recovery_point == self.end

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end + 1))
        bases = [0, *itertools.accumulate(map(len, self.batches))]
        if offset < self.end and max(base for base in bases if base <= offset) < self.start:
            # It would end before it begins, and begins anew instead; such offsets are not counted from 0.
            return
        self.log.truncate_to(offset)
        while self.batches and self.end > offset:
            self.batches.pop()
            self.epochs.pop()
        self.flushed = min(self.flushed, self.end)
        self.stored_start = self.start

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.end))
        self.start = max(self.start, offset)
        assert self.log.delete_records_before(offset) == self.start

    @rule()
    def rename_deleted_files(self) -> None:
        """What the manager does: flush, store the start, then touch files."""
        self.log.flush()
        self.flushed = self.end
        self.stored_start = self.start
        for path in self.log.rename_deleted_files():
            path.unlink()

    @rule(keep_bytes=st.integers(0, 3_000))
    def retain(self, keep_bytes: int) -> None:
        self.log.configure(replace(self.config, retention_bytes=keep_bytes, retention_ms=-1))
        before = self.log.size_bytes
        delete_old_segments(self.log)
        assert self.log.size_bytes >= min(before, keep_bytes)
        self.log.configure(self.config)
        assert self.log.log_start_offset >= self.start
        self.start = self.log.log_start_offset

    @rule()
    def restart_cleanly(self) -> None:
        self.log.close()
        self.flushed = self.log.recovery_point
        self.stored_start = self.start
        self.log = self.open(clean=True)

    @rule(torn=st.binary(max_size=80))
    def restart_after_kill(self, torn: bytes) -> None:
        """The process died while it wrote; what it wrote before is in the page cache."""
        self.log.abandon()
        last = max((self.folder / "clicks-0").glob("*.log"))
        with last.open("ab") as file:
            file.write(torn)
        self.start = self.stored_start
        self.log = self.open(clean=False)

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), max_bytes=st.integers(0, 2_000), min_one_batch=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, min_one_batch: bool) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        max_offset = data.draw(st.integers(0, self.end))
        region = self.log.read(offset, max_bytes, max_offset, min_one_batch).batches
        if not region:
            return
        content = os.pread(region.file.fileno(), region.length, region.position)
        first = read_header(content)
        assert first.base_offset <= offset <= first.last_offset
        assert region.length <= max_bytes or (min_one_batch and region.length == first.size)
        records = read_records(content, *PARTITION)
        assert records[-1].offset < max_offset
        flat = self.flat()
        assert [(r.timestamp_ms, r.value) for r in records] == flat[records[0].offset : records[-1].offset + 1]

    @rule(offset=st.integers(-5, -1) | st.integers(1, 5))
    def read_out_of_range(self, offset: int) -> None:
        with pytest.raises(ApiError) as caught:
            self.log.read((self.start if offset < 0 else self.end) + offset, 100, self.end)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    @rule(ahead_ms=st.integers(-600, 10_000))
    def search_by_time(self, ahead_ms: int) -> None:
        target = START_MS + ahead_ms
        there = list(enumerate(self.flat()))[self.start :]
        expected = next((offset for offset, (timestamp_ms, _) in there if timestamp_ms >= target), None)
        found = self.log.time_search().first_at(target)
        assert (found.offset if found else None) == expected
        latest = max((timestamp_ms for _, (timestamp_ms, _) in there), default=-1)
        assert self.log.time_search().latest().timestamp_ms == latest

    @invariant()
    def offsets_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.log_start_offset == self.start
        assert self.log.log_end_offset == self.log.high_watermark == self.end
        assert self.log.recovery_point <= self.end
        starts: dict[int, int] = {}
        offset = 0
        for batch, epoch in zip(self.batches, self.epochs, strict=True):
            starts.setdefault(epoch, offset)
            offset += len(batch)
            if offset > self.start:
                assert self.log.leader_epochs.epoch_for_offset(offset - 1) == epoch
        entries = [tuple(entry) for entry in self.log.leader_epochs.entries]
        expected = list(starts.items())[len(starts) - len(entries) :]
        assert entries[1:] == expected[1:]
        # Of an epoch that began with records which are deleted, a start learns from the batches that are left.
        for (epoch, offset), (first_epoch, began) in zip(entries[:1], expected[:1], strict=True):
            assert epoch == first_epoch
            assert offset == began or began < offset <= self.start

    def teardown(self) -> None:
        if hasattr(self, "log"):
            offset = self.start
            seen: list[tuple[int, bytes | None]] = []
            while region := self.log.read(offset, 700, self.end).batches:
                content = os.pread(region.file.fileno(), region.length, region.position)
                records = read_records(content, *PARTITION, min_offset=offset)
                seen += [(record.timestamp_ms, record.value) for record in records]
                offset = records[-1].offset + 1
            assert seen == self.flat()[self.start :]
            self.log.abandon()
        shutil.rmtree(self.folder)

    def flat(self) -> list[tuple[int, bytes]]:
        return [record for batch in self.batches for record in batch]

    def build(
        self, content: list[tuple[int, bytes]], sequence: int, compression: Compression = Compression.NONE
    ) -> bytearray:
        builder = BatchBuilder(compression)
        for timestamp_ms, value in content:
            builder.append(timestamp_ms, None, value)
        return builder.build(producer_id=1, producer_epoch=0, base_sequence=sequence)


LogMachine.TestCase.settings = settings(max_examples=examples(30), stateful_step_count=30)
TestLogAgainstModel = LogMachine.TestCase

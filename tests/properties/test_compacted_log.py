"""Whatever is written, compacted, cut and restarted, in whatever order: a reader from the beginning ends with the last
value of each key, and one that follows never misses the last."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.clock import ManualClock
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.records import Compression, Record
from barnabas.storage import Log, LogConfig
from barnabas.storage.cleaner.cleaner import Cleaner
from barnabas.storage.cleaner.job import CleanedGroup, CleaningPlan, UncleanableError
from barnabas.storage.log_config import CleanupPolicy
from barnabas.storage.segment import SegmentReplacedError
from tests.support.compaction_steps import Keyed, compact, job_for, keyed_batch, last_values, read_gapped
from tests.support.searches import examples
from tests.support.unsynced_files import UnsyncedFileSystem

PARTITION = TopicPartition("states", 0)
START_MS = 1_700_000_000_000
KEYS = [b"a", b"b", b"", b"long" * 20]

Entry = tuple[int, bytes, bytes | None]
"""Offset, key and value."""


class CompactedLogMachine(RuleBasedStateMachine):
    """Model: all that was ever written and not cut off, and what each producer sent last."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="barnabas-compacted-"))
        self.filesystem = UnsyncedFileSystem()
        self.clock = ManualClock(START_MS)
        self.entries: list[Entry] = []
        self.sequences = [0, 0]
        self.last: dict[int, tuple[int, list[Keyed], int]] = {}
        """Of each producer, the first sequence, records and base offset of its last batch."""
        self.flushed = self.first_dirty = self.start = 0
        self.followed: dict[bytes | None, bytes] = {}
        self.follower_offset = self.compacted_up_to = 0

    @initialize(segment_bytes=st.integers(800, 3_000), interval=st.integers(0, 300), horizon_ms=st.integers(0, 3_000))
    def begin(self, segment_bytes: int, interval: int, horizon_ms: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            delete_retention_ms=horizon_ms,
            cleanup_policy=frozenset({CleanupPolicy.COMPACT}),
        )
        self.log = self.open(clean=False)

    def open(self, *, clean: bool) -> Log:
        folder = self.folder / "states-0"
        log = Log.open(
            folder, PARTITION, self.config, self.clock, self.filesystem, clean, self.flushed, self.start, self.flushed
        )
        log.mark_dirty_from(self.first_dirty)
        return log

    @property
    def end(self) -> int:
        return self.entries[-1][0] + 1 if self.entries else self.start

    @rule(
        rows=st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.binary(max_size=40)), min_size=1, max_size=5),
        compression=st.sampled_from([Compression.NONE, Compression.LZ4, Compression.ZSTD]),
        producer=st.none() | st.integers(0, 1),
        step_ms=st.integers(-500, 2_000),
    )
    def append(
        self,
        rows: Sequence[tuple[bytes, bytes | None]],
        compression: Compression,
        producer: int | None,
        step_ms: int,
    ) -> None:
        at_ms = START_MS + len(self.entries) * 100 + step_ms
        records = [Keyed(key, value, at_ms + number) for number, (key, value) in enumerate(rows)]
        identity = {}
        if producer is not None:
            first = self.sequences[producer]
            identity = {"producer_id": producer, "producer_epoch": 0, "base_sequence": first}
            self.sequences[producer] += len(records)
        info = self.log.append(keyed_batch(records, compression, **identity), 0)
        assert (info.base_offset, info.duplicate) == (self.end, False)
        if producer is not None:
            self.last[producer] = (first, records, info.base_offset)
        self.entries += [(info.base_offset + number, key, value) for number, (key, value) in enumerate(rows)]

    @rule(producer=st.integers(0, 1))
    def send_again(self, producer: int) -> None:
        """The producer did not hear of its last batch; or it skips one."""
        if producer not in self.last:
            return
        first, records, base_offset = self.last[producer]
        identity = {"producer_id": producer, "producer_epoch": 0}
        info = self.log.append(keyed_batch(records, base_sequence=first, **identity), 0)
        assert (info.duplicate, info.base_offset) == (True, base_offset)
        with pytest.raises(ApiError) as refused:
            self.log.append(keyed_batch(records, base_sequence=first + len(records) + 1, **identity), 0)
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.end

    @rule(keys=st.sampled_from([2, 3, 100]), buffer_bytes=st.integers(1, 1_000), seconds=st.integers(0, 3))
    def compact(self, keys: int, buffer_bytes: int, seconds: int) -> None:
        """Compact, perhaps with memory for a few keys only."""
        self.clock.advance(seconds)
        self.log.roll()
        self.flush()
        map_bytes = keys * 24 + 24
        self.compacted_up_to = self.end
        try:
            compact(self.log, self.filesystem, self.clock.time_ms(), map_bytes=map_bytes, buffer_bytes=buffer_bytes)
        except UncleanableError as error:
            assert "has more keys than" in str(error)  # noqa: PT017 - memory is for two or three
        self.first_dirty = self.log.first_dirty_offset

    @rule(groups=st.integers(0, 3), data=st.data())
    def change_while_it_is_compacted(self, groups: int, data: st.DataObject) -> None:
        """Cut the log at its end, or delete records at its beginning, between two steps of a compaction."""
        self.log.roll()
        self.flush()
        search = self.log.cleaning_search()
        found = search.find() if search else None
        if found is None:
            return
        self.compacted_up_to = self.end
        cleaner = Cleaner(self.filesystem)
        truncations, old = self.log.truncation_count, self.log.segments_before(found.end_offset)
        plan = cleaner.ask(job_for(self.log, found, self.clock.time_ms(), map_bytes=2_000, buffer_bytes=100))
        assert isinstance(plan, CleaningPlan)
        number = 0
        while isinstance(group := cleaner.ask(None), CleanedGroup):
            if number == groups:
                data.draw(st.sampled_from([self.truncate, self.delete_records]))(data)
            number += 1
            replaced, old = old[: len(group.base_offsets)], old[len(group.base_offsets) :]
            try:
                for path in self.log.replace_segments(replaced, group.size):
                    path.unlink()
            except SegmentReplacedError:
                if self.log.log_start_offset < replaced[-1].next_offset:
                    self.log.remove_cleaned()
                    break
        else:
            self.log.mark_compacted(plan.end_offset, truncations)
        if self.log.truncation_count != truncations:
            self.forget_compacted()
        self.first_dirty = self.log.first_dirty_offset

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        if not self.entries:
            return
        self.log.flush()
        self.flushed = self.end
        offset = data.draw(st.integers(self.start, self.end))
        self.log.truncate_to(offset)
        cut = self.log.log_end_offset
        assert cut <= max(offset, self.start)
        self.start = self.log.log_start_offset
        self.entries = [entry for entry in self.entries if entry[0] < cut]
        self.forget_compacted()
        self.flushed = min(self.flushed, cut)
        self.first_dirty = self.log.first_dirty_offset
        # Producers whose batches were cut off go on with new identities, as with a new leader.
        self.last = {key: last for key, last in self.last.items() if last[2] + len(last[1]) <= cut}
        if cut == self.start:
            # A log that has nothing left knows no producer, also none whose batches were deleted before.
            self.last = {key: last for key, last in self.last.items() if key in self.log.producers}
        self.begin_sequences_anew()
        self.followed, self.follower_offset = {}, self.start

    def forget_compacted(self) -> None:
        """What was compacted because of records that were cut off is lost; a broker cuts only what is above the high
        watermark, and compacts only what is below it."""
        left = {record.offset for record in read_gapped(self.log)}
        self.entries = [each for each in self.entries if each[0] in left or each[0] >= self.compacted_up_to]
        if self.end < self.log.log_end_offset:
            self.entries.append((self.log.log_end_offset - 1, b"gone", None))

    def begin_sequences_anew(self) -> None:
        for producer in {0, 1} - self.last.keys():
            entry = self.log.producers.get(producer)
            self.sequences[producer] = entry.batches[-1].last_sequence + 1 if entry else 0

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.log.flush()
        self.flushed = self.end
        offset = data.draw(st.integers(0, self.end))
        self.start = self.log.delete_records_before(offset)
        self.log.rename_deleted_files()

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        self.flushed = self.end
        self.log = self.open(clean=True)

    @rule(lose_snapshots=st.booleans(), lose_indexes=st.booleans())
    def kill_and_start(self, lose_snapshots: bool, lose_indexes: bool) -> None:
        known = self.last
        self.log.abandon()
        if lose_indexes:
            for path in (self.folder / "states-0").glob("*index"):
                path.unlink()
        if lose_snapshots:
            for path in (self.folder / "states-0").glob("*.snapshot"):
                path.unlink()
        self.log = self.open(clean=False)
        if lose_snapshots:
            # Nothing tells any more of producers whose batches were deleted with their segments.
            self.last = {key: last for key, last in self.last.items() if key in self.log.producers}
            first = self.log._segments.first.base_offset
            assert all(key in self.last for key, last in known.items() if last[2] >= first)
            self.begin_sequences_anew()

    @rule()
    def follow(self) -> None:
        """The follower catches up."""
        at = max(self.follower_offset, self.start)
        for record in read_gapped(self.log, at):
            assert record.offset >= self.follower_offset
            self._apply(record)
        self.follower_offset = self.end
        for key, value in self.final().items():
            assert self.followed.get(key) == value

    def _apply(self, record: Record) -> None:
        if record.value is None:
            self.followed.pop(record.key, None)
        else:
            self.followed[record.key] = record.value

    def final(self) -> dict[bytes | None, bytes]:
        """Return the last value of each key that has one and was not deleted at the beginning of the log."""
        last = {key: (offset, value) for offset, key, value in self.entries}
        return {key: value for key, (offset, value) in last.items() if value is not None and offset >= self.start}

    @precondition(lambda self: hasattr(self, "log"))
    @invariant()
    def a_reader_ends_with_the_last_values(self) -> None:
        found = read_gapped(self.log)
        assert [record.offset for record in found] == sorted({record.offset for record in found})
        known = {offset: (key, value) for offset, key, value in self.entries}
        assert all(known[record.offset] == (record.key, record.value) for record in found)
        read = last_values(found)
        assert {key: read.get(key) for key in self.final()} == self.final()
        last: dict[bytes | None, int] = {key: offset for offset, key, _ in self.entries}
        assert set(read) == {each.key for each in found if each.value is not None and each.offset == last[each.key]}

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.abandon()
        shutil.rmtree(self.folder, ignore_errors=True)


CompactedLogMachine.TestCase.settings = settings(max_examples=examples(30), stateful_step_count=30, deadline=None)
TestCompactedLog = CompactedLogMachine.TestCase

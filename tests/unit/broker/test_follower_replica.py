"""The replica that follows: what it takes from its leader, and how it ends."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.follower_replica import FollowerReplica
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import topic_config
from barnabas.clock import ManualClock
from barnabas.errors import ApiError, CorruptBatchError, ErrorCode, StorageError
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder, stamp
from barnabas.storage import Log, LogConfig, OsFileSystem
from barnabas.storage.checkpoints import EpochStart
from barnabas.storage.filesystem import DataFile
from tests.support.replica_listeners import RecordedReads

CLICKS = TopicPartition("clicks", 0)
TIMEOUT_S = 60
RESIGNED = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another epoch")


class GatedFiles(OsFileSystem):
    """A disk that makes no file without a permit."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()
        self.is_full = False

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> DataFile:
        if create:
            self.waiting.set()
            assert self.gate.wait(TIMEOUT_S)
            if self.is_full:
                raise OSError(28, "No space left on device", str(path))
        return super().open(path, create=create, writable=writable)


def batch(base_offset: int, epoch: int = 0, count: int = 1) -> memoryview:
    builder = BatchBuilder()
    builder.append_many(1_000, [b"value"] * count)
    built = bytearray(builder.build())
    stamp(built, 0, base_offset, epoch)
    return memoryview(built)


SEGMENT_BYTES = 2 * len(batch(0))


class Bench:
    """A follower whose segments hold two batches."""

    def __init__(self, folder: Path) -> None:
        self.disk = GatedFiles()
        self.log = Log.open(folder, CLICKS, LogConfig(), ManualClock(), self.disk)
        self.follower = self.follow(0)

    def follow(self, epoch: int, **settings: str) -> FollowerReplica:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        config = topic_config(BrokerConfig(), {"segment.bytes": str(SEGMENT_BYTES), **named})
        return FollowerReplica(CLICKS, self.log, epoch, config, leader=2, topic_id=bytes(16))

    async def append(self, base_offset: int, high_watermark: int = 0, log_start: int = 0, epoch: int = 0) -> None:
        waiting = self.follower.append(batch(base_offset, epoch), high_watermark, log_start)
        if waiting is not None:
            await waiting


Scenario = Callable[[Bench], Coroutine[Any, Any, None]]


def run(folder: Path, scenario: Scenario) -> None:
    async def on_bench() -> None:
        made = Bench(folder / "clicks-0")
        try:
            async with asyncio.timeout(3 * TIMEOUT_S):
                await scenario(made)
        finally:
            made.disk.gate.set()
            await asyncio.to_thread(made.log.abandon)

    asyncio.run(on_bench())


def test_high_watermark_is_the_leaders_as_far_as_the_log_reaches_and_does_not_go_back(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        reads = RecordedReads()
        bench.follower.watch(reads)
        assert bench.follower.append(batch(0, count=3), 9, 0) is None
        assert (bench.log.log_end_offset, bench.log.high_watermark) == (3, 3)
        assert reads.events == [len(batch(0, count=3))]
        assert (bench.log.replicated_bytes, bench.log.replicated_records) == (len(batch(0, count=3)), 3)
        assert (bench.log.appended_bytes, bench.log.appended_records) == (len(batch(0, count=3)), 3)
        assert bench.follower.append(memoryview(b""), 1, 0) is None
        assert bench.log.high_watermark == 3

    run(tmp_path, scenario)


def test_role_that_has_ended_is_freed_without_a_garbage_collection(tmp_path: Path) -> None:
    """A start with 10,000 partitions ends 10,000 roles at once."""

    async def scenario(bench: Bench) -> None:
        ended = bench.follow(0)
        ended.resign(RESIGNED)
        await ended.end()
        other = object()
        assert sys.getrefcount(ended) == sys.getrefcount(other), "only the variable refers to it"

    run(tmp_path, scenario)


def test_appends_that_need_a_segment_keep_their_order(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.append(0)
        await bench.append(1)
        bench.disk.waiting.clear()
        bench.disk.gate.clear()
        waiting = [bench.follower.append(batch(offset), offset, 0) for offset in (2, 3, 4)]
        assert await asyncio.to_thread(bench.disk.waiting.wait, TIMEOUT_S)
        assert bench.log.log_end_offset == 2
        bench.disk.gate.set()
        for each in waiting:
            assert each is not None
            await each
        assert (bench.log.log_end_offset, bench.log.high_watermark, bench.log.segment_count) == (5, 4, 3)

    run(tmp_path, scenario)


def test_what_does_not_come_next_is_refused_and_the_log_goes_on(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.append(0)
        with pytest.raises(CorruptBatchError):
            bench.follower.append(batch(0), 0, 0)
        with pytest.raises(CorruptBatchError, match="leader epoch 1"):
            bench.follower.append(batch(1, epoch=1), 0, 0)
        damaged = batch(1)
        damaged[-1] ^= 1
        with pytest.raises(CorruptBatchError):
            bench.follower.append(damaged, 0, 0)
        await bench.append(1)
        assert bench.log.log_end_offset == 2

    run(tmp_path, scenario)


def test_log_start_of_the_leader_is_followed_up_to_the_high_watermark(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        for offset in range(5):
            await bench.append(offset, high_watermark=3)
        await bench.append(5, high_watermark=3, log_start=4)
        assert bench.log.log_start_offset == 3
        await bench.append(6, high_watermark=7, log_start=7)
        assert (bench.log.log_start_offset, bench.log.log_end_offset) == (7, 7)
        await bench.append(7, high_watermark=8, log_start=7)
        assert bench.log.log_end_offset == 8

    run(tmp_path, scenario)


def test_truncation_and_a_new_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: Bench) -> None:
        for offset in range(5):
            await bench.append(offset, high_watermark=2)
        await bench.follower.truncate_to(3)
        assert (bench.log.log_end_offset, bench.log.high_watermark) == (3, 2)
        assert not caplog.records
        await bench.follower.truncate_to(1)
        assert bench.log.high_watermark == 1
        assert "below the high watermark 2" in caplog.text
        await bench.follower.truncate_fully_and_start_at(20)
        assert (bench.log.log_start_offset, bench.log.high_watermark, bench.log.log_end_offset) == (20, 20, 20)
        await bench.append(20, high_watermark=21)
        assert bench.log.high_watermark == 21

    run(tmp_path, scenario)


def test_log_that_begins_within_a_batch_begins_no_earlier_while_that_is_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where it begins may be stored at any moment: what the leader was told of it, no crash may undo.
    async def scenario(bench: Bench) -> None:
        await bench.follower.truncate_fully_and_start_at(2)
        starts = []
        for name in ("lower_log_end_to", "write_append", "finish_append"):
            act = getattr(Log, name)

            def act_and_look(self: Log, *args: Any, act: Any = act) -> Any:
                result = act(self, *args)
                starts.append(self.log_start_offset)
                return result

            monkeypatch.setattr(Log, name, act_and_look)
        waiting = bench.follower.append(batch(0, count=4), 4, 2)
        assert waiting is not None
        await waiting
        assert starts == [2, 2, 2]
        assert (bench.log.log_start_offset, bench.log.high_watermark, bench.log.log_end_offset) == (2, 4, 4)

    run(tmp_path, scenario)


def test_a_role_ends_when_nothing_is_under_way_and_takes_nothing_more(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.append(0)
        await bench.append(1)
        bench.disk.waiting.clear()
        bench.disk.gate.clear()
        under_way = bench.follower.append(batch(2), 0, 0)
        behind = bench.follower.append(batch(3), 0, 0)
        assert under_way is not None
        assert behind is not None
        assert await asyncio.to_thread(bench.disk.waiting.wait, TIMEOUT_S)
        bench.follower.resign(RESIGNED)
        ending = asyncio.create_task(bench.follower.end())
        with pytest.raises(ApiError, match="another epoch"):
            bench.follower.append(batch(3), 0, 0)
        await asyncio.sleep(0)
        assert not ending.done()
        bench.disk.gate.set()
        await ending
        await under_way
        with pytest.raises(ApiError, match="another epoch"):
            await behind
        bench.follower = bench.follow(1)
        await bench.append(3, epoch=1)
        assert bench.log.log_end_offset == 4

    run(tmp_path, scenario)


def test_a_role_under_a_flush_policy_ends_though_an_append_was_under_way(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.follower = bench.follow(0, flush_messages="1")
        await bench.append(0)
        await bench.append(1)
        bench.disk.waiting.clear()
        bench.disk.gate.clear()
        under_way = bench.follower.append(batch(2), 0, 0)
        assert under_way is not None
        assert await asyncio.to_thread(bench.disk.waiting.wait, TIMEOUT_S)
        bench.follower.resign(RESIGNED)
        bench.disk.gate.set()
        await bench.follower.end()  # nobody flushes any longer what the append would wait for
        with pytest.raises(ApiError, match="another epoch"):
            await under_way
        assert bench.log.log_end_offset == 3

    run(tmp_path, scenario)


def test_what_the_disk_refuses_is_told_and_can_be_tried_again(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.append(0)
        await bench.append(1)
        bench.disk.is_full = True
        with pytest.raises(StorageError):
            await bench.append(2)
        bench.disk.is_full = False
        await bench.append(2)
        assert bench.log.log_end_offset == 3

    run(tmp_path, scenario)


def test_a_disk_that_refuses_to_forget_records_is_told_once_however_many_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(bench: Bench) -> None:
        def refuse(log: Log, offset: int) -> None:
            raise StorageError("the disk is full")

        await bench.append(0)
        for offset in (1, 4):
            with monkeypatch.context() as patched:
                patched.setattr(Log, "delete_records_before", refuse)
                await bench.append(offset, high_watermark=offset, log_start=offset)
                await bench.append(offset + 1, high_watermark=offset + 1, log_start=offset)
            assert bench.log.log_start_offset < offset
            await bench.append(offset + 2, high_watermark=offset + 2, log_start=offset)
            assert bench.log.log_start_offset == offset
        assert bench.log.log_end_offset == 7

    run(tmp_path, scenario)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2, caplog.text


def test_records_that_come_after_a_truncation_wait_for_no_flush_of_those_before(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.follower = bench.follow(0, flush_messages="2")
        for offset in range(4):
            await bench.append(offset)
        assert bench.log.recovery_point == 4
        await bench.follower.truncate_to(1)
        assert bench.follower.append(batch(1), 0, 0) is None  # the first of two
        flushed = bench.follower.append(batch(2), 0, 0)
        assert flushed is not None
        await flushed
        assert bench.log.recovery_point == 3
        await bench.follower.truncate_fully_and_start_at(0)
        assert bench.follower.append(batch(0), 0, 0) is None

    run(tmp_path, scenario)


def test_records_that_come_after_a_truncation_that_could_not_be_noted_wait_for_no_flush_either(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.follower = bench.follow(0, flush_messages="2")
        for offset in range(4):
            await bench.append(offset)

        def refuse_when_cut() -> None:
            if bench.log.log_end_offset == 1:
                raise StorageError("the checkpoints cannot be stored")

        bench.log._on_truncated = refuse_when_cut
        with pytest.raises(StorageError, match="checkpoints"):
            await bench.follower.truncate_to(1)
        assert not bench.log.is_offline
        assert bench.follower.append(batch(1), 0, 0) is None  # the first of two
        flushed = bench.follower.append(batch(2), 0, 0)
        assert flushed is not None
        await flushed
        assert bench.log.recovery_point == 3

    run(tmp_path, scenario)


def test_leader_is_told_of_records_when_they_are_flushed_as_the_topic_asks(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.follower = bench.follow(0, flush_messages="2")
        assert bench.follower.append(batch(0), 0, 0) is None
        flushed = bench.follower.append(batch(1), 0, 0)
        assert flushed is not None
        await flushed
        assert bench.log.recovery_point == 2
        await bench.append(2)
        waiting = bench.follower.append(batch(3), 0, 0)
        assert waiting is not None
        bench.follower.resign(RESIGNED)
        with pytest.raises(ApiError, match="another epoch"):
            await waiting
        await bench.follower.end()

    run(tmp_path, scenario)


def test_flush_that_the_role_before_did_not_come_to_is_made_by_the_next_one(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.follower = bench.follow(0, flush_messages="2")
        await bench.append(0)
        given_up = bench.follower.append(batch(1), 0, 0)
        assert given_up is not None
        bench.follower.resign(RESIGNED)
        with pytest.raises(ApiError, match="another epoch"):
            await given_up
        await bench.follower.end()
        assert bench.log.recovery_point == 0
        bench.follower = bench.follow(1, flush_messages="2")
        flushed = bench.follower.append(memoryview(b""), 1, 0)
        assert flushed is not None
        await flushed
        assert bench.log.recovery_point == 2
        await bench.append(2, epoch=1)

    run(tmp_path, scenario)


def test_log_start_of_the_leader_above_the_high_watermark_holds_nothing_up(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        assert bench.follower.append(batch(0), 0, 5) is None
        assert bench.follower.append(batch(1), 0, 5) is None

    run(tmp_path, scenario)


def test_epoch_in_which_this_broker_led_and_wrote_nothing_is_none_of_the_logs(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.append(0)
        bench.follower.resign(RESIGNED)
        bench.log.leader_epochs.assign(2, 1)
        bench.follower = bench.follow(3)
        await bench.append(1)
        await bench.append(2, epoch=3)
        assert bench.log.leader_epochs.entries == (EpochStart(0, 0), EpochStart(3, 2))

    run(tmp_path, scenario)

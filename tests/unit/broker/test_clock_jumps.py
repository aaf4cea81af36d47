"""A broker whose wall clock is wrong for a while: offsets, groups and compacted logs stay."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.broker import Broker
from barnabas.broker.environment import Environment
from barnabas.broker.log_cleaner import LogCleaner
from barnabas.broker.settings.static import BrokerConfig
from barnabas.clock import HOLD_S, ManualClock
from barnabas.groups.records import Committed, OffsetRecord
from barnabas.model import OffsetAndMetadata, TopicPartition
from barnabas.storage.cleaner.cleaner import Cleaner
from barnabas.storage.file_names import META_PROPERTIES
from barnabas.storage.filesystem import OsFileSystem
from tests.support.compaction_steps import Keyed, keyed_batch
from tests.support.stored_offsets import store

YEAR_S = 365 * 86_400
DAY_MS = 86_400_000
PLACE = TopicPartition("clicks", 0)


def run(folder: Path, clock: ManualClock, scenario: Callable[[Broker], Coroutine[Any, Any, None]]) -> None:
    async def with_broker() -> None:
        config = BrokerConfig(port=0, data=str(folder), offsets_topic_num_partitions=1, log_cleaner_enable=False)
        broker = Broker(config, Environment(clock=clock))
        await broker.start()
        try:
            if broker.topics.get("clicks") is None:
                await broker.topic_admin.create("clicks", 1, {})
            await broker.groups.ensure_topic()
            await broker.groups.wait_until_loaded()
            async with asyncio.timeout(60):
                await scenario(broker)
        finally:
            await broker.stop()

    asyncio.run(with_broker())


def test_committed_offsets_do_not_expire_by_a_clock_that_jumps(tmp_path: Path) -> None:
    clock = ManualClock()

    async def scenario(broker: Broker) -> None:
        await broker.offsets.commit("g", {PLACE: OffsetAndMetadata(5, "m", -1)})
        # The client of this offset set its expiration itself, with a version of the request that could.
        soon = Committed(7, committed_ms=clock.time_ms(), expires_ms=clock.time_ms() + 7 * DAY_MS)
        await store(broker.groups.find("h"), OffsetRecord("h", PLACE, soon))
        for jump_s in (YEAR_S, -YEAR_S, -YEAR_S, YEAR_S):
            clock.jump(jump_s)
            assert await broker.offsets.expire(7 * DAY_MS) == 0
            clock.advance(4)
        clock.advance(HOLD_S)
        assert await broker.offsets.expire(7 * DAY_MS) == 0
        assert broker.offsets.group_ids() == ["g", "h"]

    run(tmp_path, clock, scenario)


def test_a_group_that_is_loaded_while_the_clock_is_in_doubt_is_not_empty_for_long(tmp_path: Path) -> None:
    clock = ManualClock()

    async def scenario(broker: Broker) -> None:
        await broker.offsets.commit("g", {PLACE: OffsetAndMetadata(5, "m", -1)})

    async def in_doubt(broker: Broker) -> None:
        assert await broker.offsets.expire(7 * DAY_MS) == 0
        assert broker.offsets.group_ids() == ["g"]

    run(tmp_path, clock, scenario)
    clock.jump(YEAR_S)
    for each in tmp_path.iterdir():
        if each.is_file():
            os.utime(each, (clock.time_s() - YEAR_S, clock.time_s() - YEAR_S))
    run(tmp_path, clock, in_doubt)


def test_offset_that_was_committed_by_a_wrong_clock_stays_after_the_next_start(tmp_path: Path) -> None:
    clock = ManualClock()

    async def commit_twice(broker: Broker) -> None:
        assert broker.clock.expiry_ms() is None
        for offset in (5, 6):
            await broker.offsets.commit("g", {PLACE: OffsetAndMetadata(offset, "m", -1)})

    async def expire(broker: Broker) -> None:
        assert broker.clock.expiry_ms() is not None
        assert await broker.offsets.expire(7 * DAY_MS) == 0
        assert broker.offsets.group_ids() == ["g"]
        clock.advance(7 * 86_400)
        assert await broker.offsets.expire(7 * DAY_MS) == 1

    async def nothing(broker: Broker) -> None:
        assert broker.clock.expiry_ms() is not None

    def date_files() -> None:
        for each in tmp_path.iterdir():
            if each.is_file():
                os.utime(each, (clock.time_s(), clock.time_s()))

    run(tmp_path, clock, nothing)
    date_files()
    clock.jump(-14 * 86_400)
    run(tmp_path, clock, commit_twice)
    clock.jump(14 * 86_400)
    date_files()  # so that the start has nothing to doubt
    run(tmp_path, clock, expire)


def test_the_cleaner_begins_no_job_by_a_clock_that_jumps(tmp_path: Path) -> None:
    clock = ManualClock()

    async def scenario(broker: Broker) -> None:
        cleaners: list[Cleaner] = []

        def new_cleaner() -> Cleaner:
            cleaners.append(Cleaner(OsFileSystem()))
            return cleaners[-1]

        log_cleaner = LogCleaner(
            broker.topics.replicas, broker.topics.replica_logs._logs, broker.clock, lambda: broker.config, new_cleaner
        )
        settings = {"cleanup.policy": "compact", "segment.bytes": "1000", "min.cleanable.dirty.ratio": "0.1"}
        await broker.topic_admin.create("states", 1, settings)
        partition = broker.topics.replicas.leader("states", 0)
        for number in range(40):
            partition.log.append(keyed_batch([Keyed(b"key", b"value", number)]), partition.leader_epoch)
        partition.log.flush()
        for jump_s in (YEAR_S, -YEAR_S):
            clock.jump(jump_s)
            await log_cleaner.clean_all()
            assert cleaners == []
        clock.advance(HOLD_S)
        await log_cleaner.clean_all()
        assert len(cleaners) == 1

    run(tmp_path, clock, scenario)


def test_a_start_a_year_after_the_last_one_lets_nothing_expire_for_ten_minutes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()

    async def nothing(broker: Broker) -> None:
        assert broker.clock.expiry_ms() is not None

    async def later(broker: Broker) -> None:
        assert broker.clock.expiry_ms() is None
        clock.advance(HOLD_S)
        assert broker.clock.expiry_ms() == clock.time_ms()

    run(tmp_path, clock, nothing)
    assert (tmp_path / META_PROPERTIES).is_file()
    for each in tmp_path.iterdir():
        if each.is_file():
            os.utime(each, (clock.time_s(), clock.time_s()))
    clock.jump(YEAR_S)
    run(tmp_path, clock, later)
    lines = [each for each in caplog.messages if "no data expires" in each]
    assert lines == [
        f"the newest file in the data folders was written {YEAR_S} s before this start; no data expires for 10 minutes"
    ]

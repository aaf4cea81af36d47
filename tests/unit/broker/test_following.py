"""Two brokers' ends of replication in one event loop, over real sockets: one leads, the other follows."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from barnabas.broker import replica_fetcher
from barnabas.broker.follower_replica import FollowerReplica
from barnabas.broker.follower_sessions import FollowerSessions
from barnabas.broker.inter_broker import inter_broker_apis
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.pipeline.call import BROKERS
from barnabas.broker.pipeline.scheduler import CooperativeScheduler, RequestPipeline
from barnabas.broker.replica_fetcher_manager import ReplicaFetcherManager
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.settings.rules import LONG_MAX
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import topic_config
from barnabas.broker.throttles import FollowerThrottle
from barnabas.broker.topics import Topics
from barnabas.clock import SYSTEM_CLOCK, ManualClock
from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.model import Acks, Node, TopicPartition
from barnabas.net.client_connection import dial
from barnabas.net.listener import Listener
from barnabas.net.server_connection import Limits
from barnabas.replication.in_sync import RemoteReplicas
from barnabas.replication.quota import ReplicationQuota
from barnabas.storage import Log, OsFileSystem
from barnabas.storage.checkpoints import decode_offsets
from barnabas.storage.file_names import LOG_START_CHECKPOINT
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_manager import LogManager
from tests.support.log_steps import append
from tests.support.ports import free_port
from tests.support.replicas import TIMEOUT_S, TOPIC, TOPIC_ID, LedTopics, batch, batches, until

LEADER, FOLLOWER = 1, 2
SETTINGS: dict[str, Any] = {"replica_fetch_backoff_ms": 100}


class LeadersEnd:
    """The broker that leads."""

    def __init__(self, folder: Path) -> None:
        self.logs = LogManager(folder, LogConfig(), SYSTEM_CLOCK, OsFileSystem(), broker_id=LEADER)
        self.topics = LedTopics()
        self.sessions = FollowerSessions(lambda _: 4)
        self.listener = Listener(Limits())
        self.port = self.listener.listen("127.0.0.1", 0)
        scheduler = CooperativeScheduler(SYSTEM_CLOCK.monotonic)
        self.broker_epoch = 9
        topics, replicas = cast(Topics, self.topics), cast(ReplicaManager, self.topics)
        self.listener.accept(
            RequestPipeline(
                inter_broker_apis(
                    topics, replicas, self.sessions, self.check_broker, cast("Any", None), scheduler, SYSTEM_CLOCK
                ),
                scheduler,
                BROKERS,
            ).new_handler
        )

    def check_broker(self, _broker_id: int, broker_epoch: int) -> None:
        if broker_epoch != self.broker_epoch:
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, "another run")

    def lead(self, number: int = 0, epoch: int = 0, **settings: str) -> LeaderReplica:
        log = self.logs.create(TopicPartition(TOPIC, number), None, TOPIC_ID)
        named = {name.replace("_", "."): value for name, value in settings.items()}
        now_s = SYSTEM_CLOCK.monotonic()
        both = LEADER, FOLLOWER
        end = log.log_end_offset
        followers = RemoteReplicas(LEADER, epoch, both, both, end, log.high_watermark, now_s)
        config = topic_config(BrokerConfig(), named)
        led = LeaderReplica(log.partition, log, epoch, config, leader=LEADER, followers=followers)
        self.topics.partitions[number] = led
        return led

    def node(self) -> Node:
        return Node(LEADER, "127.0.0.1", self.port)

    def close(self) -> None:
        self.listener.close()
        self.logs.close()


class FollowersEnd:
    """The broker that follows."""

    def __init__(self, folder: Path) -> None:
        self.logs = LogManager(folder, LogConfig(), SYSTEM_CLOCK, OsFileSystem(), broker_id=FOLLOWER)
        config = BrokerConfig(**SETTINGS)
        self.clock = ManualClock()
        self.quota = ReplicationQuota(LONG_MAX, self.clock.monotonic)
        self.in_sync: set[int] = set()
        throttle = FollowerThrottle(self.quota, FOLLOWER, lambda where: where.partition in self.in_sync)
        self.manager = ReplicaFetcherManager(
            config, SYSTEM_CLOCK, dial, lambda _leader: (FOLLOWER, 9), self.store_log_starts, throttle
        )
        self.may_store = asyncio.Event()
        self.may_store.set()

    async def store_log_starts(self) -> None:
        await self.may_store.wait()
        self.logs.remove_deleted_records()

    def log(self, number: int = 0) -> Log:
        return self.logs.create(TopicPartition(TOPIC, number), None, TOPIC_ID)

    def follow(self, leader: Node, number: int = 0, epoch: int = 0, **settings: str) -> FollowerReplica:
        log = self.log(number)
        config = topic_config(BrokerConfig(), {name.replace("_", "."): value for name, value in settings.items()})
        follower = FollowerReplica(log.partition, log, epoch, config, leader=LEADER, topic_id=TOPIC_ID.bytes)
        self.manager.follow(follower, leader)
        return follower

    async def leave(self, follower: FollowerReplica) -> None:
        self.manager.unfollow(follower)
        follower.resign(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another epoch"))
        await follower.end()

    def close(self) -> None:
        self.manager.close()
        self.logs.close()


Scenario = Callable[[LeadersEnd, FollowersEnd], Coroutine[Any, Any, None]]


def run(folder: Path, scenario: Scenario) -> None:
    async def on_both() -> None:
        leading, following = LeadersEnd(folder / "1"), FollowersEnd(folder / "2")
        try:
            async with asyncio.timeout(3 * TIMEOUT_S):
                await scenario(leading, following)
        finally:
            following.close()
            leading.close()

    asyncio.run(on_both())


def test_follower_has_what_the_leader_has_and_acks_all_waits_for_it(tmp_path: Path) -> None:
    async def scenario(leading: LeadersEnd, following: FollowersEnd) -> None:
        led = leading.lead()
        await append(led, batch(count=3))
        following.follow(leading.node())
        waiting = led.when_acknowledged(await append(led, batch()), Acks.ALL)
        assert waiting is not None
        await waiting
        assert led.log.high_watermark == 4 == following.log().log_end_offset
        assert batches(following.log()) == batches(led.log)
        await until(lambda: following.log().high_watermark == 4)

    run(tmp_path, scenario)


def test_follower_catches_up_over_many_segments_and_partitions(tmp_path: Path) -> None:
    async def scenario(leading: LeadersEnd, following: FollowersEnd) -> None:
        partitions = [leading.lead(number, segment_bytes="100000") for number in range(4)]
        for led in partitions:
            for _ in range(60):
                await append(led, batch(b"v" * 1000, count=10))
        for number in range(4):
            following.follow(leading.node(), number, segment_bytes="100000")
        await until(lambda: all(led.log.high_watermark == 600 for led in partitions))
        for number, led in enumerate(partitions):
            assert batches(following.log(number)) == batches(led.log)
            assert following.log(number).segment_count > 3
        assert len(leading.sessions) == 1

    run(tmp_path, scenario)


def test_logs_that_part_are_made_one_by_their_epochs(tmp_path: Path) -> None:
    async def scenario(leading: LeadersEnd, following: FollowersEnd) -> None:
        led = leading.lead(epoch=0)
        follower = following.follow(leading.node(), epoch=0)
        await append(led, batch(count=5))
        await until(lambda: led.log.high_watermark == 5)
        await following.leave(follower)
        # What no other has: of the follower in epoch 1, when it led; of the leader in epoch 2, since then.
        following.log().append(batch(b"lost", count=7), 1)
        led.resign(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another epoch"))
        await led.end()
        led = leading.lead(epoch=2)
        await append(led, batch(b"kept", count=2))
        following.follow(leading.node(), epoch=2)
        await until(lambda: led.log.high_watermark == 7)
        assert batches(following.log()) == batches(led.log)
        assert following.log().leader_epochs.entries == led.log.leader_epochs.entries

    run(tmp_path, scenario)


def test_truncations_of_many_partitions_are_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(leading: LeadersEnd, following: FollowersEnd) -> None:
        numbers = range(5)
        partitions = [leading.lead(number, epoch=2) for number in numbers]
        for number, led in enumerate(partitions):
            await append(led, batch(b"new"))
            following.log(number).append(bytes(batch(b"old")), 1)
        for number in numbers:
            following.follow(leading.node(), number, epoch=2)
        await until(
            lambda: all(batches(following.log(number)) == batches(partitions[number].log) for number in numbers)
        )

    caplog.set_level(logging.INFO)
    run(tmp_path, scenario)
    (line,) = [each for each in caplog.messages if "to match the leader's epochs" in each]
    assert line.startswith("truncated to match the leader's epochs: ")
    assert line.endswith(" and 2 more")


def test_follower_below_the_leaders_log_starts_over_and_log_starts_are_followed(tmp_path: Path) -> None:
    async def scenario(leading: LeadersEnd, following: FollowersEnd) -> None:
        led = leading.lead()
        await append(led, batch(count=5))
        follower = following.follow(leading.node())
        await until(lambda: led.log.high_watermark == 5)
        await following.leave(follower)
        assert led.followers
        led.followers.adopt((LEADER,))
        await append(led, batch(count=5))
        led.isr_changed()
        assert await led.delete_records_before(8) == 8
        following.follow(leading.node())
        await until(lambda: following.log().log_end_offset == 10)
        assert following.log().log_start_offset == 8
        assert await led.delete_records_before(10) == 10
        await until(lambda: following.log().log_start_offset == 10)

    run(tmp_path, scenario)


def test_leader_is_told_that_a_follower_has_deleted_records_once_no_crash_brings_them_back(tmp_path: Path) -> None:
    async def scenario(leading: LeadersEnd, following: FollowersEnd) -> None:
        led = leading.lead()
        await append(led, batch(count=5))
        following.follow(leading.node())
        await until(lambda: led.log.high_watermark == 5)
        following.may_store.clear()
        assert await led.delete_records_before(3) == 3
        deleted = led.when_deleted(3)
        await until(lambda: following.log().log_start_offset == 3)
        # What is fetched tells how far the follower is, and nothing holds it up.
        await append(led, batch(count=5))
        await until(lambda: led.log.high_watermark == 10)
        assert deleted is not None
        assert not deleted.done()
        following.may_store.set()
        await deleted
        stored = following.logs.data_dir / LOG_START_CHECKPOINT
        assert decode_offsets(stored.read_bytes()) == {following.log().partition: 3}

    run(tmp_path, scenario)


def test_leader_is_told_of_what_a_followers_own_retention_has_deleted_before(tmp_path: Path) -> None:
    async def scenario(leading: LeadersEnd, following: FollowersEnd) -> None:
        led = leading.lead()
        await append(led, batch(count=5))
        following.follow(leading.node())
        await until(lambda: following.log().high_watermark == 5)
        following.log().delete_records_before(3)
        assert await led.delete_records_before(3) == 3
        deleted = led.when_deleted(3)
        assert deleted is not None
        await asyncio.wait_for(deleted, 60)

    run(tmp_path, scenario)


def test_what_is_deleted_while_a_follower_is_busy_is_told_when_it_asks_again(tmp_path: Path) -> None:
    async def scenario(leading: LeadersEnd, following: FollowersEnd) -> None:
        led, _other = leading.lead(0), leading.lead(1)
        await append(led, batch(count=5))
        follower = following.follow(leading.node(), 0)
        following.follow(leading.node(), 1)
        await until(lambda: len(leading.sessions) == 1)
        (session,) = leading.sessions._sessions.values()
        await until(lambda: following.log(0).high_watermark == 5 and len(session) == 2)
        may_go_on = asyncio.Event()
        in_line = follower.storage.run_in_queue(may_go_on.wait)  # as a roll or a flush is
        assert await led.delete_records_before(2) == 2
        await until(lambda: len(session) == 1)  # it is left out meanwhile
        assert await led.delete_records_before(3) == 3
        deleted = led.when_deleted(3)
        assert deleted is not None
        may_go_on.set()
        await in_line
        await deleted
        assert following.log(0).log_start_offset == 3

    run(tmp_path, scenario)


def test_disk_that_deletes_nothing_is_asked_now_and_then_and_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(leading: LeadersEnd, following: FollowersEnd) -> None:
        led, busy = leading.lead(0), leading.lead(1)
        await append(led, batch(count=5))
        following.follow(leading.node(), 0)
        following.follow(leading.node(), 1)
        await until(lambda: following.log(0).high_watermark == 5)
        log, roll, tries = following.log(0), Log.roll, 0

        def roll_if_there_is_room(self: Log, base_offset: int | None = None) -> None:
            nonlocal tries
            if self is log:
                tries += 1
                raise StorageError("no space left")
            roll(self, base_offset)

        monkeypatch.setattr(Log, "roll", roll_if_there_is_room)
        assert await led.delete_records_before(5) == 5
        for count in range(1, 101):
            await append(busy, batch())
            await until(lambda count=count: following.log(1).log_end_offset == count)  # type: ignore[misc]
        assert tries < 50  # of a hundred answers
        assert sum("no space left" in record.getMessage() for record in caplog.records) <= 1
        monkeypatch.undo()
        await until(lambda: log.log_start_offset == 5)

    run(tmp_path, scenario)


def test_disk_that_does_not_store_where_a_followers_log_begins_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(leading: LeadersEnd, following: FollowersEnd) -> None:
        failures = 3

        async def fail_at_first() -> None:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise StorageError("the disk is full")

        following.manager._store_log_starts = fail_at_first
        led = leading.lead()
        await append(led, batch(count=5))
        following.follow(leading.node())
        await until(lambda: led.log.high_watermark == 5)
        assert await led.delete_records_before(3) == 3
        deleted = led.when_deleted(3)
        assert deleted is not None
        await deleted
        assert failures < 0
        assert [each.getMessage() for each in caplog.records].count(
            "cannot store the log start offsets of followers: the disk is full; retrying every 0.1 s"
        ) == 1

    run(tmp_path, scenario)


def test_new_partition_does_not_wait_for_the_end_of_a_long_poll(tmp_path: Path) -> None:
    async def scenario(leading: LeadersEnd, following: FollowersEnd) -> None:
        for number in range(3):
            leading.lead(number)
        following.follow(leading.node(), 0)
        await until(lambda: len(leading.sessions) == 1)
        answers: list[float] = []
        for number in (1, 2):
            began_s = SYSTEM_CLOCK.monotonic()
            following.follow(leading.node(), number)
            led = leading.topics.partitions[number]
            waiting = led.when_acknowledged(await append(led, batch()), Acks.ALL)
            assert waiting is not None
            await waiting
            answers.append(SYSTEM_CLOCK.monotonic() - began_s)
        assert len(answers) == 2

    SETTINGS["replica_fetch_wait_max_ms"] = TIMEOUT_S * 1_000
    try:
        run(tmp_path, scenario)
    finally:
        del SETTINGS["replica_fetch_wait_max_ms"]


def test_leader_that_is_late_or_gone_is_asked_again(tmp_path: Path) -> None:
    async def scenario(leading: LeadersEnd, following: FollowersEnd) -> None:
        following.follow(leading.node(), 0)
        await until(lambda: len(leading.sessions) == 1)
        led = leading.lead(0)
        await append(led, batch())
        await until(lambda: led.log.high_watermark == 1)
        leading.broker_epoch = 10
        leading.listener.close()
        listener = Listener(Limits())
        listener.listen("127.0.0.1", leading.port)
        listener.accept(leading.listener.new_handler)
        leading.listener = listener
        await append(led, batch())
        leading.broker_epoch = 9
        await until(lambda: led.log.high_watermark == 2)

    run(tmp_path, scenario)


def test_damaged_partition_stops_and_the_others_go_on(tmp_path: Path) -> None:
    async def scenario(leading: LeadersEnd, following: FollowersEnd) -> None:
        damaged, whole = leading.lead(0), leading.lead(1)
        await append(damaged, batch(b"x" * 100))
        path = tmp_path / "1" / f"{TOPIC}-0" / f"{0:020}.log"
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        for number in (0, 1):
            following.follow(leading.node(), number)
        for _ in range(3):
            waiting = whole.when_acknowledged(await append(whole, batch()), Acks.ALL)
            assert waiting is not None
            await waiting
        assert following.log(0).log_end_offset == 0

    run(tmp_path, scenario)


def test_what_is_followed_already_goes_on_where_its_leader_is_told_of_again(tmp_path: Path) -> None:
    async def scenario(leading: LeadersEnd, following: FollowersEnd) -> None:
        led = leading.lead()
        nowhere = replace(leading.node(), port=free_port())
        follower = following.follow(nowhere)
        await append(led, batch())
        following.manager.follow(follower, leading.node())
        await until(lambda: led.log.high_watermark == 1)
        following.manager.follow(follower, leading.node())
        await append(led, batch())
        await until(lambda: led.log.high_watermark == 2)
        assert len(leading.sessions) == 1

    run(tmp_path, scenario)


def test_records_that_a_disk_lost_are_fetched_anew(tmp_path: Path) -> None:
    async def scenario(leading: LeadersEnd, following: FollowersEnd) -> None:
        partitions = [leading.lead(0), leading.lead(1)]
        followers = [following.follow(leading.node(), number) for number in (0, 1)]
        for led in partitions:
            for _ in range(5):
                await append(led, batch(count=2))
        await until(lambda: all(led.log.high_watermark == 10 == led.log.log_end_offset for led in partitions))
        await until(lambda: all(following.log(number).high_watermark == 10 for number in (0, 1)))
        for follower in followers:
            await following.leave(follower)
        following.logs.close()
        folder = tmp_path / "2"
        (folder / ".kafka_cleanshutdown").unlink()
        segment = folder / f"{TOPIC}-0" / f"{0:020}.log"
        data = bytearray(segment.read_bytes())
        data[len(data) // 2] ^= 1
        segment.write_bytes(data)
        shutil.rmtree(folder / f"{TOPIC}-1")
        (folder / "recovery-point-offset-checkpoint").write_text(
            f"0\n2\n{TOPIC} 0 10\n{TOPIC} 1 10\n", encoding="utf-8"
        )

        following.logs = LogManager(folder, LogConfig(), SYSTEM_CLOCK, OsFileSystem(), broker_id=FOLLOWER)
        for number, led in enumerate(partitions):
            following.logs.restore(TopicPartition(TOPIC, number), LogConfig(), TOPIC_ID)
            following.follow(leading.node(), number)
            await append(led, batch())
        await until(lambda: all(following.log(number).log_end_offset == 11 for number in (0, 1)))
        for number, led in enumerate(partitions):
            assert batches(following.log(number)) == batches(led.log)

    run(tmp_path, scenario)


def test_replicas_that_are_throttled_are_fetched_at_their_rate_and_the_others_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(leading: LeadersEnd, following: FollowersEnd) -> None:
        led = [leading.lead(number) for number in range(4)]
        following.quota.set_rate(1)
        following.in_sync = {2}
        for partition in led:
            await append(partition, batch())
        slowly = {"follower_replication_throttled_replicas": "0:2,1:2,2:2"}
        logs = [following.follow(leading.node(), number, **slowly).log for number in range(4)]
        # The first answer tells what is much; what comes with it came at once.
        await until(lambda: all(log.log_end_offset == 1 for log in logs))
        for partition in led:
            await append(partition, batch())
            await append(partition, batch())
        await until(lambda: [log.log_end_offset for log in logs] == [1, 1, 3, 3])
        await append(led[3], batch())
        await until(lambda: logs[3].log_end_offset == 4)
        assert [log.log_end_offset for log in logs[:2]] == [1, 1]
        assert following.quota.wait_s > len(batch()), "what is in sync counts too"
        following.clock.advance(following.quota.wait_s + 0.5)
        await until(lambda: all(log.log_end_offset == 3 for log in logs[:2]))
        await append(led[0], batch())
        await append(led[1], batch())
        following.in_sync = {0, 2}
        await until(lambda: logs[0].log_end_offset == 4)
        assert logs[1].log_end_offset == 3
        following.quota.set_rate(LONG_MAX)
        await until(lambda: logs[1].log_end_offset == 4)

    monkeypatch.setattr(replica_fetcher, "HELD_BACK_S_MAX", 0.05)
    run(tmp_path, scenario)

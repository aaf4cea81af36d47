"""Three brokers' ends of replication, over real sockets, while leaderships change, connections end, brokers start again
and records are deleted, in any order: in the end all logs are the same, and hold all that was acknowledged at acks=all.

Who leads next is said by the test, among all, since all are in sync all the time.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any, cast

import pytest

from barnabas.broker.follower_replica import FollowerReplica
from barnabas.broker.follower_sessions import FollowerSessions
from barnabas.broker.inter_broker import inter_broker_apis
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.pipeline.call import BROKERS as BROKER_LISTENER
from barnabas.broker.pipeline.scheduler import CooperativeScheduler, RequestPipeline
from barnabas.broker.replica_fetcher_manager import ReplicaFetcherManager
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import topic_config
from barnabas.broker.topics import Topics
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.model import Acks, Node, TopicPartition
from barnabas.net.client_connection import dial
from barnabas.net.listener import Listener
from barnabas.net.server_connection import Limits
from barnabas.replication.in_sync import RemoteReplicas
from barnabas.storage import Log, LogConfig, OsFileSystem
from barnabas.storage.log_manager import LogManager
from tests.support.log_steps import append
from tests.support.replicas import TOPIC, TOPIC_ID, LedTopics, batch, batches, until

BROKERS = (1, 2, 3)
PARTITIONS = 3
STEPS = 60
BROKER_EPOCH = 9
CONFIG = topic_config(BrokerConfig(), {"segment.bytes": "20000"})
RESIGNED = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another epoch")


class OneBroker:
    """What a broker has to lead and to follow."""

    def __init__(self, folder: Path, broker_id: int) -> None:
        self.id = broker_id
        self.folder = folder
        self.logs = self.open_logs()
        self.led = LedTopics()
        self.listener = Listener(Limits())
        self.port = self.listener.listen("127.0.0.1", 0)
        sessions = FollowerSessions(lambda below: below // 2)
        scheduler = CooperativeScheduler(SYSTEM_CLOCK.monotonic)
        topics, replicas = cast(Topics, self.led), cast(ReplicaManager, self.led)
        self.listener.accept(
            RequestPipeline(
                inter_broker_apis(
                    topics, replicas, sessions, lambda *_: None, cast("Any", None), scheduler, SYSTEM_CLOCK
                ),
                scheduler,
                BROKER_LISTENER,
            ).new_handler
        )
        config = BrokerConfig(replica_fetch_backoff_ms=100)
        own = broker_id, BROKER_EPOCH
        self.manager = ReplicaFetcherManager(config, SYSTEM_CLOCK, dial, lambda _leader: own, self.store_log_starts)
        self.following: dict[int, FollowerReplica] = {}

    def open_logs(self) -> LogManager:
        return LogManager(self.folder, LogConfig(), SYSTEM_CLOCK, OsFileSystem(), broker_id=self.id)

    async def store_log_starts(self) -> None:
        self.logs.remove_deleted_records()

    def log(self, number: int) -> Log:
        return self.logs.restore(TopicPartition(TOPIC, number), CONFIG.log, TOPIC_ID)

    def lead(self, number: int, epoch: int) -> None:
        log = self.log(number)
        end, high_watermark, now_s = log.log_end_offset, log.high_watermark, SYSTEM_CLOCK.monotonic()
        followers = RemoteReplicas(self.id, epoch, BROKERS, BROKERS, end, high_watermark, now_s)
        partition = LeaderReplica(log.partition, log, epoch, CONFIG, leader=self.id, followers=followers)
        self.led.partitions[number] = partition

    def follow(self, number: int, epoch: int, leader: OneBroker) -> None:
        log = self.log(number)
        follower = FollowerReplica(log.partition, log, epoch, CONFIG, leader=leader.id, topic_id=TOPIC_ID.bytes)
        self.following[number] = follower
        self.manager.follow(follower, Node(leader.id, "127.0.0.1", leader.port))

    async def leave(self, number: int) -> None:
        follower = self.following.pop(number, None)
        if follower is not None:
            self.manager.unfollow(follower)
        replica = follower or self.led.partitions.pop(number, None)
        if replica is not None:
            replica.resign(RESIGNED)
            await replica.end()

    def close(self) -> None:
        self.manager.close()
        self.listener.close()


class Cluster:
    """Three brokers, what leads where, and what producers were told."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.chance = chance
        self.brokers = {each: OneBroker(folder / str(each), each) for each in BROKERS}
        self.leaders: dict[int, tuple[int, int]] = {}
        self.acknowledged: list[tuple[int, int, bytes]] = []
        self.waiting: set[asyncio.Task[None]] = set()
        self.sent = 0

    def leader_of(self, number: int) -> OneBroker:
        return self.brokers[self.leaders[number][0]]

    async def hand_over(self, number: int) -> None:
        """Let somebody lead, who was told so sooner or later than the others."""
        leader, epoch = self.chance.choice(BROKERS), self.leaders.get(number, (0, -1))[1] + 1
        self.leaders[number] = leader, epoch
        for each in self.chance.sample(BROKERS, len(BROKERS)):
            await self.brokers[each].leave(number)
            await asyncio.sleep(self.chance.random() * 0.01)
            self.take_role(each, number)

    def take_role(self, broker: int, number: int) -> None:
        leader, epoch = self.leaders[number]
        if broker == leader:
            self.brokers[broker].lead(number, epoch)
        else:
            self.brokers[broker].follow(number, epoch, self.brokers[leader])

    async def start_again(self) -> None:
        broker = self.brokers[self.chance.choice(BROKERS)]
        for number in range(PARTITIONS):
            await broker.leave(number)
        if self.chance.random() < 0.5:
            broker.logs.close()
        else:
            broker.logs.checkpoint_high_watermarks()
            for log in broker.logs.all().values():
                log.abandon()
            broker.logs.abandon()
        broker.logs = broker.open_logs()
        for number in range(PARTITIONS):
            if self.leaders[number][0] == broker.id:
                await self.hand_over(number)
            else:
                self.take_role(broker.id, number)

    async def produce(self, number: int) -> None:
        partition = self.leader_of(number).led.partitions[number]
        for _ in range(self.chance.randint(1, 8)):
            self.sent += 1
            value = b"%012d" % self.sent * self.chance.choice([1, 1, 30, 300])
            acknowledging = self.acknowledge(partition, value)
            if self.chance.random() < 0.5:
                await acknowledging
            else:
                task = asyncio.create_task(acknowledging)
                self.waiting.add(task)
                task.add_done_callback(self.waiting.discard)

    async def acknowledge(self, partition: LeaderReplica, value: bytes) -> None:
        try:
            info = await append(partition, batch(value))
            waiter = partition.when_acknowledged(info, Acks.ALL)
            if waiter is not None:
                await waiter
        except BarnabasError:
            return
        self.acknowledged.append((partition.topic_partition.partition, info.base_offset, value))

    async def step(self) -> None:
        number, dice = self.chance.randrange(PARTITIONS), self.chance.random()
        if dice < 0.05:
            await self.start_again()
        elif dice < 0.3:
            await self.hand_over(number)
        elif dice < 0.4:
            for connection in list(self.chance.choice(list(self.brokers.values())).listener._connections):
                connection.close()
        elif dice < 0.45:
            partition = self.leader_of(number).led.partitions[number]
            log = partition.log
            await partition.delete_records_before(self.chance.randint(log.log_start_offset, log.high_watermark))
        else:
            await self.produce(number)

    def is_at_rest(self) -> bool:
        logs = [self.leader_of(number).log(number) for number in range(PARTITIONS)]
        return not self.waiting and all(log.high_watermark == log.log_end_offset for log in logs)

    def check(self) -> None:
        for number in range(PARTITIONS):
            logs = [broker.log(number) for broker in self.brokers.values()]
            start = max(log.log_start_offset for log in logs)
            contents = [{at: data for at, data in batches(log).items() if at >= start} for log in logs]
            assert contents[0] == contents[1] == contents[2]
            for where, offset, value in self.acknowledged:
                assert where != number or offset < start or value in contents[0][offset]


@pytest.mark.parametrize("seed", [1, 2])
def test_replicas_stay_one(tmp_path: Path, seed: int) -> None:
    async def scenario() -> None:
        cluster = Cluster(tmp_path, random.Random(seed))
        try:
            for number in range(PARTITIONS):
                await cluster.hand_over(number)
            for _ in range(STEPS):
                await cluster.step()
            await until(cluster.is_at_rest)
            cluster.check()
            assert cluster.acknowledged
        finally:
            for broker in cluster.brokers.values():
                broker.close()
            for broker in cluster.brokers.values():
                broker.logs.close()

    asyncio.run(scenario())

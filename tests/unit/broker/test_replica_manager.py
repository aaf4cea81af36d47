"""The replicas of a broker: found by requests, opened, given roles, moved and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.broker_events import Events, LifeCountersDue, RoleBegan, RoleEnded
from barnabas.broker.disk_work import DiskWork
from barnabas.broker.follower_replica import FollowerReplica
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.replica_logs import ReplicaLogs
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import topic_config
from barnabas.clock import ManualClock
from barnabas.coordination.topic_metadata_store import PartitionInfo, TopicInfo
from barnabas.coordination.values import PartitionState
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.storage import LogConfig, LogManager, OsFileSystem

TOPIC_ID = bytes(15) + b"\7"
OWN, OTHER = 1, 2
CONFIG = topic_config(BrokerConfig(), {})
LED, FOLLOWED, ELSEWHERE = range(3)


async def at_once(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    return function(*arguments, **named)


def partition(leader: int, *replicas: int, epoch: int = 0) -> PartitionInfo:
    return PartitionInfo(replicas, PartitionState(leader, epoch, replicas), epoch)


class Stage:
    """Broker 1, which leads the first partition of a topic and follows the second."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.events = ManualClock(), Events()
        self.metadata = MetadataCache(self.events)
        self.logs = LogManager(folder, LogConfig(), self.clock, OsFileSystem())
        self.replica_logs = ReplicaLogs(self.logs, at_once)
        work = DiskWork(at_once, at_once, at_once)
        self.replicas = ReplicaManager(
            OWN, self.partitions_of, self.metadata, self.replica_logs, work, self.clock, self.events
        )
        self.published: list[object] = []
        for kind in (RoleBegan, RoleEnded, LifeCountersDue):
            self.events.subscribe(kind, self.published.append)

    def partitions_of(self, name: str) -> Sequence[PartitionInfo] | None:
        topic = self.metadata.image.topics.get(name)
        return None if topic is None else topic.partitions

    def see(self, *partitions: PartitionInfo) -> TopicInfo:
        self.metadata.put_topic(TopicInfo("clicks", TOPIC_ID, partitions))
        return self.metadata.image.topics["clicks"]

    async def open(self) -> None:
        info = self.see(partition(OWN, OWN, OTHER), partition(OTHER, OTHER, OWN), partition(OTHER, OTHER))
        await self.replicas.restore(info, CONFIG)


def run(folder: Path, scenario: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    async def on_stage() -> None:
        stage = Stage(folder)
        try:
            async with asyncio.timeout(60):
                await stage.open()
                await scenario(stage)
        finally:
            stage.logs.abandon()

    asyncio.run(on_stage())


def test_requests_find_replicas_by_their_role(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        replicas = stage.replicas
        leader, follower = replicas.leader("clicks", LED), replicas.replica("clicks", FOLLOWED)
        assert isinstance(follower, FollowerReplica)
        assert replicas.all() == [leader, follower]
        assert replicas.leaders() == [leader]
        assert replicas.leaders_of_topic("clicks") == {LED: leader}
        assert replicas.get(TopicPartition("clicks", ELSEWHERE)) is None
        assert stage.published == [RoleBegan(leader), RoleBegan(follower)]

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("where", "code", "message"),
    [
        (("views", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "partition views-0 does not exist"),
        (("clicks", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "partition clicks-3 does not exist"),
        (("clicks", -1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "partition clicks--1 does not exist"),
        (("clicks", ELSEWHERE), ErrorCode.NOT_LEADER_OR_FOLLOWER, r"on brokers \[2\]"),
        (("clicks", FOLLOWED), ErrorCode.NOT_LEADER_OR_FOLLOWER, "led by broker 2"),
    ],
)
def test_error_names_what_is_not_led_here(
    tmp_path: Path, where: tuple[str, int], code: ErrorCode, message: str
) -> None:
    async def scenario(stage: Stage) -> None:
        with pytest.raises(ApiError, match=message) as raised:
            stage.replicas.leader(*where)
        assert raised.value.code is code

    run(tmp_path, scenario)


def test_replica_with_a_new_leader_has_a_new_role_over_the_same_log(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        before = stage.replicas.leader("clicks", LED)
        stage.see(partition(OTHER, OWN, OTHER, epoch=1), partition(OTHER, OTHER, OWN), partition(OTHER, OTHER))
        await stage.replicas.transition("clicks", [LED, FOLLOWED, ELSEWHERE])
        after = stage.replicas.replica("clicks", LED)
        assert isinstance(after, FollowerReplica)
        assert after.log is before.log
        assert before.has_ended
        assert stage.published[-2:] == [RoleEnded(before), RoleBegan(after)]

    run(tmp_path, scenario)


def test_log_that_is_newer_than_the_tree_makes_life_counters_due(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.replicas.replica("clicks", FOLLOWED).log.mark_newer_than_tree()
        await stage.replicas.transition("clicks", [FOLLOWED])
        assert stage.published[-1] == LifeCountersDue()

    run(tmp_path, scenario)


def test_new_partitions_are_opened_beside_those_that_are_there(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        before = stage.replicas.of_topic("clicks")
        known = [partition(OWN, OWN, OTHER), partition(OTHER, OTHER, OWN), partition(OTHER, OTHER)]
        await stage.replicas.open_new(stage.see(*known, partition(OWN, OWN)), CONFIG, stage.replica_logs.create)
        after = stage.replicas.of_topic("clicks")
        assert isinstance(after[3], LeaderReplica)
        assert {number: after[number] for number in before} == before

    run(tmp_path, scenario)


def test_replica_that_is_taken_out_is_not_found_before_it_has_resigned(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        leader = stage.replicas.leader("clicks", LED)
        assert stage.replicas.remove("clicks", [LED]) == [leader]
        assert stage.replicas.get(TopicPartition("clicks", LED)) is None
        assert not leader.has_ended
        await stage.replicas.resign(leader, "other brokers hold it now")
        assert leader.has_ended
        assert not leader.is_deleted

    run(tmp_path, scenario)


def test_deleted_topic_leaves_no_replica_and_no_folder(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        taken = stage.replicas.remove_topic_replicas("clicks")
        assert await stage.replicas.delete(taken) is None
        assert stage.replicas.all() == []
        assert all(each.is_deleted for each in taken)
        assert not any(stage.replica_logs.is_there(each.topic_partition) for each in taken)
        assert stage.published[-2:] == [RoleEnded(each) for each in taken]

    run(tmp_path, scenario)


def test_settings_reach_the_replicas_that_have_others(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        changed = topic_config(BrokerConfig(), {"max.message.bytes": "777"})
        stage.replicas.configure("clicks", changed)
        stage.replicas.configure("views", changed)
        assert {each.config.log.max_message_bytes for each in stage.replicas.all()} == {777}

    run(tmp_path, scenario)

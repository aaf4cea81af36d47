"""The snapshots of topics that groups receive."""

from __future__ import annotations

from pathlib import Path

from barnabas.broker.broker_events import TopicsDeleted
from barnabas.broker.group_service import GroupTopics
from tests.support.in_process_broker import Caller, run_with_broker


def test_a_snapshot_has_the_partitions_of_a_topic_and_the_racks_of_their_replicas(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        topics = GroupTopics(caller.broker.topics)
        found = topics.topic("clicks")
        assert found is not None
        assert (found.name, found.id) == ("clicks", caller.id_of("clicks"))
        assert [found.partition(number).partition for number in range(found.partition_count)] == [0, 1, 2]
        assert found.racks_of(0) == frozenset({"a"})
        assert topics.topic_id("clicks") == found.id
        assert topics.has_topic_id(found.id)

    run_with_broker(tmp_path, scenario, rack="a")


def test_a_snapshot_stays_the_same_when_its_topic_changes(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        broker, topics = caller.broker, GroupTopics(caller.broker.topics)
        before = topics.topic("clicks")
        assert before is not None
        first = before.partition(0)
        assert before.racks_of(0) == frozenset()
        await broker.topic_admin.grow("clicks", 5)
        after = topics.topic("clicks")
        assert after is not None
        assert (before.partition_count, after.partition_count) == (3, 5)
        assert after.partition(0) is first
        await broker.topic_admin.delete("clicks")
        assert topics.topic("clicks") is None
        assert topics.topic_id("clicks") is None
        assert not topics.has_topic_id(after.id)

    run_with_broker(tmp_path, scenario)


def test_nothing_is_kept_for_a_topic_that_was_deleted(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        broker = caller.broker
        topics = broker.groups.metadata
        found = topics.topic("clicks")
        assert found is not None
        assert found.partition(0).topic in topics._shared
        await broker.topic_admin.delete("clicks")
        await broker._events.deliver(TopicsDeleted({found.id}, {"clicks"}))
        assert not topics._shared

    run_with_broker(tmp_path, scenario)

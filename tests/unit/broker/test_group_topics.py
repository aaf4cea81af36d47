"""The snapshots of topics that groups receive."""

from __future__ import annotations

from pathlib import Path

from barnabas.broker.group_topics import GroupTopics
from tests.unit.broker.calling import Caller, run_with_broker


def test_a_snapshot_has_the_partitions_of_a_topic_and_the_racks_of_their_replicas(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        topics = GroupTopics(caller.broker.topics)
        found = topics.topic("clicks")
        assert found is not None
        assert (found.name, found.id) == ("clicks", caller.id_of("clicks"))
        assert [where.partition for where in found.partitions] == [0, 1, 2]
        assert found.racks == (frozenset({"a"}),) * 3
        assert topics.has_topic_id(found.id)

    run_with_broker(tmp_path, scenario, rack="a")


def test_a_snapshot_stays_the_same_until_its_topic_changes(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        broker, topics = caller.broker, GroupTopics(caller.broker.topics)
        before = topics.topic("clicks")
        assert before is not None
        assert before.racks == ()
        assert topics.topic("clicks") is before
        await broker.topic_admin.grow("clicks", 5)
        after = topics.topic("clicks")
        assert after is not None
        assert (len(before.partitions), len(after.partitions)) == (3, 5)
        await broker.topic_admin.delete("clicks")
        assert topics.topic("clicks") is None
        assert not topics.has_topic_id(after.id)

    run_with_broker(tmp_path, scenario)

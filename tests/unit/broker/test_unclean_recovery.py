"""Brokers whose machines lost their memory, one of them or all at once: who leads then, and with which records."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from barnabas.broker.follower_replica import FollowerReplica
from barnabas.coordination import paths
from barnabas.coordination.values import NO_LEADER, PartitionState, Remnant
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder
from tests.support.topics_cluster import CLICKS, Cluster, Node, Run, append


def append_to_replica(node: Node, count: int) -> None:
    """Let a replica have records as if it had fetched them."""
    for _ in range(count):
        builder = BatchBuilder()
        builder.append(1_000, None, b"value")
        node.topics.replicas.replica(*CLICKS).log.append(builder.build(), 0)


async def begin(cluster: Cluster, *counts: int) -> None:
    """Let brokers 1, 2 and so on have so many of the records of a partition on their disks, and lose all memory."""
    nodes = await cluster.start(*range(1, len(counts) + 1))
    await nodes[0].topic_admin.create("clicks", 1, {}, assignment=[[node.id for node in nodes]])
    await cluster.follow()
    for node, count in zip(nodes, counts, strict=True):
        append_to_replica(node, count)
    for node in nodes:
        await cluster.lose(node)


async def come_back(cluster: Cluster, broker_id: int, *, lost_memory: bool = True) -> Node:
    node = await Node(cluster, broker_id).start(lost_memory=lost_memory)
    cluster.nodes.append(node)
    await cluster.follow()
    return node


@pytest.mark.parametrize("order", [(1, 2, 3), (2, 3, 1), (3, 1, 2), (2, 1, 3)])
def test_of_all_that_lost_memory_the_one_with_the_most_leads(
    run: Run, order: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await begin(cluster, 3, 5, 4)
        for broker_id in order[:-1]:
            node = await come_back(cluster, broker_id)
            assert node.topics.image.leader_of(node.info()) == NO_LEADER
        await come_back(cluster, order[-1])
        for node in cluster.nodes:
            assert node.info().state == PartitionState(2, node.info().state.leader_epoch, (2,))
            assert node.leads() == (node.id == 2)
        assert "broker 2 has the most records and leads, with log end offset 5" in caplog.text

    run(scenario)


@pytest.mark.parametrize("order", [(1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2)])
def test_what_was_acknowledged_since_the_trees_backup_is_kept(
    run: Run, order: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """In the backup all are in sync. Since then broker 2 has led alone, in two later epochs: whoever leads first by the
    old tree begins the first of them once more."""

    async def scenario(cluster: Cluster) -> None:
        await begin(cluster, 3, 3, 3)
        path = paths.partition_state(CLICKS)
        backup = cluster.tree.get(path)[0]
        for _ in range(2):
            node = await Node(cluster, 2).start()
            assert node.leads()
            append(node)
            node.die()
        cluster.tree.set(path, backup, cluster.tree.get(path)[1].version)
        for broker_id in order:
            await come_back(cluster, broker_id, lost_memory=False)
        for node in cluster.nodes:
            assert node.info().state.leader == 2
            assert node.leads() == (node.id == 2)
        assert (
            next(node for node in cluster.nodes if node.leads()).topics.replicas.leader(*CLICKS).log.log_end_offset == 5
        )
        assert (
            "the metadata store is older than the logs of this broker; all replicas must report their logs: clicks-0"
            in caplog.text
        )

    run(scenario)


def test_partition_is_led_whose_folders_had_not_come_to_any_disk(run: Run) -> None:
    """Nobody can put back what never was: it would be waited for ever."""

    async def scenario(cluster: Cluster) -> None:
        await begin(cluster, 0, 0, 0)
        for broker_id in (1, 2, 3):
            shutil.rmtree(cluster.folder / str(broker_id) / "clicks-0")
            await come_back(cluster, broker_id)
        assert [node.leads() for node in cluster.nodes].count(True) == 1

    run(scenario)


@pytest.mark.parametrize("order", [(1, 2, 3), (2, 3, 1), (3, 1, 2)])
def test_where_no_replica_has_a_record_left_no_offset_is_used_twice(
    run: Run, order: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """No segment was ever flushed; the checkpoints say how far each replica could be read."""

    async def scenario(cluster: Cluster) -> None:
        await begin(cluster, 3, 5, 4)
        for broker_id, readable in ((1, 3), (2, 5), (3, 4)):
            data = cluster.folder / str(broker_id)
            for path in (data / "clicks-0").iterdir():
                if path.name != "partition.metadata":
                    path.unlink()
            (data / "replication-offset-checkpoint").write_text(f"0\n1\nclicks 0 {readable}\n")
        for broker_id in order:
            await come_back(cluster, broker_id)
        (leader,) = [node for node in cluster.nodes if node.leads()]
        assert leader.id == 2
        append(leader)
        log = leader.topics.replicas.leader(*CLICKS).log
        assert (log.log_start_offset, log.log_end_offset) == (5, 6)
        assert "no replica has any records; broker 2 leads, and its log continues at offset 5" in caplog.text

    run(scenario)


def test_log_that_lost_all_its_records_does_not_lead_where_another_has_some(run: Run) -> None:
    """Not at its second start either, when the epochs of the lost records are still on the disk."""

    async def scenario(cluster: Cluster) -> None:
        await begin(cluster, 5, 2)
        data = cluster.folder / "1"
        for path in (data / "clicks-0").glob("0*"):
            path.unlink()
        (data / "clicks-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        (data / "replication-offset-checkpoint").write_text("0\n1\nclicks 0 5\n")
        await cluster.lose(await come_back(cluster, 1))
        for broker_id in (1, 2):
            await come_back(cluster, broker_id)
        assert [node.leads() for node in cluster.nodes] == [False, True]

    run(scenario)


def test_log_that_was_on_a_disk_is_waited_for(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        await begin(cluster, 3, 0, 0)
        one = cluster.folder / "1"
        (one / "clicks-0").rename(one / "elsewhere")
        # As the broker stores it now and then.
        (one / "recovery-point-offset-checkpoint").write_text("0\n1\nclicks 0 3\n")
        for broker_id in (1, 2, 3):
            await come_back(cluster, broker_id)
        assert not any(node.leads() for node in cluster.nodes)

    run(scenario)


def test_log_that_a_folder_had_which_another_stands_for_is_waited_for(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        await begin(cluster, 3, 0, 0)
        (cluster.folder / "1").rename(cluster.folder / "elsewhere")
        for broker_id in (1, 2, 3):
            await come_back(cluster, broker_id)
        assert not any(node.leads() for node in cluster.nodes)

    run(scenario)


def test_one_that_kept_its_memory_leads_though_others_have_longer_logs(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        await begin(cluster, 5, 5, 4)
        await come_back(cluster, 1)
        await come_back(cluster, 2)
        three = await come_back(cluster, 3, lost_memory=False)
        assert three.leads()
        assert three.info().state == PartitionState(3, three.info().state.leader_epoch, (3,))

    run(scenario)


def test_who_lost_memory_while_a_leader_lives_is_not_waited_for_later(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        await cluster.lose(two)
        two = await come_back(cluster, 2)
        state = one.info().state
        assert (state.leader, state.isr, state.lost_memory) == (1, (1,), (Remnant(2),))
        assert isinstance(two.topics.replicas.replica(*CLICKS), FollowerReplica)

    run(scenario)


def test_log_with_a_hole_counts_as_far_as_it_is_sound(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        await begin(cluster, 5, 4, 3)
        for broker_id in (1, 2, 3):
            node = Node(cluster, broker_id)
            if broker_id == 1:
                # Its end is lost, and stands in two checkpoints.
                lose_the_end(node, 2)
            cluster.nodes.append(await node.start(lost_memory=broker_id != 1))
            await cluster.follow()
        assert [node.leads() for node in cluster.nodes] == [False, True, False]

    run(scenario)


def test_broker_that_leads_with_a_hole_does_not_cut_there_later(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        await begin(cluster, 5)
        node = Node(cluster, 1)
        lose_the_end(node, 2)
        cluster.nodes.append(await node.start())
        log = node.topics.replicas.leader(*CLICKS).log
        assert log.log_end_offset == 5
        assert log.lost_from is None

    run(scenario)


def lose_the_end(node: Node, count: int) -> None:
    """Cut records off a stopped broker's log whose checkpoints say that they are durable, and readable."""
    data = node.cluster.folder / str(node.id)
    (path,) = (data / "clicks-0").glob("*.log")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 5 * (5 - count)])
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (data / name).write_text("0\n1\nclicks 0 5\n")


def test_leader_that_registers_anew_and_cannot_use_its_log_leaves_it_to_others(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, _ = await cluster.start(1, 2, 3)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2, 3]])
        await one.topic_admin.create("alone", 1, {}, assignment=[[1]])
        await cluster.follow()
        append(one)
        one.topics.replicas.leader(*CLICKS).log._health.go_offline("append", OSError("broken"))
        # Its session ends at that moment, and the next one begins before anybody has noticed.
        one.watch.restart()
        await cluster.follow()
        assert two.leads()
        assert two.info().state.isr == (2, 3)
        assert one.leads(TopicPartition("alone", 0))

    run(scenario)


def test_all_tell_at_the_same_time(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        await begin(cluster, 3, 5, 4)
        nodes = [Node(cluster, broker_id) for broker_id in (1, 2, 3)]
        cluster.nodes += await asyncio.gather(*(node.start(lost_memory=True) for node in nodes))
        await cluster.follow()
        assert [node.leads() for node in nodes] == [False, True, False]

    run(scenario)

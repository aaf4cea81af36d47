"""A tree from a backup: whoever starts first, and however epochs were counted since, nothing acknowledged is lost."""

from __future__ import annotations

import shutil

import pytest

from barnabas.broker.metadata_restore import PRODUCER_IDS_PASSED_OVER, prepare_restored_store
from barnabas.coordination import paths, reassignments, topic_metadata_store
from barnabas.coordination.values import ReplicaSet
from barnabas.errors import CoordinationError
from barnabas.records import BatchBuilder
from tests.support.topics_cluster import CLICKS, Cluster, Node, Run, append
from tests.unit.broker.test_unclean_recovery import begin, come_back


@pytest.mark.parametrize("order", [(1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2)])
def test_replica_with_the_most_leads_in_an_epoch_that_no_log_knows(run: Run, order: tuple[int, ...]) -> None:
    async def scenario(cluster: Cluster) -> None:
        await begin(cluster, 3, 3, 3)
        path = paths.partition_state(CLICKS)
        backup = cluster.tree.get(path)[0]
        node = await Node(cluster, 2).start()
        append(node, 2)
        last_epoch = node.info().state.leader_epoch
        node.die()
        cluster.tree.set(path, backup, cluster.tree.get(path)[1].version)
        assert prepare_restored_store(cluster.tree) == 1
        for broker_id in order:
            assert not any(node.leads() for node in cluster.nodes)
            await come_back(cluster, broker_id, lost_memory=False)
        (leader,) = (node for node in cluster.nodes if node.leads())
        assert leader.id == 2
        assert leader.topics.replicas.leader(*CLICKS).log.log_end_offset == 5
        assert leader.info().state.leader_epoch > last_epoch

    run(scenario)


def test_sole_replica_leads_with_what_it_has(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        await begin(cluster, 3)
        assert prepare_restored_store(cluster.tree) == 0
        node = await come_back(cluster, 1, lost_memory=False)
        assert node.leads()

    run(scenario)


def test_producer_ids_go_on_behind_all_that_were_given_out(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        before = topic_metadata_store.take_producer_ids(cluster.tree, 1)
        prepare_restored_store(cluster.tree)
        assert topic_metadata_store.take_producer_ids(cluster.tree, 1).start >= before.stop + PRODUCER_IDS_PASSED_OVER

    run(scenario)


def test_nothing_is_changed_while_a_broker_is_registered(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        (node,) = await cluster.start(1)
        await node.topic_admin.create("clicks", 1, {}, assignment=[[1]])
        with pytest.raises(CoordinationError, match=r"brokers \[1\] are registered; stop them first"):
            prepare_restored_store(cluster.tree)
        assert node.info().state.leader == 1

    run(scenario)


@pytest.mark.parametrize("is_told", [True, False])
def test_note_that_a_replica_is_to_go_deletes_nothing_that_came_back_since(
    run: Run, caplog: pytest.LogCaptureFixture, is_told: bool
) -> None:
    """In the backup broker 1 is away, and to delete what has moved to broker 4. Since then that has moved back."""

    async def scenario(cluster: Cluster) -> None:
        one, _four = await cluster.start(1, 4)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1]])
        append(one)
        for epoch in (0, 4):
            builder = BatchBuilder()
            builder.append(1_000, None, b"value")
            one.topics.replicas.leader(*CLICKS).log.append(builder.build(), epoch)
        topic_id = one.topics.image.topics["clicks"].topic_id
        for node in list(cluster.nodes):
            await cluster.lose(node)
        moved = {0: ReplicaSet((4,))}
        reassignments.begin_reassignments(cluster.tree, "clicks", topic_id, lambda _: moved)
        note = paths.removed_replica(topic_id, 0, 1)
        cluster.tree.create(note, b'{"version":1,"name":"clicks"}')
        if is_told:
            prepare_restored_store(cluster.tree)
            assert cluster.tree.exists(note) is None
        await cluster.start(4)
        (one,) = await cluster.start(1)
        assert one.folders() == ["clicks-0"]
        assert one.logs.all()[CLICKS].log_end_offset == 3
        assert ("the metadata store is older than the log" in caplog.text) is not is_told
        assert reassignments.read_removals(cluster.tree, 1) == []

    run(scenario)


def test_log_that_had_moved_since_the_backup_is_named_and_leads_once_it_is_a_replica_again(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """As docs/how-to/operations.md has it: the tree names brokers 1 and 2, and broker 3 has the records."""

    async def scenario(cluster: Cluster) -> None:
        await begin(cluster, 0, 0, 3)
        for away in (1, 2):
            shutil.rmtree(cluster.folder / str(away) / "clicks-0")
        found = topic_metadata_store.read_topic(cluster.tree, "clicks")
        assert found is not None
        by_backup = {0: ReplicaSet((1, 2))}
        reassignments.begin_reassignments(cluster.tree, "clicks", found.topic_id, lambda _: by_backup)
        prepare_restored_store(cluster.tree)
        (three,) = await cluster.start(3)
        assert "clicks-0 has replicas on brokers [1, 2] in the metadata store, with leader epoch 1" in caplog.text
        assert await three.topic_admin.reassign("clicks", {0: [3, 1, 2]}) == {}
        await cluster.follow()
        assert not three.leads()
        await cluster.lose(three)
        prepare_restored_store(cluster.tree)
        for broker_id in (1, 2, 3):
            node = await come_back(cluster, broker_id, lost_memory=False)
        assert node.leads()
        assert node.topics.replicas.leader(*CLICKS).log.log_end_offset == 3

    run(scenario)

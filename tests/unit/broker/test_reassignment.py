"""Partitions that move between several brokers over one tree. Here nothing is fetched: the tests say who has what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from barnabas.broker.broker_events import Events
from barnabas.broker.follower_replica import FollowerReplica
from barnabas.broker.isr_updates import IsrUpdates
from barnabas.broker.partition_reassignment import PartitionReassignment
from barnabas.coordination import paths, reassignments, topic_metadata_store
from barnabas.coordination.metadata_store import MetadataStoreUnavailableError, NodeError, Operation, TooLargeError
from barnabas.coordination.reassignments import End
from barnabas.coordination.values import PartitionState, ReplicaSet
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import Acks, TopicPartition
from barnabas.replication.in_sync import RemoteReplicas
from tests.support.log_steps import append_now
from tests.support.replicas import batch
from tests.support.topics_cluster import CLICKS, Cluster, Node, Run, append


class Leader:
    """What a leader does about its followers."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.reassignment = PartitionReassignment(node.topics, node.topic_admin, node.id)
        self.isr_updates = IsrUpdates(node.topics, node.cluster.clock, 10.0, Events())

    async def hear_from(self, *followers: int, where: TopicPartition = CLICKS) -> None:
        """Let followers say that they have everything, and take them in."""
        partition = self.node.topics.replicas.leader(*where)
        now_s = self.node.cluster.clock.monotonic()
        for each in followers:
            epoch = self.node.topics.image.brokers[each].epoch
            partition.on_follower_fetch(each, epoch, partition.log.log_end_offset, now_s)
        await self.isr_updates.update([partition])


def followers_of(node: Node, where: TopicPartition = CLICKS) -> RemoteReplicas:
    followers = node.topics.replicas.leader(*where).followers
    assert followers is not None
    return followers


async def go_on(cluster: Cluster) -> None:
    """Let all leaders do what they can, and all brokers follow."""
    for _ in range(4):
        for node in cluster.nodes:
            await PartitionReassignment(node.topics, node.topic_admin, node.id).advance()
        await cluster.follow()


async def begin(cluster: Cluster, *ids: int, replicas: Sequence[int]) -> list[Node]:
    nodes = await cluster.start(*ids)
    await nodes[0].topic_admin.create("clicks", 1, {}, assignment=[replicas])
    await cluster.follow()
    return nodes


def notes(cluster: Cluster) -> list[int]:
    """The brokers that are to delete a replica."""
    return [each for each in range(9) if reassignments.read_removals(cluster.tree, each)]


def test_partition_moves_when_the_new_replica_is_in_sync_and_not_before(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, three = await begin(cluster, 1, 2, 3, replicas=[1, 2])
        append(one, 3)
        assert await three.topic_admin.reassign("clicks", {0: [1, 3]}) == {}
        await go_on(cluster)
        for node in cluster.nodes:
            assert node.info().replica_set == ReplicaSet((1, 3, 2), adding=(3,), removing=(2,))
            assert node.topics.image.moving == [CLICKS]
        assert isinstance(three.topics.replicas.replica(*CLICKS), FollowerReplica)
        assert two.folders() == ["clicks-0"]
        await Leader(one).hear_from(2, 3)
        await go_on(cluster)
        for node in cluster.nodes:
            assert node.info().replica_set == ReplicaSet((1, 3))
            assert node.info().state == PartitionState(1, 1, (1, 3))
            assert not node.topics.image.moving
        assert [each.folders() for each in cluster.nodes] == [["clicks-0"], [], ["clicks-0"]]
        assert notes(cluster) == []
        followers = one.topics.replicas.leader(*CLICKS).followers
        assert followers is not None
        assert followers.replicas == (1, 3)
        assert not followers.is_changing

    run(scenario)


def test_what_a_replica_asked_for_before_it_went_is_refused_once_it_is_back(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, _three = await begin(cluster, 1, 2, 3, replicas=[1, 2])
        append(one, 3)
        epoch = one.topics.replicas.leader(*CLICKS).leader_epoch
        for target in ([1, 3], [1, 3, 2]):
            assert await one.topic_admin.reassign("clicks", {0: target}) == {}
            await cluster.follow()
            if 2 not in target:
                await Leader(one).hear_from(2, 3)
            await go_on(cluster)
        assert isinstance(two.topics.replicas.replica(*CLICKS), FollowerReplica)
        assert two.topics.replicas.replica(*CLICKS).log.log_end_offset == 0
        with pytest.raises(ApiError, match="FENCED_LEADER_EPOCH"):
            one.topics.replicas.leader(*CLICKS).check_epoch(epoch)

    run(scenario)


def test_who_waits_for_an_acknowledgement_when_a_move_ends_gets_it_of_the_replicas_that_stay(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, _two, three = await begin(cluster, 1, 2, 3, replicas=[1, 2])
        await three.topic_admin.reassign("clicks", {0: [1, 3]})
        await go_on(cluster)
        await Leader(one).hear_from(2, 3)
        partition = one.topics.replicas.leader(*CLICKS)
        waiting = partition.when_acknowledged(append_now(partition, bytes(batch())), Acks.ALL)
        assert waiting is not None
        await go_on(cluster)
        assert one.info().replica_set == ReplicaSet((1, 3))
        assert one.topics.replicas.leader(*CLICKS).leader_epoch == partition.leader_epoch + 1
        assert not waiting.done()
        await Leader(one).hear_from(3)
        assert await waiting is None
        assert one.topics.replicas.leader(*CLICKS).log.log_end_offset == 1

    run(scenario)


def test_leader_that_is_to_go_hands_on_first_and_the_next_one_ends_the_move(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, _two, three = await begin(cluster, 1, 2, 3, replicas=[1, 2])
        await one.topic_admin.reassign("clicks", {0: [3, 2]})
        await cluster.follow()
        await Leader(one).hear_from(2, 3)
        await go_on(cluster)
        assert three.leads()
        assert three.info().state == PartitionState(3, 2, (3, 2))
        assert one.info().replica_set == ReplicaSet((3, 2))
        assert one.folders() == []

    run(scenario)


def test_next_leader_goes_on_with_a_move_when_the_leader_dies(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, _three = await begin(cluster, 1, 2, 3, replicas=[1, 2])
        await one.topic_admin.reassign("clicks", {0: [2, 3]})
        await cluster.follow()
        await cluster.lose(one)
        await cluster.follow()
        assert two.leads()
        await go_on(cluster)
        assert two.info().replica_set.is_moving
        await Leader(two).hear_from(3)
        await go_on(cluster)
        assert two.info().replica_set == ReplicaSet((2, 3))
        assert notes(cluster) == [1]

    run(scenario)


def test_broker_that_was_away_deletes_its_replica_when_it_comes_back(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, _three = await begin(cluster, 1, 2, 3, replicas=[1, 2])
        await cluster.lose(two)
        await one.topic_admin.reassign("clicks", {0: [1, 3]})
        await cluster.follow()
        await Leader(one).hear_from(3)
        await go_on(cluster)
        assert one.info().replica_set == ReplicaSet((1, 3))
        assert two.folders() == ["clicks-0"]
        (two,) = await cluster.start(2)
        assert two.folders() == []
        assert notes(cluster) == []

    run(scenario)


def test_broker_that_was_away_and_is_a_replica_again_keeps_what_it_has(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, _three = await begin(cluster, 1, 2, 3, replicas=[1, 2])
        await cluster.lose(two)
        await one.topic_admin.reassign("clicks", {0: [1, 3]})
        await cluster.follow()
        await Leader(one).hear_from(3)
        await go_on(cluster)
        # It is a replica again before it has come back.
        topic, again = one.topics.image.topics["clicks"], ReplicaSet((1, 3, 2), adding=(2,))
        reassignments.begin_reassignments(cluster.tree, "clicks", topic.topic_id, lambda _: {0: again})
        two = await Node(cluster, 2).start()
        cluster.nodes.append(two)
        assert two.folders() == ["clicks-0"]
        assert notes(cluster) == []
        assert isinstance(two.topics.replicas.replica(*CLICKS), FollowerReplica)

    run(scenario)


def test_broker_that_never_heard_that_it_was_to_hold_a_replica_takes_its_name_out(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, _two, three = await begin(cluster, 1, 2, 3, replicas=[1, 2])
        cluster.nodes.remove(three)
        await one.topic_admin.reassign("clicks", {0: [1, 3]})
        await one.topic_admin.reassign("clicks", {0: None})
        await go_on(cluster)
        assert set(one.info().replicas) == {1, 2}
        assert notes(cluster) == [3]
        cluster.nodes.append(three)
        await cluster.follow()
        assert three.folders() == []
        assert notes(cluster) == []

    run(scenario)


def test_replica_of_which_nobody_says_that_it_is_to_go_is_left_on_the_disk(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, _three = await begin(cluster, 1, 2, 3, replicas=[1, 2])
        reassignments.begin_reassignments(
            cluster.tree,
            "clicks",
            one.topics.image.topics["clicks"].topic_id,
            lambda _: {0: ReplicaSet((1, 3))},
        )
        await cluster.follow()
        assert two.folders() == ["clicks-0"]
        with pytest.raises(Exception, match="has replicas on brokers"):
            two.topics.replicas.replica(*CLICKS)

    run(scenario)


def test_move_that_is_taken_back_ends_where_it_began(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, _two, three = await begin(cluster, 1, 2, 3, replicas=[1, 2])
        assert (await one.topic_admin.reassign("clicks", {0: None}))[0].code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        await one.topic_admin.reassign("clicks", {0: [2, 3]})
        await cluster.follow()
        assert three.folders() == ["clicks-0"]
        assert await three.topic_admin.reassign("clicks", {0: None}) == {}
        await cluster.follow()
        await go_on(cluster)
        assert set(one.info().replicas) == {1, 2}
        assert not one.info().replica_set.is_moving
        assert three.folders() == []

    run(scenario)


def test_other_move_takes_the_place_of_one_that_is_under_way(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, _two, three, four = await begin(cluster, 1, 2, 3, 4, replicas=[1, 2])
        await one.topic_admin.reassign("clicks", {0: [1, 3]})
        await cluster.follow()
        leader = Leader(one)
        await leader.hear_from(2, 3)
        await four.topic_admin.reassign("clicks", {0: [1, 4]})
        await cluster.follow()
        await go_on(cluster)
        assert one.info().replica_set.is_moving
        await leader.hear_from(2, 3, 4)
        await go_on(cluster)
        assert one.info().replica_set == ReplicaSet((1, 4))
        assert one.info().state.isr == (1, 4)
        assert three.folders() == []

    run(scenario)


def test_other_order_is_in_force_at_once(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await begin(cluster, 1, 2, replicas=[1, 2])
        assert await two.topic_admin.reassign("clicks", {0: [2, 1]}) == {}
        assert two.info().replica_set == ReplicaSet((2, 1))
        assert one.topics.preferred_replica(CLICKS) == 1
        await cluster.follow()
        assert one.topics.preferred_replica(CLICKS) == 2

    run(scenario)


def test_sole_replica_gets_others_and_is_left_alone_again(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await begin(cluster, 1, 2, replicas=[1])
        append(one, 5)
        await one.topic_admin.reassign("clicks", {0: [1, 2]})
        await go_on(cluster)
        assert one.info().state == PartitionState(1, 1, (1,))
        assert one.topics.replicas.leader(*CLICKS).log.high_watermark == 5
        assert one.info().replica_set.is_moving
        await Leader(one).hear_from(2)
        await go_on(cluster)
        assert two.info().replica_set == ReplicaSet((1, 2))
        await two.topic_admin.reassign("clicks", {0: [2]})
        await cluster.follow()
        await go_on(cluster)
        assert two.leads()
        assert two.info().replica_set == ReplicaSet((2,))
        assert two.info().state.isr == (2,)
        assert two.topics.replicas.leader(*CLICKS).followers is None
        assert one.folders() == []

    run(scenario)


def test_replica_that_has_gone_is_not_taken_in_by_a_leader_that_does_not_know_it_yet(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, _three = await begin(cluster, 1, 2, 3, replicas=[1, 2, 3])
        leader = Leader(one)
        cluster.clock.advance(20)
        await leader.hear_from(3)
        assert one.info().state.isr == (1, 3)
        topic = one.topics.image.topics["clicks"]
        reassignments.begin_reassignments(cluster.tree, "clicks", topic.topic_id, lambda _: {0: ReplicaSet((1, 3))})
        await leader.hear_from(2, 3)
        assert topic_metadata_store.read_partition_state(cluster.tree, CLICKS)[0].isr == (1, 3)
        await cluster.follow()
        await leader.isr_updates.update([one.topics.replicas.leader(*CLICKS)])
        assert one.info().state.isr == (1, 3)
        assert two.info().replicas == (1, 3)

    run(scenario)


def test_leader_whose_answer_is_lost_reads_what_there_is(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, _two, three = await begin(cluster, 1, 2, 3, replicas=[1, 2])
        await one.topic_admin.reassign("clicks", {0: [1, 3]})
        await cluster.follow()
        leader = Leader(one)
        await leader.hear_from(2, 3)
        true_end = reassignments.end_reassignments

        def lost(*arguments: object) -> None:
            true_end(*arguments)  # type: ignore[arg-type]
            raise MetadataStoreUnavailableError("the answer is lost")

        with monkeypatch.context() as patched:
            patched.setattr(reassignments, "end_reassignments", lost)
            with pytest.raises(MetadataStoreUnavailableError):
                await leader.reassignment.advance()
        followers = one.topics.replicas.leader(*CLICKS).followers
        assert followers is not None
        assert followers.is_changing
        await leader.reassignment.advance()
        assert not followers_of(one).is_changing
        assert one.info().replica_set == ReplicaSet((1, 3))
        await cluster.follow()
        assert three.info().state.isr == (1, 3)

    run(scenario)


def test_topic_that_cannot_be_read_keeps_no_other_from_its_end(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, _two, _three = await begin(cluster, 1, 2, 3, replicas=[1, 2])
        damaged = TopicPartition("a", 0)
        await one.topic_admin.create("a", 1, {}, assignment=[[1, 2]])
        for name in ("a", "clicks"):
            assert await one.topic_admin.reassign(name, {0: [1, 3]}) == {}
        await cluster.follow()
        leader = Leader(one)
        await leader.hear_from(2, 3, where=damaged)
        await leader.hear_from(2, 3)
        path = paths.topic("a")
        sound, _ = cluster.tree.get(path)
        cluster.tree.set(path, b"{")
        with pytest.raises(NodeError, match=path):
            await leader.reassignment.advance()
        assert one.info().replica_set == ReplicaSet((1, 3))
        assert not followers_of(one).is_changing
        assert followers_of(one, damaged).is_changing
        # Neither does it while it is in doubt.
        assert await one.topic_admin.reassign("clicks", {0: [1, 2]}) == {}
        await cluster.follow()
        await leader.hear_from(2, 3)
        with pytest.raises(NodeError, match=path):
            await leader.reassignment.advance()
        assert one.info().replica_set == ReplicaSet((1, 2))
        cluster.tree.set(path, sound)
        await leader.reassignment.advance()
        assert one.info(damaged).replica_set == ReplicaSet((1, 3))
        assert not followers_of(one, damaged).is_changing

    run(scenario)


def test_moves_end_in_steps_that_the_tree_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, count = Cluster(tmp_path), 10
    tree, true_multi = cluster.tree, cluster.tree.multi
    made = topic_metadata_store.create_topic(tree, "clicks", bytes(16), [(1, 2)] * count)
    moving = ReplicaSet((1, 3, 2), adding=(3,), removing=(2,))
    reassignments.begin_reassignments(tree, "clicks", made.topic_id, lambda _: dict.fromkeys(range(count), moving))
    steps = list[int]()

    def multi(operations: Sequence[Operation]) -> object:
        if len(operations) > operations_max:
            raise TooLargeError(operations[0].path)
        steps.append(len(operations))
        return true_multi(operations)

    monkeypatch.setattr(tree, "multi", multi)
    state = PartitionState(1, 0, (1, 3))
    ends = [End(TopicPartition("clicks", number), moving, state, 0) for number in range(count)]
    operations_max = 3
    with pytest.raises(TooLargeError):
        reassignments.end_reassignments(tree, made.topic_id, ends)
    operations_max = 8  # of two or three moves
    reassignments.end_reassignments(tree, made.topic_id, ends)
    found = topic_metadata_store.read_topic(tree, "clicks")
    assert found is not None
    assert {each.replica_set for each in found.partitions} == {ReplicaSet((1, 3))}
    assert len(steps) == count // 2
    cluster.close()


def test_moves_end_where_the_place_for_notes_is_gone(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    tree = cluster.tree
    made = topic_metadata_store.create_topic(tree, "clicks", bytes(16), [(1, 2)])
    moving = ReplicaSet((1, 3, 2), adding=(3,), removing=(2,))
    reassignments.begin_reassignments(tree, "clicks", made.topic_id, lambda _: {0: moving})
    if tree.exists(paths.REMOVED_REPLICAS):
        tree.delete(paths.REMOVED_REPLICAS)
    reassignments.end_reassignments(tree, made.topic_id, [End(CLICKS, moving, PartitionState(1, 0, (1, 3)), 0)])
    assert notes(cluster) == [2]
    cluster.close()


def test_many_partitions_that_move_cost_no_request_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, count = Cluster(tmp_path), 20
    tree, reads = cluster.tree, list[str]()
    made = topic_metadata_store.create_topic(tree, "clicks", bytes(16), [(1, 2)] * count)

    for name in ("exists", "get", "children", "subtree"):
        true_read = getattr(tree, name)

        def read(path: str, *arguments: object, true_read: Callable[..., object] = true_read) -> object:
            reads.append(path)
            return true_read(path, *arguments)

        monkeypatch.setattr(tree, name, read)
    true_get_all = tree.get_all

    def get_all(asked: Sequence[str]) -> object:
        got.extend(asked)
        return true_get_all(asked)

    def move(before: ReplicaSet, after: ReplicaSet, version: int) -> None:
        reassignments.begin_reassignments(tree, "clicks", made.topic_id, lambda _: dict.fromkeys(range(count), after))
        state = PartitionState(1, 0, after.target)
        places = [TopicPartition("clicks", number) for number in range(count)]
        reassignments.end_reassignments(tree, made.topic_id, [End(each, after, state, version) for each in places])

    got = list[str]()
    move(ReplicaSet((1, 2)), ReplicaSet((1, 3, 2), adding=(3,), removing=(2,)), 0)
    monkeypatch.setattr(tree, "get_all", get_all)
    assert len(reassignments.read_removals(tree, 2)) == count
    assert reassignments.read_removals(tree, 3) == []
    assert len(got) == count  # one's own alone
    # And back: the notes are taken back, and others written.
    move(ReplicaSet((1, 3)), ReplicaSet((1, 2, 3), adding=(2,), removing=(3,)), 1)
    assert notes(cluster) == [3]
    # Named already, and to be deleted once more.
    move(ReplicaSet((1, 2)), ReplicaSet((1, 4, 2), adding=(4,), removing=(2,)), 2)
    assert notes(cluster) == [2, 3]
    assert len(reads) < 2 * count
    cluster.close()


def test_move_does_not_end_where_another_was_asked_for_meanwhile(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    tree = cluster.tree
    made = topic_metadata_store.create_topic(tree, "clicks", bytes(16), [(1, 2)])
    moving = ReplicaSet((1, 3, 2), adding=(3,), removing=(2,))
    reassignments.begin_reassignments(tree, "clicks", made.topic_id, lambda _: {0: moving})
    end = End(CLICKS, ReplicaSet((1, 4, 2), (4,), (2,)), PartitionState(1, 0, (1, 4)), 0)
    reassignments.end_reassignments(tree, made.topic_id, [end])
    stale = End(CLICKS, moving, PartitionState(1, 0, (1, 3)), 7)
    reassignments.end_reassignments(tree, made.topic_id, [stale])
    found = topic_metadata_store.read_topic(tree, "clicks")
    assert found is not None
    assert found.partitions[0].replica_set == moving
    cluster.close()


def test_refusals_are_told_partition_by_partition(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, _two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 3, {}, assignment=[[1], [1], [1]])
        refused = await one.topic_admin.reassign(
            "clicks", {0: [1, 2], 1: [7], 2: [1, 2], 9: [1]}, may_change_factor=True
        )
        assert {number: error.code for number, error in refused.items()} == {
            1: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert {each.partition for each in one.topics.image.moving} == {0, 2}
        refused = await one.topic_admin.reassign("clicks", {1: [1, 2]}, may_change_factor=False)
        assert refused[1].code is ErrorCode.INVALID_REPLICATION_FACTOR
        assert (await one.topic_admin.reassign("views", {0: [1]}))[0].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario)

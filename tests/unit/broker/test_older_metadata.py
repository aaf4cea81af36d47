"""A metadata tree that is restored from a snapshot while the logs stay as they are: no leader epoch begins twice."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable

import pytest

from barnabas.broker.follower_replica import FollowerReplica
from barnabas.broker.metadata_image import next_state
from barnabas.broker.metadata_restore import prepare_restored_store
from barnabas.broker.random_source import RandomSource
from barnabas.coordination import paths
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.values import PartitionState
from barnabas.errors import StorageError
from barnabas.records import BatchBuilder
from barnabas.replication.truncation import diverging_epoch, last_epoch, truncation_point
from barnabas.storage.log import Log
from tests.support.topics_cluster import CLICKS, Cluster, NextEpochs, Node, Run


def log_of(node: Node) -> Log:
    return node.topics.replicas.replica(*CLICKS).log


def batches_of(node: Node) -> list[bytes]:
    """Return the batches of the node's log, each with its offset and leader epoch."""
    found = []
    for path in sorted(log_of(node).folder.glob("*.log")):
        data = path.read_bytes()
        while data:
            size = 12 + int.from_bytes(data[8:12], "big")
            found.append(data[:size])
            data = data[size:]
    return found


class History:
    """The brokers, what their clients had acknowledged, and snapshots of the tree."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.acknowledged: set[bytes] = set()
        self.value = 0
        if isinstance(cluster.random_source, NextEpochs):
            cluster.random_source = RandomSource()
        self.refusals: list[str] = []
        """Why replicas did not truncate their logs."""

    def node(self, broker_id: int) -> Node:
        return next(each for each in self.cluster.nodes if each.id == broker_id)

    @property
    def leader(self) -> Node | None:
        return next((each for each in self.cluster.nodes if each.leads()), None)

    def produce(self, count: int) -> None:
        """Let the leader append records, let the live in-sync replicas fetch them, and acknowledge them."""
        leader = self.leader
        assert leader is not None
        partition = leader.topics.replicas.leader(*CLICKS)
        for _ in range(count):
            self.value += 1
            builder = BatchBuilder()
            builder.append(1_000, None, b"value %d" % self.value)
            partition.log.append(builder.build(), partition.leader_epoch)
            self.acknowledged.add(b"value %d" % self.value)

    async def replicate(self) -> None:
        """Let the live followers fetch what they lack, as their fetch loops do, and be the in-sync replicas."""
        leader = self.leader
        if leader is None:
            return
        in_sync = {leader.id: True}
        for node in self.cluster.nodes:
            if node is not leader:
                in_sync[node.id] = await self._fetch(node, leader)
        await self.write_isr([each for each, is_in_sync in in_sync.items() if is_in_sync])

    async def _fetch(self, node: Node, leader: Node) -> bool:
        follower, source = node.topics.replicas.replica(*CLICKS), log_of(leader)
        assert isinstance(follower, FollowerReplica)
        while True:
            own, end = follower.log, follower.log.log_end_offset
            epoch = last_epoch(own.leader_epochs, end)
            leader_end = diverging_epoch(source.leader_epochs, source.log_end_offset, end, epoch)
            if leader_end is None:
                break
            try:
                await follower.truncate_to(truncation_point(own.leader_epochs, end, leader_end).offset)
            except StorageError as error:
                self.refusals.append(str(error))
                return False
        missing = b"".join(batches_of(leader)[end:])
        follower.append(memoryview(missing), source.log_end_offset, 0)
        return True

    async def write_isr(self, isr: Iterable[int]) -> None:
        leader = self.leader
        assert leader is not None
        state = leader.info().state
        wanted = PartitionState(leader.id, state.leader_epoch, tuple(sorted(isr)))
        topic = leader.topics.image.topics["clicks"]
        await leader.topics.apply_roles(await leader.topics.write_states([next_state(CLICKS, topic, wanted)]))
        await self.cluster.follow()
        await self.increment_life_counters()

    async def increment_life_counters(self) -> None:
        for node in self.cluster.nodes:
            node.increment_life_counter()

    async def begin(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.cluster.nodes.append(await Node(self.cluster, broker_id).start())
            await self.cluster.follow()
            await self.replicate()

    async def stop(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            await self.cluster.lose(self.node(broker_id))
            await self.cluster.follow()

    async def stop_all(self) -> None:
        for node in list(self.cluster.nodes):
            await self.cluster.lose(node)

    def save(self) -> None:
        """Make a snapshot of the tree."""
        for path in self.cluster.folder.glob("tree.sqlite*"):
            shutil.copy(path, self.cluster.folder / f"saved-{path.name}")

    def restore(self) -> None:
        """Put the snapshot in the place of the tree."""
        self.cluster.tree.close()
        for path in self.cluster.folder.glob("tree.sqlite*"):
            path.unlink()
        for path in self.cluster.folder.glob("saved-*"):
            shutil.copy(path, self.cluster.folder / path.name.removeprefix("saved-"))
        self.cluster.tree = EmbeddedMetadataStore(self.cluster.folder / "tree.sqlite", self.cluster.clock)

    def check(self) -> None:
        """Check that no leader epoch has two histories, and that no acknowledged record is gone from all logs."""
        logs = [batches_of(each) for each in self.cluster.nodes]
        for one, other in itertools.combinations(logs, 2):
            for first, second in zip(one, other, strict=False):
                assert first[12:16] != second[12:16] or first == second, "two histories in one leader epoch"
        data = b"".join(itertools.chain.from_iterable(logs))
        assert all(each in data for each in self.acknowledged), "an acknowledged record is gone"


async def both_in_sync(cluster: Cluster) -> History:
    """Return two brokers of which 2 leads, with records that both have."""
    history = History(cluster)
    await history.begin(2, 1)
    await history.node(2).topic_admin.create("clicks", 1, {}, assignment=[[2, 1]])
    await cluster.follow()
    history.produce(2)
    await history.replicate()
    return history


async def broker_1_goes_on_alone(history: History, epochs: int) -> None:
    """Let broker 1 lead in so many later epochs, and acknowledge records in each."""
    await history.stop(2)
    for _ in range(epochs):
        if history.leader is None:
            await history.begin(1)
        history.produce(3)
        await history.increment_life_counters()
        await history.stop_all()


@pytest.mark.parametrize(("epochs", "count"), [(1, 1), (1, 5), (3, 3)])
def test_replica_that_missed_the_step_and_starts_first_begins_no_epoch_again(run: Run, epochs: int, count: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        history = await both_in_sync(cluster)
        history.save()
        await broker_1_goes_on_alone(history, epochs)
        history.restore()
        await history.begin(2)
        two = history.node(2)
        assert two.leads(), "it cannot know that the tree is older"
        history.produce(count)
        used = two.info().state.leader_epoch
        await history.begin(1)
        history.check()
        assert used not in {each.epoch for each in log_of(history.node(1)).leader_epochs.entries}
        leader = history.leader
        assert leader is not None
        assert epochs == 1 or leader.id == 1, "the history with more elections leads"
        assert leader.info().state.isr == (leader.id,)
        (refusal,) = set(history.refusals)
        assert f"the metadata store was older than {cluster.folder / str(3 - leader.id)}" in refusal
        assert f"Broker {leader.id}, the leader of epoch" in refusal
        assert "lacks the records from offset 2 to" in refusal

    run(scenario)


@pytest.mark.parametrize("leader", [1, 2])
def test_log_that_was_not_truncated_stays_so_until_its_folder_is_moved(run: Run, leader: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.random_source = RandomSource(lambda _: 2 - leader)
        history = await both_in_sync(cluster)
        history.save()
        await broker_1_goes_on_alone(history, 1)
        history.restore()
        cluster.random_source = RandomSource(lambda _: leader - 1)
        await history.begin(2)
        history.produce(1)
        await history.begin(1)
        for order in ((1, 2), (2, 1), (1, 2)):
            history.check()
            assert history.leader is not None
            assert history.leader.id == leader
            assert history.leader.info().state.isr == (leader,)
            await history.stop_all()
            await history.begin(*order)
        await history.stop_all()
        other = 3 - leader
        shutil.move(cluster.folder / str(other) / "clicks-0", cluster.folder / "kept")
        await history.begin(leader, other)
        assert history.node(leader).info().state.isr == (1, 2)
        assert batches_of(history.node(1)) == batches_of(history.node(2))
        await history.stop_all()
        history.refusals.clear()
        await history.begin(2, 1)
        assert history.node(1).info().state.isr == (1, 2)
        assert not any(each.logs.life.is_ahead for each in cluster.nodes)

    run(scenario)


def test_records_that_were_kept_lead_once_an_operator_decides_so(run: Run) -> None:
    """As docs/how-to/operations.md has it."""

    async def scenario(cluster: Cluster) -> None:
        history = await both_in_sync(cluster)
        history.save()
        await broker_1_goes_on_alone(history, 1)
        kept = history.acknowledged
        history.restore()
        cluster.random_source = RandomSource(lambda count: count - 1)
        await history.begin(2)
        history.acknowledged = set()
        history.produce(1)
        await history.begin(1)
        await history.stop_all()
        shutil.move(cluster.folder / "2" / "clicks-0", cluster.folder / "kept")
        prepare_restored_store(cluster.tree)
        await history.begin(1)
        assert history.leader is None
        await history.node(1).topics.elect_uncleanly([CLICKS])
        await history.begin(2)
        history.acknowledged = kept
        history.check()
        assert history.node(1).info().state.isr == (1, 2)
        assert batches_of(history.node(1)) == batches_of(history.node(2))

    run(scenario)


@pytest.mark.parametrize("epochs", [1, 2])
def test_replica_that_led_last_and_starts_first_waits_and_leads(run: Run, epochs: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        history = await both_in_sync(cluster)
        history.save()
        await broker_1_goes_on_alone(history, epochs)
        history.restore()
        await history.begin(1)
        assert history.leader is None
        await history.begin(2)
        assert history.node(1).leads()
        history.check()
        assert batches_of(history.node(1)) == batches_of(history.node(2))
        assert history.refusals == []
        assert history.node(1).info().state.isr == (1, 2)

    run(scenario)


@pytest.mark.parametrize("order", [(1, 2), (2, 1)], ids=str)
def test_step_in_which_only_the_in_sync_replicas_changed(run: Run, order: tuple[int, int]) -> None:
    """Broker 2 leaves the ISR in the same epoch, and the tree names it in sync again."""

    async def scenario(cluster: Cluster) -> None:
        history = History(cluster)
        await history.begin(1, 2)
        await history.node(1).topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        history.produce(2)
        await history.replicate()
        history.save()
        await history.stop(2)
        await history.write_isr([1])
        history.produce(3)
        await history.stop_all()
        history.restore()
        for broker_id in order:
            await history.begin(broker_id)
            if history.leader is not None and history.leader.id == 2:
                history.produce(1)
        history.check()
        assert bool(history.refusals) == (order == (2, 1))

    run(scenario)


@pytest.mark.parametrize("order", [(1, 2, 3), (2, 1, 3), (3, 2, 1)], ids=str)
def test_tree_from_before_the_life_counters_loses_no_record(run: Run, order: tuple[int, ...]) -> None:
    async def scenario(cluster: Cluster) -> None:
        history = History(cluster)
        await history.begin(1, 2, 3)
        await history.node(1).topic_admin.create("clicks", 1, {}, assignment=[[1, 2, 3]])
        await cluster.follow()
        history.produce(2)
        await history.replicate()
        state_path = paths.partition_state(CLICKS)
        state = cluster.tree.get(state_path).data
        await history.stop(1)
        history.produce(2)
        await history.replicate()
        await history.stop_all()
        cluster.tree.set(state_path, state)
        for path in cluster.tree.subtree(paths.LIVES):
            cluster.tree.delete(path)
        await history.begin(*order)
        leader = history.leader
        assert leader is not None
        history.check()
        assert leader.id in (2, 3)
        assert history.refusals == []

    run(scenario)


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)], ids=str)
@pytest.mark.parametrize("is_interrupted", [False, True])
def test_normal_restarts_keep_nothing_back(
    run: Run, order: tuple[int, ...], is_interrupted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Also after raises of the counters that the tree did not get, and with records that no follower fetched."""

    async def scenario(cluster: Cluster) -> None:
        history = History(cluster)
        await history.begin(1, 2, 3)
        await history.node(1).topic_admin.create("clicks", 1, {}, assignment=[[1, 2, 3]])
        await cluster.follow()
        for _ in range(3):
            history.produce(2)
            await history.replicate()
            leader = history.leader
            assert leader is not None
            acknowledged = set(history.acknowledged)
            history.produce(1)  # the followers never fetch it
            history.acknowledged = acknowledged
            if is_interrupted:
                for node in cluster.nodes:
                    for _ in range(7):
                        node.logs.increment_life_counter(1_000)
            await history.stop(leader.id)
            await history.begin(leader.id)
            await history.stop_all()
            await history.begin(*order)
            history.check()
            assert len({tuple(batches_of(each)) for each in cluster.nodes}) == 1
        assert history.refusals == []
        assert "the metadata store is older" not in caplog.text

    run(scenario)


def test_first_start_with_life_counters_keeps_nothing_back(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """As after an upgrade from a release without them."""

    async def scenario(cluster: Cluster) -> None:
        history = await both_in_sync(cluster)
        await history.stop_all()
        for path in cluster.tree.subtree(paths.LIVES):
            cluster.tree.delete(path)
        for broker_id in (1, 2):
            (cluster.folder / str(broker_id) / "life-counter").unlink()
        await history.begin(1)
        assert history.node(1).leads()
        await history.begin(2)
        assert history.node(1).info().state.isr == (1, 2)
        assert "the metadata store is older" not in caplog.text

    run(scenario)

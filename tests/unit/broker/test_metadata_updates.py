"""What a broker makes of news that come in an unlucky order, or that it can no longer answer for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.broker_events import Events, RoleBegan
from barnabas.broker.cluster_watch import ClusterWatch, MetadataUpdate
from barnabas.broker.controlled_shutdown import ControlledShutdown
from barnabas.broker.isr_updates import IsrUpdates
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.clock import SYSTEM_CLOCK, ManualClock
from barnabas.coordination import paths, topic_metadata_store
from barnabas.coordination.change_notifications import ChangeNotification, StateChange
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.metadata_store import Watch
from barnabas.coordination.values import BrokerRegistration, LiveBroker, PartitionState
from barnabas.errors import ApiError, ErrorCode
from barnabas.records import BatchBuilder
from tests.support.replica_listeners import FETCH_AWAITED, RecordedAppends
from tests.support.topics_cluster import CLICKS, Cluster, Node, Run


def batch() -> bytes:
    builder = BatchBuilder()
    builder.append(1_000, None, b"value")
    return bytes(builder.build())


def registration(broker_id: int, *, is_leaving: bool = False) -> BrokerRegistration:
    return BrokerRegistration(broker_id, "127.0.0.1", 9092, is_leaving=is_leaving)


async def hear(node: Node, update: MetadataUpdate) -> None:
    async def read() -> MetadataUpdate:
        return update

    await node.topics.apply_update(read)


async def create(cluster: Cluster, *replicas: int) -> None:
    await cluster.nodes[0].topic_admin.create("clicks", 1, {}, assignment=[replicas])
    await cluster.follow()


def test_leader_that_is_known_before_it_is_known_to_live_is_followed_when_it_is(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        _, follower = await cluster.start(1, 2)
        await create(cluster, 1, 2)
        topic_id = follower.topics.image.topics["clicks"].topic_id
        begun: list[int] = []
        follower.events.subscribe(RoleBegan, lambda event: begun.append(event.replica.leader))
        own = follower.topics.image.brokers[2]
        await hear(follower, MetadataUpdate(brokers={2: own}))
        claim = StateChange(CLICKS, topic_id, PartitionState(1, 5, (1, 2)), 7)
        await hear(follower, MetadataUpdate(changes=[ChangeNotification(states=(claim,))]))
        begun.clear()
        await hear(follower, MetadataUpdate(brokers={1: LiveBroker(registration(1), 40), 2: own}))
        assert begun == [1]
        await hear(follower, MetadataUpdate(brokers={1: LiveBroker(registration(1, is_leaving=True), 40), 2: own}))
        assert begun == [1]

    run(scenario)


def test_broker_whose_log_is_gone_leaves_the_in_sync_replicas(run: Run) -> None:
    """Else it would be elected by what it had on another disk."""

    async def scenario(cluster: Cluster) -> None:
        _, lost = await cluster.start(1, 2)
        await create(cluster, 1, 2)
        await cluster.lose(lost)
        (cluster.folder / "2").rename(cluster.folder / "gone")
        await cluster.start(2)
        assert cluster.nodes[0].info().state.isr == (1,)

    run(scenario)


def test_broker_whose_log_is_gone_insists_where_its_leader_was_faster(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        _, _, lost = await cluster.start(1, 2, 3)
        await create(cluster, 1, 2, 3)
        await cluster.lose(lost)
        (cluster.folder / "3").rename(cluster.folder / "gone")
        returned = Node(cluster, 3)
        returned.before_loading = lambda: _drop(cluster, 2)
        await returned.start()
        cluster.nodes.append(returned)
        state, _ = topic_metadata_store.read_partition_state(cluster.tree, CLICKS)
        assert state.isr == (1,)

    run(scenario)


def _drop(cluster: Cluster, broker_id: int) -> None:
    info = cluster.nodes[0].info()
    isr = tuple(each for each in info.state.isr if each != broker_id)
    topic_id = cluster.nodes[0].topics.image.topics["clicks"].topic_id
    change = StateChange(CLICKS, topic_id, PartitionState(info.state.leader, 0, isr), info.version + 1)
    assert topic_metadata_store.write_partition_states(cluster.tree, [change])


class OvertakenMetadataStore(EmbeddedMetadataStore):
    """Before the changes are listed, something else happens."""

    happens: Callable[[], object]

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        if path == paths.CHANGES:
            self.happens()
        return super().children(path, watch)


def test_brokers_are_known_at_least_as_of_the_changes_that_were_read(tmp_path: Path) -> None:
    """A broker that is leaving would else be taken in again."""

    async def scenario() -> None:
        tree = OvertakenMetadataStore(tmp_path / "tree.sqlite", ManualClock())
        tree.happens = lambda: None
        topic_metadata_store.prepare(tree, "castle")
        topic_metadata_store.register_broker(tree, registration(1))
        found = asyncio.get_running_loop().create_future()

        async def apply_update(read: Callable[[], Any]) -> MetadataUpdate:
            update: MetadataUpdate = await read()
            found.set_result(update)
            return update

        async def in_metadata_thread(function: Callable[..., Any], *arguments: Any) -> Any:
            return function(*arguments)

        watch = ClusterWatch(tree, in_metadata_thread, apply_update)  # type: ignore[arg-type]
        watch.read_everything()
        tree.happens = lambda: topic_metadata_store.register_broker(tree, registration(1, is_leaving=True))
        following = asyncio.create_task(watch.run())
        update = await asyncio.wait_for(found, 60)
        following.cancel()
        assert update.brokers is not None
        assert update.brokers[1].registration.is_leaving
        tree.close()

    asyncio.run(scenario())


def test_what_waits_while_a_partition_is_handed_on_is_not_appended_by_the_old_leader(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be acknowledged with acks=1, and lost with the truncation that follows."""

    async def scenario(cluster: Cluster) -> None:
        leader, _ = await cluster.start(1, 2)
        await create(cluster, 1, 2)
        partition = leader.topics.replicas.leader("clicks", 0)
        waiting: list[Any] = []
        hold = LeaderReplica.hold_appends

        def hold_and_append(self: LeaderReplica, until: Callable[[], Any]) -> Any:
            held = hold(self, until)
            waiting.append(self.append_all([batch()]))
            return held

        monkeypatch.setattr(LeaderReplica, "hold_appends", hold_and_append)
        leaving = asyncio.create_task(ControlledShutdown(leader.topics, 1).transfer_all())
        async with asyncio.timeout(60):
            while not waiting:  # noqa: ASYNC110 - what is waited for tells nobody
                await asyncio.sleep(0)
            (outcome,) = await waiting[0]
        leaving.cancel()
        assert isinstance(outcome, ApiError)
        assert outcome.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.log.log_end_offset == 0

    run(scenario)


def test_all_partitions_are_looked_at_even_if_some_never_stop_asking(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        leader, other = await cluster.start(1, 2)
        await create(cluster, 1, 2)
        await cluster.lose(other)
        await cluster.follow()
        partition = leader.topics.replicas.leader("clicks", 0)
        updates = IsrUpdates(leader.topics, SYSTEM_CLOCK, lag_time_max_s=1.0, events=Events())
        appends = RecordedAppends()
        partition.watch_log_end(appends)
        running = asyncio.create_task(updates.run())

        async def ask() -> None:
            while True:
                updates.update_soon(partition)
                await asyncio.sleep(0)

        asking = asyncio.create_task(ask())
        while await appends.next() != FETCH_AWAITED:
            pass
        running.cancel()
        asking.cancel()

    run(scenario)

"""Several brokers' topics over one tree, where one of them is faster, or slower, than another expects."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from barnabas.broker import controlled_shutdown
from barnabas.broker.broker_events import Events, RoleBegan
from barnabas.broker.controlled_shutdown import ControlledShutdown
from barnabas.broker.isr_updates import IsrUpdates
from barnabas.broker.leader_election import PAUSE_S
from barnabas.broker.replica import Replica
from barnabas.coordination import configs, paths, topic_deletions, topic_metadata_store
from barnabas.coordination.change_notifications import StateChange
from barnabas.coordination.values import PartitionState
from barnabas.errors import StorageError
from barnabas.model import TopicPartition
from barnabas.storage import Log
from tests.support.topics_cluster import CLICKS, Cluster, Node, Run, append, in_metadata_thread


def write_isr(node: Node, *isr: int) -> None:
    """Have a leader write another ISR, of which it tells nobody here yet."""
    info, topic = node.info(), node.topics.image.topics["clicks"]
    state = PartitionState(info.state.leader, info.state.leader_epoch, isr)
    change = StateChange(CLICKS, topic.topic_id, state, info.version + 1)
    assert topic_metadata_store.write_partition_states(node.tree, [change])


async def learn_who_lives(node: Node) -> None:
    """Let a broker hear who lives, and nothing else."""
    await node._apply_update(functools.partial(in_metadata_thread, node.watch._read, {paths.BROKER_IDS}))


def test_claim_that_met_the_last_isr_of_a_dead_leader_is_made_again(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, _three = await cluster.start(1, 2, 3)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2, 3]])
        await cluster.follow()
        write_isr(one, 1, 2)
        await cluster.lose(one)
        await learn_who_lives(two)
        assert two.leads()
        assert two.info().state == PartitionState(2, 1, (2,))

    run(scenario)


async def settle_isr(node: Node) -> None:
    """Find out whether a change of the ISR was written."""
    updates = IsrUpdates(node.topics, node.cluster.clock, lag_time_max_s=10.0, events=Events())
    info, topic_id = node.info(), node.topics.image.topics["clicks"].topic_id
    partition = node.topics.replicas.leader(*CLICKS)
    updates._under_way = {partition: StateChange(CLICKS, topic_id, info.state, info.version)}
    await updates.update([])


async def read_topic(node: Node) -> None:
    """Read the topic anew, as after a change of one's own."""
    await node.topics.reread_topics(["clicks"])


@pytest.mark.parametrize("read", [settle_isr, read_topic])
def test_partition_that_nobody_leads_is_claimed_by_whoever_read_of_it_on_other_business(
    run: Run, read: Callable[[Node], Awaitable[None]]
) -> None:
    """What the watch tells then is no news any more."""

    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        topic_id = one.topics.image.topics["clicks"].topic_id
        states = [PartitionState(2, 1, (2,)), PartitionState(2, 1, (1, 2)), PartitionState(-1, 2, (1,))]
        for version, state in enumerate(states, one.info().version + 1):
            assert topic_metadata_store.write_partition_states(
                two.tree, [StateChange(CLICKS, topic_id, state, version)]
            )
        await read(one)
        await one.follow()
        cluster.clock.advance(PAUSE_S)
        await one.topics.elect_due()
        assert one.leads()
        assert one.info().state == PartitionState(1, 3, (1,))

    run(scenario)


@pytest.mark.parametrize("read", [settle_isr, read_topic, Node.follow])
def test_leader_that_came_after_it_was_read_who_lives_is_left_alone(
    run: Run, read: Callable[[Node], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state is read on many occasions, and may be newer than what is known of who lives."""

    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[2, 1]])
        await cluster.follow()
        await cluster.lose(two)
        await learn_who_lives(one)
        again = await Node(cluster, 2).start()
        cluster.nodes.append(again)
        await again.follow()
        topic_id = one.topics.image.topics["clicks"].topic_id
        state = PartitionState(2, one.info().state.leader_epoch + 1, (2, 1))
        change = StateChange(CLICKS, topic_id, state, one.info().version + 1)
        assert topic_metadata_store.write_partition_states(again.tree, [change])
        with monkeypatch.context() as patch:
            # What the watch reads of the brokers is as old as what it read before.
            patch.setattr(one.watch, "_read_brokers", lambda _watch=None: one.topics.image.brokers)
            await read(one)
            assert one.info().state == state
        cluster.clock.advance(PAUSE_S)
        await one.topics.elect_due()
        await cluster.follow()
        assert one.info().state == state
        assert again.leads()

    run(scenario)


def test_partition_that_is_gone_is_looked_at_no_longer(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2, 3]])
        await cluster.follow()
        await cluster.lose(one)
        await three.follow()
        assert three.topics.election.next_deadline is not None
        await two.topic_admin.delete("clicks")
        await three.follow()
        cluster.clock.advance(10 * PAUSE_S)
        await three.topics.elect_due()
        assert three.topics.election.next_deadline is None

    run(scenario)


def test_replica_whose_log_is_offline_leaves_the_leadership_to_others(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2, 3]])
        await cluster.follow()
        two.topics.replicas.replica(*CLICKS).log._health.go_offline("write", OSError(5, "Input/output error"))
        await cluster.lose(one)
        await cluster.follow()
        assert not two.leads()
        cluster.clock.advance(PAUSE_S)
        await three.topics.elect_due()
        assert three.leads()

    run(scenario)


def test_change_of_the_isr_that_is_under_way_outlasts_other_news_of_its_topic(run: Run) -> None:
    """Else what the new member lacks would be acknowledged, though the tree may have it in the ISR."""

    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        write_isr(one, 1)
        await cluster.follow()
        followers = one.topics.replicas.leader(*CLICKS).followers
        assert followers is not None
        assert followers.isr == (1,)
        followers.begin_change((1, 2))
        await two.topic_admin.alter("clicks", lambda _: {"retention.ms": "5"})
        await one.follow()
        append(one)
        assert followers.is_changing
        assert followers.high_watermark(1) == 0

    run(scenario)


def test_follower_is_not_taken_in_by_what_it_had_in_an_earlier_life(run: Run) -> None:
    """Of its new life the leader has not heard, but has read the state that it wrote to leave the ISR."""

    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        append(one)
        partition = one.topics.replicas.leader(*CLICKS)
        updates = IsrUpdates(one.topics, cluster.clock, lag_time_max_s=10.0, events=Events())
        now_s = cluster.clock.monotonic()
        partition.on_follower_fetch(2, one.topics.image.brokers[2].epoch, 1, now_s)
        await cluster.lose(two)
        cluster.nodes.append(await Node(cluster, 2).start(lost_memory=True))
        topic_id, info = one.topics.image.topics["clicks"].topic_id, one.info()
        await one.topics.apply_roles(await one.topics.reread([StateChange(CLICKS, topic_id, info.state, info.version)]))
        assert one.info().state.isr == (1,)
        await updates.update([partition])
        assert topic_metadata_store.read_partition_state(cluster.tree, CLICKS)[0].isr == (1,)
        await one.follow()
        partition.on_follower_fetch(2, one.topics.image.brokers[2].epoch, 1, now_s)
        await updates.update([partition])
        assert topic_metadata_store.read_partition_state(cluster.tree, CLICKS)[0].isr == (1, 2)

    run(scenario)


def test_preferred_replica_waits_until_it_has_everything(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controlled_shutdown, "CAUGHT_UP_S", 0.0)

    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        topic_id = one.topics.image.topics["clicks"].topic_id
        await one.topics.apply_roles(
            await one.topics.write_states([StateChange(CLICKS, topic_id, PartitionState(2, 1, (1, 2)), 1)])
        )
        await cluster.follow()
        append(two)
        two.topics.replicas.leader(*CLICKS).on_follower_fetch(1, -1, 0, 0.0)
        await ControlledShutdown(two.topics, 2).transfer_to_preferred()
        assert two.leads()
        two.topics.replicas.leader(*CLICKS).on_follower_fetch(1, -1, 1, 0.0)
        await ControlledShutdown(two.topics, 2).transfer_to_preferred()
        assert not two.leads()

    run(scenario)


def test_handing_on_writes_no_state_that_is_not_the_present_one_any_more(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2, 3]])
        await cluster.follow()
        topic_id = one.topics.image.topics["clicks"].topic_id

        async def drop_the_third(_controlled_shutdown: ControlledShutdown, _changes: object) -> None:
            info = one.info()
            state = PartitionState(1, info.state.leader_epoch, (1, 2))
            written = await one.topics.write_states([StateChange(CLICKS, topic_id, state, info.version + 1)])
            await one.topics.apply_roles(written)

        monkeypatch.setattr(ControlledShutdown, "_wait_until_caught_up", drop_the_third)
        change = StateChange(CLICKS, topic_id, PartitionState(2, 1, (1, 2, 3)), one.info().version + 1)
        await ControlledShutdown(one.topics, 1).transfer({one.topics.replicas.leader(*CLICKS): change})
        assert one.info().state.isr == (1, 2), "who was out of sync is in sync again"
        await cluster.follow()
        assert two.info().state == three.info().state == one.info().state

    run(scenario)


def test_topic_that_its_maker_takes_back_goes_everywhere(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        begun: list[Replica] = []
        one.events.subscribe(RoleBegan, lambda event: begun.append(event.replica))
        make = one.topics.replica_logs.create

        async def make_but_the_last(where: TopicPartition, *arguments: Any, **named: Any) -> Log:
            if where.partition:
                await two.follow()
                raise StorageError("the disk is full")
            return await make(where, *arguments, **named)

        monkeypatch.setattr(one.topics.replica_logs, "create", make_but_the_last)
        with pytest.raises(StorageError):
            await one.topic_admin.create("clicks", 2, {}, assignment=[[1, 2], [2, 1]])
        assert two.folders() == ["clicks-0", "clicks-1"]
        await cluster.follow()
        assert one.folders() == two.folders() == []
        assert begun == []
        assert topic_deletions.read_deletions(cluster.tree) == {}
        monkeypatch.undo()
        await one.topic_admin.create("clicks", 2, {}, assignment=[[1, 2], [2, 1]])
        await cluster.follow()
        assert two.folders() == ["clicks-0", "clicks-1"]

    run(scenario)


@pytest.mark.parametrize("refuses", [False, True])
def test_what_a_maker_cannot_set_aside_of_a_topic_that_it_takes_back_is_noted(
    run: Run, monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    """So that its next start removes it: else the folder would be left for ever, as one of no topic."""

    async def scenario(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        delete, noted = one.topics.replica_logs.delete, topic_deletions.note_deletion
        seen: list[object] = []

        async def make(*_arguments: Any, **_named: Any) -> Log:
            raise StorageError("the disk is full")

        def note(*arguments: Any) -> Any:
            seen.append(arguments[-1])
            return noted(*arguments)

        monkeypatch.setattr(one.topics.replica_logs, "create", make)
        monkeypatch.setattr(
            one.topics.replica_logs, "delete", lambda own: StorageError("refused") if refuses else delete(own)
        )
        monkeypatch.setattr(topic_deletions, "note_deletion", note)
        with pytest.raises(StorageError, match="the disk is full"):
            await one.topic_admin.create("clicks", 1, {})
        assert seen == ([[1]] if refuses else [])
        assert "clicks" not in one.topics.image.topics

    run(scenario)


def test_topic_that_another_made_under_the_name_is_not_taken_back(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        make = one.topics.replica_logs.create

        async def make_but_the_last(where: TopicPartition, *arguments: Any, **named: Any) -> Log:
            if where.partition:
                await two.follow()
                await two.topic_admin.delete("clicks")
                await two.topic_admin.create("clicks", 1, {}, assignment=[[2]])
                append(two)
                raise StorageError("the disk is full")
            return await make(where, *arguments, **named)

        monkeypatch.setattr(one.topics.replica_logs, "create", make_but_the_last)
        with pytest.raises(StorageError, match="the disk is full"):
            await one.topic_admin.create("clicks", 2, {}, assignment=[[1], [1]])
        made = two.topics.image.topics["clicks"].topic_id
        await cluster.follow()
        assert one.topics.image.topics["clicks"].topic_id == two.topics.image.topics["clicks"].topic_id == made
        assert two.topics.replicas.leader(*CLICKS).log.log_end_offset == 1
        assert (one.folders(), two.folders()) == ([], ["clicks-0"])
        assert topic_deletions.read_deletions(cluster.tree) == {}

    run(scenario)


async def start_with_damaged_topic(cluster: Cluster, broker_id: int, **options: bool) -> tuple[Node, bytes]:
    """Start a broker that cannot read its topic; return it, and what mends the topic."""
    sound = cluster.tree.get(paths.topic("clicks")).data
    cluster.tree.set(paths.topic("clicks"), b"garbage")
    started = await Node(cluster, broker_id).start(**options)
    assert started.topics.get("clicks") is None
    cluster.nodes.append(started)
    return started, sound


async def mend(cluster: Cluster, sound: bytes) -> None:
    cluster.tree.set(paths.topic("clicks"), sound)
    configs.change_topic_config(cluster.tree, "clicks", lambda _: {"retention.ms": "5"})
    await cluster.follow()


def test_leader_that_could_not_read_its_topic_at_its_start_claims_before_it_leads_again(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, _two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        await cluster.lose(one)
        one, sound = await start_with_damaged_topic(cluster, 1)
        begun: list[tuple[int, int]] = []
        one.events.subscribe(RoleBegan, lambda event: begun.append((event.replica.leader, event.replica.leader_epoch)))
        await mend(cluster, sound)
        assert begun == [(-1, 0), (1, 1)]

    run(scenario)


@pytest.mark.parametrize("is_folder_lost", [False, True])
def test_broker_that_lacks_records_of_a_topic_that_is_mended_later_leaves_the_in_sync_replicas(
    run: Run, is_folder_lost: bool
) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        append(one)
        await cluster.lose(one)
        if is_folder_lost:
            shutil.rmtree(cluster.folder / "1" / "clicks-0")
        one, sound = await start_with_damaged_topic(cluster, 1, lost_memory=not is_folder_lost)
        await mend(cluster, sound)
        assert two.leads()
        assert one.info().state == two.info().state == PartitionState(2, 2, (2,))
        assert one.topics.replicas.replica(*CLICKS).leader == 2

    run(scenario)

"""Several brokers' topics over one tree, in one event loop: what one of them changes, the others follow."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from barnabas.broker.cluster_watch import MetadataUpdate
from barnabas.broker.controlled_shutdown import ControlledShutdown
from barnabas.broker.follower_replica import FollowerReplica
from barnabas.broker.handlers.incremental_alter_configs import incremental_alter_configs
from barnabas.broker.leader_election import PAUSE_S
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.settings.dynamic import DynamicSettings
from barnabas.broker.settings.in_force import BrokerSettings
from barnabas.clock import SYSTEM_CLOCK
from barnabas.coordination import configs, paths, topic_deletions, topic_metadata_store
from barnabas.coordination.metadata_store import NodeError
from barnabas.coordination.values import NO_LEADER, PartitionState
from barnabas.errors import ApiError, ErrorCode, StorageError, TimedOutError
from barnabas.model import TopicPartition
from barnabas.protocol.messages.incremental_alter_configs import (
    APPEND,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementallyAlterableConfig,
)
from tests.support.fake_link import call_of
from tests.support.topics_cluster import CLICKS, Cluster, Node, Run, append, in_metadata_thread

# --- creation ---


def test_topic_that_one_creates_is_seen_and_hosted_by_the_others(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        await one.topic_admin.create("clicks", 2, {"retention.ms": "5"}, assignment=[[2, 3], [1, 2]])
        await cluster.follow()
        assert [each.folders() for each in cluster.nodes] == [["clicks-1"], ["clicks-0", "clicks-1"], ["clicks-0"]]
        assert [each.leads() for each in cluster.nodes] == [False, True, False]
        assert one.leads(TopicPartition("clicks", 1))
        assert isinstance(three.topics.replicas.replica("clicks", 0), FollowerReplica)
        assert three.topics.replicas.replica("clicks", 0).leader == 2
        for each in cluster.nodes:
            topic = each.topics.get("clicks")
            assert topic is not None
            assert topic.settings == {"retention.ms": "5"}
            assert [info.state.isr for info in topic.partitions] == [(2, 3), (1, 2)]
        with pytest.raises(ApiError, match=r"clicks-0 has replicas on brokers \[2, 3\]") as caught:
            one.topics.replicas.replica("clicks", 0)
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(ApiError, match="already exists"):
            await two.topic_admin.create("clicks", 1, {})

    run(scenario)


def test_creation_that_fails_leaves_a_folder_alone_that_it_did_not_need(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One with records, of a topic that the tree does not know, in the place of a replica that others are to hold."""

    async def refuse(*_arguments: object) -> None:
        raise StorageError("the disk is full")

    async def scenario(cluster: Cluster) -> None:
        one, _two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1]])
        append(one)
        await cluster.lose(one)
        topic_metadata_store.delete_topic(cluster.tree, "clicks")
        (cluster.folder / "1" / "clicks-0").rename(cluster.folder / "1" / "clicks-1")
        (one,) = await cluster.start(1)
        monkeypatch.setattr(one.topics.replica_logs, "create", refuse)
        with pytest.raises(StorageError, match="the disk is full"):
            await one.topic_admin.create("clicks", 2, {}, assignment=[[1], [2]])
        assert one.folders() == ["clicks-1"]
        assert topic_metadata_store.read_topic(cluster.tree, "clicks") is None

    run(scenario)


def test_own_change_that_is_read_later_changes_nothing(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        await one.topic_admin.create("clicks", 1, {})
        before = one.topics.replicas.leader(*CLICKS)
        await one.follow()
        assert one.topics.replicas.leader(*CLICKS) is before

    run(scenario)


def test_what_was_told_of_a_topic_is_read_no_earlier_than_its_deletion(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        await one.topic_admin.create("clicks", 1, {})
        deletion = asyncio.create_task(one.topic_admin.delete("clicks"))
        following = asyncio.create_task(one.follow())
        await asyncio.gather(deletion, following)
        assert one.topics.get("clicks") is None
        assert one.folders() == []

    run(scenario)


def test_broker_that_one_does_not_know_yet_is_not_chosen_and_the_dead_are_not_in_sync(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.lose(two)
        await one.follow()
        with pytest.raises(ApiError):
            await one.topic_admin.create("clicks", 1, {}, replication_factor=2)
        assert one.topics.get("clicks") is None

    run(scenario)


# --- leadership ---


def test_leadership_is_taken_over_when_a_session_ends(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2, 3]])
        await cluster.follow()
        await cluster.lose(one)
        await three.follow()  # the second in line, which waits for the first one
        assert not three.leads()
        await cluster.follow()
        assert two.leads()
        assert two.info().state == three.info().state == PartitionState(2, 1, (2, 3))
        replica = three.topics.replicas.replica(*CLICKS)
        assert (replica.leader, replica.leader_epoch) == (2, 1)

    run(scenario)


def test_leader_whose_disk_refuses_hands_on_what_others_can_lead(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, _ = await cluster.start(1, 2, 3)
        await one.topic_admin.create("clicks", 2, {}, assignment=[[1, 2, 3], [1, 3, 2]])
        await cluster.follow()
        one.topics.replicas.leader(*CLICKS).log._health.go_offline("append", OSError("broken"))
        await ControlledShutdown(one.topics, one.id).transfer_offline()
        await cluster.follow()
        assert two.leads()
        assert not one.leads()
        assert two.info().state == PartitionState(2, 1, (2, 3))
        assert one.leads(TopicPartition("clicks", 1))

    run(scenario)


def test_next_in_line_takes_over_a_pause_later_if_the_first_does_not(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2, 3]])
        await cluster.follow()
        await cluster.lose(one)
        await three.follow()
        assert three.topics.election.next_deadline == pytest.approx(cluster.clock.monotonic() + PAUSE_S)
        await three.topics.elect_due()
        assert not three.leads()
        cluster.clock.advance(PAUSE_S)
        await three.topics.elect_due()
        assert three.leads()
        await two.follow()
        assert not two.leads()
        assert two.info().state.leader == 3

    run(scenario)


def test_broker_that_was_slower_follows_the_one_that_was_faster(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2, 3]])
        await cluster.follow()
        await cluster.lose(one)
        await three.follow()
        await two.follow()
        cluster.clock.advance(PAUSE_S)
        # It has not heard of it, and its compare-and-set fails.
        await three.topics.elect_due()
        assert two.leads()
        assert not three.leads()
        assert three.info().state.leader == 2
        assert three.topics.replicas.replica(*CLICKS).leader == 2

    run(scenario)


def test_broker_that_came_back_and_was_faster_leads_on_though_it_was_read_that_it_is_dead(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        await cluster.lose(one)

        async def read_before_it_comes_back() -> MetadataUpdate:
            update: MetadataUpdate = await in_metadata_thread(two.watch._read, {paths.BROKER_IDS, paths.CHANGES})
            cluster.nodes.append(await Node(cluster, 1).start())
            return update

        await two._apply_update(read_before_it_comes_back)
        assert cluster.nodes[-1].leads()
        assert not two.leads()
        await cluster.follow()
        assert cluster.nodes[-1].info().state == two.info().state == PartitionState(1, 1, (1, 2))

    run(scenario)


def test_claim_is_looked_at_again_where_it_could_not_be_read_who_lives(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_arguments: object) -> object:
        raise TimedOutError("the tree does not answer")

    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        await cluster.lose(one)

        async def read_before_it_comes_back() -> MetadataUpdate:
            update: MetadataUpdate = await in_metadata_thread(two.watch._read, {paths.BROKER_IDS, paths.CHANGES})
            cluster.nodes.append(await Node(cluster, 1).start())
            monkeypatch.setattr(topic_metadata_store, "read_brokers", unreachable)
            return update

        with pytest.raises(TimedOutError):
            await two._apply_update(read_before_it_comes_back)
        monkeypatch.undo()
        assert two.topics.election.next_deadline is not None
        await cluster.lose(cluster.nodes[-1])
        cluster.clock.advance(PAUSE_S)
        await two.topics.elect_due()
        assert two.leads()

    run(scenario)


def test_leader_that_comes_back_does_not_lead_again_before_it_has_claimed(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        append(one)
        await cluster.lose(one)
        (one,) = await cluster.start(1)
        # Nobody noticed that it was away: it is the first in line.
        assert one.leads()
        assert one.info().state == two.info().state == PartitionState(1, 1, (1, 2))
        assert one.topics.replicas.leader(*CLICKS).log.log_end_offset == 1

    run(scenario)


def test_partition_whose_members_are_all_away_waits_for_one(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        await cluster.lose(one)
        await cluster.lose(two)
        await cluster.follow()
        assert three.topics.image.leader_of(three.info()) == NO_LEADER
        assert three.topics.image.offline_replicas(three.info()) == [1, 2]
        (two,) = await cluster.start(2)
        assert two.leads()
        assert three.topics.image.leader_of(three.info()) == 2

    run(scenario)


def test_broker_whose_machine_lost_its_memory_leaves_the_in_sync_replicas(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await one.topic_admin.create("alone", 1, {}, assignment=[[1]])
        await cluster.follow()
        await cluster.lose(one)
        one = await Node(cluster, 1).start(lost_memory=True)
        cluster.nodes.append(one)
        await cluster.follow()
        assert two.leads()
        assert one.info().state == PartitionState(2, 2, (2,))
        assert isinstance(one.topics.replicas.replica(*CLICKS), FollowerReplica)
        assert one.leads(TopicPartition("alone", 0))

    run(scenario)


# --- deletion ---


def test_broker_that_tells_what_it_has_of_a_topic_that_is_just_deleted_comes_to_an_end(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        topic = await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        for node in (one, two):
            await cluster.lose(node)
        cluster.nodes += [one := await Node(cluster, 1).start(lost_memory=True)]
        cluster.nodes += [two := await Node(cluster, 2).start(lost_memory=True)]

        async def read_before_it_is_deleted() -> MetadataUpdate:
            update: MetadataUpdate = await in_metadata_thread(one.watch._read, {paths.BROKER_IDS, paths.CHANGES})
            topic_deletions.note_deletion(cluster.tree, topic.id, "clicks", [1, 2])
            topic_metadata_store.delete_topic(cluster.tree, "clicks")
            return update

        async with asyncio.timeout(60):
            await one._apply_update(read_before_it_is_deleted)
        assert one.info().state.leader == NO_LEADER
        await cluster.follow()
        assert one.folders() == []

    run(scenario)


def test_start_by_a_tree_older_than_the_logs_comes_to_an_end_when_the_topic_is_just_deleted(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        topic = await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        state = paths.partition_state(CLICKS)
        backup = cluster.tree.get(state).data
        for node in (one, two):
            await cluster.lose(node)
        (one,) = await cluster.start(1)  # in a later epoch
        append(one)
        await cluster.lose(one)
        cluster.tree.set(state, backup, cluster.tree.get(state).stat.version)

        def delete_after_reading() -> None:
            topic_deletions.note_deletion(cluster.tree, topic.id, "clicks", [1])
            topic_metadata_store.delete_topic(cluster.tree, "clicks")

        returned = Node(cluster, 1)
        returned.before_loading = delete_after_reading
        async with asyncio.timeout(60):
            cluster.nodes.append(await returned.start())
        assert returned.folders() == ["clicks-0"]
        await cluster.follow()
        assert returned.folders() == []
        assert topic_deletions.read_deletions(cluster.tree) == {}

    run(scenario)


def test_deleted_topic_goes_everywhere_and_its_note_with_the_last_folder(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 2, {}, assignment=[[1, 2], [2, 1]])
        await cluster.follow()
        await two.topic_admin.delete("clicks")
        assert [each.brokers for each in topic_deletions.read_deletions(cluster.tree).values()] == [(1,)]
        await cluster.follow()
        assert topic_deletions.read_deletions(cluster.tree) == {}
        for each in cluster.nodes:
            assert each.topics.get("clicks") is None
            assert each.folders() == []

    run(scenario)


def test_broker_that_was_away_removes_what_it_has_of_a_deleted_topic(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        await cluster.lose(two)
        await one.follow()
        await one.topic_admin.delete("clicks")
        assert [each.brokers for each in topic_deletions.read_deletions(cluster.tree).values()] == [(2,)]
        # Another one of that name is not in the way, nor touched.
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1]])
        (two,) = await cluster.start(2)
        assert two.folders() == []
        assert one.folders() == ["clicks-0"]
        assert topic_deletions.read_deletions(cluster.tree) == {}

    run(scenario)


def test_topic_that_is_deleted_and_made_anew_before_it_is_read_is_another_one(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[2, 1]])
        await cluster.follow()
        append(two, 3)
        old = two.topics.get("clicks")
        assert old is not None
        await one.topic_admin.delete("clicks")
        await one.topic_admin.create("clicks", 1, {}, assignment=[[2, 1]])
        await cluster.follow()
        new = two.topics.get("clicks")
        assert new is not None
        assert new.id != old.id
        assert two.topics.by_id(old.id) is None
        assert two.topics.replicas.leader(*CLICKS).log.log_end_offset == 0
        assert topic_deletions.read_deletions(cluster.tree) == {}

    run(scenario)


def test_note_of_a_deletion_whose_maker_died_before_it_deleted_anything_goes_for_all_with_the_next_start(
    run: Run,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        topic = await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        topic_deletions.note_deletion(two.tree, topic.id, "clicks", [1, 2])
        await cluster.lose(two)
        (two,) = await cluster.start(2)
        assert topic_deletions.read_deletions(cluster.tree) == {}
        assert one.folders() == two.folders() == ["clicks-0"]
        await two.topic_admin.delete("clicks")
        await cluster.follow()
        assert one.folders() == two.folders() == []
        assert topic_deletions.read_deletions(cluster.tree) == {}

    run(scenario)


def test_topic_that_left_the_tree_without_a_note_keeps_its_folders(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        topic_metadata_store.delete_topic(cluster.tree, "clicks")
        await cluster.follow()
        assert one.topics.get("clicks") is None
        assert one.folders() == two.folders() == ["clicks-0"]

    run(scenario)
    assert "no broker deleted it" in caplog.text


# --- growth, settings, damage ---


def test_growth_and_settings_are_taken_over(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        await two.topic_admin.grow("clicks", 2, [[2, 1]])
        await one.topic_admin.alter("clicks", lambda settings: {**settings, "max.message.bytes": "777"})
        await cluster.follow()
        assert one.folders() == two.folders() == ["clicks-0", "clicks-1"]
        assert two.leads(TopicPartition("clicks", 1))
        for each in cluster.nodes:
            assert {replica.config.log.max_message_bytes for replica in each.topics.replicas.all()} == {777}

    run(scenario)


def test_growth_that_another_broker_was_faster_with_is_refused(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        await one.topic_admin.grow("clicks", 2, [[1, 2]])
        with pytest.raises(ApiError) as caught:
            await two.topic_admin.grow("clicks", 3, [[1, 2], [2, 1]])
        assert caught.value.code is ErrorCode.INVALID_PARTITIONS
        await cluster.follow()
        assert two.folders() == ["clicks-0", "clicks-1"]
        assert two.topics.replicas.replica("clicks", 1).leader == 1

    run(scenario)


def test_topic_whose_nodes_are_damaged_stays_as_it_was_until_they_are_mended(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        sound = cluster.tree.get(paths.topic("clicks")).data
        cluster.tree.set(paths.topic("clicks"), b"garbage")
        configs.change_topic_config(cluster.tree, "clicks", lambda _: {"max.message.bytes": "777"})
        update = await two.follow()
        assert isinstance(update.topics["clicks"], NodeError)
        assert two.folders() == ["clicks-0"]
        assert one.leads()
        cluster.tree.set(paths.topic("clicks"), sound)
        configs.change_topic_config(cluster.tree, "clicks", lambda _: {"max.message.bytes": "778"})
        await cluster.follow()
        assert two.topics.replicas.replica(*CLICKS).config.log.max_message_bytes == 778

    run(scenario)


def test_missed_changes_are_made_up_for_by_reading_everything(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await one.topic_admin.create("views", 1, {}, assignment=[[1]])
        await cluster.follow()
        await one.topic_admin.delete("views")
        await one.topic_admin.create("other", 1, {}, assignment=[[2, 1]])
        for name in cluster.tree.children(paths.CHANGES)[:-1]:
            cluster.tree.delete(f"{paths.CHANGES}/{name}")
        assert (await two.follow()).is_everything
        assert sorted(topic.name for topic in two.topics.all()) == ["clicks", "other"]
        assert two.leads(TopicPartition("other", 0))

    run(scenario)


def test_items_are_added_to_the_list_that_the_tree_has(run: Run) -> None:
    name = "leader.replication.throttled.replicas"

    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {name: "0:1"}, assignment=[[1, 2]])
        await cluster.follow()
        await one.topic_admin.alter("clicks", lambda _: {})  # broker 2 has not heard of it
        settings = cast(DynamicSettings, SimpleNamespace(broker=BrokerSettings(two.config, {}, {})))
        change = IncrementallyAlterableConfig(name=name, config_operation=APPEND, value="0:2")
        resource = IncrementalAlterConfigsResource(resource_type=2, resource_name="clicks", configs=[change])
        response = await incremental_alter_configs.function(
            two.topics,
            two.topic_admin,
            settings,
            CooperativeScheduler(SYSTEM_CLOCK.monotonic),
            IncrementalAlterConfigsRequest(resources=[resource], validate_only=False),
            call_of(incremental_alter_configs, 1),
        )
        assert [each.error_code for each in response.responses] == [ErrorCode.NONE]
        assert configs.read_topic_config(cluster.tree, "clicks") == {name: "0:2"}

    run(scenario)


def test_topic_that_came_and_went_unheard_of_leaves_no_note_of_its_deletion(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        await one.topic_admin.create("brief", 1, {}, assignment=[[1]])
        await one.topic_admin.delete("brief")
        await one.topic_admin.alter("clicks", lambda _: {"retention.ms": "5"})
        for name in cluster.tree.children(paths.CHANGES)[:-1]:
            cluster.tree.delete(f"{paths.CHANGES}/{name}")
        assert [each.brokers for each in topic_deletions.read_deletions(cluster.tree).values()] == [(2,)]
        assert (await two.follow()).is_everything
        assert topic_deletions.read_deletions(cluster.tree) == {}

    run(scenario)

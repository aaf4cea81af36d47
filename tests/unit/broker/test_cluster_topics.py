"""Several brokers' topics over one tree, in one event loop: what one of them changes, the others follow."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.claims import PAUSE_S
from barnabas.broker.cluster_watch import ClusterWatch, News
from barnabas.broker.follower import Follower
from barnabas.broker.handing_over import HandingOver
from barnabas.broker.open_files import OpenFiles
from barnabas.broker.partition import Partition
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import default_log_config
from barnabas.broker.topics import Topics
from barnabas.clock import ManualClock
from barnabas.coordination import paths, registry
from barnabas.coordination.embedded import EmbeddedTree
from barnabas.coordination.registry import PartitionInfo
from barnabas.coordination.tree import NodeError
from barnabas.coordination.values import NO_LEADER, BrokerRegistration, PartitionState
from barnabas.errors import ErrorCode, KafkaError
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder
from barnabas.storage import LogManager, OsFileSystem

CLICKS = TopicPartition("clicks", 0)


async def in_tree_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    await asyncio.sleep(0)
    return function(*arguments)


class Node:
    """What is of a broker here: its session, its folder, its topics, and what it has read."""

    topics: Topics
    watch: ClusterWatch

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.config = BrokerConfig(broker_id=broker_id)
        self.before_loading: Callable[[], None] = lambda: None
        """Called when the tree was read, before what it says is taken over."""

    async def start(self, *, lost_memory: bool = False) -> Node:
        """Begin as a broker does."""
        self.tree = self.cluster.tree.new_session()
        folder = self.cluster.folder / str(self.id)
        self.logs = LogManager(
            folder,
            default_log_config(self.config),
            self.cluster.clock,
            OsFileSystem(),
            broker_id=self.id,
            cluster_id="castle",
        )
        registry.register_broker(self.tree, BrokerRegistration(self.id, "here", 9000 + self.id))
        clock, files = self.cluster.clock, OpenFiles(10_000, 100)
        self.topics = Topics(self.config, self.tree, self.logs, in_tree_thread, files, clock=clock)  # type: ignore[arg-type]
        self.watch = ClusterWatch(self.tree, in_tree_thread, self._take_over)  # type: ignore[arg-type]
        news = self.watch.read_everything()
        self.before_loading()
        await self.topics.load(news, lost_memory=lost_memory)
        await self.topics.end_deletions()
        return self

    async def follow(self) -> News:
        """Take over what is new, as after an event."""
        due = {paths.BROKER_IDS, paths.CHANGES}
        return await self._take_over(functools.partial(in_tree_thread, self.watch._read, due))

    async def _take_over(self, read: Any) -> News:
        news = await self.topics.take_over(read)
        await self.topics.end_deletions()
        return news

    def die(self) -> None:
        """End as with kill -9, once the others have noticed."""
        self.logs._abandon()
        self.tree.close()

    def info(self, where: TopicPartition = CLICKS) -> PartitionInfo:
        info = self.topics.picture.partition(where)
        assert info is not None
        return info

    def leads(self, where: TopicPartition = CLICKS) -> bool:
        topic = self.topics.get(where.topic)
        return topic is not None and isinstance(topic.hosted.get(where.partition), Partition)

    def folders(self) -> list[str]:
        return sorted(path.name for path in (self.cluster.folder / str(self.id)).glob("*-?") if path.is_dir())


class Cluster:
    """The tree, which outlives all brokers, and the time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.tree = EmbeddedTree(folder / "tree.sqlite", self.clock)
        registry.prepare(self.tree, "castle")
        self.nodes: list[Node] = []

    async def start(self, *broker_ids: int) -> list[Node]:
        started = [await Node(self, each).start() for each in broker_ids]
        self.nodes += started
        await self.follow()
        return started

    async def follow(self) -> None:
        """Let all of them take over what is new, until nobody changes anything."""
        for _ in range(3):
            for node in self.nodes:
                await node.follow()

    async def lose(self, node: Node) -> None:
        """Let a broker die."""
        self.nodes.remove(node)
        node.die()

    def close(self) -> None:
        for node in self.nodes:
            node.die()
        self.tree.close()


Run = Callable[[Callable[[Cluster], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    cluster = Cluster(tmp_path)

    def run_scenario(scenario: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(60):
                await scenario(cluster)

        asyncio.run(bounded())

    yield run_scenario
    cluster.close()


def append(node: Node, count: int = 1) -> None:
    for _ in range(count):
        builder = BatchBuilder()
        builder.append(1_000, None, b"value")
        partition = node.topics.partition(*CLICKS)
        partition.log.append(builder.build(), partition.leader_epoch)


# --- creation ---


def test_topic_that_one_creates_is_seen_and_hosted_by_the_others(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        await one.topics.create("clicks", 2, {"retention.ms": "5"}, assignment=[[2, 3], [1, 2]])
        await cluster.follow()
        assert [each.folders() for each in cluster.nodes] == [["clicks-1"], ["clicks-0", "clicks-1"], ["clicks-0"]]
        assert [each.leads() for each in cluster.nodes] == [False, True, False]
        assert one.leads(TopicPartition("clicks", 1))
        assert isinstance(three.topics.replica("clicks", 0), Follower)
        assert three.topics.replica("clicks", 0).leader == 2
        for each in cluster.nodes:
            topic = each.topics.get("clicks")
            assert topic is not None
            assert topic.settings == {"retention.ms": "5"}
            assert [info.state.isr for info in topic.partitions] == [(2, 3), (1, 2)]
        with pytest.raises(KafkaError, match=r"clicks-0 is on brokers \[2, 3\]") as caught:
            one.topics.replica("clicks", 0)
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(KafkaError, match="already exists"):
            await two.topics.create("clicks", 1, {})

    run(scenario)


def test_own_change_that_is_read_later_changes_nothing(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        await one.topics.create("clicks", 1, {})
        before = one.topics.partition(*CLICKS)
        await one.follow()
        assert one.topics.partition(*CLICKS) is before

    run(scenario)


def test_what_was_told_of_a_topic_is_read_no_earlier_than_its_deletion(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        await one.topics.create("clicks", 1, {})
        deletion = asyncio.create_task(one.topics.delete("clicks"))
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
        with pytest.raises(KafkaError):
            await one.topics.create("clicks", 1, {}, replication_factor=2)
        assert one.topics.get("clicks") is None

    run(scenario)


# --- leadership ---


def test_leadership_is_taken_over_when_a_session_ends(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        await one.topics.create("clicks", 1, {}, assignment=[[1, 2, 3]])
        await cluster.follow()
        await cluster.lose(one)
        await three.follow()  # the second in line, which waits for the first one
        assert not three.leads()
        await cluster.follow()
        assert two.leads()
        assert two.info().state == three.info().state == PartitionState(2, 1, (2, 3))
        replica = three.topics.replica(*CLICKS)
        assert (replica.leader, replica.leader_epoch) == (2, 1)

    run(scenario)


def test_leader_whose_disk_refuses_hands_on_what_others_can_lead(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, _ = await cluster.start(1, 2, 3)
        await one.topics.create("clicks", 2, {}, assignment=[[1, 2, 3], [1, 3, 2]])
        await cluster.follow()
        one.topics.partition(*CLICKS).log._health.go_offline("append", OSError("broken"))
        await HandingOver(one.topics, one.id).give_up_offline()
        await cluster.follow()
        assert two.leads()
        assert not one.leads()
        assert two.info().state == PartitionState(2, 1, (2, 3))
        assert one.leads(TopicPartition("clicks", 1))

    run(scenario)


def test_next_in_line_takes_over_a_pause_later_if_the_first_does_not(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        await one.topics.create("clicks", 1, {}, assignment=[[1, 2, 3]])
        await cluster.follow()
        await cluster.lose(one)
        await three.follow()
        assert three.topics.claims.next_deadline == pytest.approx(cluster.clock.monotonic() + PAUSE_S)
        await three.topics.claim_due()
        assert not three.leads()
        cluster.clock.advance(PAUSE_S)
        await three.topics.claim_due()
        assert three.leads()
        await two.follow()
        assert not two.leads()
        assert two.info().state.leader == 3

    run(scenario)


def test_broker_that_was_slower_follows_the_one_that_was_faster(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        await one.topics.create("clicks", 1, {}, assignment=[[1, 2, 3]])
        await cluster.follow()
        await cluster.lose(one)
        await three.follow()
        await two.follow()
        cluster.clock.advance(PAUSE_S)
        # It has not heard of it, and its compare-and-set fails.
        await three.topics.claim_due()
        assert two.leads()
        assert not three.leads()
        assert three.info().state.leader == 2
        assert three.topics.replica(*CLICKS).leader == 2

    run(scenario)


def test_leader_that_comes_back_does_not_lead_again_before_it_has_claimed(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topics.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        append(one)
        await cluster.lose(one)
        (one,) = await cluster.start(1)
        # Nobody noticed that it was away: it is the first in line.
        assert one.leads()
        assert one.info().state == two.info().state == PartitionState(1, 1, (1, 2))
        assert one.topics.partition(*CLICKS).log.log_end_offset == 1

    run(scenario)


def test_partition_whose_members_are_all_away_waits_for_one(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        await one.topics.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        await cluster.lose(one)
        await cluster.lose(two)
        await cluster.follow()
        assert three.topics.picture.leader_of(three.info()) == NO_LEADER
        assert three.topics.picture.offline_replicas(three.info()) == [1, 2]
        (two,) = await cluster.start(2)
        assert two.leads()
        assert three.topics.picture.leader_of(three.info()) == 2

    run(scenario)


def test_broker_whose_machine_lost_its_memory_leaves_the_in_sync_replicas(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topics.create("clicks", 1, {}, assignment=[[1, 2]])
        await one.topics.create("alone", 1, {}, assignment=[[1]])
        await cluster.follow()
        await cluster.lose(one)
        one = await Node(cluster, 1).start(lost_memory=True)
        cluster.nodes.append(one)
        await cluster.follow()
        assert two.leads()
        assert one.info().state == PartitionState(2, 2, (2,))
        assert isinstance(one.topics.replica(*CLICKS), Follower)
        assert one.leads(TopicPartition("alone", 0))

    run(scenario)


# --- deletion ---


def test_deleted_topic_goes_everywhere_and_its_note_with_the_last_folder(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topics.create("clicks", 2, {}, assignment=[[1, 2], [2, 1]])
        await cluster.follow()
        await two.topics.delete("clicks")
        assert [each.brokers for each in registry.read_deletions(cluster.tree).values()] == [(1,)]
        await cluster.follow()
        assert registry.read_deletions(cluster.tree) == {}
        for each in cluster.nodes:
            assert each.topics.get("clicks") is None
            assert each.folders() == []

    run(scenario)


def test_broker_that_was_away_removes_what_it_has_of_a_deleted_topic(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topics.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        await cluster.lose(two)
        await one.follow()
        await one.topics.delete("clicks")
        assert [each.brokers for each in registry.read_deletions(cluster.tree).values()] == [(2,)]
        # Another one of that name is not in the way, nor touched.
        await one.topics.create("clicks", 1, {}, assignment=[[1]])
        (two,) = await cluster.start(2)
        assert two.folders() == []
        assert one.folders() == ["clicks-0"]
        assert registry.read_deletions(cluster.tree) == {}

    run(scenario)


def test_topic_that_is_deleted_and_made_anew_before_it_is_read_is_another_one(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topics.create("clicks", 1, {}, assignment=[[2, 1]])
        await cluster.follow()
        append(two, 3)
        old = two.topics.get("clicks")
        assert old is not None
        await one.topics.delete("clicks")
        await one.topics.create("clicks", 1, {}, assignment=[[2, 1]])
        await cluster.follow()
        new = two.topics.get("clicks")
        assert new is not None
        assert new.id != old.id
        assert two.topics.by_id(old.id) is None
        assert two.topics.partition(*CLICKS).log.log_end_offset == 0
        assert registry.read_deletions(cluster.tree) == {}

    run(scenario)


def test_topic_that_left_the_tree_without_a_note_keeps_its_folders(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topics.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        registry.delete_topic(cluster.tree, "clicks")
        await cluster.follow()
        assert one.topics.get("clicks") is None
        assert one.folders() == two.folders() == ["clicks-0"]

    run(scenario)
    assert "nobody deleted it" in caplog.text


# --- growth, settings, damage ---


def test_growth_and_settings_are_taken_over(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topics.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        await two.topics.grow("clicks", 2, [[2, 1]])
        await one.topics.configure("clicks", lambda settings: {**settings, "max.message.bytes": "777"})
        await cluster.follow()
        assert one.folders() == two.folders() == ["clicks-0", "clicks-1"]
        assert two.leads(TopicPartition("clicks", 1))
        for each in cluster.nodes:
            assert {replica.config.log.max_message_bytes for replica in each.topics.hosted()} == {777}

    run(scenario)


def test_growth_that_another_broker_was_faster_with_is_refused(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topics.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        await one.topics.grow("clicks", 2, [[1, 2]])
        with pytest.raises(KafkaError) as caught:
            await two.topics.grow("clicks", 3, [[1, 2], [2, 1]])
        assert caught.value.code is ErrorCode.INVALID_PARTITIONS
        await cluster.follow()
        assert two.folders() == ["clicks-0", "clicks-1"]
        assert two.topics.replica("clicks", 1).leader == 1

    run(scenario)


def test_topic_whose_nodes_are_damaged_stays_as_it_was_until_they_are_mended(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topics.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        sound = cluster.tree.get(paths.topic("clicks")).data
        cluster.tree.set(paths.topic("clicks"), b"garbage")
        registry.write_topic_config(cluster.tree, "clicks", {"max.message.bytes": "777"})
        news = await two.follow()
        assert isinstance(news.topics["clicks"], NodeError)
        assert two.folders() == ["clicks-0"]
        assert one.leads()
        cluster.tree.set(paths.topic("clicks"), sound)
        registry.write_topic_config(cluster.tree, "clicks", {"max.message.bytes": "778"})
        await cluster.follow()
        assert two.topics.replica(*CLICKS).config.log.max_message_bytes == 778

    run(scenario)


def test_missed_changes_are_made_up_for_by_reading_everything(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topics.create("clicks", 1, {}, assignment=[[1, 2]])
        await one.topics.create("views", 1, {}, assignment=[[1]])
        await cluster.follow()
        await one.topics.delete("views")
        await one.topics.create("other", 1, {}, assignment=[[2, 1]])
        for name in cluster.tree.children(paths.CHANGES)[:-1]:
            cluster.tree.delete(f"{paths.CHANGES}/{name}")
        assert (await two.follow()).is_everything
        assert sorted(topic.name for topic in two.topics.all()) == ["clicks", "other"]
        assert two.leads(TopicPartition("other", 0))

    run(scenario)

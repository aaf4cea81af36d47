"""Brokers whose log directories are older copies of themselves: an old copy of a disk does not lead."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from unittest import mock

import pytest

from barnabas.broker.topics import Topics
from barnabas.coordination import paths
from barnabas.coordination.values import PartitionState, encode_partition_state
from barnabas.errors import CoordinationError
from tests.support.planted_bugs import ignore_the_age_of_a_disk
from tests.support.topics_cluster import CLICKS, Cluster, Node, Run, append
from tests.unit.broker.test_unclean_recovery import append_to_replica, come_back

BROKERS = (1, 2, 3)
COUNTS = {"oldest": 3, "older": 5, "newest": 8}
"""How many records each copy has; the newest is the disk itself."""


async def write_and_copy(cluster: Cluster) -> None:
    """Let three replicas have the same records, and make copies of their disks on the way; kill all brokers."""
    nodes = await cluster.start(*BROKERS)
    await nodes[0].topic_admin.create("clicks", 1, {}, assignment=[list(BROKERS)])
    await cluster.follow()
    written = 0
    for name, count in COUNTS.items():
        for node in nodes:
            append_to_replica(node, count - written)
            if name != "newest":
                shutil.copytree(cluster.folder / str(node.id), cluster.folder / f"{name}-{node.id}")
            node.increment_life_counter()
        written = count
    for node in nodes:
        await cluster.lose(node)


def restore(cluster: Cluster, restored: Mapping[int, str]) -> None:
    for number, name in restored.items():
        shutil.rmtree(cluster.folder / str(number))
        shutil.copytree(cluster.folder / f"{name}-{number}", cluster.folder / str(number))


def restorations() -> Iterator[dict[int, str]]:
    """Yield which brokers are restored from which copies: one, two or all, from copies of different ages."""
    for count in BROKERS:
        for numbers in itertools.combinations(BROKERS, count):
            for names in itertools.product(("oldest", "older"), repeat=count):
                if len(set(names)) == min(count, 2):
                    yield dict(zip(numbers, names, strict=True))


async def start_all(cluster: Cluster, order: Sequence[int], counts: Mapping[int, int]) -> None:
    """Start all brokers; check that no replica leads but one with the most records, and that one does in the end."""
    most = max(counts.values())
    for number in order:
        await come_back(cluster, number, lost_memory=False)
        assert all(counts[node.id] == most for node in cluster.nodes if node.leads()), (order, counts)
    assert sum(node.leads() for node in cluster.nodes) == 1, (order, counts)
    assert {counts[each] for each in cluster.nodes[0].info().state.isr} == {most}, (order, counts)


@pytest.mark.parametrize("order", list(itertools.permutations(BROKERS)), ids=str)
def test_an_old_copy_of_a_disk_does_not_lead(
    run: Run, order: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await write_and_copy(cluster)
        path = paths.partition_state(CLICKS)
        lives = cluster.tree.subtree(paths.LIVES)
        before = cluster.tree.get(path).data
        newest = dict.fromkeys(BROKERS, "newest")
        for number in BROKERS:
            shutil.copytree(cluster.folder / str(number), cluster.folder / f"newest-{number}")
        for restored in restorations():
            caplog.clear()
            restore(cluster, newest | restored)
            cluster.tree.set(path, before)
            for life, node in lives.items():
                cluster.tree.set(life, node.data)
            await start_all(cluster, order, {each: COUNTS[restored.get(each, "newest")] for each in BROKERS})
            assert caplog.text.count("is an older copy of itself") == len(restored)
            assert ("later records are lost unless" in caplog.text) == (len(restored) == len(BROKERS))
            for node in list(cluster.nodes):
                await cluster.lose(node)

    run(scenario)


def test_without_the_comparison_old_copies_lead(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ignore_the_age_of_a_disk(monkeypatch)

    async def scenario(cluster: Cluster) -> None:
        await write_and_copy(cluster)
        restore(cluster, {1: "oldest"})
        node = await come_back(cluster, 1, lost_memory=False)
        assert node.leads()

    run(scenario)


@pytest.mark.parametrize("order", [(3, 1, 2), (3, 2, 1), (1, 3, 2)], ids=str)
def test_the_only_in_sync_replica_on_an_old_copy_waits_for_those_that_left_later(
    run: Run, order: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await write_and_copy(cluster)
        restore(cluster, {3: "older"})
        cluster.tree.set(paths.partition_state(CLICKS), encode_partition_state(PartitionState(3, 4, (3,))))
        await start_all(cluster, order, {1: 8, 2: 8, 3: 5})
        assert "was the only in-sync replica, and its log directory is an older copy" in caplog.text

    run(scenario)


def test_a_replica_that_left_the_isr_leads_where_all_members_have_less(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        await write_and_copy(cluster)
        restore(cluster, {1: "oldest", 2: "oldest", 3: "older"})
        cluster.tree.set(paths.partition_state(CLICKS), encode_partition_state(PartitionState(1, 4, (1, 2))))
        await start_all(cluster, (1, 2, 3), {1: 3, 2: 3, 3: 5})

    run(scenario)


def test_an_old_copy_that_follows_does_not_lead_before_it_has_caught_up(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        await write_and_copy(cluster)
        restore(cluster, {3: "older"})
        one = await come_back(cluster, 1, lost_memory=False)
        two = await come_back(cluster, 2, lost_memory=False)
        assert one.leads()
        path = paths.partition_state(CLICKS)
        state = one.info().state
        await cluster.lose(two)
        cluster.tree.set(path, encode_partition_state(replace(state, isr=(1, 3))))  # as if the copy had been in sync
        await cluster.follow()
        three = await come_back(cluster, 3, lost_memory=False)
        assert three.info().state.isr == (1,)
        await cluster.lose(one)
        await cluster.follow()
        assert not three.leads()

    run(scenario)


def test_an_old_copy_without_the_log_does_not_lead_with_an_empty_one(run: Run) -> None:
    """The topic was created after the copy was made."""

    async def scenario(cluster: Cluster) -> None:
        await write_and_copy(cluster)
        restore(cluster, {3: "oldest"})
        shutil.rmtree(cluster.folder / "3" / "clicks-0")
        cluster.tree.set(paths.partition_state(CLICKS), encode_partition_state(PartitionState(3, 4, (3,))))
        await start_all(cluster, (3, 2, 1), {1: 8, 2: 8, 3: 0})

    run(scenario)


def test_a_partition_with_one_replica_is_led_and_the_loss_is_logged(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1]])
        shutil.copytree(cluster.folder / "1", cluster.folder / "older-1")
        append(one, 3)
        one.increment_life_counter()
        await cluster.lose(one)
        restore(cluster, {1: "older"})
        assert (await come_back(cluster, 1, lost_memory=False)).leads()
        assert "its life counter is 1; the metadata store has 2, recorded 0 s later; it lacks at least 3" in caplog.text
        assert "the only replica of these partitions is in an older copy of its log directory" in caplog.text

    run(scenario)


def test_a_start_that_fails_leaves_the_copy_an_old_one(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        await write_and_copy(cluster)
        restore(cluster, {1: "older"})
        node = Node(cluster, 1)
        with (
            mock.patch.object(Topics, "load", side_effect=CoordinationError("silent")),
            pytest.raises(CoordinationError),
        ):
            await node.start()
        node.die()
        one = await come_back(cluster, 1, lost_memory=False)
        assert not one.leads()
        await cluster.lose(one)
        again = await come_back(cluster, 1, lost_memory=False)
        assert again.logs.life.old_copy is None, "the replicas have left the ISR"
        assert not again.leads()

    run(scenario)

"""Partition states that a stranger wrote: the brokers go by what they know, write it again, and lose no record."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.broker.leader_election import PAUSE_S
from barnabas.coordination import paths, topic_metadata_store
from barnabas.coordination.change_notifications import ChangeNotification, notification_node
from barnabas.coordination.metadata_store import Set
from barnabas.coordination.values import NO_LEADER
from tests.support.topics_cluster import CLICKS, Cluster, Node, Run, append

STATES: list[Any] = [
    {"leader": 1, "leader_epoch": -7, "isr": [1, 2]},
    {"leader": 1, "leader_epoch": 0, "isr": [1, 2]},
    {"leader": 2, "leader_epoch": 1, "isr": [1, 2]},
    {"leader": 2**40, "leader_epoch": 2**40, "isr": [2**40]},
    {"leader": 1, "leader_epoch": 2**31 - 1, "isr": [1, 2]},
    {"leader": 9, "leader_epoch": 8, "isr": [9]},
    {"leader": 3, "leader_epoch": 8, "isr": [3]},
    {"leader": 3, "leader_epoch": 8, "isr": [3, 1, 2]},
    {"leader": 1, "leader_epoch": 8, "isr": []},
    {"leader": -1, "leader_epoch": 8, "isr": []},
    {"leader": -1, "leader_epoch": 8, "isr": [], "lost_memory": [[9, -1, -1]]},
    {"leader": 1, "leader_epoch": 1, "isr": [1, 9]},
    {"leader": "1", "leader_epoch": "1", "isr": ["1"]},
    {"leader": 2, "leader_epoch": 8, "isr": [1]},
    {"leader": 1, "leader_epoch": 1, "isr": [1, 1]},
    "nonsense",
    {},
]


def write(cluster: Cluster, state: Any, *, is_told: bool) -> None:
    path = paths.partition_state(CLICKS)
    data = state.encode() if isinstance(state, str) else json.dumps(state).encode()
    cluster.tree.multi(
        [Set(path, data), *([notification_node(ChangeNotification(topics=("clicks",)))] if is_told else [])]
    )


async def settle(cluster: Cluster) -> None:
    """Let all take over what is new, and what is due later."""
    for _ in range(6):
        await cluster.follow()
        cluster.clock.advance(3 * PAUSE_S)
        for node in cluster.nodes:
            await node.topics.elect_due()


def leader_of(cluster: Cluster) -> Node:
    found = [node for node in cluster.nodes if node.leads()]
    assert len(found) == 1, [(node.id, node.info().state) for node in cluster.nodes]
    return found[0]


@pytest.mark.parametrize(
    ("state", "is_told"), [*((state, True) for state in STATES[::2]), *((state, False) for state in STATES[1::5])]
)
def test_partition_is_led_on_whatever_a_stranger_writes(run: Run, state: Any, *, is_told: bool) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, _ = await cluster.start(1, 2, 3)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        await cluster.lose(one)
        await settle(cluster)
        (one,) = await cluster.start(1)
        await settle(cluster)
        assert two.leads()
        append(two, 3)
        epoch = two.info().state.leader_epoch
        write(cluster, state, is_told=is_told)
        await settle(cluster)
        leader = leader_of(cluster)
        assert leader.id in {1, 2}
        assert leader.info().state.leader_epoch >= epoch
        await cluster.lose(leader)
        await settle(cluster)
        await cluster.start(leader.id)
        await settle(cluster)
        leader_of(cluster)
        written, _ = topic_metadata_store.read_partition_state(cluster.tree, CLICKS)
        assert written.leader == leader_of(cluster).id
        assert written.leader_epoch >= epoch
        assert set(written.isr) <= {1, 2}

    run(scenario)


@pytest.mark.parametrize("state", STATES[::4])
def test_replica_with_all_records_leads_after_a_restart_of_all(run: Run, state: Any) -> None:
    """Broker 2 led last, alone, with three records."""

    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        await cluster.lose(one)
        await settle(cluster)
        append(two, 3)
        await cluster.lose(two)
        write(cluster, state, is_told=False)
        for number in (1, 2):
            await cluster.start(number)
            await settle(cluster)
        leader = leader_of(cluster)
        # Some states could be those of an older tree, in which broker 1 was in sync.
        is_valid = isinstance(state, dict) and state.get("isr") == [1, 2] and state["leader_epoch"] in {0, 1}
        assert is_valid or leader.topics.replicas.leader(*CLICKS).log.log_end_offset == 3
        assert leader.info().state.leader != NO_LEADER

    run(scenario)


def test_brokers_that_read_different_leaders_of_one_epoch_agree(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        nodes = await cluster.start(1, 2)
        await nodes[0].topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        for node in nodes:
            write(cluster, {"leader": node.id, "leader_epoch": 8, "isr": [1, 2]}, is_told=False)
            node.watch._seen = None  # it reads everything, and the other one knows nothing of this write
            await node.follow()
        assert [node.leads() for node in nodes] == [True, True]
        nodes[0].watch._seen = None
        await settle(cluster)
        leader = leader_of(cluster)
        assert leader.info().state.leader_epoch == 9
        written = cluster.tree.get(paths.partition_state(CLICKS))
        await settle(cluster)
        assert cluster.tree.get(paths.partition_state(CLICKS)) == written

    run(scenario)

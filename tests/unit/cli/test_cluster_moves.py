"""`barnabas cluster drain`, `replace` and `balance`."""

from __future__ import annotations

import pytest

from barnabas.cli import partition_moves
from barnabas.client.admin.reassignments import Reassignment
from barnabas.client.admin.topics import PartitionDescription
from barnabas.model import Node, TopicPartition


@pytest.fixture
def placed(cluster, monkeypatch):
    """Four brokers, of which the last has nothing, and where what is to move has moved when it is asked for twice."""
    monkeypatch.setattr(partition_moves, "LOOK_S", 0)
    cluster.nodes = [Node(each, "localhost", 9090 + each) for each in (1, 2, 3, 4)]
    for number, replicas in enumerate([(1, 2), (2, 3), (3, 1)]):
        cluster.place("clicks", number, replicas[0], replicas, replicas)
    cluster.slices = []

    def move() -> None:
        if cluster.moving:
            cluster.slices.append(len(cluster.moving))
        for tp, each in cluster.moving.items():
            cluster.placed[tp] = PartitionDescription(tp.partition, each.target[0], each.target, each.target)
        cluster.moving.clear()

    cluster.on_look = move
    return cluster


def where(cluster) -> list[tuple[int, ...]]:
    return [cluster.where(TopicPartition("clicks", number)).replicas for number in range(3)]


def test_broker_is_drained_in_slices(placed, run) -> None:
    outcome = run("cluster", "drain", 3, "-y", "--at-once", 1)
    assert outcome.out.splitlines() == [
        "partition  from  to",
        "clicks-1   2,3   2,4",
        "clicks-2   3,1   4,1",
        "moved 1 partition",
        "moved 1 partition",
    ]
    assert placed.slices == [1, 1]
    assert where(placed) == [(1, 2), (2, 4), (4, 1)]
    assert run("cluster", "drain", 3, "-y").err == "there is nothing to move\n"


def test_new_broker_takes_the_place_of_one_that_is_gone(placed, run) -> None:
    placed.nodes = [node for node in placed.nodes if node.id != 1]
    assert run("cluster", "replace", 1, 4, "-y").code == 0
    assert where(placed) == [(4, 2), (2, 3), (3, 4)]


def test_partition_that_nobody_has_who_lives_does_not_keep_the_others_waiting(placed, run) -> None:
    placed.nodes = [node for node in placed.nodes if node.id != 1]
    placed.place("alone", 0, -1, (1,), (1,))
    asked = []
    move = placed.on_look

    def tell() -> None:
        asked.extend(map(str, placed.moving))
        move()

    placed.on_look = tell
    assert run("cluster", "replace", 1, 4, "-y", "--at-once", 1).code == 0
    assert asked == ["clicks-0", "clicks-2", "alone-0"]


def test_where_both_hold_a_partition_a_third_one_takes_the_place(placed, run) -> None:
    assert run("cluster", "replace", 1, 2, "-y").code == 0
    assert where(placed) == [(4, 2), (2, 3), (3, 2)]


def test_load_is_shared_out(placed, run) -> None:
    outcome = run("cluster", "balance", "--plan")
    assert len(outcome.out.splitlines()) == 2
    assert where(placed) == [(1, 2), (2, 3), (3, 1)]
    assert run("cluster", "balance", "-y").code == 0
    held = [each for replicas in where(placed) for each in replicas]
    assert sorted(map(held.count, (1, 2, 3, 4))) == [1, 1, 2, 2]


def test_what_is_on_its_way_counts_as_there(placed, run) -> None:
    placed.on_look = lambda: None
    placed.moving[TopicPartition("clicks", 1)] = Reassignment((2, 4, 3), (4,), (3,))
    outcome = run("cluster", "drain", 3, "--plan")
    assert outcome.out.splitlines() == ["partition  from  to", "clicks-2   3,1   4,1"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["replace", "1", "1"], 2, "the same broker"),
        (["replace", "1", "9"], 2, "broker 9 is not registered"),
        (["drain", "3"], 2, "confirm with -y"),
    ],
)
def test_what_cannot_be_is_refused(placed, run, arguments, code, message) -> None:
    outcome = run("cluster", *arguments)
    assert outcome.code == code
    assert message in outcome.err
    assert not placed.moving

"""`barnabas topic reassign`."""

from __future__ import annotations

import json

import pytest

from barnabas.cli import partition_moves
from barnabas.client.admin.reassignments import Reassignment
from barnabas.model import Node, TopicPartition

CLICKS = TopicPartition("clicks", 0)


@pytest.fixture
def placed(cluster, monkeypatch):
    """Three brokers, and a topic with two partitions on two of them."""
    monkeypatch.setattr(partition_moves, "LOOK_S", 0)
    cluster.nodes = [Node(each, "localhost", 9090 + each) for each in (1, 2, 3)]
    cluster.place("clicks", 0, 1, (1, 2), (1, 2))
    cluster.place("clicks", 1, 2, (2, 1), (2, 1))
    return cluster


def test_plan_is_shown_and_carried_out(placed, run) -> None:
    looks: list[int] = []

    def look() -> None:
        looks.append(len(placed.moving))
        if len(looks) == 2:
            placed.moving.clear()

    placed.on_look = look
    outcome = run("topic", "reassign", "clicks", "--partition", "0=3,2", "-y")
    assert outcome.out.splitlines() == ["partition  from  to", "clicks-0   1,2   3,2", "moved 1 partition"]
    assert looks == [1, 1, 0]


def test_brokers_are_chosen_so_that_little_moves(placed, run) -> None:
    outcome = run("topic", "reassign", "clicks", "--brokers", "2,3", "-y", "--no-wait", "--json")
    first, last = outcome.out.splitlines()
    assert json.loads(first) == [
        {"topic": "clicks", "partition": 0, "from": [1, 2], "to": [3, 2]},
        {"topic": "clicks", "partition": 1, "from": [2, 1], "to": [2, 3]},
    ]
    assert last == "started to move 2 partitions; see: barnabas topic reassign clicks --status"
    assert {tp: each.target for tp, each in placed.moving.items()} == {CLICKS: (3, 2), ("clicks", 1): (2, 3)}


def test_more_replicas_and_fewer(placed, run) -> None:
    outcome = run("topic", "reassign", "clicks", "-r", 3, "-y", "--no-wait")
    assert "clicks-0   1,2   1,2,3" in outcome.out
    outcome = run("topic", "reassign", "clicks", "-r", 1, "-y", "--no-wait")
    assert "clicks-1   2,1   2" in outcome.out
    outcome = run("topic", "reassign", "clicks", "-r", 4, "-y")
    assert outcome.code == 1
    assert "replication factor 4 is not between 1 and the number of allowed brokers, 3" in outcome.err


def test_nobody_is_asked_nothing_moves(placed, run) -> None:
    outcome = run("topic", "reassign", "clicks", "--partition", "0=3,2")
    assert outcome.code == 2
    assert "confirm with -y" in outcome.err
    assert not placed.moving


def test_what_is_where_it_is_to_be_does_not_move(placed, run) -> None:
    assert run("topic", "reassign", "clicks", "--partition", "0=1,2").err == "the partitions of clicks need no move\n"
    assert run("topic", "reassign", "clicks", "--brokers", "1,2").err == "the partitions of clicks need no move\n"


def test_what_is_on_its_way_is_shown_and_taken_back(placed, run) -> None:
    assert run("topic", "reassign", "clicks", "--status").err == "no partition is moving\n"
    assert run("topic", "reassign", "clicks", "--cancel").err == "no partition is moving\n"
    placed.moving[CLICKS] = Reassignment((3, 2, 1), (3,), (1,))
    assert run("topic", "reassign", "clicks", "--status").out.splitlines() == [
        "partition  replicas  adding  removing",
        "clicks-0   3,2,1     3       1",
    ]
    assert json.loads(run("topic", "reassign", "clicks", "--status", "--json").out)[0]["adding"] == [3]
    assert run("topic", "reassign", "clicks", "--cancel").out == "canceled the reassignment of 1 partition of clicks\n"
    assert not placed.moving


def test_ctrl_c_ends_the_looking_on_and_not_the_move(placed, run) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    placed.on_look = interrupt
    outcome = run("topic", "reassign", "clicks", "--partition", "0=3,2", "-y")
    assert outcome.code == 130
    assert "the move continues; see: barnabas topic reassign clicks --status" in outcome.err
    assert CLICKS in placed.moving


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one of --partition"),
        (["--status", "--cancel"], "give one of --partition"),
        (["--partition", "0"], "is not N=ID,ID"),
        (["--partition", "7=1"], "has no partition 7"),
        (["--brokers", "one"], "is not a list of broker ids"),
    ],
)
def test_what_cannot_be_understood_is_refused(placed, run, arguments, message) -> None:
    outcome = run("topic", "reassign", "clicks", *arguments)
    assert outcome.code == 2
    assert message in outcome.err

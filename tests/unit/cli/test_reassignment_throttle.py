"""`--throttle`: what is set for a move, and that nothing of it is left."""

from __future__ import annotations

import pytest

from barnabas.cli import partition_moves
from barnabas.cli.reassignment_throttle import FOLLOWERS, LEADERS, RATES
from barnabas.client.admin.reassignments import Reassignment
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import Node, TopicPartition

CLICKS = TopicPartition("clicks", 0)
MOVE = ("topic", "reassign", "clicks", "--partition", "0=3,2", "-y")
SLOWLY = (*MOVE, "--throttle", 1000)
AS_SET = {LEADERS: "0:1,0:2", FOLLOWERS: "0:3"}


@pytest.fixture
def placed(cluster, monkeypatch):
    """Three brokers; of a topic with two partitions, what is asked to move has moved when it is looked at twice."""
    monkeypatch.setattr(partition_moves, "LOOK_S", 0)
    cluster.nodes = [Node(each, "localhost", 9090 + each) for each in (1, 2, 3)]
    cluster.place("clicks", 0, 1, (1, 2), (1, 2))
    cluster.place("clicks", 1, 2, (2, 1), (2, 1))
    cluster.place("views", 0, 2, (2, 1), (2, 1))
    cluster.seen = []

    def look() -> None:
        cluster.seen.append({name: dict(each) for name, each in cluster.settings.items() if each})
        if len(cluster.seen) % 2 == 0:
            cluster.moving.clear()

    cluster.on_look = look
    return cluster


def interrupt() -> None:
    raise KeyboardInterrupt


def left(cluster) -> dict[str, dict[str, str]]:
    return {name: each for name, each in cluster.settings.items() if each}


def test_rate_and_replicas_are_set_and_taken_back(placed, run) -> None:
    assert run(*SLOWLY).code == 0
    assert placed.seen[0] == {"brokers": dict.fromkeys(RATES, "1000"), "clicks": AS_SET}
    assert left(placed) == {}


def test_what_is_refused_is_not_throttled(placed, run) -> None:
    def refuse() -> None:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no")

    placed.on_reassign = refuse
    assert run(*SLOWLY).code == 1
    assert left(placed) == {}


@pytest.mark.parametrize("again", [MOVE[:-1], ("topic", "reassign", "clicks", "--status")], ids=["same", "status"])
def test_throttle_stays_with_an_interrupted_move_and_goes_when_it_is_over(placed, run, again) -> None:
    looked = placed.on_look
    placed.on_look = interrupt
    assert run(*SLOWLY).code == 130
    placed.on_look = looked
    assert left(placed)["clicks"] == AS_SET
    placed.seen.append({})
    placed.moving.clear()
    placed.place("clicks", 0, 3, (3, 2), (3, 2))
    run(*again)
    assert left(placed) == {}


def test_command_that_does_not_wait_leaves_it_until_it_is_looked_at(placed, run) -> None:
    placed.on_look = lambda: None
    assert run(*SLOWLY, "--no-wait").code == 0
    assert left(placed)["clicks"] == AS_SET
    assert run("topic", "reassign", "clicks", "--status").code == 0
    assert left(placed)["clicks"] == AS_SET, "it is on its way"
    placed.moving.clear()
    assert run("topic", "reassign", "clicks", "--status").err == "no partition is moving\n"
    assert left(placed) == {}


def test_drain_that_is_run_again_waits_for_what_is_on_its_way_and_takes_back_all(placed, run) -> None:
    looked = placed.on_look
    calls = []

    def interrupt_later() -> None:
        calls.append(None)
        if len(calls) > 1:  # it is asked what moves before the plan is made
            raise KeyboardInterrupt

    placed.on_look = interrupt_later
    assert run("cluster", "drain", 1, "-y", "--throttle", 5).code == 130
    placed.on_look = looked
    assert left(placed)["views"] == {LEADERS: "0:2,0:1", FOLLOWERS: "0:3"}
    for tp in list(placed.moving):
        placed.place(tp.topic, tp.partition, 2, (2, 3), (2, 3))
    outcome = run("cluster", "drain", 1, "-y")
    assert "still moving, with a throttle: 3 partitions" in outcome.err
    assert "there is nothing to move" in outcome.err
    assert left(placed) == {}


def test_lists_of_others_and_their_rates_stay(placed, run) -> None:
    placed.settings["views"] = {LEADERS: "*"}
    placed.settings["clicks"] = {LEADERS: "1:2", FOLLOWERS: "*"}
    placed.moving[TopicPartition("clicks", 1)] = Reassignment((3, 2, 1), (3,), (1,))
    placed.on_look = lambda: placed.moving.pop(CLICKS, None)
    assert run(*SLOWLY).code == 0
    assert left(placed) == {
        "views": {LEADERS: "*"},
        "clicks": {LEADERS: "1:2", FOLLOWERS: "*"},
        "brokers": dict.fromkeys(RATES, "1000"),
    }

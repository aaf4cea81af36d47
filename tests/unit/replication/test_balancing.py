"""How a cluster's partitions are balanced."""

from __future__ import annotations

from collections import Counter

import pytest

from barnabas.replication.assignment import assign_replicas
from barnabas.replication.balancing import balance


def counts(placed: dict[int, tuple[int, ...]]) -> tuple[Counter[int], Counter[int]]:
    """How many replicas each broker has, and how many partitions prefer it."""
    return Counter(each for replicas in placed.values() for each in replicas), Counter(
        replicas[0] for replicas in placed.values()
    )


@pytest.mark.parametrize(("old", "new"), [(2, 3), (3, 4), (3, 6), (4, 5)])
def test_new_brokers_get_their_share_and_no_more_moves_than_that(old: int, new: int) -> None:
    placed = dict(enumerate(assign_replicas(dict.fromkeys(range(1, old + 1)), 60, 2, 0, 0)))
    brokers: dict[int, str | None] = dict.fromkeys(range(1, new + 1))
    after = placed | balance(placed, brokers)
    replicas, leaders = counts(after)
    assert max(replicas.values()) - min(replicas.values()) <= 1
    assert max(leaders.values()) - min(leaders.values()) <= 2
    assert set(leaders) == set(brokers)
    moved = sum(len(set(after[number]) - set(before)) for number, before in placed.items())
    assert moved == sum(replicas[each] for each in range(old + 1, new + 1))
    assert balance(after, brokers) == {}
    assert all(len(set(each)) == 2 for each in after.values())


def test_replicas_stay_in_as_many_racks_as_they_are_in() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "b", 3: "b"}
    placed = dict.fromkeys(range(6), (1, 2))
    after = placed | balance(placed, racks)
    assert all(len({racks[each] for each in replicas}) == 2 for replicas in after.values())
    assert counts(after)[0] == {1: 6, 2: 3, 3: 3}


def test_bytes_decide_which_partition_goes() -> None:
    placed = {"large": (1,), "small": (1,), "other": (2,)}
    assert balance({**placed, "more": (1,)}, {1: None, 2: None}, {"large": 10, "small": 5, "other": 0, "more": 1}) == {
        "small": (2,)
    }


def test_broker_that_does_not_live_is_left_alone() -> None:
    placed = dict.fromkeys(range(4), (9, 1))
    after = placed | balance(placed, {1: None, 2: None})
    assert all(9 in each for each in after.values())
    assert counts(after)[0] == {9: 4, 1: 2, 2: 2}


def test_leaders_are_shared_out_without_a_move() -> None:
    placed = dict.fromkeys(range(9), (1, 2, 3))
    after = placed | balance(placed, {1: None, 2: None, 3: None})
    assert counts(after)[1] == {1: 3, 2: 3, 3: 3}
    assert all(set(each) == {1, 2, 3} for each in after.values())


def test_balance_puts_no_two_replicas_on_one_machine() -> None:
    placed = dict.fromkeys(range(6), (1, 3))
    machines = {1: "a", 2: "a", 3: "b", 4: "b"}
    moved = balance(placed, dict.fromkeys(machines), machines=machines)
    after = {**placed, **moved}
    assert all({machines[each] for each in replicas} == {"a", "b"} for replicas in after.values())
    assert Counter(each for replicas in after.values() for each in replicas) == Counter(dict.fromkeys(machines, 3))

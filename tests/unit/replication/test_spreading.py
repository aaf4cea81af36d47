"""Where replicas go when some brokers are to hold them no longer."""

from __future__ import annotations

from collections import Counter

import pytest

from barnabas.errors import ApiError
from barnabas.replication.assignment import assign_replicas
from barnabas.replication.spreading import spread


def without_racks(*brokers: int) -> dict[int, str | None]:
    return dict.fromkeys(brokers)


def test_what_may_stay_stays_in_its_place() -> None:
    placed = {"a": (1, 2, 3), "b": (4, 1, 2)}
    assert spread(placed, without_racks(1, 2, 3, 4)) == {}
    assert spread(placed, without_racks(1, 3, 4)) == {"a": (1, 4, 3), "b": (4, 1, 3)}


def test_what_a_broker_had_is_spread_over_the_others() -> None:
    partitions = assign_replicas(without_racks(1, 2, 3, 4), 60, 2, 0, 0)
    placed = dict(enumerate(partitions))
    changed = spread(placed, without_racks(1, 2, 3))
    assert changed.keys() == {number for number, each in placed.items() if 4 in each}
    after = placed | changed
    replicas = Counter(broker for each in after.values() for broker in each)
    leaders = Counter(each[0] for each in after.values())
    assert set(replicas) == {1, 2, 3}
    assert max(replicas.values()) - min(replicas.values()) <= 2
    assert max(leaders.values()) - min(leaders.values()) <= 1
    assert all(len(set(each)) == 2 for each in after.values())


def test_racks_that_have_none_come_first() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    assert spread({"x": (1, 5)}, racks, others=[(3,), (4,)]) == {"x": (1, 3)}


def test_number_of_replicas_changes_where_it_is_asked_for() -> None:
    placed = {"a": (1, 2)}
    assert spread(placed, without_racks(1, 2, 3), replication_factor=3) == {"a": (1, 2, 3)}
    assert spread(placed, without_racks(1, 2, 3), replication_factor=1) == {"a": (1,)}
    assert spread(placed, without_racks(2, 3), replication_factor=1) == {"a": (2,)}
    with pytest.raises(ApiError):
        spread(placed, without_racks(1, 2), replication_factor=3)


def test_replica_never_goes_to_a_machine_that_has_another() -> None:
    machines = {1: "a", 2: "b", 3: "a", 4: "c"}
    brokers: dict[int, str | None] = {1: None, 3: None, 4: None}
    assert spread({"p": (1, 2)}, brokers, [(4,)] * 9, machines=machines) == {"p": (1, 4)}
    with pytest.raises(ApiError, match="allowed machines, 1"):
        spread({"p": (1, 2)}, {1: None, 3: None}, machines=machines)

"""Where new partitions are put: as an administrator says, or over all brokers that live."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.broker.metadata_image import MetadataImage
from barnabas.broker.topic_admin import PARTITIONS_MAX, added_replicas, check_partition_count, new_replicas
from barnabas.coordination.values import BrokerRegistration, LiveBroker
from barnabas.errors import ApiError, ErrorCode


def image_of(racks: dict[int, str]) -> MetadataImage:
    return MetadataImage(
        {each: LiveBroker(BrokerRegistration(each, "here", each, rack=rack), 1) for each, rack in racks.items()}
    )


THREE = image_of({1: "", 2: "", 3: ""})


def never(_limit: int) -> int:
    raise AssertionError("nothing is left to chance")


def refusal(function: Callable[..., object], *arguments: object) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        function(*arguments)
    return caught.value.code


def test_topic_has_as_many_partitions_as_allowed_and_no_more() -> None:
    check_partition_count(PARTITIONS_MAX)
    assert refusal(check_partition_count, PARTITIONS_MAX + 1) is ErrorCode.POLICY_VIOLATION


def test_first_broker_and_distance_are_drawn_among_those_that_live() -> None:
    asked: list[int] = []

    def draw(limit: int) -> int:
        asked.append(limit)
        return len(asked)

    assert new_replicas(THREE, 3, 2, None, draw) == [(2, 3), (3, 1), (1, 2)]
    assert asked == [3, 3]


@pytest.mark.parametrize("factor", [0, 4])
def test_replication_factor_is_from_one_to_the_brokers_that_live(factor: int) -> None:
    assert refusal(new_replicas, THREE, 1, factor, None, lambda _: 0) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert [len(each) for each in new_replicas(THREE, 1, 3, None, lambda _: 0)] == [3]


def test_without_any_broker_it_is_the_factor_that_is_refused() -> None:
    code = refusal(new_replicas, image_of({}), 1, 1, None, lambda limit: range(limit)[0])
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_replicas_of_a_partition_stand_in_different_racks() -> None:
    racks = {1: "north", 2: "north", 3: "south", 4: "south"}
    for start in range(4):
        for replicas in new_replicas(image_of(racks), 8, 2, None, lambda _, start=start: start):
            assert {racks[each] for each in replicas} == {"north", "south"}


def test_rack_that_nobody_named_counts_for_none() -> None:
    placed = new_replicas(image_of({1: "", 2: "", 3: "north"}), 3, 2, None, lambda _: 0)
    assert placed == new_replicas(THREE, 3, 2, None, lambda _: 0)


def test_what_an_administrator_says_is_done_and_nothing_drawn() -> None:
    assert new_replicas(THREE, 9, 9, [[3, 1], [1, 3]], never) == [(3, 1), (1, 3)]


@pytest.mark.parametrize("assignment", [[[1, 4]], [[1, 1]], [[]], [[1, 2], [3]]])
def test_assignment_that_cannot_be_is_refused(assignment: list[list[int]]) -> None:
    assert refusal(new_replicas, THREE, 1, 1, assignment, never) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_added_partitions_go_on_with_the_round() -> None:
    placed = new_replicas(THREE, 6, 2, None, lambda _: 0)
    assert added_replicas(THREE, placed[:2], 4, None)[0][0] == placed[2][0]
    assert {len(each) for each in added_replicas(THREE, placed[:2], 4, None)} == {2}


def test_added_partitions_are_put_on_those_that_live() -> None:
    added = added_replicas(image_of({2: "", 3: ""}), [(1, 2), (2, 3)], 4, None)
    assert {broker for each in added for broker in each} == {2, 3}
    assert refusal(added_replicas, image_of({3: ""}), [(1, 2)], 1, None) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_added_partitions_that_an_administrator_places_have_as_many_replicas_as_the_topic() -> None:
    assert added_replicas(THREE, [(1, 2)], 2, [[3, 1], [2, 1]]) == [(3, 1), (2, 1)]
    for wrong in ([[3]], [[3, 1, 2]], [[1, 2], [3]], [[1, 4]]):
        assert refusal(added_replicas, THREE, [(1, 2)], len(wrong), wrong) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_refusal_of_an_added_partition_names_it_by_its_number() -> None:
    with pytest.raises(ApiError, match=r"partition 5\b"):
        added_replicas(THREE, [(1, 2)] * 5, 1, [[1, 4]])


def test_labels_of_machines_count_for_new_and_for_added_partitions() -> None:
    image = MetadataImage(
        {
            each: LiveBroker(BrokerRegistration(each, "here", each, machine=machine), 1)
            for each, machine in {1: "a", 2: "a", 3: "b"}.items()
        }
    )
    placed = new_replicas(image, 4, 2, None, lambda _: 0)
    assert all(3 in replicas for replicas in placed)
    assert all(3 in replicas for replicas in added_replicas(image, placed, 4, None))
    assert refusal(new_replicas, image, 1, 3, None, lambda _: 0) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert refusal(new_replicas, image, 1, 2, [[1, 2]], never) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert refusal(added_replicas, image, placed, 1, [[2, 1]]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT

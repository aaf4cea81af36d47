"""Which brokers hold which partitions: Kafka's own examples, and what is refused."""

from __future__ import annotations

import re
from collections import Counter
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import ApiError, ErrorCode
from barnabas.replication.assignment import assign_added, assign_replicas, check_assignment
from barnabas.replication.machines import machine_count

FIVE = dict.fromkeys(range(5))
RACKS = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}


def test_spread_of_ten_partitions_over_five_brokers() -> None:
    """The table in the documentation of Kafka's AdminUtils."""
    assert assign_replicas(FIVE, 10, 3, start=0, shift=0) == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 0),
        (4, 0, 1),
        (0, 2, 3),
        (1, 3, 4),
        (2, 4, 0),
        (3, 0, 1),
        (4, 1, 2),
    ]


def test_spread_over_racks() -> None:
    """The example in the documentation of Kafka's AdminUtils."""
    assert assign_replicas(RACKS, 7, 3, start=0, shift=0) == [
        (0, 3, 1),
        (3, 1, 5),
        (1, 5, 4),
        (5, 4, 2),
        (4, 2, 0),
        (2, 0, 3),
        (0, 4, 2),
    ]


def test_start_and_shift_move_leaders_and_followers() -> None:
    assert assign_replicas(FIVE, 2, 3, start=4, shift=2) == [(4, 2, 3), (0, 3, 4)]
    assert assign_replicas(FIVE, 2, 3, start=9, shift=6) == [(4, 2, 3), (0, 3, 4)]


def test_racks_are_passed_over_if_one_broker_tells_none() -> None:
    assert assign_replicas({0: "a", 1: "a", 2: None}, 3, 2, 0, 0) == assign_replicas(
        dict.fromkeys(range(3)), 3, 2, 0, 0
    )


def test_brokers_are_taken_by_number_and_not_by_their_digits() -> None:
    assert assign_replicas(dict.fromkeys([10, 9, 2]), 3, 1, 0, 0) == [(2,), (9,), (10,)]


def test_one_broker_holds_all() -> None:
    assert assign_replicas({7: "a"}, 3, 1, start=5, shift=5) == [(7,), (7,), (7,)]


def test_added_partitions_go_on_where_the_topic_ends() -> None:
    existing = assign_replicas(FIVE, 3, 2, start=2, shift=2)
    assert existing[0][0] == 2
    assert existing + assign_added(FIVE, existing, 4) == assign_replicas(FIVE, 7, 2, start=2, shift=2)


def test_added_partitions_of_a_topic_whose_first_leader_is_gone() -> None:
    assert assign_added({1: None, 2: None}, [(9, 1), (1, 9)], 1) == [(1, 2)]


@pytest.mark.parametrize(
    ("partition_count", "replication_factor", "broker_count", "code", "message"),
    [
        (0, 1, 3, ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."),
        (1, 0, 3, ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0."),
        (1, 3, 1, ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor: 3 larger than available brokers: 1."),
        (1, 1, 0, ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor: 1 larger than available brokers: 0."),
    ],
)
def test_counts_that_cannot_be_had_are_refused(partition_count, replication_factor, broker_count, code, message):
    with pytest.raises(ApiError, match=re.escape(message)) as caught:
        assign_replicas(dict.fromkeys(range(broker_count)), partition_count, replication_factor, 0, 0)
    assert caught.value.code is code


class TestManualAssignment:
    @pytest.mark.parametrize(
        ("assignment", "message"),
        [
            ({0: [1, 2], 2: [1, 2]}, "partitions must be numbered 0, 1 ... without a gap"),
            ({1: [1, 2]}, "partitions must be numbered 0, 1 ... without a gap"),
            ({0: []}, "partition 0 has no replicas"),
            ({0: [1, 2, 1]}, "partition 0 names a broker twice: [1, 2, 1]"),
            ({0: [1, 4], 1: [1, 2]}, "partition 0 names unknown brokers: [4]"),
            ({0: [1, 2], 1: [1]}, "partition 1 has 1 replicas, but must have 2"),
        ],
    )
    def test_is_refused(self, assignment, message):
        with pytest.raises(ApiError, match=re.escape(message)) as caught:
            check_assignment(assignment, {1, 2, 3})
        assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT

    def test_is_taken(self):
        check_assignment({1: [2, 1], 0: [1, 3]}, {1, 2, 3})

    def test_of_added_partitions_goes_on_with_their_numbers_and_replication_factor(self):
        check_assignment({4: [2, 1], 3: [1, 3]}, {1, 2, 3}, first_partition=3, replication_factor=2)
        with pytest.raises(ApiError, match="partition 3 has 1 replicas, but must have 2"):
            check_assignment({3: [1]}, {1, 2, 3}, first_partition=3, replication_factor=2)


LABELS = {1: "a", 2: "a", 3: "b", 4: "b"}


def test_no_machine_gets_two_replicas_and_all_brokers_get_as_many() -> None:
    brokers: dict[int, str | None] = dict.fromkeys(LABELS)
    placed = assign_replicas(brokers, 8, 2, start=1, shift=2, machines=LABELS)
    assert {tuple(sorted(LABELS[each] for each in replicas)) for replicas in placed} == {("a", "b")}
    assert Counter(replicas[0] for replicas in placed) == Counter(dict.fromkeys(LABELS, 2))
    assert Counter(chain.from_iterable(placed)) == Counter(dict.fromkeys(LABELS, 4))
    with pytest.raises(ApiError, match="available machines: 2") as caught:
        assign_replicas(brokers, 1, 3, 0, 0, machines=LABELS)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_two_brokers_of_a_machine_are_refused_in_an_assignment() -> None:
    check_assignment({0: [1, 3]}, LABELS, machines=LABELS)
    with pytest.raises(ApiError, match="brokers 3 and 4 are on the same machine, b") as caught:
        check_assignment({0: [3, 4]}, LABELS, machines=LABELS)
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@given(
    places=st.lists(
        st.tuples(st.sampled_from([None, "north", "south", "east"]), st.sampled_from(["", "a", "b", "c", "d"])),
        min_size=1,
        max_size=9,
    ),
    start=st.integers(0, 20),
    shift=st.integers(0, 20),
    data=st.data(),
)
def test_replicas_share_no_machine_wherever_brokers_are(places, start, shift, data) -> None:
    """Racks and machines contradict each other in many of these clusters: a machine has brokers in several racks."""
    brokers = {number: rack for number, (rack, _) in enumerate(places)}
    machines = {number: label for number, (_, label) in enumerate(places) if label}
    factor = data.draw(st.integers(1, machine_count(brokers, machines)))
    placed = assign_replicas(brokers, 12, factor, start, shift, machines=machines)
    for replicas in placed:
        assert len(replicas) == factor
        assert machine_count(replicas, machines) == factor
    if not machines and None not in brokers.values():
        racks = len(set(brokers.values()))
        assert all(len({brokers[each] for each in replicas}) == min(factor, racks) for replicas in placed)

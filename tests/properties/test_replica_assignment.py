"""The placement of replicas, for any brokers and racks: even, over all racks, and the same in one call or several."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from barnabas.replication.assignment import assign_added, assign_replicas, check_assignment

RACKS = st.sampled_from(["a", "b", "c", "d"])
SHIFTS = st.integers(0, 20)


@st.composite
def placements(draw: st.DrawFn) -> tuple[dict[int, str | None], int, int]:
    """Brokers, a number of partitions, and a replication factor that they can have."""
    ids = draw(st.sets(st.integers(0, 50), min_size=1, max_size=9))
    with_racks = draw(st.booleans())
    brokers = {each: draw(RACKS) if with_racks else None for each in sorted(ids)}
    return brokers, draw(st.integers(1, 40)), draw(st.integers(1, len(brokers)))


def assert_leaders_are_even(brokers, assigned) -> None:
    led = Counter(dict.fromkeys(brokers, 0) | Counter(replicas[0] for replicas in assigned))
    assert max(led.values()) - min(led.values()) <= 1


@given(placements(), SHIFTS, SHIFTS)
def test_leaders_are_spread_evenly(placement, start, shift) -> None:
    brokers, partition_count, replication_factor = placement
    assigned = assign_replicas(brokers, partition_count, replication_factor, start, shift)
    assert_leaders_are_even(brokers, assigned)


@given(placements(), SHIFTS, SHIFTS)
def test_replicas_are_on_different_brokers_and_on_as_many_racks_as_possible(placement, start, shift) -> None:
    brokers, partition_count, replication_factor = placement
    assigned = assign_replicas(brokers, partition_count, replication_factor, start, shift)
    check_assignment(dict(enumerate(assigned)), brokers, replication_factor=replication_factor)
    assert len(assigned) == partition_count
    rack_count = len({rack or each for each, rack in brokers.items()})
    for replicas in assigned:
        assert len({brokers[each] or each for each in replicas}) == min(replication_factor, rack_count)


@given(st.integers(1, 9), st.integers(1, 10), st.integers(1, 9), SHIFTS, SHIFTS)
def test_followers_are_spread_evenly_over_whole_rounds(broker_count, rounds, replication_factor, start, shift) -> None:
    """Without racks, as many partitions as there are brokers give each of them as many replicas."""
    brokers = dict.fromkeys(range(broker_count))
    factor = min(replication_factor, broker_count)
    assigned = assign_replicas(brokers, rounds * broker_count, factor, start, shift)
    held = Counter(each for replicas in assigned for each in replicas)
    assert set(held.values()) == {rounds * factor}


@given(placements(), st.integers(1, 20), SHIFTS, SHIFTS)
def test_partitions_get_the_same_in_one_call_and_in_two(placement, added, start, shift) -> None:
    brokers, partition_count, replication_factor = placement
    first = assign_replicas(brokers, partition_count, replication_factor, start, shift)
    second = assign_replicas(brokers, added, replication_factor, start, shift, first_partition=partition_count)
    assert first + second == assign_replicas(brokers, partition_count + added, replication_factor, start, shift)


@given(placements(), st.integers(1, 20), SHIFTS, SHIFTS)
def test_leaders_stay_even_when_partitions_are_added(placement, added, start, shift) -> None:
    brokers, partition_count, replication_factor = placement
    existing = assign_replicas(brokers, partition_count, replication_factor, start, shift)
    assigned = existing + assign_added(brokers, existing, added)
    assert_leaders_are_even(brokers, assigned)

"""The shares of the paper's Algorithm 1, and the steps to them; any order of events: `tests/properties`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.consumer.zookeeper_assignment import (
    AssignmentStep,
    SubscriptionSnapshot,
    ZooKeeperAssignment,
    range_assignment,
)
from barnabas.groups.assignors import ASSIGNORS
from barnabas.model import TopicPartition

TWO = SubscriptionSnapshot({"a": ["t"], "b": ["t"]}, {"t": 4})
CONSUMERS = st.dictionaries(st.text("abcB-1", min_size=1, max_size=3), st.sets(st.sampled_from("tuv")), min_size=1)
COUNTS = st.dictionaries(st.sampled_from("tuv"), st.integers(0, 12))


def tps(*numbers):
    return [TopicPartition("t", number) for number in numbers]


def claimed(*, registries=TWO):
    """A consumer `a` that has its share."""
    assignment = ZooKeeperAssignment("g", "a")
    assignment.begin(["t"])
    assignment.on_registered()
    assignment.on_reading()
    assignment.on_read(registries)
    assignment.on_claiming()
    assignment.on_claimed()
    return assignment


@pytest.mark.parametrize(("count", "consumers"), [(12, 3), (6, 6), (8, 1), (0, 2)])
def test_share_is_the_papers_where_the_partitions_divide_evenly(count, consumers):
    names = [f"c{number}" for number in range(consumers)]
    registries = SubscriptionSnapshot({name: ["t"] for name in names}, {"t": count})
    each = count // consumers
    for j, name in enumerate(names):
        assert range_assignment(name, registries) == tps(*range(j * each, (j + 1) * each))


@given(CONSUMERS, COUNTS)
def test_all_who_read_the_same_own_each_wanted_partition_once(subscriptions, counts):
    registries = SubscriptionSnapshot(subscriptions, counts)
    owned = [tp for consumer in subscriptions for tp in range_assignment(consumer, registries)]
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    assert sorted(owned) == sorted(TopicPartition(topic, n) for topic in wanted for n in range(counts.get(topic, 0)))


@given(CONSUMERS, COUNTS)
def test_shares_are_sorted_and_those_of_the_range_assignor(subscriptions, counts):
    registries = SubscriptionSnapshot(subscriptions, counts)
    assigned = ASSIGNORS["range"].assign({name: sorted(topics) for name, topics in subscriptions.items()}, counts, {})
    for consumer in subscriptions:
        assert range_assignment(consumer, registries) == sorted(assigned.get(consumer, []))


def test_consumer_that_is_not_registered_has_no_share():
    assert range_assignment("c", TWO) == []


def test_partitions_come_after_registering_reading_and_claiming():
    assignment = ZooKeeperAssignment("g", "a")
    assignment.begin(["t"])
    assert assignment.next_step() is AssignmentStep.REGISTER
    assignment.on_registered()
    assert assignment.next_step() is AssignmentStep.READ
    assignment.on_reading()
    assignment.on_read(TWO)
    assert assignment.next_step() is AssignmentStep.CLAIM
    assert assignment.on_claiming() == set(tps(0, 1))
    assert assignment.on_claimed() == tps(0, 1)
    assert assignment.next_step() is None
    assert assignment.owns
    assert not assignment.rejoin_needed


def test_refused_claim_is_released_and_begun_again_after_a_pause():
    assignment = ZooKeeperAssignment("g", "a")
    assignment.begin(["t"])
    assignment.on_registered()
    assignment.on_reading()
    assignment.on_read(TWO)
    assignment.on_claiming()
    assignment.on_refused()
    assert (assignment.next_step(), assignment.held) == (AssignmentStep.RELEASE, set(tps(0, 1)))
    assignment.on_released()
    assert assignment.next_step() is AssignmentStep.PAUSE
    assignment.on_paused()
    assert assignment.next_step() is AssignmentStep.READ


def test_what_is_owned_is_released_before_anything_else():
    assignment = claimed()
    assignment.rejoin("the subscription has changed")
    assignment.begin(["t", "u"])
    assert assignment.next_step() is AssignmentStep.RELEASE
    assignment.on_released()
    assert assignment.next_step() is AssignmentStep.REGISTER


@pytest.mark.parametrize(
    ("registries", "again"),
    [
        (TWO, False),
        (SubscriptionSnapshot({"a": ["t"], "b": ["t"], "c": ["u"]}, {"t": 4, "u": 2}), False),
        (SubscriptionSnapshot({"a": ["t"]}, {"t": 4}), True),
        (SubscriptionSnapshot({"a": ["t"], "b": ["t"]}, {"t": 6}), True),
        (SubscriptionSnapshot({"a": ["t"], "b": ["t"]}, {}), True),
        (SubscriptionSnapshot({"b": ["t"]}, {"t": 4}), True),
    ],
)
def test_a_change_counts_where_it_changes_the_share(registries, again):
    assignment = claimed()
    assignment.on_change()
    assert assignment.must_read
    assignment.on_reading()
    assignment.on_read(registries)
    assert not assignment.must_read
    assert assignment.rejoin_needed is again
    assert assignment.owns


@pytest.mark.parametrize("owns", [True, False])
def test_what_changes_while_it_is_read_is_read_again(owns):
    assignment = claimed()
    if not owns:
        assignment.begin(["t"])
        assignment.on_released()
    assignment.on_reading()
    assignment.on_change()
    assignment.on_read(TWO)
    assert assignment.must_read is owns
    assert assignment.next_step() is (None if owns else AssignmentStep.READ)


def test_lost_session_takes_everything_with_it():
    assignment = claimed()
    session = assignment.session
    assignment.on_session_lost("no word")
    assert (assignment.owns, assignment.held, assignment.lost, assignment.rejoin_needed) == (False, set(), True, True)
    assert assignment.session != session
    assignment.on_lost_given_up()
    assignment.begin(["t"])
    assert assignment.next_step() is AssignmentStep.REGISTER


def test_session_lost_during_a_claim_leaves_nothing_to_release():
    assignment = ZooKeeperAssignment("g", "a")
    assignment.begin(["t"])
    assignment.on_registered()
    assignment.on_reading()
    assignment.on_read(TWO)
    assignment.on_claiming()
    assignment.on_session_lost("no word")
    assert assignment.joining
    assert assignment.next_step() is AssignmentStep.REGISTER


def test_who_leaves_releases_what_may_be_left_before_it_comes_back():
    assignment = claimed()
    assignment.on_left("poll was not called in time")
    assert assignment.lost
    assert not assignment.owns
    assignment.begin(["t"])
    assert assignment.next_step() is AssignmentStep.RELEASE


def test_call_for_new_partitions_during_a_join_is_kept_for_the_next():
    assignment = ZooKeeperAssignment("g", "a")
    assignment.begin(["t"])
    assignment.rejoin("the subscription has changed")
    assignment.on_registered()
    assignment.on_reading()
    assignment.on_read(TWO)
    assignment.on_claiming()
    assignment.on_claimed()
    assert (assignment.rejoin_needed, assignment.reason) == (True, "the subscription has changed")


def test_ownership_ends_by_the_clock_where_nothing_is_heard():
    assignment = ZooKeeperAssignment("g", "a")
    assignment.on_answered(7.0)
    assert assignment.valid_until_s < 0, "who owns nothing has nothing to hand out"
    assignment = claimed()
    assignment.on_answered(7.0)
    assert assignment.valid_until_s == 7.0
    session = assignment.session
    assignment.on_expired()
    assignment.on_expired()
    assert (assignment.owns, assignment.lost, assignment.session) == (False, True, session + 1)

"""The shares of the paper's Algorithm 1, and the steps to them; any order of events: `tests/properties`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.consumer.ownership import Ownership, Registries, Step, share_of
from barnabas.groups.assignors import ASSIGNORS
from barnabas.model import TopicPartition

TWO = Registries({"a": ["t"], "b": ["t"]}, {"t": 4})
CONSUMERS = st.dictionaries(st.text("abcB-1", min_size=1, max_size=3), st.sets(st.sampled_from("tuv")), min_size=1)
COUNTS = st.dictionaries(st.sampled_from("tuv"), st.integers(0, 12))


def tps(*numbers):
    return [TopicPartition("t", number) for number in numbers]


def claimed(*, registries=TWO):
    """A consumer `a` that has its share."""
    ownership = Ownership("g", "a")
    ownership.begin(["t"])
    ownership.on_registered()
    ownership.on_reading()
    ownership.on_read(registries)
    ownership.on_claiming()
    ownership.on_claimed()
    return ownership


@pytest.mark.parametrize(("count", "consumers"), [(12, 3), (6, 6), (8, 1), (0, 2)])
def test_share_is_the_papers_where_the_partitions_divide_evenly(count, consumers):
    names = [f"c{number}" for number in range(consumers)]
    registries = Registries({name: ["t"] for name in names}, {"t": count})
    each = count // consumers
    for j, name in enumerate(names):
        assert share_of(name, registries) == tps(*range(j * each, (j + 1) * each))


@given(CONSUMERS, COUNTS)
def test_all_who_read_the_same_own_each_wanted_partition_once(subscriptions, counts):
    registries = Registries(subscriptions, counts)
    owned = [tp for consumer in subscriptions for tp in share_of(consumer, registries)]
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    assert sorted(owned) == sorted(TopicPartition(topic, n) for topic in wanted for n in range(counts.get(topic, 0)))


@given(CONSUMERS, COUNTS)
def test_shares_are_sorted_and_those_of_the_range_assignor(subscriptions, counts):
    registries = Registries(subscriptions, counts)
    assigned = ASSIGNORS["range"].assign({name: sorted(topics) for name, topics in subscriptions.items()}, counts, {})
    for consumer in subscriptions:
        assert share_of(consumer, registries) == sorted(assigned.get(consumer, []))


def test_consumer_that_is_not_registered_has_no_share():
    assert share_of("c", TWO) == []


def test_partitions_come_after_registering_reading_and_claiming():
    ownership = Ownership("g", "a")
    ownership.begin(["t"])
    assert ownership.next_step() is Step.REGISTER
    ownership.on_registered()
    assert ownership.next_step() is Step.READ
    ownership.on_reading()
    ownership.on_read(TWO)
    assert ownership.next_step() is Step.CLAIM
    assert ownership.on_claiming() == set(tps(0, 1))
    assert ownership.on_claimed() == tps(0, 1)
    assert ownership.next_step() is None
    assert ownership.owns
    assert not ownership.rejoin_needed


def test_refused_claim_is_released_and_begun_again_after_a_pause():
    ownership = Ownership("g", "a")
    ownership.begin(["t"])
    ownership.on_registered()
    ownership.on_reading()
    ownership.on_read(TWO)
    ownership.on_claiming()
    ownership.on_refused()
    assert (ownership.next_step(), ownership.held) == (Step.RELEASE, set(tps(0, 1)))
    ownership.on_released()
    assert ownership.next_step() is Step.PAUSE
    ownership.on_paused()
    assert ownership.next_step() is Step.READ


def test_what_is_owned_is_released_before_anything_else():
    ownership = claimed()
    ownership.rejoin("the subscription has changed")
    ownership.begin(["t", "u"])
    assert ownership.next_step() is Step.RELEASE
    ownership.on_released()
    assert ownership.next_step() is Step.REGISTER


@pytest.mark.parametrize(
    ("registries", "again"),
    [
        (TWO, False),
        (Registries({"a": ["t"], "b": ["t"], "c": ["u"]}, {"t": 4, "u": 2}), False),
        (Registries({"a": ["t"]}, {"t": 4}), True),
        (Registries({"a": ["t"], "b": ["t"]}, {"t": 6}), True),
        (Registries({"a": ["t"], "b": ["t"]}, {}), True),
        (Registries({"b": ["t"]}, {"t": 4}), True),
    ],
)
def test_a_change_counts_where_it_changes_the_share(registries, again):
    ownership = claimed()
    ownership.on_change()
    assert ownership.must_look
    ownership.on_reading()
    ownership.on_read(registries)
    assert not ownership.must_look
    assert ownership.rejoin_needed is again
    assert ownership.owns


@pytest.mark.parametrize("owns", [True, False])
def test_what_changes_while_it_is_read_is_read_again(owns):
    ownership = claimed()
    if not owns:
        ownership.begin(["t"])
        ownership.on_released()
    ownership.on_reading()
    ownership.on_change()
    ownership.on_read(TWO)
    assert ownership.must_look is owns
    assert ownership.next_step() is (None if owns else Step.READ)


def test_lost_session_takes_everything_with_it():
    ownership = claimed()
    session = ownership.session
    ownership.on_session_lost("no word")
    assert (ownership.owns, ownership.held, ownership.lost, ownership.rejoin_needed) == (False, set(), True, True)
    assert ownership.session != session
    ownership.on_given_up()
    ownership.begin(["t"])
    assert ownership.next_step() is Step.REGISTER


def test_session_lost_during_a_claim_leaves_nothing_to_release():
    ownership = Ownership("g", "a")
    ownership.begin(["t"])
    ownership.on_registered()
    ownership.on_reading()
    ownership.on_read(TWO)
    ownership.on_claiming()
    ownership.on_session_lost("no word")
    assert ownership.joining
    assert ownership.next_step() is Step.REGISTER


def test_who_leaves_releases_what_may_be_left_before_it_comes_back():
    ownership = claimed()
    ownership.on_left("poll was not called in time")
    assert ownership.lost
    assert not ownership.owns
    ownership.begin(["t"])
    assert ownership.next_step() is Step.RELEASE


def test_call_for_new_partitions_during_a_join_is_kept_for_the_next():
    ownership = Ownership("g", "a")
    ownership.begin(["t"])
    ownership.rejoin("the subscription has changed")
    ownership.on_registered()
    ownership.on_reading()
    ownership.on_read(TWO)
    ownership.on_claiming()
    ownership.on_claimed()
    assert (ownership.rejoin_needed, ownership.reason) == (True, "the subscription has changed")


def test_ownership_ends_by_the_clock_where_nothing_is_heard():
    ownership = Ownership("g", "a")
    ownership.on_heard(7.0)
    assert ownership.until_s < 0, "who owns nothing has nothing to hand out"
    ownership = claimed()
    ownership.on_heard(7.0)
    assert ownership.until_s == 7.0
    session = ownership.session
    ownership.on_silence()
    ownership.on_silence()
    assert (ownership.owns, ownership.lost, ownership.session) == (False, True, session + 1)

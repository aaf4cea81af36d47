"""What is read and how far: topics, partitions, positions."""

from __future__ import annotations

import pytest

from barnabas.client.consumer.fetcher import NOWHERE, AssignedPartition, Subscription
from barnabas.errors import ConfigurationError
from barnabas.model import TopicPartition

TP = TopicPartition("t", 0)


def test_topics_and_partitions_exclude_each_other():
    subscription = Subscription()
    subscription.subscribe(["t"], None)
    with pytest.raises(ConfigurationError, match="unsubscribe"):
        subscription.assign_by_hand([TP])
    subscription.unsubscribe()
    subscription.assign_by_hand([TP])
    with pytest.raises(ConfigurationError, match="unsubscribe"):
        subscription.subscribe(["t"], None)


@pytest.mark.parametrize(("topics", "pattern"), [([], None), (["t"], "t")])
def test_topics_or_a_pattern_it_must_be(topics, pattern):
    with pytest.raises(ConfigurationError, match="either topics or a pattern"):
        Subscription().subscribe(topics, pattern)


def test_a_pattern_matches_whole_names():
    subscription = Subscription()
    subscription.subscribe([], "log-.")
    assert subscription.match_pattern(["log-a", "log-aa", "xlog-a"])
    assert subscription.topics == {"log-a"}
    assert not subscription.match_pattern(["log-a", "other"])


def test_a_bad_pattern_says_so():
    with pytest.raises(ConfigurationError, match="not a regular expression"):
        Subscription().subscribe([], "(")


def test_partitions_that_stay_keep_their_positions():
    subscription = Subscription()
    subscription.assign_by_hand([TP])
    subscription.state(TP).move_to(5)
    subscription.assign_by_hand([TP, TopicPartition("t", 1)])
    assert subscription.state(TP).position == 5
    assert [state.tp for state in subscription.without_position()] == [("t", 1)]


def test_a_partition_that_is_not_assigned_is_named_with_those_that_are():
    subscription = Subscription()
    subscription.assign_by_hand([TP])
    with pytest.raises(ConfigurationError, match=r"t-9 is not assigned to this consumer \(assigned: t-0\)"):
        subscription.state(TopicPartition("t", 9))


def test_a_partition_with_nowhere_to_start_waits_for_a_seek():
    subscription = Subscription()
    subscription.assign_by_hand([TP])
    state = subscription.state(TP)
    state.forget_position(NOWHERE)
    assert subscription.without_offset() == [TP]
    assert not subscription.without_position()
    state.move_to(3)
    assert subscription.without_offset() == []


def test_every_move_is_a_new_version():
    state = AssignedPartition(TP)
    versions = [state.version]
    for move in (lambda: state.move_to(1), state.refetch, lambda: state.forget_position(None)):
        move()
        versions.append(state.version)
    assert versions == sorted(set(versions))

"""Range and round robin: every partition once, and as evenly as the rule allows."""

from __future__ import annotations

import pytest

from barnabas.groups import ASSIGNORS, range_assign, round_robin_assign
from barnabas.model import TopicPartition


def partitions(topic, *numbers):
    return [TopicPartition(topic, number) for number in numbers]


def test_range_gives_stretches_and_the_first_members_one_more():
    assignment = range_assign({"b": ["t"], "a": ["t"], "c": ["t"]}, {"t": 7})
    assert assignment["a"] == partitions("t", 0, 1, 2)
    assert assignment["b"] == partitions("t", 3, 4)
    assert assignment["c"] == partitions("t", 5, 6)


def test_range_treats_each_topic_by_itself():
    assignment = range_assign({"a": ["t", "u"], "b": ["u"]}, {"t": 2, "u": 2})
    assert assignment["a"] == partitions("t", 0, 1) + partitions("u", 0)
    assert assignment["b"] == partitions("u", 1)


def test_round_robin_goes_on_from_topic_to_topic():
    assignment = round_robin_assign({"a": ["t", "u"], "b": ["t", "u"]}, {"t": 3, "u": 3})
    assert assignment["a"] == partitions("t", 0, 2) + partitions("u", 1)
    assert assignment["b"] == partitions("t", 1) + partitions("u", 0, 2)


def test_round_robin_passes_over_those_who_do_not_want_the_topic():
    assignment = round_robin_assign({"a": ["t"], "b": ["u"]}, {"t": 2, "u": 2})
    assert assignment == {"a": partitions("t", 0, 1), "b": partitions("u", 0, 1)}


@pytest.mark.parametrize("assign", [each.assign for each in ASSIGNORS.values()], ids=ASSIGNORS)
def test_more_members_than_partitions_leave_some_without(assign):
    assignment = assign({"a": ["t"], "b": ["t"]}, {"t": 1})
    assert assignment == {"a": partitions("t", 0), "b": []}


@pytest.mark.parametrize("assign", [each.assign for each in ASSIGNORS.values()], ids=ASSIGNORS)
def test_topic_that_does_not_exist_is_passed_over(assign):
    assert assign({"a": ["nowhere"]}, {}) == {"a": []}


@pytest.mark.parametrize("assign", [each.assign for each in ASSIGNORS.values()], ids=ASSIGNORS)
def test_no_members_get_nothing(assign):
    assert assign({}, {"t": 3}) == {}

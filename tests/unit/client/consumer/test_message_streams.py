"""Which partition goes to which message stream."""

from __future__ import annotations

import pytest

from barnabas.client.consumer.message_streams import StreamPlan
from barnabas.errors import ConfigurationError
from barnabas.model import TopicPartition


def test_every_partition_goes_to_exactly_one_stream_of_its_topic():
    plan = StreamPlan({"a": 3, "b": 1})
    partitions = [TopicPartition("a", partition) for partition in range(7)] + [TopicPartition("b", 0)]
    plan.assign(reversed(partitions))
    accepts = {
        (topic, number): plan.accepts(topic, number) for topic, count in plan.counts.items() for number in range(count)
    }
    for tp in partitions:
        takers = [stream for stream, takes in accepts.items() if takes(tp)]
        assert len(takers) == 1
        assert takers[0][0] == tp.topic
    sizes = [sum(accepts["a", number](tp) for tp in partitions) for number in range(3)]
    assert sizes == [3, 2, 2]


def test_a_partition_stays_in_its_stream_for_as_long_as_it_is_assigned():
    plan = StreamPlan({"a": 2})
    first, second, third = (TopicPartition("a", partition) for partition in range(3))
    plan.assign([first, second])
    plan.assign([second, third])
    accepts = [plan.accepts("a", number) for number in range(2)]
    assert [takes(first) for takes in accepts] == [False, False]
    assert [takes(second) for takes in accepts] == [False, True]
    assert [takes(third) for takes in accepts] == [True, False]


def test_what_was_given_up_is_dealt_anew():
    plan = StreamPlan({"a": 2})
    second = TopicPartition("a", 1)
    plan.assign([TopicPartition("a", 0), second])
    plan.assign([])
    plan.assign([second])
    assert plan.accepts("a", 0)(second)


def test_no_streams_are_an_error():
    with pytest.raises(ConfigurationError, match="at least one"):
        StreamPlan({"a": 0})

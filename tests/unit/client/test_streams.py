"""Which partition goes to which message stream."""

from __future__ import annotations

import pytest

from barnabas.client.streams import StreamPlan
from barnabas.errors import ConfigurationError
from barnabas.model import TopicPartition


def test_every_partition_goes_to_exactly_one_stream_of_its_topic():
    plan = StreamPlan({"a": 3, "b": 1})
    partitions = [TopicPartition("a", partition) for partition in range(7)] + [TopicPartition("b", 0)]
    plan.deal(reversed(partitions))
    accepts = {
        (topic, number): plan.accepts(topic, number) for topic, count in plan.counts.items() for number in range(count)
    }
    for tp in partitions:
        takers = [stream for stream, takes in accepts.items() if takes(tp)]
        assert len(takers) == 1
        assert takers[0][0] == tp.topic
    sizes = [sum(accepts["a", number](tp) for tp in partitions) for number in range(3)]
    assert sizes == [3, 2, 2]


def test_a_new_assignment_replaces_the_old_one():
    plan = StreamPlan({"a": 2})
    plan.deal([TopicPartition("a", 0), TopicPartition("a", 1)])
    accepts = plan.accepts("a", 0)
    plan.deal([TopicPartition("a", 1)])
    assert accepts(TopicPartition("a", 1))
    assert not accepts(TopicPartition("a", 0))


def test_no_streams_are_an_error():
    with pytest.raises(ConfigurationError, match="at least one"):
        StreamPlan({"a": 0})

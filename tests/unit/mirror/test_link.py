"""When a partition that cannot go on is told."""

from __future__ import annotations

from barnabas.mirror.link import TRIES_TOLD, Link, why_waiting
from barnabas.mirror.partition_copy import PartitionCopy
from barnabas.model import TopicPartition


def link(partition: int) -> Link:
    source = TopicPartition("clicks", partition)
    return Link(source, source, b"id", PartitionCopy(source, 1))


def test_partitions_that_fail_again_and_again_are_told_and_those_that_fail_once_are_not() -> None:
    links = [link(2), link(1), link(0)]
    links[2].lost("target: NOT_LEADER_OR_FOLLOWER")
    assert why_waiting(links) is None
    for each in links[:2]:
        for _ in range(TRIES_TOLD):
            each.lost("target: NOT_ENOUGH_REPLICAS")
    assert why_waiting(links) == "clicks-1 and others: target: NOT_ENOUGH_REPLICAS"
    links[1].stopped = "somebody else writes there"
    assert why_waiting(links) == "clicks-2: target: NOT_ENOUGH_REPLICAS"
    links[0].tries, links[0].trouble = 0, None
    assert why_waiting(links) is None

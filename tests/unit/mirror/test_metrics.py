"""What a mirror says of all its partitions together."""

from __future__ import annotations

from barnabas.mirror.link import Link
from barnabas.mirror.metrics import Sums
from barnabas.mirror.offset_map import OffsetMap
from barnabas.mirror.partition_copy import PartitionCopy
from barnabas.model import TopicPartition


def link(partition: int, done_to: int, source_end: int) -> Link:
    tp = TopicPartition("clicks", partition)
    copy = PartitionCopy(tp, 5)
    copy.place(OffsetMap(done_to, done_to), None, 0.0)
    return Link(tp, tp, b"id", copy, source_end=source_end)


def test_stopped_partitions_are_part_of_the_lag() -> None:
    links = [link(0, 10, 12), link(1, 10, 30)]
    links[1].give_up("the target refuses source offset 10: too large", 0.0)
    links[1].counts.source_missing = 4
    sums = Sums.of(links)
    assert (sums.lag, sums.stopped, sums.missing) == (22, 1, 4)


def test_lag_is_not_known_where_that_of_a_partition_is_not() -> None:
    links = [link(0, 10, 12), link(1, 10, 30)]
    links[1].diverged = "the source has another record at offset 3"
    links[1].give_up(links[1].diverged, 0.0)
    assert Sums.of(links).lag is None

"""What a mirror says of all its partitions together."""

from __future__ import annotations

from barnabas.mirror.metrics import Sums, collect
from barnabas.mirror.offset_map import OffsetMap
from barnabas.mirror.partition_copy import PartitionCopy
from barnabas.mirror.partition_link import PartitionLink
from barnabas.model import TopicPartition


def link(partition: int, done_to: int, source_end: int) -> PartitionLink:
    tp = TopicPartition("clicks", partition)
    copy = PartitionCopy(tp, 5)
    copy.place(OffsetMap(done_to, done_to), None, 0.0)
    made = PartitionLink(tp, tp, b"id", copy)
    made.note_source_end(source_end, 100.0)
    return made


def test_stopped_partitions_are_part_of_the_lag() -> None:
    links = [link(0, 10, 12), link(1, 10, 30)]
    links[1].stop_with("the target refuses source offset 10: too large", 0.0)
    links[1].counts.source_missing = 4
    sums = Sums.of(links)
    assert (sums.lag, sums.stopped, sums.missing) == (22, 1, 4)


def test_lag_is_not_known_where_that_of_a_partition_is_not() -> None:
    links = [link(0, 10, 12), link(1, 10, 30)]
    links[1].diverged = "the source has another record at offset 3"
    links[1].stop_with(links[1].diverged, 0.0)
    assert Sums.of(links).lag is None


def test_each_partition_has_a_sample_of_each_metric() -> None:
    links = [link(1, 10, 30), link(0, 10, 12)]
    links[0].stop_with("the target refuses source offset 10: too large", 0.0)
    links[1].counts.records = 7
    samples = list(collect(links, 4, 2, now_s=130.0))
    values = {(metric.name, *labels): value for metric, value, labels in samples}
    assert len(values) == len(samples) == 18
    assert values["barnabas_mirror_records_total", "clicks", "0"] == 7
    assert values["barnabas_mirror_lag", "clicks", "1"] == 20
    assert values["barnabas_mirror_lag_seconds", "clicks", "1"] == 30
    assert values["barnabas_mirror_stopped", "clicks", "1"] == 1
    assert values["barnabas_mirror_group_commits_total",] == 4
    assert values["barnabas_mirror_audit_events_total",] == 2


def test_partition_without_known_lag_has_no_lag_sample() -> None:
    unknown = link(0, 10, 12)
    unknown.diverged = "the source has another record at offset 3"
    names = {metric.name for metric, _, _ in collect([unknown], 0, 0, now_s=130.0)}
    assert not names & {"barnabas_mirror_lag", "barnabas_mirror_lag_seconds"}

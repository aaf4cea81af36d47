"""`barnabas group`."""

from __future__ import annotations

import json

from barnabas.cli.group import PartitionLag, lags
from barnabas.model import OffsetAndMetadata, TopicPartition


def test_lag_is_what_lies_between_the_committed_offset_and_the_end() -> None:
    one, two = TopicPartition("a", 0), TopicPartition("a", 1)
    committed = {two: OffsetAndMetadata(9), one: OffsetAndMetadata(4)}
    assert lags(committed, {one: 10, two: 5}) == [PartitionLag("a", 0, 4, 10, 6), PartitionLag("a", 1, 9, 5, 0)]


def test_describe_shows_lag_per_partition_and_in_all(cluster, run) -> None:
    cluster.create("clicks", 2)
    for partition in (0, 0, 0, 1):
        cluster.append("clicks", b"x", partition=partition)
    cluster.committed["ctr"] = {TopicPartition("clicks", part): OffsetAndMetadata(1) for part in (0, 1)}
    assert run("group", "describe", "ctr").out.splitlines() == [
        "topic   partition  committed  end  lag",
        "clicks          0          1    3    2",
        "clicks          1          1    1    0",
        "total           -          -    -    2",
    ]
    assert json.loads(run("group", "describe", "ctr", "--json").out)["lag"] == 2


def test_group_without_offsets_is_an_error(cluster, run) -> None:
    outcome = run("group", "describe", "nobody")
    assert outcome.code == 1
    assert outcome.err.startswith("barnabas: group 'nobody' has no committed offsets")

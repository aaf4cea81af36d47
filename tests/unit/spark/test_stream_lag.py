"""How far a query is behind, from its progress report."""

from __future__ import annotations

from barnabas.model import TopicPartition
from barnabas.spark import offsets_behind


def test_each_partition_is_behind_by_what_the_last_batch_left() -> None:
    end, latest = {"t": {"0": 5, "1": 9}}, {"t": {"0": 7, "1": 9}, "new": {"0": 3}}
    behind = offsets_behind({"sources": [{"endOffset": end, "latestOffset": latest}]})
    assert behind.by_partition == {
        TopicPartition("new", 0): 3,
        TopicPartition("t", 0): 2,
        TopicPartition("t", 1): 0,
    }
    assert (behind.total, behind.least, behind.greatest) == (5, 0, 3)


def test_offsets_may_be_texts_and_may_be_missing() -> None:
    behind = offsets_behind({"sources": [{}, {"endOffset": '{"t": {"0": 1}}', "latestOffset": '{"t": {"0": 1}}'}]}, 1)
    assert behind.total == 0
    nothing = offsets_behind({"sources": [{"endOffset": None, "latestOffset": None}]})
    assert (nothing.total, nothing.least, nothing.greatest) == (0, 0, 0)

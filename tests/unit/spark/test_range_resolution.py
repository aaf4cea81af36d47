"""Offset ranges of a query, against a cluster that is a dict."""

from __future__ import annotations

import re

import pytest

from barnabas.client.admin.topics import PartitionDescription, TopicDescription
from barnabas.errors import ApiError, ConfigurationError, ErrorCode
from barnabas.model import OffsetAndTimestamp, TopicPartition
from barnabas.spark.errors import DataLossError
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.options import Assign, Subscribe, SubscribePattern, parse_options
from barnabas.spark.range_resolution import count_partitions, resolve_ranges, select_partitions

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
BASE = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}


class FakeCluster:
    """Logs from offset 10 to 20 and 0 to 5; record n has timestamp 100 n. Further topics have two partitions each.

    :param ends: where their logs end.
    """

    def __init__(self, **ends: int) -> None:
        more = {TopicPartition(topic, number): end for topic, end in ends.items() for number in (0, 1)}
        self.first = {ZERO: 10, ONE: 0} | dict.fromkeys(more, 0)
        self.last = {ZERO: 20, ONE: 5} | more

    def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.first[partition] for partition in partitions}

    def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.last[partition] for partition in partitions}

    def offsets_for_times(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        asked = {TopicPartition(*tp): time for tp, time in times.items()}
        offsets = {tp: max(self.first[tp], -(-time // 100)) for tp, time in asked.items()}
        return {
            tp: OffsetAndTimestamp(offset, offset * 100) if offset < self.last[tp] else None
            for tp, offset in offsets.items()
        }


def ranges(**options: str) -> list[OffsetRange]:
    return resolve_ranges(parse_options(BASE | options), [ZERO, ONE], FakeCluster())


def test_by_default_all_that_is_there() -> None:
    assert ranges() == [OffsetRange("t", 0, 10, 20), OffsetRange("t", 1, 0, 5)]


def test_offsets_with_the_words_for_earliest_and_latest() -> None:
    found = ranges(startingOffsets='{"t": {"0": -2, "1": 3}}', endingOffsets='{"t": {"0": 15, "1": -1}}')
    assert found == [OffsetRange("t", 0, 10, 15), OffsetRange("t", 1, 3, 5)]


def test_one_word_for_a_topic_counts_for_all_its_partitions() -> None:
    assert ranges(startingOffsets='{"t": "earliest"}', endingOffsets='{"t": "latest"}') == ranges()
    partitions = [ZERO, TopicPartition("u", 0), TopicPartition("u", 1)]
    options = parse_options(BASE | {"subscribe": "t,u", "startingOffsets": '{"t": {"0": 15}, "u": "earliest"}'})
    found = resolve_ranges(options, partitions, FakeCluster(u=7))
    assert found == [OffsetRange("t", 0, 15, 20), OffsetRange("u", 0, 0, 7), OffsetRange("u", 1, 0, 7)]
    with pytest.raises(
        ConfigurationError, match="option 'startingOffsets' names x, but no partition of it is selected"
    ):
        ranges(startingOffsets='{"t": "earliest", "x": "earliest"}')


BY_TIME = '{"t": {"0": %d, "1": %d}}'
"""Of partition 0 and partition 1."""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingTimestamp": "1200", "startingOffsetsByTimestampStrategy": "latest"}, [(12, 20), (5, 5)]),
        ({"endingTimestamp": "200"}, [(10, 10), (0, 2)]),
        ({"startingOffsetsByTimestamp": BY_TIME % (1500, 100)}, [(15, 20), (1, 5)]),
        ({"endingOffsetsByTimestamp": BY_TIME % (1500, 100)}, [(10, 15), (0, 1)]),
        ({"endingOffsetsByTimestamp": BY_TIME % (1500, 2**62)}, [(10, 15), (0, 5)]),
        (
            {"startingOffsetsByTimestamp": BY_TIME % (1100, 100), "endingOffsetsByTimestamp": BY_TIME % (1500, 300)},
            [(11, 15), (1, 3)],
        ),
        (
            {"startingOffsetsByTimestamp": BY_TIME % (1100, 100), "endingOffsets": '{"t": {"0": -1, "1": 2}}'},
            [(11, 20), (1, 2)],
        ),
        (
            {"startingOffsets": '{"t": {"0": -2, "1": 1}}', "endingOffsetsByTimestamp": BY_TIME % (1500, 300)},
            [(10, 15), (1, 3)],
        ),
        (
            {
                "startingTimestamp": "0",
                "startingOffsetsByTimestamp": BY_TIME % (1100, 100),
                "startingOffsets": '{"t": {"0": 19, "1": 4}}',
            },
            [(10, 20), (0, 5)],
        ),
    ],
)
def test_times_and_offsets_of_both_ends_go_together(options: dict[str, str], expected: list[tuple[int, int]]) -> None:
    assert [(found.start_offset, found.end_offset) for found in ranges(**options)] == expected


def test_timestamps() -> None:
    assert ranges(startingTimestamp="250", endingTimestamp="1150") == [
        OffsetRange("t", 0, 10, 12),
        OffsetRange("t", 1, 3, 5),
    ]


def test_no_record_as_late_as_the_start_is_an_error_or_the_end_of_the_log() -> None:
    with pytest.raises(ConfigurationError, match="t-1 has no record at or after 900 ms"):
        ranges(startingTimestamp="900")
    assert ranges(startingTimestamp="900", startingOffsetsByTimestampStrategy="latest")[1].count == 0


def test_offsets_must_name_exactly_the_partitions_that_are_read() -> None:
    with pytest.raises(ConfigurationError, match="without t-1"):
        ranges(startingOffsets='{"t": {"0": 11}}')
    with pytest.raises(ConfigurationError, match=r"option 'startingOffsetsByTimestamp' .* without t-1"):
        ranges(startingOffsetsByTimestamp='{"t": {"0": 11}}')
    with pytest.raises(ConfigurationError, match="with t-2, not selected"):
        ranges(endingOffsetsByTimestamp='{"t": {"0": 11, "1": 11, "2": 11}}')
    with pytest.raises(ConfigurationError, match="with x-0, not selected"):
        ranges(endingOffsets='{"t": {"0": 11, "1": 1}, "x": {"0": 1}}')


def test_offsets_that_are_gone_fail_or_are_left_out() -> None:
    gone = '{"t": {"0": 3, "1": 0}}'
    with pytest.raises(DataLossError, match=re.escape("t-0 [3, 20): the log only has offsets 10 to 19")):
        ranges(startingOffsets=gone)
    assert ranges(startingOffsets=gone, failOnDataLoss="false")[0] == OffsetRange("t", 0, 10, 20)


def test_offsets_that_are_not_there_yet_fail_or_are_left_out() -> None:
    later = '{"t": {"0": 20, "1": 9}}'
    with pytest.raises(DataLossError):
        ranges(endingOffsets=later)
    assert ranges(endingOffsets=later, failOnDataLoss="false")[1] == OffsetRange("t", 1, 0, 5)


def test_a_start_after_the_end_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="starts after its end"):
        ranges(startingOffsets='{"t": {"0": 18, "1": 0}}', endingOffsets='{"t": {"0": 12, "1": 5}}')
    with pytest.raises(ConfigurationError, match="starts after its end"):
        ranges(startingOffsets='{"t": {"0": 18, "1": 0}}', endingOffsetsByTimestamp=BY_TIME % (1200, 400))
    with pytest.raises(ConfigurationError, match="starts after its end"):
        ranges(startingOffsets='{"t": {"0": 21, "1": 0}}')


def test_partitions_of_topics_patterns_and_assignments() -> None:
    counts = {"web-a": 2, "web-b": 1, "other": 1}
    assert select_partitions(Subscribe(("other", "web-a")), counts) == [
        TopicPartition("other", 0),
        TopicPartition("web-a", 0),
        TopicPartition("web-a", 1),
    ]
    assert len(select_partitions(SubscribePattern(re.compile("web-.")), counts)) == 3
    assert select_partitions(SubscribePattern(re.compile("web")), counts) == []
    assert select_partitions(Assign((TopicPartition("web-a", 1),)), counts) == [TopicPartition("web-a", 1)]


def test_topics_that_brokers_cannot_describe_matter_to_those_who_asked_for_them() -> None:
    parts = tuple(PartitionDescription(number, 0, (0,), (0,)) for number in (0, 1))
    topics = [
        TopicDescription("web-a", "", parts),
        TopicDescription("web-b", "", (), ErrorCode.LEADER_NOT_AVAILABLE),
        TopicDescription("other", "", parts),
    ]
    fine = [
        Subscribe(("web-a", "nope")),
        SubscribePattern(re.compile("other|a")),
        Assign((TopicPartition("web-a", 1),)),
    ]
    for selection in fine:
        assert count_partitions(selection, topics) == {"web-a": 2, "other": 2}
    unhealthy = [
        Subscribe(("other", "web-b")),
        SubscribePattern(re.compile("web-.")),
        Assign((TopicPartition("web-b", 0),)),
    ]
    for selection in unhealthy:
        with pytest.raises(ApiError, match="LEADER_NOT_AVAILABLE: topic 'web-b'"):
            count_partitions(selection, topics)


def test_topics_and_partitions_that_do_not_exist_are_named() -> None:
    with pytest.raises(ConfigurationError, match="topic 'nope' does not exist"):
        select_partitions(Subscribe(("nope",)), {"a": 1})
    with pytest.raises(ConfigurationError, match="no partition 3: it has 1"):
        select_partitions(Assign((TopicPartition("a", 3),)), {"a": 1})

"""What a load reads, given what the table says and what the log has."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import ConfigurationError
from barnabas.model import TopicPartition
from barnabas.spark.errors import DataLossError, HistoryExpiredError, RecreatedTopicError
from barnabas.spark.ledger import Ledger, LoadedTopic, snapshot_properties
from barnabas.spark.load_plan import (
    RECORDS_WORTH_A_CUT,
    TopicState,
    check_all_starts_given,
    check_nothing_missing,
    check_table_is_of_topic,
    plan_tasks,
    plan_topic,
    sampled,
)
from barnabas.spark.offset_ranges import OffsetRange


def topic(first: int = 0, end: int = 10, topic_id: str = "one") -> TopicState:
    return TopicState("t", topic_id, {0: first, 1: 0}, {0: end, 1: 4})


def test_a_first_load_reads_the_whole_log() -> None:
    plan = plan_topic(topic(first=3), None, {})
    assert plan.ranges == (OffsetRange("t", 0, 3, 10), OffsetRange("t", 1, 0, 4))


def test_what_was_deleted_before_the_first_load_is_missing_and_no_error() -> None:
    plan = plan_topic(topic(first=3), None, {})
    assert plan.missing == (OffsetRange("t", 0, 0, 3),)
    check_nothing_missing(plan.lost)
    later = plan_topic(topic(first=3), LoadedTopic("one", {0: 3, 1: 0}), {})
    assert later.missing == ()
    chosen = plan_topic(topic(first=3), None, {TopicPartition("t", 0): 5})
    assert chosen.missing == ()


def test_an_offset_to_start_from_that_the_log_lacks_is_told() -> None:
    plan = plan_topic(topic(first=3), None, {TopicPartition("t", 0): 1})
    with pytest.raises(DataLossError, match=re.escape("t-0 [1, 3)")):
        check_nothing_missing(plan.lost)
    with pytest.raises(ConfigurationError, match=r"--starting-offsets.*has 11 for t-0"):
        plan_topic(topic(), None, {TopicPartition("t", 0): 11})


def test_a_table_named_after_a_topic_takes_no_other_one() -> None:
    check_table_is_of_topic("web_clicks", "web.clicks", Ledger())
    both = Ledger({"web.clicks": LoadedTopic("", {0: 1}), "b": LoadedTopic("", {0: 1})})
    check_table_is_of_topic("web_clicks", "web.clicks", both)
    with pytest.raises(ConfigurationError, match=r"'web\.clicks'.*'web-clicks'.*--table"):
        check_table_is_of_topic("web_clicks", "web.clicks", Ledger({"web-clicks": LoadedTopic("", {0: 1})}))


def test_a_first_load_may_start_elsewhere() -> None:
    plan = plan_topic(topic(), None, {TopicPartition("t", 0): 7})
    assert plan.ranges[0] == OffsetRange("t", 0, 7, 10)


def test_a_later_load_goes_on_where_the_last_one_ended() -> None:
    plan = plan_topic(topic(), LoadedTopic("one", {0: 6, 1: 4}), {TopicPartition("t", 0): 0})
    assert plan.ranges == (OffsetRange("t", 0, 6, 10), OffsetRange("t", 1, 4, 4))


def test_a_partition_that_was_added_is_read_from_its_start() -> None:
    assert plan_topic(topic(), LoadedTopic("one", {0: 6}), {}).ranges[1] == OffsetRange("t", 1, 0, 4)


def test_records_deleted_before_they_were_loaded_are_named() -> None:
    plan = plan_topic(topic(first=8), LoadedTopic("one", {0: 6, 1: 4}), {})
    assert plan.ranges[0] == OffsetRange("t", 0, 8, 10)
    with pytest.raises(DataLossError, match=re.escape("t-0 [6, 8) (2 offsets)")):
        check_nothing_missing(plan.lost)


def test_a_topic_with_another_id_is_another_topic() -> None:
    with pytest.raises(RecreatedTopicError, match="deleted and created again"):
        plan_topic(topic(topic_id="two"), LoadedTopic("one", {0: 6, 1: 4}), {})


def test_a_log_that_ends_before_the_table_is_another_log() -> None:
    with pytest.raises(RecreatedTopicError, match="the table has offsets up to 99, but the log ends at 9"):
        plan_topic(topic(topic_id=""), LoadedTopic("", {0: 100}), {})


def test_a_topic_with_fewer_partitions_is_another_topic() -> None:
    with pytest.raises(RecreatedTopicError, match="no longer has partition 7"):
        plan_topic(topic(), LoadedTopic("one", {7: 1}), {})


def test_starts_that_replace_a_lost_history_name_every_partition() -> None:
    starts = {TopicPartition("t", 0): 7}
    with pytest.raises(HistoryExpiredError, match="without t-1 "):
        check_all_starts_given([topic()], starts)
    check_all_starts_given([topic()], {**starts, TopicPartition("t", 1): 0})


def test_the_ledger_keeps_what_other_loads_have_reached() -> None:
    before = Ledger({"a": LoadedTopic("x", {0: 5, 1: 7})})
    after = before.advanced({"a": "x", "b": "y"}, [OffsetRange("a", 1, 7, 9), OffsetRange("b", 0, 0, 2)])
    assert Ledger.parse(after.dump()) == Ledger({"a": LoadedTopic("x", {0: 5, 1: 9}), "b": LoadedTopic("y", {0: 2})})


def test_a_snapshot_says_which_offsets_it_added() -> None:
    loaded, missing = [OffsetRange("t", 1, 4, 4), OffsetRange("t", 0, 6, 10)], [OffsetRange("t", 0, 0, 6)]
    properties = snapshot_properties("id", Ledger(), loaded, 4, missing)
    assert properties["barnabas.added"] == '{"t":[4]}'
    assert properties["barnabas.records"] == "4"
    assert properties["barnabas.missing"] == '{"t": {"0": [0, 6]}}'


def ranges_of(*counts: int, start: int = 7) -> list[OffsetRange]:
    return [OffsetRange("t", partition, start, start + count) for partition, count in enumerate(counts)]


def test_tasks_have_the_same_stretch_of_all_partitions_however_long_these_are() -> None:
    """What was sent at about the same time is in one task's files."""
    shares = plan_tasks(ranges_of(800_000, 80_000, 1), 4, 1_000_000)
    assert [[(part.partition, part.count) for part in share] for share in shares] == [
        [(0, 200_000), (1, 20_000)],
        [(0, 200_000), (1, 20_000)],
        [(0, 200_000), (1, 20_000)],
        [(0, 200_000), (1, 20_000), (2, 1)],
    ]


def test_partitions_that_are_short_stay_whole() -> None:
    shares = plan_tasks(ranges_of(*[2 * RECORDS_WORTH_A_CUT - 1] * 100), 2, 1_000_000)
    assert [[part.partition for part in share] for share in shares] == [[*range(50)], [*range(50, 100)]]


def test_a_partition_that_has_nearly_all_is_cut_where_the_others_are_short() -> None:
    shares = plan_tasks(ranges_of(900_000, *[10_000] * 11), 16, 1_000_000)
    assert len(shares) == 11
    assert max(sum(part.count for part in share) for share in shares) <= 110_000


@given(
    st.lists(st.integers(0, 300_000), min_size=1, max_size=20), st.integers(1, 16), st.sampled_from([50_000, 1_000_000])
)
def test_each_record_is_of_one_task_and_no_task_has_much_more_than_it_may(
    counts: list[int], parallelism: int, records_max: int
) -> None:
    ranges = ranges_of(*counts)
    shares = plan_tasks(ranges, parallelism, records_max)
    pieces = sorted(part for share in shares for part in share)
    for wanted in ranges:
        ends = [(part.start_offset, part.end_offset) for part in pieces if part.partition == wanted.partition]
        assert [wanted.start_offset, *(end for _, end in ends)] == [*(start for start, _ in ends), wanted.end_offset]
    assert all(part.count for part in pieces)
    assert all(sum(part.count for part in share) <= 2 * records_max for share in shares)


def test_a_sample_is_as_small_however_many_tasks_there_are() -> None:
    ranges = ranges_of(30_000_000)
    samples = [sampled(plan_tasks(ranges, tasks, 1_000_000), 1_000_000) for tasks in (1, 2, 300)]
    assert [sum(part.count for share in sample for part in share) for sample in samples] == [30 * 2 * 2_000] * 3

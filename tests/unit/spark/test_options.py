"""The options of the data source: what is accepted, and what a wrong one is told."""

from __future__ import annotations

import pytest

from barnabas.errors import ConfigurationError
from barnabas.model import TopicPartition
from barnabas.spark.options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Assign,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Earliest,
    Latest,
    Subscribe,
    SubscribePattern,
    parse_options,
)

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "clicks"}


def test_defaults_read_a_topic_from_its_first_to_its_last_record() -> None:
    options = parse_options(BASE)
    assert options.bootstrap == "localhost:9092"
    assert options.selection == Subscribe(("clicks",))
    assert (options.starting, options.ending) == (Earliest(), Latest())
    assert options.fail_on_data_loss
    assert not options.include_headers


def test_names_compare_without_regard_to_case() -> None:
    options = parse_options({"KAFKA.bootstrap.SERVERS": "a:1", "SUBSCRIBE": "x", "includeheaders": "TRUE"})
    assert options.include_headers


def test_subscribe_takes_several_topics() -> None:
    assert parse_options(BASE | {"subscribe": "a, b,c"}).selection == Subscribe(("a", "b", "c"))


def test_subscribe_pattern_and_assign() -> None:
    base = {"kafka.bootstrap.servers": "a:1"}
    pattern = parse_options(base | {"subscribePattern": "web-.*"}).selection
    assert isinstance(pattern, SubscribePattern)
    assert pattern.pattern.fullmatch("web-a")
    assigned = parse_options(base | {"assign": '{"b": [1, 0], "a": [2]}'}).selection
    assert assigned == Assign((TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("b", 1)))


def test_offsets_for_each_partition() -> None:
    options = parse_options(BASE | {"startingOffsets": '{"clicks": {"0": 23, "1": -2}}'})
    assert options.starting == AtOffsets({TopicPartition("clicks", 0): 23, TopicPartition("clicks", 1): -2})


def test_offsets_for_whole_topics_stand_beside_those_for_partitions() -> None:
    text = '{"a": "eArLiEst", "b": {"0": 23, "1": -2}, "c": "earliest"}'
    starting = parse_options(BASE | {"startingOffsets": text}).starting
    assert starting == AtOffsets(
        {TopicPartition("b", 0): 23, TopicPartition("b", 1): EARLIEST_OFFSET},
        {"a": EARLIEST_OFFSET, "c": EARLIEST_OFFSET},
    )
    ending = parse_options(BASE | {"endingOffsets": '{"clicks": "LATEST"}'}).ending
    assert ending == AtOffsets({}, {"clicks": LATEST_OFFSET})


def test_the_words_for_both_ends_may_be_written_in_any_case() -> None:
    options = parse_options(BASE | {"startingOffsets": "earLiEst", "endingOffsets": " laTest"})
    assert (options.starting, options.ending) == (Earliest(), Latest())


def test_a_timestamp_for_all_comes_before_one_by_partition_and_that_before_offsets() -> None:
    by_partition = {"startingOffsetsByTimestamp": '{"clicks": {"0": 1000}}', "startingOffsets": "earliest"}
    assert parse_options(BASE | by_partition).starting == AtTimestamps({TopicPartition("clicks", 0): 1000})
    assert parse_options(BASE | by_partition | {"startingTimestamp": "5"}).starting == AtTimestamp(5)


def test_client_settings_lose_their_prefix_and_what_has_no_effect_is_accepted() -> None:
    options = parse_options(
        BASE
        | {"kafka.fetch.max.bytes": "1000", "groupIdPrefix": "x", "kafka.group.id": "g", "maxOffsetsPerTrigger": "9"}
    )
    assert options.client_options == {"fetch.max.bytes": "1000"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"subscribe": "a"}, "kafka.bootstrap.servers"),
        ({"kafka.bootstrap.servers": "a:1"}, "exactly one"),
        (BASE | {"assign": '{"a": [0]}'}, "exactly one"),
        (BASE | {"subscribe": " "}, "empty"),
        (BASE | {"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        (BASE | {"bootstrap.servers": "a:1"}, "did you mean 'kafka.bootstrap.servers'"),
        (BASE | {"path": "/x"}, "no path"),
        (BASE | {"startingOffsets": "latest"}, "cannot start at latest"),
        (BASE | {"endingOffsets": "earliest"}, "cannot end at earliest"),
        (BASE | {"startingOffsets": '{"clicks": {"0": -1}}'}, "cannot start at latest"),
        (BASE | {"endingOffsets": '{"clicks": {"0": -2}}'}, "cannot end at earliest"),
        (BASE | {"startingOffsets": '{"clicks": {"0": -3}}'}, "-3"),
        (BASE | {"startingOffsets": "first"}, "JSON"),
        (BASE | {"startingOffsets": '"earliest"'}, "JSON"),
        (BASE | {"startingOffsets": '{"clicks": "first"}'}, "or one of these for a topic"),
        (BASE | {"startingOffsets": '{"clicks": {"0": "earliest"}}'}, "'earliest' is not a number for each partition"),
        (BASE | {"startingOffsets": '{"clicks": "latest"}'}, "cannot start at latest"),
        (BASE | {"endingOffsets": '{"clicks": "earliest"}'}, "cannot end at earliest"),
        (BASE | {"startingOffsets": '{"a": "earliest", "a": {"0": 23}}'}, "'a' occurs 2 times"),
        (BASE | {"startingOffsets": '{"clicks": [1]}'}, "number for each partition"),
        (BASE | {"startingTimestamp": "yesterday"}, "milliseconds"),
        (BASE | {"startingOffsetsByTimestampStrategy": "guess"}, "neither error nor latest"),
        (BASE | {"failOnDataLoss": "maybe"}, "neither true nor false"),
        (BASE | {"minPartitions": "0"}, "above 0"),
        (BASE | {"minPartitions": "-1"}, "above 0"),
        (BASE | {"minPartitions": "1.0"}, "above 0"),
        (BASE | {"kafka.auto.offset.reset": "latest"}, "use startingOffsets"),
        (BASE | {"kafka.enable.auto.commit": "true"}, "commits no offsets"),
        (BASE | {"kafka.interceptor.classes": "x"}, "no interceptors"),
        (BASE | {"kafka.key.deserializer": "x"}, "key is binary"),
        (BASE | {"kafka.value.deserializer": "x"}, "value is binary"),
        ({"kafka.bootstrap.servers": "a:1", "subscribePattern": "("}, "regular expression"),
        ({"kafka.bootstrap.servers": "a:1", "subscribePattern": ""}, "empty"),
        ({"kafka.bootstrap.servers": "a:1", "assign": ""}, "empty"),
        (BASE | {"subscribePattern": "c.*"}, "exactly one"),
        ({"kafka.bootstrap.servers": "a:1", "assign": '{"a": 0}'}, "list of partition numbers"),
        ({"kafka.bootstrap.servers": "a:1", "assign": "{}"}, "names no partition"),
    ],
)
def test_a_wrong_option_is_refused_with_what_would_be_right(given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_options(given)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)

"""The options of streams: what is accepted, and what a wrong one is told."""

from __future__ import annotations

import pytest

from barnabas.errors import ConfigurationError
from barnabas.spark.options import DELAY_MS_MAX, Earliest, Latest, parse_options, parse_stream_options, starts_at_end

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "clicks"}


def test_a_stream_starts_at_the_end_without_limits() -> None:
    options = parse_stream_options(BASE)
    assert options.source.starting == Latest()
    assert parse_stream_options(BASE | {"startingOffsets": "earliest"}).source.starting == Earliest()
    assert (options.records_max, options.records_min, options.commit_group) == (None, None, None)
    assert options.delay_ms_max == DELAY_MS_MAX


def test_limits_of_a_batch() -> None:
    options = parse_stream_options(
        BASE
        | {"maxOffsetsPerTrigger": "100", "minOffsetsPerTrigger": "10", "maxTriggerDelay": "2m", "commitToGroup": " g "}
    )
    assert (options.records_max, options.records_min, options.delay_ms_max) == (100, 10, 120_000)
    assert options.commit_group == "g"


@pytest.mark.parametrize(("text", "ms"), [("500", 500), ("500ms", 500), ("15s", 15_000), ("1H", 3_600_000)])
def test_times_as_spark_writes_them(text: str, ms: int) -> None:
    assert parse_stream_options(BASE | {"maxTriggerDelay": text}).delay_ms_max == ms


@pytest.mark.parametrize(
    ("starting", "is_at_end"),
    [
        ("latest", True),
        ('{"clicks": "latest"}', True),
        ('{"clicks": {"0": 5, "1": -1}}', True),
        ('{"clicks": "earliest"}', False),
        ('{"clicks": {"0": 5, "1": -2}}', False),
    ],
)
def test_a_start_at_the_end_of_any_partition_is_a_place_that_must_be_kept(starting: str, is_at_end: bool) -> None:
    assert starts_at_end(parse_stream_options(BASE | {"startingOffsets": starting}).source) is is_at_end


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"endingTimestamp": "5"}, "a stream has no end"),
        ({"endingOffsetsByTimestamp": '{"clicks": {"0": 5}}'}, "a stream has no end"),
        ({"maxTriggerDelay": "soon"}, "not a time"),
        ({"maxOffsetsPerTrigger": "0"}, "above 0"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "more than"),
        ({"commitToGroup": " "}, "empty"),
    ],
)
def test_what_cannot_be_is_told(options: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        parse_stream_options(BASE | options)


def test_a_batch_query_leaves_options_of_streams_alone() -> None:
    assert parse_options(BASE | {"maxOffsetsPerTrigger": "5", "commitToGroup": "g"}).starting == Earliest()

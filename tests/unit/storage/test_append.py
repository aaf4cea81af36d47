"""Batches whose timestamps are too far from the broker's clock."""

from __future__ import annotations

import pytest

from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TimestampType
from barnabas.records import BatchBuilder
from barnabas.records.header import BatchHeader, read_header
from barnabas.storage.log_appender import check_timestamps
from barnabas.storage.log_config import LogConfig

NOW_MS = 1_000_000
BOUNDED = LogConfig(message_timestamp_before_max_ms=100, message_timestamp_after_max_ms=10)


def header(*timestamps_ms: int) -> BatchHeader:
    builder = BatchBuilder()
    for timestamp_ms in timestamps_ms:
        builder.append(timestamp_ms, None, b"v")
    return read_header(builder.build())


@pytest.mark.parametrize("timestamps_ms", [(NOW_MS - 100,), (NOW_MS + 10,), (NOW_MS - 100, NOW_MS, NOW_MS + 10)])
def test_timestamps_within_the_bounds_are_taken(timestamps_ms: tuple[int, ...]) -> None:
    check_timestamps(header(*timestamps_ms), BOUNDED, NOW_MS)


@pytest.mark.parametrize(
    ("timestamps_ms", "message"),
    [
        ((NOW_MS - 101,), "is 101 ms behind the broker's clock; message.timestamp.before.max.ms is 100"),
        ((NOW_MS + 11,), "is 11 ms ahead of the broker's clock; message.timestamp.after.max.ms is 10"),
        ((NOW_MS, NOW_MS + 11, NOW_MS), "is 11 ms ahead"),
    ],
)
def test_timestamps_beyond_them_are_refused(timestamps_ms: tuple[int, ...], message: str) -> None:
    with pytest.raises(ApiError, match=message) as caught:
        check_timestamps(header(*timestamps_ms), BOUNDED, NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


def test_by_default_every_timestamp_is_taken() -> None:
    for timestamp_ms in (0, 2**60):
        check_timestamps(header(timestamp_ms), LogConfig(), NOW_MS)


def test_a_batch_without_timestamps_is_taken() -> None:
    check_timestamps(header(-1), BOUNDED, NOW_MS)


def test_producers_timestamps_do_not_matter_where_the_broker_stamps() -> None:
    config = LogConfig(
        message_timestamp_type=TimestampType.LOG_APPEND_TIME,
        message_timestamp_before_max_ms=0,
        message_timestamp_after_max_ms=0,
    )
    check_timestamps(header(5), config, NOW_MS)

"""Batches that the broker made itself are appended as all others are, or left to what appends those."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.clock import ManualClock
from barnabas.model import TimestampType
from barnabas.records import Record
from barnabas.records.batch_template import BatchTemplate
from barnabas.storage import Log, LogConfig
from barnabas.storage.log_config import CleanupPolicy

OpenLog = Callable[..., Log]

COMPACTED = frozenset({CleanupPolicy.COMPACT})


def made(clock: ManualClock) -> bytearray:
    return BatchTemplate(lambda _number: [(b"key", b"other")]).with_numbers(clock.time_ms(), [])


def test_it_is_in_the_log_behind_what_was_there(
    open_log: OpenLog, clock: ManualClock, read_all: Callable[[Log], list[Record]]
) -> None:
    log = open_log(cleanup_policy=COMPACTED, index_interval_bytes=0)
    assert not log.append_own_batch(made(clock), 3)  # the epoch has yet to begin
    assert log.log_end_offset == 0
    log.append(made(clock), 3)
    assert log.append_own_batch(made(clock), 3)
    assert log.append_own_batch(made(clock), 3)
    assert log.append_all([made(clock)], 3)
    assert [(record.offset, record.value) for record in read_all(log)] == [(offset, b"other") for offset in range(4)]
    assert (log.log_end_offset, log.high_watermark) == (4, 4)
    log.close()
    assert [record.offset for record in read_all(open_log())] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "setting",
    [
        {"segment_bytes": 150},
        {"max_message_bytes": 20},
        {"segment_ms": 10},
        {"message_timestamp_type": TimestampType.LOG_APPEND_TIME},
        {"message_timestamp_after_max_ms": 1_000},
    ],
    ids=str,
)
def test_where_more_is_to_be_done_it_is_left_as_it_was(
    open_log: OpenLog, clock: ManualClock, setting: dict[str, Any]
) -> None:
    log = open_log()
    log.append(made(clock), 0)
    log.configure(LogConfig(**setting))
    clock.advance(1)
    assert not log.append_own_batch(made(clock), 0)
    assert log.log_end_offset == 1


def test_an_older_epoch_and_a_closed_log_refuse_it(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log()
    log.append(made(clock), 5)
    assert not log.append_own_batch(made(clock), 4)
    log.close()
    assert not log.append_own_batch(made(clock), 5)


@pytest.mark.parametrize(("number", "is_offline"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_what_the_disk_refuses_is_not_in_the_log(
    open_log: OpenLog, clock: ManualClock, number: int, is_offline: bool
) -> None:
    log = open_log()
    log.append(made(clock), 0)
    file = log._segments.active.file
    size = log.size_bytes

    def write_half(chunks: Any) -> None:
        log._filesystem.writev(file, [chunks[0][:30]])
        raise OSError(number, "refused")

    log._segments.active.write = write_half  # type: ignore[method-assign]
    assert not log.append_own_batch(made(clock), 0)
    del log._segments.active.write  # type: ignore[method-assign]
    assert (log.is_offline, log.log_end_offset) == (is_offline, 1)
    if not is_offline:
        assert log._filesystem.size_of(file) == size
        assert log.append_own_batch(made(clock), 0)

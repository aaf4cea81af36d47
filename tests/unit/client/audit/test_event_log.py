"""Counting a log from a time on: what is left out, and what retention has taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.audit.stored_log import StoredLog
from barnabas.client.audit import event_log, log_counting
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder, Compression
from barnabas.records.header import stamp

MINUTE_MS = 60_000
WHERE = TopicPartition("clicks", 0)
FIRST_OFFSET = 10
WINDOWS = [5, 2, 6]
"""Of the records from the first offset on: event times go back."""


def log_of_one_batch() -> bytes:
    builder = BatchBuilder(Compression.NONE)
    for window in WINDOWS:
        builder.append(window * MINUTE_MS + 1, None, b"value", [])
    data = bytearray(builder.build(77, 0, FIRST_OFFSET))
    stamp(data, 0, FIRST_OFFSET, 0)
    return bytes(data)


class Log:
    """Stands for the reader of a range."""

    def __init__(self, *_place: object) -> None:
        pass

    def __enter__(self) -> Iterator[bytes]:
        return iter([log_of_one_batch()])

    def __exit__(self, *_error: object) -> None:
        pass


def count(monkeypatch: pytest.MonkeyPatch, log_begin: int, stretches: list[Any]) -> StoredLog:
    monkeypatch.setattr(log_counting, "RangeReader", Log)
    return event_log.count_stored(
        "none:1",
        {WHERE: (FIRST_OFFSET, FIRST_OFFSET + len(WINDOWS))},
        since_ms=4 * MINUTE_MS,
        log_begins={WHERE: log_begin},
        on_range=lambda _producer, offset, record_range: stretches.append((offset, record_range.window_ms)),
    )


def test_earlier_windows_in_between_are_not_compared_with_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    stretches: list[Any] = []
    stored = count(monkeypatch, 0, stretches)
    assert stretches == [(10, 5 * MINUTE_MS), (12, 6 * MINUTE_MS)]
    assert sorted(stored.counted) == [5 * MINUTE_MS, 6 * MINUTE_MS]


def test_log_that_begins_after_the_time_that_is_asked_for_has_expired_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = count(monkeypatch, FIRST_OFFSET, [])
    assert stored.is_expired(0, 4 * MINUTE_MS)
    assert stored.is_expired(0, 5 * MINUTE_MS)
    assert not stored.is_expired(0, 6 * MINUTE_MS)


def test_log_that_begins_earlier_has_lost_nothing_to_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not count(monkeypatch, 3, []).is_expired(0, 4 * MINUTE_MS)

"""Searches by time: exact, and over batches whose headers lie soon at an end, whatever the batches claim."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.model import OffsetAndTimestamp
from barnabas.records import BatchBuilder, Compression, Record
from barnabas.records.header import pack_header, read_header, write_crc
from barnabas.storage import Log, time_search

START_MS = 1_700_000_000_000

OpenLog = Callable[..., Log]
MakeBatch = Callable[..., bytearray]
FUTURE_MS = 2**60


def lying(batch: bytearray) -> bytearray:
    """Return a batch whose header claims a time that none of its records has."""
    pack_header(batch, read_header(batch)._replace(max_timestamp_ms=FUTURE_MS))
    write_crc(batch, 0, len(batch))
    return batch


def test_batches_that_claim_a_wrong_time_are_looked_into_so_often_only(
    open_log: OpenLog, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    for _ in range(500):
        log.append(lying(make_batch(2)), 0)
    looked_into = 0
    read_records = time_search.read_records

    def count(*arguments: object, **named: object) -> list[Record]:
        nonlocal looked_into
        looked_into += 1
        return read_records(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(time_search, "read_records", count)
    believed = 2 * time_search.SEARCHED_BATCHES_MAX
    assert log.time_search().first_at(FUTURE_MS) == OffsetAndTimestamp(believed, FUTURE_MS)
    assert looked_into == time_search.SEARCHED_BATCHES_MAX


def test_search_goes_on_over_what_the_log_was(open_log: OpenLog, make_batch: MakeBatch) -> None:
    """Segments that are deleted, and batches that come, while a search is under way do not disturb it."""
    log = open_log()
    log.append(make_batch(2, timestamp_ms=1_000), 0)
    log.roll()
    log.append(make_batch(2, timestamp_ms=2_000), 0)
    search = log.time_search()
    log.append(make_batch(1, timestamp_ms=9_000), 0)
    log.delete_records_before(2)
    assert search.first_at(1_500) == OffsetAndTimestamp(2, 2_000)
    assert log.time_search().latest() == OffsetAndTimestamp(4, 9_000)


def test_offset_for_timestamp_is_exact(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log(index_interval_bytes=200, segment_bytes=3_000)
    for number in range(100):
        log.append(make_batch(5, timestamp_ms=START_MS + 10 * number), 0)
    for number in range(100):
        for extra in range(10):
            expected = 5 * number + extra if extra < 5 else 5 * number + 5
            found = log.time_search().first_at(START_MS + 10 * number + extra)
            assert (found.offset if found else 500) == expected
    assert log.time_search().first_at(0) == OffsetAndTimestamp(0, START_MS)
    assert log.time_search().first_at(START_MS + 10_000) is None
    assert log.time_search().latest() == OffsetAndTimestamp(499, START_MS + 994)


def test_times_that_go_back_are_searched_in_offset_order(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log(index_interval_bytes=0, segment_bytes=600)
    for timestamp_ms in (50, 10, 70, 20, 90, 30):
        log.append(make_batch(timestamp_ms=timestamp_ms), 0)
    assert log.time_search().first_at(5) == OffsetAndTimestamp(0, 50)
    assert log.time_search().first_at(60) == OffsetAndTimestamp(2, 70)
    assert log.time_search().first_at(80) == OffsetAndTimestamp(4, 90)
    assert log.time_search().latest() == OffsetAndTimestamp(4, 90)


def test_search_by_time_in_a_log_without_records(open_log: OpenLog) -> None:
    log = open_log()
    assert log.time_search().first_at(0) is None
    assert log.time_search().latest() == OffsetAndTimestamp(-1, -1)


def test_unreadable_records_do_not_stop_a_search_by_time(open_log: OpenLog) -> None:
    builder = BatchBuilder(Compression.GZIP)
    builder.append_many(START_MS, [b"v"] * 3)
    batch = builder.build()
    batch[65] ^= 0xFF
    write_crc(batch, 0, len(batch))
    log = open_log()
    log.append(batch, 0)
    assert log.time_search().first_at(START_MS) == OffsetAndTimestamp(0, START_MS)

"""Searches by time over batches whose headers lie: they end soon, whatever the batches claim."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.model import OffsetAndTimestamp
from barnabas.records import Record
from barnabas.records.header import pack_header, read_header, write_crc
from barnabas.storage import Log, time_search

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

"""One lost, one doubled and one late record among a hundred million: what is found is just these."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from barnabas.audit.balance import balance
from barnabas.audit.batch_windows import RecordRange
from barnabas.audit.events import PRODUCED, MonitoringEvent
from barnabas.audit.findings import Kind
from barnabas.audit.identities import Producer
from barnabas.audit.stored_log import StoredLog
from barnabas.audit.windows import WindowCounter
from barnabas.records.header import MAGIC, SEQUENCE_MAX, BatchHeader
from tests.support.searches import examples

RECORDS = 10**8
BATCHES = 100
BATCH_RECORDS = RECORDS // BATCHES
BATCHES_IN_A_WINDOW = 7
WIDTH_MS = 60_000
LATE_MS = 300_000
ONE = Producer(7, 3, 0)

numbers = st.integers(0, RECORDS - 1)


def window_of_number(number: int) -> int:
    return number // BATCH_RECORDS // BATCHES_IN_A_WINDOW * WIDTH_MS


def told_by_the_producer(first: int, late: int) -> list[MonitoringEvent]:
    """What it tells of all its batches; one record is acknowledged long after its window, in a batch of its own."""
    counter: WindowCounter[str] = WindowCounter(WIDTH_MS, LATE_MS)
    for begin, count in split_at(late):
        window_ms = window_of_number(begin)
        now_ms = window_ms + WIDTH_MS + LATE_MS - (begin != late)
        counter.count("clicks", ONE, (first + begin) & SEQUENCE_MAX, count, 0, window_ms, now_ms)
    return [
        MonitoringEvent(
            "clicks", PRODUCED, window_ms, WIDTH_MS, "i", 1, "web-1", "shop", found.partitions, found.late, is_last=True
        )
        for (_topic, window_ms), found in counter.take_changes().items()
    ]


def split_at(number: int) -> list[tuple[int, int]]:
    """All records in batches, as first and count, in which one record has a batch of its own."""
    batches = []
    for begin in range(0, RECORDS, BATCH_RECORDS):
        end = begin + BATCH_RECORDS
        edges = [begin, number, number + 1, end] if begin <= number < end else [begin, end]
        batches += [(at, until - at) for at, until in pairwise(edges) if at < until]
    return batches


def log_without(first: int, lost: int, doubled: int) -> StoredLog:
    """What a log holds in which one record is missing and another one is there a second time."""
    stored = StoredLog(WIDTH_MS)
    offset = 0
    held = [(at, count) for at, count in split_at(lost) if at != lost]
    again = next(place for place, (at, count) in enumerate(held) if at <= doubled < at + count) + 1
    for at, count in [*held[:again], (doubled, 1), *held[again:]]:
        sequence = (first + at) & SEQUENCE_MAX
        header = BatchHeader(offset, 0, 0, MAGIC, 0, 0, count - 1, 0, 0, *ONE[:2], sequence, count)
        stored.add(0, header, [RecordRange(count, window_of_number(at))])
        offset += count
    assert offset == RECORDS
    return stored


@settings(max_examples=examples(25))
@given(numbers, numbers, numbers, st.integers(0, SEQUENCE_MAX))
def test_one_lost_one_doubled_and_one_late_record_are_found(lost: int, doubled: int, late: int, first: int) -> None:
    assume(lost != doubled)
    found = balance(told_by_the_producer(first, late), log_without(first, lost, doubled))
    assert {(each.kind, each.window_ms, each.records) for each in found.findings} == {
        (Kind.LOST, window_of_number(lost), 1),
        (Kind.DOUBLED, window_of_number(doubled), 1),
    }
    assert {window.window_ms: window.late for window in found.windows if window.late} == {window_of_number(late): 1}
    assert sum(window.produced for window in found.windows) == RECORDS
    assert sum(window.stored for window in found.windows) == RECORDS
    (missing,) = [each.missing for each in found.findings if each.kind is Kind.LOST]
    if 0 < lost < RECORDS - 1:
        assert missing == ((first + lost, 1),)


@settings(max_examples=examples(25))
@given(numbers, st.integers(0, SEQUENCE_MAX))
def test_nothing_is_found_where_nothing_is_wrong(cut: int, first: int) -> None:
    stored = StoredLog(WIDTH_MS)
    for at, count in split_at(cut):
        sequence = (first + at) & SEQUENCE_MAX
        header = BatchHeader(at, 0, 0, MAGIC, 0, 0, count - 1, 0, 0, *ONE[:2], sequence, count)
        stored.add(0, header, [RecordRange(count, window_of_number(at))])
    found = balance(told_by_the_producer(first, cut), stored)
    assert found.findings == []
    assert {window.status for window in found.windows} == {"complete"}

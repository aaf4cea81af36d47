"""Counting a log again: only what is new is read, unless what was counted is not there any more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.audit import scanned_ranges
from barnabas.audit.batch_windows import RecordRange
from barnabas.audit.events import PRODUCED, MonitoringEvent
from barnabas.audit.identities import Producer
from barnabas.audit.reported_counts import ReportedCounts
from barnabas.audit.scanned_ranges import OnRange
from barnabas.audit.stored_log import StoredLog
from barnabas.audit.windows import WINDOW_MS, tally
from barnabas.client.audit import log_counting
from barnabas.client.audit.log_counting import LogCountCache
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder
from barnabas.records.header import stamp

WHERE = TopicPartition("clicks", 0)
ONE = Producer(7, 0, 0)


def batch(sequence: int, offset: int, epoch: int = 0, at_ms: int = 1) -> bytes:
    """Return a batch of two records."""
    builder = BatchBuilder()
    builder.append(at_ms, None, b"x")
    builder.append(at_ms + 1, None, b"x")
    data = bytearray(builder.build(ONE.producer_id, 0, sequence))
    stamp(data, 0, offset, epoch)
    return bytes(data)


class Log:
    """A log of one partition, and what was read of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begin = 0
        self.batches: list[tuple[int, bytes]] = []
        self.read_from: list[int] = []
        self.whole: list[tuple[int, int]] = []
        self.memory = LogCountCache()
        log = self

        class Reader:
            def __init__(self, _bootstrap: object, _topic: str, _partition: int, start: int, end: int) -> None:
                log.read_from.append(start)
                self._batches = [data for first, data in log.batches if start <= first < end]

            def __enter__(self) -> Iterator[bytes]:
                return iter(self._batches)

            def __exit__(self, *_error: object) -> None:
                pass

        monkeypatch.setattr(log_counting, "RangeReader", Reader)

    @property
    def end(self) -> int:
        return self.batches[-1][0] + 2 if self.batches else self.begin

    def append(self, sequence: int, epoch: int = 0) -> None:
        """Append a batch of two records."""
        self.batches.append((self.end, batch(sequence, self.end, epoch)))

    def see(self, _producer: Producer, offset: int, record_range: RecordRange) -> None:
        self.whole.append((offset, record_range.records))

    def shown(self) -> list[tuple[int, int]]:
        """Return what was shown since the last call."""
        shown, self.whole = self.whole, []
        return shown

    def count(
        self,
        told: ReportedCounts | None = None,
        *,
        topic_id: str = "a",
        sees_whole: bool = False,
        see: OnRange | None = None,
    ) -> StoredLog:
        see = self.see if sees_whole else see
        return self.memory.count(
            "none:1", topic_id, told or ReportedCounts([], "", WINDOW_MS), {WHERE: (self.begin, self.end)},
            lambda _records: None, width_ms=WINDOW_MS, since_ms=None, log_begins={WHERE: self.begin}, on_range=see,
        )  # fmt: skip


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log(monkeypatch)
    log.append(0)
    log.append(2)
    return log


def records(stored: StoredLog) -> int:
    return sum(found.records for window in stored.counted.values() for found in window.values())


def test_log_that_has_grown_is_read_from_its_last_batch_on(log: Log) -> None:
    assert records(log.count()) == 4
    log.append(4)
    assert records(log.count()) == 6
    assert records(log.count()) == 6
    assert log.read_from == [0, 2, 4]


def test_log_of_which_the_end_was_replaced_is_counted_anew(log: Log) -> None:
    log.count()
    log.batches.pop()
    log.append(2, epoch=1)
    log.append(8, epoch=1)
    stored = log.count()
    assert records(stored) == 6
    assert stored.gaps_of(ONE) == [(4, 4)]
    assert log.read_from == [0, 2, 0]


def test_log_that_has_become_shorter_is_counted_anew(log: Log) -> None:
    log.count()
    log.batches.pop()
    assert records(log.count()) == 2


def test_log_that_retention_has_shortened_is_counted_anew(log: Log) -> None:
    log.count()
    log.append(4)
    log.begin = log.batches.pop(0)[0] + 2
    stored = log.count()
    assert records(stored) == 4
    assert stored.is_expired(0, 0)
    assert log.read_from == [0, 2]


def test_another_topic_of_the_same_name_is_counted_anew(log: Log) -> None:
    log.count()
    log.count(topic_id="b")
    assert log.read_from == [0, 0]


def test_whoever_looks_at_the_whole_log_sees_it_each_time_though_it_is_read_once(log: Log) -> None:
    log.count(sees_whole=True)
    assert log.shown() == [(0, 2), (2, 2)]
    log.append(4)
    log.count(sees_whole=True)
    assert log.shown() == [(0, 6)]  # what follows on each other is one
    assert log.read_from == [0, 2]


def test_whoever_looks_at_the_whole_log_sees_nothing_of_one_that_is_gone(log: Log) -> None:
    log.count(sees_whole=True)
    log.shown()
    log.batches.pop()
    log.append(2, epoch=1)
    log.append(8, epoch=1)
    log.count(sees_whole=True)
    assert log.shown() == [(0, 2), (2, 2), (4, 2)]


def test_log_is_read_again_for_who_looks_at_it_where_nobody_has_seen_it(log: Log) -> None:
    log.count()
    log.count(sees_whole=True)
    assert log.shown() == [(0, 2), (2, 2)]
    assert log.read_from[-1] == 0


def test_log_of_too_many_stretches_is_read_again(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanned_ranges, "RANGES_MAX", 1)
    log.count(sees_whole=True)
    log.append(8)  # in another window, so another stretch
    log.batches[-1] = (log.batches[-1][0], batch(8, log.batches[-1][0], at_ms=WINDOW_MS))
    for _ in range(2):
        log.shown()
        log.count(sees_whole=True)
        assert log.shown() == [(0, 2), (2, 2), (4, 2)]


def test_look_that_fails_leaves_nothing_behind(log: Log) -> None:
    class BrokenError(Exception):
        pass

    def fail(*_arguments: object) -> None:
        raise BrokenError

    with pytest.raises(BrokenError):
        log.count(see=fail)
    assert records(log.count()) == 4


def test_headers_are_believed_until_records_are_to_be_looked_at(log: Log) -> None:
    event = MonitoringEvent("clicks", PRODUCED, 0, WINDOW_MS, "i", 1, "h", "a", {ONE: tally(ONE, 0, 4, 0)})
    told = ReportedCounts([event], "", WINDOW_MS)
    log.count(told)
    assert log.memory.is_likely
    log.memory.look_at_records()
    assert records(log.count(told)) == 4
    assert not log.memory.is_likely
    assert log.read_from == [0, 0]


def test_log_is_counted_anew_where_a_producer_that_was_believed_is_in_doubt_now(log: Log) -> None:
    event = MonitoringEvent("clicks", PRODUCED, 0, WINDOW_MS, "i", 1, "h", "a", {ONE: tally(ONE, 0, 4, 0)})
    log.count(ReportedCounts([event], "", WINDOW_MS))
    log.count(ReportedCounts([], "", WINDOW_MS))
    assert not log.memory.is_likely
    assert log.read_from == [0, 0]

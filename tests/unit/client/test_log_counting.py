"""Counting a log again: only what is new is read, unless what was counted is not there any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.audit.event_times import Stretch
from barnabas.audit.events import PRODUCED, MonitoringEvent
from barnabas.audit.identities import Producer
from barnabas.audit.stored import StoredLog
from barnabas.audit.told import Told
from barnabas.audit.windows import WINDOW_MS, tally
from barnabas.client import log_counting
from barnabas.client.log_counting import LogMemory
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder
from barnabas.records.header import stamp

WHERE = TopicPartition("clicks", 0)
ONE = Producer(7, 0, 0)


class Log:
    """A log of one partition, and what was read of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begin = 0
        self.batches: list[tuple[int, bytes]] = []
        self.read_from: list[int] = []
        self.whole: list[Any] = []
        self.memory = LogMemory()
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
        builder = BatchBuilder()
        builder.append(1, None, b"x")
        builder.append(2, None, b"x")
        data = bytearray(builder.build(ONE.producer_id, 0, sequence))
        offset = self.end
        stamp(data, 0, offset, epoch)
        self.batches.append((offset, bytes(data)))

    def count(self, told: Told | None = None, *, topic_id: str = "a", sees_whole: bool = False) -> StoredLog:
        def see(_producer: Producer, offset: int, stretch: Stretch) -> None:
            self.whole.append((offset, stretch.records))

        return self.memory.count(
            "none:1", topic_id, told or Told([], "", WINDOW_MS), {WHERE: (self.begin, self.end)}, lambda _records: None,
            width_ms=WINDOW_MS, since_ms=None, log_begins={WHERE: self.begin}, on_stretch=see if sees_whole else None,
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


def test_whoever_looks_at_the_whole_log_sees_it_each_time(log: Log) -> None:
    log.count(sees_whole=True)
    log.count(sees_whole=True)
    assert log.whole == [(0, 2), (2, 2)] * 2


def test_headers_are_believed_until_records_are_to_be_looked_at(log: Log) -> None:
    event = MonitoringEvent("clicks", PRODUCED, 0, WINDOW_MS, "i", 1, "h", "a", {ONE: tally(ONE, 0, 4, 0)})
    told = Told([event], "", WINDOW_MS)
    log.count(told)
    assert log.memory.is_likely
    log.memory.look_at_records()
    assert records(log.count(told)) == 4
    assert not log.memory.is_likely
    assert log.read_from == [0, 0]


def test_log_is_counted_anew_where_a_producer_that_was_believed_is_in_doubt_now(log: Log) -> None:
    event = MonitoringEvent("clicks", PRODUCED, 0, WINDOW_MS, "i", 1, "h", "a", {ONE: tally(ONE, 0, 4, 0)})
    log.count(Told([event], "", WINDOW_MS))
    log.count(Told([], "", WINDOW_MS))
    assert not log.memory.is_likely
    assert log.read_from == [0, 0]

"""What a consumer's run counts, and when it ends though nothing more comes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Self

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import ClosedError, ConfigurationError, TimedOutError
from barnabas.laboratory.perf import consume_workload
from barnabas.laboratory.perf.consume_workload import IDLE_S_MAX, ConsumeJob, EndWatch, ReadMode, consume
from barnabas.laboratory.perf.meter import Meter
from barnabas.laboratory.perf.run_control import RunControl
from barnabas.model import TopicPartition

VALUES = [b"four", None, b"", b"sevens!"] * 250
BYTES = 11 * 250


class FakeConsumer:
    """Hands out `VALUES` and then waits for its end; says what was done with it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.at = 0
        self.log: list[object] = []
        self.closed = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        self.close()

    def close(self) -> None:
        self.closed.set()

    def assign(self, tps) -> None:
        self.log.append(("assign", sorted(tps)))

    def seek(self, tp, offset: int) -> None:
        self.log.append(("seek", tp, offset))

    def subscribe(self, topic: str, *, on_assign, on_revoke) -> None:
        self.log.append(("subscribe", topic))
        on_assign([])

    def unsubscribe(self) -> None:
        self.log.append("unsubscribe")
        self.at = 0

    def assignment(self):
        return {TopicPartition("clicks", 0)}

    def position(self, _tp, timeout_s: float | None = None) -> int:
        return self.at

    def __iter__(self) -> Iterator[Any]:
        while True:
            if self.at == len(VALUES):
                self.closed.wait()
                return
            self.at += 1
            yield SimpleNamespace(value=VALUES[self.at - 1])

    def poll(self, max_records: int, timeout_s: float) -> list[Any]:
        if self.at == len(VALUES) and self.closed.wait(timeout_s):
            raise ClosedError("this consumer is closed")
        taken = VALUES[self.at : self.at + min(max_records, 70)]
        self.at += len(taken)
        return [SimpleNamespace(value=value) for value in taken]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FakeConsumer]:
    """The consumers that a run makes."""
    consumers: list[FakeConsumer] = []

    def make(settings: dict[str, Any]) -> FakeConsumer:
        consumers.append(FakeConsumer(settings))
        return consumers[-1]

    monkeypatch.setattr(consume_workload, "Consumer", make)
    return consumers


def job(mode: ReadMode = ReadMode.RECORDS, **more) -> ConsumeJob:
    return ConsumeJob(settings={}, topic="clicks", partitions=(0,), mode=mode, **more)


BOTH_WAYS = pytest.mark.parametrize("mode", [ReadMode.RECORDS, ReadMode.POLL])


@BOTH_WAYS
def test_records_and_bytes_are_counted_and_null_has_none(made, mode: ReadMode) -> None:
    measured = consume(job(mode, records=1_000), Meter(ManualClock()), RunControl())
    assert (measured.records, measured.bytes) == (1_000, BYTES)


@BOTH_WAYS
@pytest.mark.parametrize("records", [1, 99, 100, 101, 777])
def test_no_more_are_read_than_asked_for(made, mode: ReadMode, records: int) -> None:
    assert consume(job(mode, records=records), Meter(ManualClock()), RunControl()).records == records
    assert made[0].at == records


@BOTH_WAYS
def test_run_ends_at_the_end_of_the_topic_though_more_was_asked_for(made, mode: ReadMode) -> None:
    measured = consume(job(mode, records=5_000), Meter(ManualClock()), RunControl(ends={0: 1_000}))
    assert (measured.records, measured.bytes) == (1_000, BYTES)


@BOTH_WAYS
def test_run_that_is_told_to_stop_has_counted_what_came(made, mode: ReadMode) -> None:
    control = RunControl()
    threading.Timer(0.1, control.stop).start()
    assert consume(job(mode), Meter(ManualClock()), control).records == 1_000


@BOTH_WAYS
def test_warm_up_is_read_twice_and_counted_once(made, mode: ReadMode) -> None:
    measured = consume(job(mode, records=1_000, warm_up=300), Meter(ManualClock()), RunControl())
    assert measured.records == 1_000
    assigned = ("assign", [TopicPartition("clicks", 0)])
    assert made[0].log == [assigned, "unsubscribe", assigned]


def test_run_with_starts_reads_on_behind_its_warm_up(made) -> None:
    measured = consume(job(records=600, warm_up=300, starts={0: 7}), Meter(ManualClock()), RunControl())
    assert (measured.records, made[0].at) == (600, 900)
    tp = TopicPartition("clicks", 0)
    assert made[0].log == [("assign", [tp]), ("seek", tp, 7)]


def test_member_of_a_group_subscribes(made) -> None:
    consume(ConsumeJob({"group.id": "ctr"}, "clicks", None, records=10), Meter(ManualClock()), RunControl())
    assert made[0].log == [("subscribe", "clicks")]


def test_error_still_tells_how_far_the_run_came(made, monkeypatch) -> None:
    def fail(self) -> Iterator[Any]:
        yield from [SimpleNamespace(value=b"12345")] * 30
        raise KeyboardInterrupt

    monkeypatch.setattr(FakeConsumer, "__iter__", fail)
    meter = Meter(ManualClock())
    with pytest.raises(KeyboardInterrupt):
        consume(job(), meter, RunControl())
    assert (meter.end().records, meter.end().bytes) == (30, 150)


# --- the watch ----------------------------------------------------------------------------------------------


class Watched:
    """A watch, and all that it looks at."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.consumer = FakeConsumer({})
        self.meter = Meter(self.clock, seconds_max=100.0)
        self.control = RunControl()
        self.joined = threading.Event()
        self.watch = EndWatch(self.consumer, self.meter, self.control, self.joined)  # type: ignore[arg-type]
        self.meter.begin()
        self.watch.is_over()

    def is_over(self) -> bool:
        return self.watch.is_over()


def test_run_is_over_at_the_ends_and_not_before_they_are_known() -> None:
    run = Watched()
    run.consumer.at = 10
    assert not run.is_over()
    run.control.set_ends({0: 11})
    assert not run.is_over()
    run.consumer.at = 11
    assert run.is_over()


def test_run_is_not_over_while_records_come() -> None:
    run = Watched()
    run.control.set_ends({0: 0})
    run.meter.add(1, 1)
    assert not run.is_over()
    assert run.is_over()


def test_run_is_over_when_nothing_comes_for_long() -> None:
    run = Watched()
    run.control.set_ends({0: 1_000_000})
    run.clock.advance(IDLE_S_MAX - 1)
    assert not run.is_over()
    run.clock.advance(2)
    assert run.is_over()


def test_run_is_over_when_its_time_is_or_it_is_told_so() -> None:
    run = Watched()
    run.clock.advance(101)
    assert run.is_over()
    run = Watched()
    run.control.stop()
    assert run.is_over()


def test_member_without_partitions_waits_until_it_has_joined(monkeypatch) -> None:
    run = Watched()
    run.control.set_ends({0: 5})
    monkeypatch.setattr(run.consumer, "assignment", set)
    assert not run.is_over()
    run.joined.set()
    assert run.is_over()


@pytest.mark.parametrize("error", [TimedOutError("later"), ConfigurationError("given away")])
def test_position_that_is_not_known_is_not_the_end(monkeypatch, error: Exception) -> None:
    run = Watched()
    run.control.set_ends({0: 0})

    def position(_tp, timeout_s: float) -> int:
        raise error

    monkeypatch.setattr(run.consumer, "position", position)
    assert not run.is_over()

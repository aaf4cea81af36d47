"""What a producer's run sends and counts, and how it fails."""

from __future__ import annotations

from typing import Any, Self

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import ApiError, ErrorCode
from barnabas.laboratory.perf import produce_workload
from barnabas.laboratory.perf.meter import Meter
from barnabas.laboratory.perf.payloads import PayloadKind, PayloadSpec
from barnabas.laboratory.perf.produce_workload import CALL_RECORDS_MAX, ProduceJob, SendMode, produce
from barnabas.laboratory.perf.run_control import RunControl


class FakeDelivery:
    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def done(self) -> bool:
        return True

    def exception(self) -> Exception | None:
        return self.error


class FakeProducer:
    """Notes what it is given, call by call."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.calls: list[list[bytes]] = []
        self.flushed_after: list[int] = []
        self.error: Exception | None = None
        self.on_call = lambda: None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        pass

    def partitions_for(self, _topic: str) -> list[int]:
        return [0]

    def send(self, _topic: str, value: bytes) -> FakeDelivery:
        self.calls.append([value])
        self.on_call()
        return FakeDelivery(self.error)

    def send_many(self, _topic: str, values: list[bytes]) -> None:
        self.calls.append(list(values))
        self.on_call()

    def send_arrow(self, _topic: str, array: Any) -> None:
        self.calls.append(array.to_pylist())
        self.on_call()

    def flush(self) -> None:
        self.flushed_after.append(len(self.sent))

    @property
    def sent(self) -> list[bytes]:
        return [value for call in self.calls for value in call]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> FakeProducer:
    """The producer of the run."""
    fake = FakeProducer({})
    monkeypatch.setattr(produce_workload, "Producer", lambda _settings: fake)
    monkeypatch.setattr(produce_workload, "Delivery", FakeDelivery)
    return fake


def job(mode: SendMode, **more) -> ProduceJob:
    return ProduceJob({}, "clicks", mode, PayloadSpec(PayloadKind.RANDOM, 20), **more)


ALL_WAYS = pytest.mark.parametrize("mode", list(SendMode))


@ALL_WAYS
@pytest.mark.parametrize("records", [1, CALL_RECORDS_MAX, CALL_RECORDS_MAX + 1, 25_003])
def test_exactly_so_many_values_are_sent_round_and_round_the_pool(
    made: FakeProducer, mode: SendMode, records: int
) -> None:
    measured = produce(job(mode, records=records), Meter(ManualClock()), RunControl())
    assert (measured.records, measured.bytes, len(made.sent)) == (records, records * 20, records)
    pool = PayloadSpec(PayloadKind.RANDOM, 20).values()
    assert made.sent == [pool[number % len(pool)] for number in range(records)]
    assert made.flushed_after[-1] == records


@ALL_WAYS
def test_values_are_given_one_a_call_or_in_lists(made: FakeProducer, mode: SendMode) -> None:
    produce(job(mode, records=20_000), Meter(ManualClock()), RunControl())
    assert {len(call) for call in made.calls} == {1 if mode is SendMode.SEND else CALL_RECORDS_MAX}


@ALL_WAYS
def test_warm_up_is_sent_and_flushed_before_the_clock_starts(made: FakeProducer, mode: SendMode) -> None:
    measured = produce(job(mode, records=700, warm_up=300), Meter(ManualClock()), RunControl())
    assert (measured.records, len(made.sent), made.flushed_after) == (700, 1_000, [300, 1_000])


@ALL_WAYS
def test_run_without_number_goes_on_until_its_time_is_over(made: FakeProducer, mode: SendMode) -> None:
    clock = ManualClock()
    made.on_call = lambda: clock.advance(1 if mode is not SendMode.SEND else 1 / CALL_RECORDS_MAX)
    measured = produce(job(mode), Meter(clock, seconds_max=4.5), RunControl())
    assert measured.records == len(made.sent) == 5 * CALL_RECORDS_MAX


def test_run_that_is_told_to_stop_flushes(made: FakeProducer) -> None:
    control = RunControl()
    made.on_call = control.stop
    measured = produce(job(SendMode.MANY), Meter(ManualClock()), control)
    assert (measured.records, made.flushed_after[-1]) == (CALL_RECORDS_MAX, CALL_RECORDS_MAX)


def test_record_that_is_not_delivered_ends_the_run_with_the_reason(made: FakeProducer) -> None:
    made.error = ApiError(ErrorCode.MESSAGE_TOO_LARGE)
    with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
        produce(job(SendMode.SEND, records=1_000_000), Meter(ManualClock()), RunControl())
    assert len(made.sent) == CALL_RECORDS_MAX


def test_interrupted_run_has_counted_what_was_sent(made: FakeProducer) -> None:
    def interrupt() -> None:
        if len(made.calls) == 3:
            raise KeyboardInterrupt

    made.on_call = interrupt
    meter = Meter(ManualClock())
    with pytest.raises(KeyboardInterrupt):
        produce(job(SendMode.MANY), meter, RunControl())
    assert meter.end().records == 2 * CALL_RECORDS_MAX

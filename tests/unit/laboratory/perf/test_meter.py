"""What is counted, timed and sampled."""

from __future__ import annotations

import pytest

from barnabas.clock import ManualClock
from barnabas.laboratory.perf.meter import CHUNK_S, Measured, Meter, Sample, combined, next_chunk_records


class Cpu:
    def __init__(self) -> None:
        self.used_s = 5.0

    def __call__(self) -> float:
        return self.used_s


def test_only_what_comes_after_the_beginning_is_measured() -> None:
    clock, cpu = ManualClock(), Cpu()
    meter = Meter(clock, cpu)
    meter.add(70, 700)
    clock.advance(9)
    cpu.used_s = 6.0
    meter.begin()
    meter.add(5, 50)
    clock.advance(2)
    cpu.used_s = 6.5
    measured = meter.end()
    assert (measured.records, measured.bytes, measured.elapsed_s, measured.cpu_s) == (5, 50, 2.0, 0.5)


def test_clock_stops_once() -> None:
    clock = ManualClock()
    meter = Meter(clock, Cpu())
    meter.begin()
    clock.advance(1)
    first = meter.end()
    clock.advance(1)
    meter.add(1, 1)
    assert meter.end() is first


def test_run_that_never_began_has_done_nothing() -> None:
    meter = Meter(ManualClock(), Cpu())
    meter.add(10, 10)
    assert meter.end().records == 0
    assert meter.end().elapsed_s == 0.0


def test_listener_hears_at_most_once_in_an_interval() -> None:
    clock, heard = ManualClock(), []
    meter = Meter(clock, Cpu(), listener=heard.append, interval_s=1.0)
    meter.begin()
    for _ in range(20):
        clock.advance(0.125)
        meter.add(10, 100)
    assert [sample.records for sample in heard] == [80, 160]
    assert meter.end().samples == tuple(heard)


def test_samples_of_the_warm_up_are_forgotten() -> None:
    clock = ManualClock()
    meter = Meter(clock, Cpu(), interval_s=1.0)
    meter.begin()
    clock.advance(1.5)
    meter.add(10, 10)
    meter.begin()
    assert meter.end().samples == ()


def test_workload_stops_when_its_time_is_over() -> None:
    clock = ManualClock()
    meter = Meter(clock, Cpu(), seconds_max=3.0)
    clock.advance(10)
    meter.begin()
    clock.advance(2.9)
    meter.add(1, 1)
    assert meter.is_running
    assert not meter.overdue
    clock.advance(0.2)
    assert meter.overdue
    meter.add(1, 1)
    assert not meter.is_running


def test_records_at_a_moment_lie_between_the_samples() -> None:
    measured = Measured(10.0, 14.0, 100, 0, 0.0, (Sample(11.0, 40, 0), Sample(12.0, 60, 0)))
    moments = (9.0, 10.0, 10.5, 11.0, 11.5, 13.0, 14.0, 99.0)
    assert [measured.records_at(at_s) for at_s in moments] == [0, 0, 20, 40, 50, 80, 100, 100]


def test_several_processes_are_measured_from_the_first_start_to_the_last_end() -> None:
    whole = combined([Measured(1.0, 3.0, 10, 100, 0.5), Measured(2.0, 5.0, 20, 200, 0.25)])
    assert (whole.elapsed_s, whole.records, whole.bytes, whole.cpu_s) == (4.0, 30, 300, 0.75)


@pytest.mark.parametrize("records_per_s", [1, 50, 5_000, 3_000_000])
def test_stretches_come_to_take_the_time_they_should(records_per_s: int) -> None:
    stretch = 100
    for _ in range(40):
        stretch = next_chunk_records(stretch, stretch / records_per_s, 10_000)
    wanted = min(10_000, max(1, records_per_s * CHUNK_S))
    assert wanted / 2 <= stretch <= wanted * 2

"""The open loop: what is due when, whatever the system does."""

from __future__ import annotations

import ctypes
import random
import sys
import threading

import pytest

from barnabas.laboratory.perf.open_loop import OpenLoop, pause, reduce_timer_slack


@pytest.mark.parametrize("rate", [0.5, 3.0, 999.0, 10_000.0, 1_000_000.0])
def test_count_and_moment_agree(rate: float) -> None:
    loop = OpenLoop(start_s=123_456.789, rate=rate)
    generator = random.Random(1)
    for now_s in (loop.start_s + generator.uniform(0, 5_000 / rate) for _ in range(500)):
        count = loop.count_due(now_s)
        assert loop.due_s(count) > now_s
        assert count == 0 or loop.due_s(count - 1) <= now_s


def test_record_is_due_at_its_moment_and_not_before() -> None:
    loop = OpenLoop(start_s=7.3, rate=1_000.0)
    assert [loop.count_due(loop.due_s(number)) for number in range(1_000)] == list(range(1, 1_001))


def test_nothing_is_due_before_the_start() -> None:
    assert OpenLoop(start_s=10.0, rate=1e6).count_due(9.999) == 0


def test_after_a_stall_all_that_was_missed_is_due_at_once() -> None:
    loop = OpenLoop(start_s=0.0, rate=10_000.0)
    assert loop.count_due(1.00005) - loop.count_due(0.00005) == 10_000


@pytest.mark.parametrize(("delay_s", "slept"), [(-1.0, []), (0.0, []), (0.001, [0.001])])
def test_a_pause_sleeps_as_long_as_it_should_and_tells_to_go_on(delay_s: float, slept: list[float]) -> None:
    sleeps: list[float] = []
    assert not pause(delay_s, threading.Event(), sleeps.append)
    assert sleeps == slept


@pytest.mark.parametrize("delay_s", [0.0, 0.001, 3600.0])
def test_a_pause_tells_to_stop_and_a_long_one_is_broken_off(delay_s: float) -> None:
    stopped = threading.Event()
    stopped.set()
    assert pause(delay_s, stopped, lambda _: None)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone lets a thread say how late its sleeps may end")
def test_sharp_sleeps_are_those_of_one_thread() -> None:
    get_timer_slack = 30
    prctl = ctypes.CDLL(None).prctl
    slack_ns: list[int] = []

    def look() -> None:
        reduce_timer_slack()
        slack_ns.append(prctl(get_timer_slack, 0, 0, 0, 0))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert slack_ns == [1]
    assert prctl(get_timer_slack, 0, 0, 0, 0) > 1

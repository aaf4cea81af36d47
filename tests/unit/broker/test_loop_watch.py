"""The broker watches its own event loop, and says what it stood still over; without flooding the log."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from types import FrameType

import pytest

from barnabas.broker.loop_watch import (
    BEAT_S,
    FRAMES_MAX,
    IDLE,
    LINE_INTERVAL_S,
    STALL_S,
    LoopWatch,
    StallRecord,
    describe,
    is_idle,
)


def test_a_beat_that_is_hardly_late_is_not_told() -> None:
    assert StallRecord().note(1.0, STALL_S * 0.99, "it") is None


def test_a_stall_is_told_with_its_length_and_what_was_done() -> None:
    stall = StallRecord().note(1.0, 0.1234, "encode (codec.py:5)")
    assert str(stall) == "the event loop stood still for 123 ms; it did: encode (codec.py:5)"


def test_many_stalls_make_few_lines_and_none_is_forgotten() -> None:
    record = StallRecord()
    told = [
        (second, stall)
        for second in range(1, 31)
        if (stall := record.note(float(second), 0.1 if second != 7 else 0.5, "it"))
    ]
    assert [second for second, _ in told] == [1, 1 + LINE_INTERVAL_S, 1 + 2 * LINE_INTERVAL_S]
    first, second, third = (stall for _, stall in told)
    assert (first.more, second.more, third.more) == (0, 9, 9)
    assert str(second).endswith("(9 more since the last such line, at most 500 ms)")
    assert third.longest_s == 0.1


def test_a_stall_is_logged_with_the_place_that_was_seen(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 100.0

    async def scenario() -> None:
        nonlocal now_s
        watch = LoopWatch(lambda: now_s)
        watch._next_beat()
        looks = 0

        def look() -> FrameType:
            nonlocal looks
            looks += 1
            return sys._getframe()

        for after_s in (0.0, BEAT_S + STALL_S, 0.2):
            now_s = 100.0 + after_s
            watch.look(look)
        assert looks == 1, "it is looked once, and only when it is late"
        now_s = 100.0 + BEAT_S + 0.3
        watch.beat()
        now_s += BEAT_S
        watch.beat()
        watch.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("the event loop stood still for 300 ms; it did: ")
    assert "test_loop_watch.py" in line


def test_what_was_seen_of_an_earlier_stall_is_not_told_of_this_one(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0

    async def scenario() -> None:
        nonlocal now_s
        watch = LoopWatch(lambda: now_s)
        watch._next_beat()
        now_s = BEAT_S + STALL_S / 2
        watch.look(sys._getframe)
        watch.beat()
        now_s += 1.0
        watch.beat()
        watch.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith("it did: not seen")


@pytest.mark.parametrize(("cpu_s", "lines"), [(0.0, 0), (0.9, 1)])
def test_a_loop_that_had_nothing_to_do_is_told_if_this_process_was_busy(
    caplog: pytest.LogCaptureFixture, cpu_s: float, lines: int
) -> None:
    now_s = used_s = 0.0

    async def scenario() -> None:
        nonlocal now_s, used_s
        watch = LoopWatch(lambda: now_s, lambda: used_s)
        watch._next_beat()
        now_s, used_s = 1.0, cpu_s
        watch.look(lambda: None)
        watch.beat()
        watch.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert len(caplog.records) == lines
    assert all(record.getMessage().endswith(IDLE) for record in caplog.records)


def test_who_waits_in_the_event_loop_is_idle() -> None:
    frames: list[FrameType] = []

    async def scenario() -> None:
        here = threading.get_ident()

        def look() -> None:
            while not is_idle(sys._current_frames()[here]):
                pass

        await asyncio.to_thread(look)
        frames.append(sys._getframe())

    asyncio.run(scenario())
    assert not is_idle(frames[0])


def test_a_place_is_told_by_the_innermost_functions() -> None:
    def inner() -> str:
        return describe(sys._getframe())

    told = inner()
    assert "inner (test_loop_watch.py:" in told.split(" < ")[0]
    assert told.count(" < ") == FRAMES_MAX - 1
    assert describe(None) == "nothing"

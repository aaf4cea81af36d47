"""The broker watches its own event loop, and says what it stood still over; without flooding the log."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from types import FrameType

import pytest

from barnabas.broker.loop_watch import (
    FRAMES_MAX,
    IDLE,
    LAG_BOUNDS_S,
    LINE_INTERVAL_S,
    LOOK_S,
    REST_LOOK_S,
    REST_LOOKS,
    STALL_S,
    LoopWatch,
    StallRecord,
    describe,
    is_idle,
)


def test_an_answer_that_is_hardly_late_is_not_told() -> None:
    assert StallRecord().note(1.0, STALL_S * 0.99, "it") is None


def test_a_stall_is_told_with_its_length_and_what_was_done() -> None:
    stall = StallRecord().note(1.0, 0.1234, "encode (codec.py:5)")
    assert str(stall) == "the event loop stalled for 123 ms while it ran: encode (codec.py:5)"


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
    assert str(second).endswith("(9 more stalls since the last line, at most 500 ms)")
    assert third.longest_s == 0.1


class Watched:
    """A loop that is watched by looks at given moments. It answers when it is given the time to."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.used_s = 0.0
        self.watch = LoopWatch(lambda: self.now_s, lambda: self.used_s)
        self.watch.attach()

    def look(self, after_s: float, frame: FrameType | None, *, used_s: float = 0.0) -> None:
        """Look so long after the look before, while so much was computed."""
        self.now_s += after_s
        self.used_s += used_s
        self.watch.look(lambda: frame)

    async def answer(self, after_s: float) -> None:
        """Let the loop run."""
        self.now_s += after_s
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # what another thread asked for comes with the next turn


def lines_of(scenario: Callable[[Watched], Coroutine[None, None, None]], caplog: pytest.LogCaptureFixture) -> list[str]:
    async def watched() -> None:
        await scenario(Watched())

    with caplog.at_level(logging.WARNING):
        asyncio.run(watched())
    return [record.getMessage() for record in caplog.records]


def test_a_stall_is_logged_with_the_place_that_was_seen(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(watched: Watched) -> None:
        watched.look(LOOK_S, sys._getframe())
        watched.look(STALL_S / 2, sys._getframe())
        watched.look(LOOK_S, None)
        await watched.answer(0.3 - STALL_S / 2 - LOOK_S)
        watched.look(LOOK_S, sys._getframe())
        await watched.answer(LOOK_S)

    (line,) = lines_of(scenario, caplog)
    assert line.startswith("the event loop stalled for 300 ms while it ran: ")
    assert "test_loop_watch.py" in line


def test_each_answer_counts_with_its_lag() -> None:
    async def scenario() -> None:
        watched = Watched()
        for late_s in (0.0003, 0.0003, 0.3):
            watched.look(LOOK_S, sys._getframe())
            await watched.answer(late_s)
        lags = watched.watch.lags.read()
        counted = {bound: count for bound, count in zip(LAG_BOUNDS_S, lags.counts, strict=False) if count}
        assert counted == {0.0005: 2, 0.5: 1}

    asyncio.run(scenario())


def test_a_loop_at_rest_is_not_woken() -> None:
    async def scenario() -> None:
        watched = Watched()
        asked: list[object] = []
        asyncio.get_running_loop().call_soon_threadsafe = lambda *call: asked.append(call)  # type: ignore[assignment]
        for _ in range(100):
            watched.look(LOOK_S, None)
        assert not asked
        watched.look(LOOK_S, sys._getframe())
        watched.look(LOOK_S, sys._getframe())
        assert len(asked) == 1, "it is asked once, and then its answer is waited for"

    asyncio.run(scenario())


def test_what_was_seen_of_an_earlier_stall_is_not_told_of_this_one(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(watched: Watched) -> None:
        watched.look(LOOK_S, sys._getframe())
        watched.look(STALL_S / 2, sys._getframe())
        await watched.answer(0.0)
        watched.look(LOOK_S, sys._getframe())
        await watched.answer(1.0)

    (line,) = lines_of(scenario, caplog)
    assert line.endswith("while it ran: not seen")


@pytest.mark.parametrize(("used_s", "lines"), [(0.0, 0), (0.9, 1)])
def test_a_loop_that_had_nothing_to_do_is_told_if_this_process_was_busy(
    caplog: pytest.LogCaptureFixture, used_s: float, lines: int
) -> None:
    async def scenario(watched: Watched) -> None:
        watched.look(LOOK_S + 1.0, None, used_s=used_s)
        await watched.answer(LOOK_S)

    told = lines_of(scenario, caplog)
    assert len(told) == lines
    assert all(line.endswith(IDLE) for line in told)


@pytest.mark.parametrize(("used_s", "lines"), [(0.0, 0), (0.3, 1)])
def test_a_call_that_let_no_thread_look_is_told_with_its_place(
    caplog: pytest.LogCaptureFixture, used_s: float, lines: int
) -> None:
    """Code that keeps the interpreter's lock keeps the watch out, too: it gets to look when the code has ended."""

    async def scenario(watched: Watched) -> None:
        watched.look(LOOK_S + 0.3, sys._getframe(), used_s=used_s)
        await watched.answer(0.001)

    told = lines_of(scenario, caplog)
    assert len(told) == lines
    assert all(line.startswith("the event loop stalled for 301 ms while it ran: ") for line in told)
    assert all("test_loop_watch.py" in line for line in told)


@pytest.mark.parametrize(("used_s", "told_ms"), [(REST_LOOK_S, 91), (0.0, 71)])
def test_a_stall_after_a_rest_is_told_though_the_first_look_came_late(
    caplog: pytest.LogCaptureFixture, used_s: float, told_ms: int
) -> None:
    async def scenario(watched: Watched) -> None:
        for _ in range(REST_LOOKS):
            watched.look(LOOK_S, None)
        assert watched.watch.look_s == REST_LOOK_S
        watched.look(REST_LOOK_S, sys._getframe(), used_s=used_s)
        watched.look(LOOK_S, sys._getframe())
        assert watched.watch.look_s == LOOK_S
        await watched.answer(STALL_S + 0.001 - LOOK_S)

    (line,) = lines_of(scenario, caplog)
    assert line.startswith(f"the event loop stalled for {told_ms} ms while it ran: ")
    assert "test_loop_watch.py" in line


@pytest.mark.parametrize("blocks", ["by waiting", "by computing"])
def test_a_loop_that_stands_still_is_found_out(caplog: pytest.LogCaptureFixture, blocks: str) -> None:
    async def scenario() -> None:
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        teller = Teller(lambda: loop.call_soon_threadsafe(told.set))
        logging.getLogger("barnabas").addHandler(teller)
        watch = LoopWatch(time.monotonic)
        watch.start()
        {"by waiting": stand_still, "by computing": compute}[blocks]()
        async with asyncio.timeout(60):
            await told.wait()
        watch.stop()
        logging.getLogger("barnabas").removeHandler(teller)

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    told = " ".join(record.getMessage() for record in caplog.records)
    assert ("stand_still" if blocks == "by waiting" else "compute") in told


class Teller(logging.Handler):
    """Calls a function for each line of the log."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__()
        self._call = call

    def emit(self, record: logging.LogRecord) -> None:
        self._call()


def stand_still() -> None:
    threading.Event().wait(10 * STALL_S)


def compute() -> None:
    end_s = time.monotonic() + 10 * STALL_S
    while time.monotonic() < end_s:
        sum(range(1_000))


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

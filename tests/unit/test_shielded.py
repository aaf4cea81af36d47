"""Work that continues when its caller is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import weakref
from typing import Any

import pytest

from barnabas.errors import BarnabasError, TimedOutError
from barnabas.shielded import completed, shielded


class Work:
    """Waits until `end` is set, and then returns or raises its outcome."""

    def __init__(self, outcome: int | Exception) -> None:
        self.end = asyncio.Event()
        self._outcome = outcome
        self.has_ended = False

    async def run(self) -> int:
        await self.end.wait()
        self.has_ended = True
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


async def cancelled_caller_of(work: Work) -> list[dict[str, Any]]:
    """Cancel the caller of some work before the work ends. Return what reached the handler of the event loop."""
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unhandled.append(context))
    caller = asyncio.create_task(completed(work.run()))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert not work.has_ended
    work.end.set()
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)
    gc.collect()
    assert work.has_ended
    return unhandled


@pytest.mark.parametrize("outcome", [7, TimedOutError("no response")])
def test_expected_outcome_is_not_logged(outcome: int | BarnabasError, caplog: pytest.LogCaptureFixture) -> None:
    assert asyncio.run(cancelled_caller_of(Work(outcome))) == []
    assert caplog.records == []


def test_unexpected_error_is_logged_once_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    assert asyncio.run(cancelled_caller_of(Work(ValueError("a defect")))) == []
    (line,) = caplog.records
    assert line.levelno == logging.ERROR
    assert "Work.run" in line.getMessage()
    assert line.exc_info is not None
    assert str(line.exc_info[1]) == "a defect"


async def result_of(outcome: int | Exception) -> int:
    work = Work(outcome)
    work.end.set()
    return await shielded(work.run)()


def test_caller_gets_the_result_or_the_error() -> None:
    assert asyncio.run(result_of(7)) == 7
    with pytest.raises(ValueError, match="a defect"):
        asyncio.run(result_of(ValueError("a defect")))


async def caller_of_cancelled_work() -> None:
    work = asyncio.ensure_future(Work(7).run())
    caller = asyncio.create_task(completed(work))
    await asyncio.sleep(0)
    work.cancel()
    await caller


def test_cancelled_work_cancels_its_caller() -> None:
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(caller_of_cancelled_work())


async def callers_of_shared_work(callers: int, *, cancelled: int) -> list[object]:
    """Let several callers wait for work with a defect, and cancel some of them. Return the results of the callers."""
    work = Work(ValueError("a defect"))
    task = asyncio.create_task(work.run())
    waiting = [asyncio.create_task(completed(task, is_shared=True)) for _ in range(callers)]
    await asyncio.sleep(0)
    for each in waiting[:cancelled]:
        each.cancel()
    await asyncio.sleep(0)
    work.end.set()
    return await asyncio.gather(*waiting, return_exceptions=True)


def test_error_of_shared_work_reaches_its_callers_and_not_the_log(caplog: pytest.LogCaptureFixture) -> None:
    results = asyncio.run(callers_of_shared_work(4, cancelled=3))
    assert [type(each) for each in results] == [*[asyncio.CancelledError] * 3, ValueError]
    asyncio.run(callers_of_shared_work(2, cancelled=2))
    gc.collect()
    assert caplog.records == []


async def turns_for_done_work() -> int:
    """Return how many other callbacks the event loop runs before a caller of done work continues."""
    loop = asyncio.get_running_loop()
    work: asyncio.Future[int] = loop.create_future()
    work.set_result(7)
    turns: list[int] = []
    loop.call_soon(turns.append, 1)
    await completed(work)
    return len(turns)


def test_done_work_needs_no_turn_of_the_event_loop() -> None:
    assert asyncio.run(turns_for_done_work()) == 0


class Request:
    """Stands for a large object in the frame of a caller."""


async def fail() -> None:
    raise ValueError("a defect")


async def frames_kept_by_errors() -> int:
    """Return how many callers of failed work are still in memory, without the garbage collector."""
    kept: list[weakref.ref[Request]] = []

    async def call() -> None:
        request = Request()
        kept.append(weakref.ref(request))
        await completed(fail())

    for _ in range(5):
        with contextlib.suppress(ValueError):
            await call()
    return sum(each() is not None for each in kept)


def test_error_keeps_no_frame_in_memory() -> None:
    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(frames_kept_by_errors()) == 0
    finally:
        gc.enable()

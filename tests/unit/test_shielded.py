"""Work that continues when its caller is cancelled."""

from __future__ import annotations

import asyncio
import gc
import logging
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

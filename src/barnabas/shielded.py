"""Work that continues even if its caller is cancelled, for example because a client disconnects."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from barnabas.errors import BarnabasError

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)


def shielded(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Decorate a coroutine function so that cancelling the caller does not cancel the call.

    A partly executed change would leave the metadata store and the logs inconsistent.
    """

    @functools.wraps(function)
    async def run(*arguments: P.args, **named: P.kwargs) -> T:
        return await completed(function(*arguments, **named))

    return run


async def completed(work: Awaitable[T], *, is_shared: bool = False) -> T:
    """Wait for some work, and return its result. Cancelling the caller does not cancel the work.

    Since Python 3.14, `asyncio.shield` also logs expected errors of work whose caller was cancelled.

    :param is_shared: whether the work has other callers. They get its errors, so these are not logged.
    """
    working = asyncio.ensure_future(work)
    try:
        if not working.done():
            await asyncio.wait([working])
        return working.result()
    except asyncio.CancelledError:
        working.add_done_callback(_ignore_error if is_shared else _log_error)
        raise
    finally:
        del work, working  # otherwise an error would keep this frame, which would keep the error


def _ignore_error(working: asyncio.Future[Any]) -> None:
    """Read the error of some work, so that asyncio does not log it."""
    if not working.cancelled():
        working.exception()


def _log_error(working: asyncio.Future[Any]) -> None:
    """Log an unexpected error of work whose only caller was cancelled. asyncio would also log expected errors."""
    if not working.cancelled() and (error := working.exception()) and not isinstance(error, BarnabasError):
        name = getattr(working.get_coro(), "__qualname__", working) if isinstance(working, asyncio.Task) else working
        log.error("%s failed after its caller had been cancelled, so no caller gets the error", name, exc_info=error)

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


async def completed(work: Awaitable[T]) -> T:
    """Wait for some work, and return its result. Cancelling the caller does not cancel the work.

    `asyncio.shield` would also log expected errors of work whose caller was cancelled, since Python 3.14.
    """
    working = asyncio.ensure_future(work)
    try:
        await asyncio.wait([working])
    except asyncio.CancelledError:
        working.add_done_callback(_read_outcome)
        raise
    return working.result()


def _read_outcome(working: asyncio.Future[Any]) -> None:
    """Log an unexpected error of work whose caller was cancelled.

    Without this callback, asyncio would also log expected errors.
    """
    if not working.cancelled() and (error := working.exception()) and not isinstance(error, BarnabasError):
        name = getattr(working.get_coro(), "__qualname__", working) if isinstance(working, asyncio.Task) else working
        log.error("%s failed after its caller had been cancelled, so no caller gets the error", name, exc_info=error)

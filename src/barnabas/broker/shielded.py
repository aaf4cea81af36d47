"""Changes that must complete even if the client disconnects."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from barnabas.errors import BarnabasError
from barnabas.log_lines import LogEvent, event

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)


def shielded(change: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Decorate a coroutine function so that cancelling the caller does not cancel the call.

    A partly executed change would leave the metadata store and the logs inconsistent.
    """

    @functools.wraps(change)
    async def run(*arguments: P.args, **named: P.kwargs) -> T:
        return await completed(change(*arguments, **named))

    return run


async def completed(change: Awaitable[T]) -> T:
    """Wait for a change, and return its result. Cancelling the caller does not cancel the change.

    `asyncio.shield` would also log expected errors of a change whose caller was cancelled, since Python 3.14.
    """
    changing = asyncio.ensure_future(change)
    try:
        await asyncio.wait([changing])
    except asyncio.CancelledError:
        changing.add_done_callback(_read_outcome)
        raise
    return changing.result()


def _read_outcome(changing: asyncio.Future[Any]) -> None:
    """Log an unexpected error of a change whose caller was cancelled.

    Without this callback, asyncio would also log expected errors.
    """
    if not changing.cancelled() and (error := changing.exception()) and not isinstance(error, BarnabasError):
        extra = event(LogEvent.UNEXPECTED_ERROR)
        log.error(
            "a change that a client requested failed after the client had disconnected", exc_info=error, extra=extra
        )

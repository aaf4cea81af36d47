"""Blocking calls beside the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


async def on_thread(work: Callable[[], T], name: str) -> T:
    """Run a function on a daemon thread, which does not keep the console from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: Any, error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as raised:  # noqa: BLE001 - the caller of the thread gets it
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, result, error)

    Thread(target=run, name=name, daemon=True).start()
    return await future

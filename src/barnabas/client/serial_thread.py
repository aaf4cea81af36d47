"""A thread for calls that block, one after the other. A daemon: a program that ends does not wait for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class SerialThread:
    """Runs what it is given in that order, until `stop`. The thread begins with the first call."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._begun = False

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Have something called after all that was submitted before; what is cancelled before it began is left out."""
        if not self._begun:
            self._begun = True
            self._thread.start()
        future: Future[T] = Future()
        self._calls.put((call, future))
        return future

    def stop(self) -> None:
        """End the thread when it has done what it was given; does not wait for that."""
        self._calls.put(None)

    def _run(self) -> None:
        while (given := self._calls.get()) is not None:
            call, future = given
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - whoever waits for it decides
                future.set_exception(error)
            del given, call, future  # nothing is kept alive while the thread waits

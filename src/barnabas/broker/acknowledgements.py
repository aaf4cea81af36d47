"""Producers that wait until what they sent is safe: for each, up to which offset the log must have come."""

from __future__ import annotations

import asyncio

from barnabas.errors import BarnabasError

Waiter = asyncio.Future[None]
"""Ends with a BarnabasError where the batches must not be acknowledged."""


def refused(error: BarnabasError) -> Waiter:
    """Return what to wait for where the wait is in vain."""
    waiter: Waiter = asyncio.get_running_loop().create_future()
    waiter.set_exception(error)
    return waiter


class Acknowledgements:
    """Those who wait on one partition for the same thing, its high watermark or its flushes."""

    __slots__ = ("_closed_with", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Waiter]] = []
        self._closed_with: BarnabasError | None = None

    def wait_for(self, last_offset: int) -> Waiter:
        """Return a future that ends when `last_offset` is passed."""
        if self._closed_with is not None:
            return refused(self._closed_with)
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._waiting.append((last_offset, waiter))
        return waiter

    def take_over(self, others: Acknowledgements) -> None:
        """Let those who wait there wait here."""
        waiting, others._waiting = others._waiting, []
        self._waiting += waiting

    def settle(self, end_offset: int, error: BarnabasError | None = None) -> None:
        """End the wait for all below an offset, with an error where it is in vain."""
        if not self._waiting:
            return
        still_waiting = []
        for last_offset, waiter in self._waiting:
            if waiter.done():
                continue
            if last_offset >= end_offset:
                still_waiting.append((last_offset, waiter))
            elif error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)
        self._waiting = still_waiting

    def end(self, error: BarnabasError) -> None:
        """End the wait for all, with an error."""
        waiting, self._waiting = self._waiting, []
        for _, waiter in waiting:
            if not waiter.done():
                waiter.set_exception(error)

    def close(self, error: BarnabasError) -> None:
        """End the wait for all, and for all who come later: nobody will settle anything any longer."""
        self._closed_with = error
        self.end(error)

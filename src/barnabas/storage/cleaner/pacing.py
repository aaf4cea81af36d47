"""Limits the rate of reads and writes since a start (Kafka's log.cleaner.io.max.bytes.per.second)."""

from __future__ import annotations

from collections.abc import Callable

SLEEP_S_MAX = 1.0
"""The longest time between two signs of life."""

SLEEP_S_MIN = 0.01
"""Shorter debts are paid together with the next ones."""


class IoThrottle:
    """Makes its caller wait.

    :param bytes_per_second: the rate.
    :param now_s: monotonic seconds.
    :param on_step: called at each step and before each pause.
    """

    def __init__(
        self,
        bytes_per_second: float,
        now_s: Callable[[], float],
        sleep: Callable[[float], None],
        on_step: Callable[[], None],
    ) -> None:
        self._bytes_per_second = max(bytes_per_second, 1.0)
        self._now_s = now_s
        self._sleep = sleep
        self._on_step = on_step
        self._due_s = now_s()
        """When as many bytes as there were may have been read or written at the earliest."""

    def note(self, size: int) -> None:
        """So many bytes were read or written; return when the next ones may be."""
        self._on_step()
        self._due_s = max(self._due_s, self._now_s() - SLEEP_S_MAX) + size / self._bytes_per_second
        while (left_s := self._due_s - self._now_s()) > SLEEP_S_MIN:
            self._sleep(min(left_s, SLEEP_S_MAX))
            self._on_step()

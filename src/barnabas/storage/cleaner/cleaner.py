"""Carries out the jobs of a broker, one at a time: in a process of its own, or inline for a test or a simulation.

`IoThrottle` limits the rate of reads and writes (Kafka's log.cleaner.io.max.bytes.per.second).
"""

from __future__ import annotations

import os
from collections.abc import Callable

from barnabas.storage.cleaner.job import CleaningFailedError, CleaningJob, Message, UncleanableError
from barnabas.storage.cleaner.rewriting import Cleaning, Pace
from barnabas.storage.filesystem import FileSystem

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


SECRET_BYTES = 16


class Cleaner:
    """Answers the messages of a broker.

    :param pace_of: returns, for a rate in bytes per second, a function that is called with a number of bytes.
    :param new_secret: returns so many random bytes.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        pace_of: Callable[[float], Pace] = lambda _: lambda _: None,
        new_secret: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._filesystem = filesystem
        self._pace_of = pace_of
        self._new_secret = new_secret
        self._cleaning: Cleaning | None = None

    def ask(self, message: Message) -> Message:
        """Return the plan of a job, or the next group of segments, rewritten, or the error that ends the job."""
        try:
            return self._answer(message)
        except (UncleanableError, CleaningFailedError) as error:
            self._cleaning = None
            return error
        except MemoryError:
            self._cleaning = None
            return CleaningFailedError("there is not enough memory for the keys")

    def _answer(self, message: Message) -> Message:
        if isinstance(message, CleaningJob):
            pace = self._pace_of(message.bytes_per_second)
            self._cleaning = Cleaning(self._filesystem, message, self._new_secret(SECRET_BYTES), pace)
            return self._cleaning.plan()
        if message is None and self._cleaning is not None:
            return self._cleaning.next_group()
        return CleaningFailedError("there is no job")

    @property
    def silent_s(self) -> float:
        """The time since the last sign of life of a cleaner that has a message to answer."""
        return 0.0

    def end(self) -> None:
        """Stop, in the middle of a job too."""
        self._cleaning = None

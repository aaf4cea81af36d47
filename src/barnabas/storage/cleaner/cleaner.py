"""The cleaner. It runs the jobs of a broker one at a time, in a separate process, or inline in tests and simulations.

`IoThrottle` limits the rate of reads and writes (Kafka's log.cleaner.io.max.bytes.per.second).
"""

from __future__ import annotations

import os
from collections.abc import Callable

from barnabas.storage.cleaner.job import CleaningFailedError, CleaningJob, Message, UncleanableError
from barnabas.storage.cleaner.rewriting import Cleaning, Pace
from barnabas.storage.filesystem import FileSystem

SLEEP_S_MAX = 1.0
"""The maximum time between two progress reports."""

SLEEP_S_MIN = 0.01
"""The minimum duration of a pause. Shorter pauses are added to the next pause."""


class IoThrottle:
    """Limits the rate of I/O: `note` blocks until the next I/O is allowed.

    :param bytes_per_second: the maximum rate.
    :param now_s: returns monotonic seconds.
    :param on_step: a function that reports progress. It is called after each I/O and each pause.
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
        """The earliest monotonic time of the next I/O that keeps the rate."""

    def note(self, size: int) -> None:
        """Count `size` bytes that were read or written, and wait until the rate allows the next I/O."""
        self._on_step()
        self._due_s = max(self._due_s, self._now_s() - SLEEP_S_MAX) + size / self._bytes_per_second
        while (left_s := self._due_s - self._now_s()) > SLEEP_S_MIN:
            self._sleep(min(left_s, SLEEP_S_MAX))
            self._on_step()


SECRET_BYTES = 16


class Cleaner:
    """Processes the messages from a broker.

    :param pace_of: returns a throttle for a rate in bytes per second. The cleaner calls the throttle with the size of
        each read and write.
    :param new_secret: returns the given number of random bytes.
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
        """Send a message; return the plan of a new job, the next cleaned group, or the error that ends the job."""
        try:
            return self._answer(message)
        except (UncleanableError, CleaningFailedError) as error:
            self._cleaning = None
            return error
        except MemoryError:
            self._cleaning = None
            return CleaningFailedError("not enough memory for the map of keys; retrying later")

    def _answer(self, message: Message) -> Message:
        if isinstance(message, CleaningJob):
            pace = self._pace_of(message.bytes_per_second)
            self._cleaning = Cleaning(self._filesystem, message, self._new_secret(SECRET_BYTES), pace)
            return self._cleaning.plan()
        if message is None and self._cleaning is not None:
            return self._cleaning.next_group()
        return CleaningFailedError("the broker asked for a group of segments, but no job is running")

    @property
    def silent_s(self) -> float:
        """The time since the last progress report while a message is pending, in seconds."""
        return 0.0

    def end(self) -> None:
        """Stop, even during a job."""
        self._cleaning = None

    def close(self) -> None:
        """Stop for ever."""
        self.end()

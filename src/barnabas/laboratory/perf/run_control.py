"""Orders to a running workload: begin, stop, and the end offsets of the topic.

In a worker process, the thread that reads the command's messages writes them. The workload and its watch read them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from barnabas.errors import BarnabasError

Ends = Mapping[int, int]
"""The end offset of each partition, by number."""


class RunControl:
    """Shared between the threads of one process; safe to use from all of them.

    :param ends: the end offsets, if they are known already.
    :param await_go: called by a workload that is prepared; returns when the workload should begin, with a moment that
        all workers share.
    """

    def __init__(self, ends: Ends | None = None, await_go: Callable[[], float] = lambda: 0.0) -> None:
        self.ends = ends
        self.await_go = await_go
        self.changed = threading.Event()
        """Set by each change; the thread that waits for it clears it."""
        self.stopped = threading.Event()

    def stop(self) -> None:
        """Ask the workload to come to its end."""
        self.stopped.set()
        self.changed.set()

    def set_ends(self, ends: Ends) -> None:
        """Set the end offsets."""
        self.ends = ends
        self.changed.set()


class RunFailedError(BarnabasError):
    """A run whose figures would be worth nothing: records are missing, or a process of it has died."""

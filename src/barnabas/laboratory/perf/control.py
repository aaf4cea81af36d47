"""What a workload is told while it runs: to stop, and where a topic has come to its end.

Written by the thread that listens to the command (in a process of its own) or by nobody (in the command's own
process); read by the workload and by those who watch over it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

Ends = Mapping[int, int]
"""The end offset of each partition, by number."""


class Control:
    """Shared between the threads of one process; safe to use from all of them.

    :param ends: where reading ends, if that is known already.
    """

    def __init__(self, ends: Ends | None = None) -> None:
        self.ends = ends
        self.changed = threading.Event()
        """Set when something was told; whoever waits for it clears it."""
        self.stopped = threading.Event()
        self.await_go: Callable[[], float] = lambda: 0.0
        """Called by the workload when all is prepared; returns when it should begin, and a moment that was agreed."""

    def stop(self) -> None:
        """Ask the workload to come to its end."""
        self.stopped.set()
        self.changed.set()

    def set_ends(self, ends: Ends) -> None:
        """Tell where reading ends."""
        self.ends = ends
        self.changed.set()

"""The control of a running workload: start, stop, and the end offsets of the topic.

In a worker process, the thread that receives messages of the parent process updates the control. The workload and its
`EndWatch` read the control.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from barnabas.errors import BarnabasError

Ends = Mapping[int, int]
"""The end offsets by partition number."""


class RunControl:
    """The control state that the threads of one process share. Thread-safe.

    :param ends: the end offsets, if they are already known.
    :param await_go: called by a workload that is ready. It returns when the workload should start, with a start time
        that all workers share.
    """

    def __init__(self, ends: Ends | None = None, await_go: Callable[[], float] = lambda: 0.0) -> None:
        self.ends = ends
        self.await_go = await_go
        self.changed = threading.Event()
        """Set at each change of the control. The thread that waits for a change clears the event."""
        self.stopped = threading.Event()

    def stop(self) -> None:
        """Request the workload to stop."""
        self.stopped.set()
        self.changed.set()

    def set_ends(self, ends: Ends) -> None:
        self.ends = ends
        self.changed.set()


class RunFailedError(BarnabasError):
    """The figures of the run are invalid, because records are missing or a process of the run has died."""

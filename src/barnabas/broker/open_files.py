"""The files and sockets that the process may have open, shared out between logs and connections.

Each log holds one file, the segment that it appends to; each connection one socket. Sealed segments that were read
lately hold two more, up to a limit. New partitions and new connections are refused before none are left: otherwise the
next file that is opened would fail, and that may be one that a healthy log needs.
"""

from __future__ import annotations

import logging
import resource
import sys
from collections.abc import Callable

from barnabas.errors import ApiError, ErrorCode
from barnabas.log_lines import LogEvent, event

OTHER_FILES = 64
"""Kept for the tree, the listener, the event loop, and files that are open for a moment only."""

SEGMENTS_OPEN_MAX = 512
"""The most sealed segments that are kept open after they were read."""

log = logging.getLogger(__name__)


def open_files_limit() -> int:
    """Return how many files and sockets the process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


class OpenFiles:
    """The budget of open files.

    :param files_max: that the process may have (`ulimit -n`).
    :param connections_max: that the settings allow (`max.connections`).
    :param count_logs: returns the number of logs.
    """

    def __init__(self, files_max: int, connections_max: int, count_logs: Callable[[], int]) -> None:
        self._count_logs = count_logs
        self.segments_max = max(1, min(SEGMENTS_OPEN_MAX, files_max // 32))
        """How many sealed segments are kept open after they were read."""
        self._files_max = files_max
        self._shared = max(0, files_max - OTHER_FILES - 2 * self.segments_max)
        self.allow_connections(connections_max)

    def allow_connections(self, connections_max: int) -> None:
        """Share the files out anew: the settings allow so many connections from now on."""
        self._connections_max = connections_max
        self._connections_kept = min(connections_max, self._shared // 4)

    def connections_max(self) -> int:
        """Return how many connections there may be, with the logs that there are."""
        left = max(self._shared - self._count_logs(), self._connections_kept)
        return min(self._connections_max, left)

    @property
    def logs_max(self) -> int:
        """How many logs there may be: a quarter of the files is kept for connections."""
        return self._shared - self._connections_kept

    def check_room(self, count: int) -> None:
        """Check that so many more logs can be had.

        :raises ApiError: POLICY_VIOLATION.
        """
        there = self._count_logs()
        if there + count > self.logs_max:
            message = (
                f"{count} more partitions need as many open files; this broker has {there} and can have {self.logs_max}"
                f" (ulimit -n is {self._files_max})"
            )
            raise ApiError(ErrorCode.POLICY_VIOLATION, message)

    def log_limits(self) -> None:
        """Say in the log how the files are shared out; warn where there are too few."""
        there, connections = self._count_logs(), self.connections_max()
        is_short = there > self.logs_max or connections < self._connections_max
        log.log(
            logging.WARNING if is_short else logging.INFO,
            "%d files may be open (ulimit -n): %d partitions of at most %d, and up to %d connections (of %d wanted)",
            self._files_max, there, self.logs_max, connections, self._connections_max,
            extra=event(LogEvent.FILES_SHORT) if is_short else None,
        )  # fmt: skip

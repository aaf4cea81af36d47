"""The budget for open files and sockets of the process, which logs and connections share.

Each log needs one file descriptor for its active segment, and each connection needs one for its socket. Each recently
read sealed segment keeps two more open, up to a limit. The broker rejects new partitions and connections before it runs
out of file descriptors. Otherwise, opening a file of an existing log could fail.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

from barnabas import portable
from barnabas.errors import ApiError, ErrorCode
from barnabas.log_lines import LogEvent, event

OTHER_FILES = 64
"""The number of file descriptors reserved for the metadata store, the listener, the event loop, and files that are open
only briefly.
"""

SEGMENTS_OPEN_MAX = 512
"""The maximum number of sealed segments that stay open after a read."""

log = logging.getLogger(__name__)


def open_files_limit() -> int:
    """Return the maximum number of open files and sockets of the process."""
    limit = portable.open_files_limit()
    return sys.maxsize if limit is None else limit


class OpenFiles:
    """The budget of open files.

    :param files_max: the limit of the process (`ulimit -n`).
    :param connections_max: the limit in the settings (`max.connections`).
    :param count_logs: returns the number of logs.
    """

    def __init__(self, files_max: int, connections_max: int, count_logs: Callable[[], int]) -> None:
        self._count_logs = count_logs
        self.segments_max = max(1, min(SEGMENTS_OPEN_MAX, files_max // 32))
        """The maximum number of sealed segments that stay open after a read."""
        self._files_max = files_max
        self._shared = max(0, files_max - OTHER_FILES - 2 * self.segments_max)
        self.allow_connections(connections_max)

    def allow_connections(self, connections_max: int) -> None:
        """Apply a new value of `max.connections`, and recalculate the limits."""
        self._connections_max = connections_max
        self._connections_kept = min(connections_max, self._shared // 4)

    def connections_max(self) -> int:
        """Return the maximum number of connections for the current number of logs."""
        left = max(self._shared - self._count_logs(), self._connections_kept)
        return min(self._connections_max, left)

    @property
    def logs_max(self) -> int:
        """The maximum number of logs. A quarter of the budget is reserved for connections."""
        return self._shared - self._connections_kept

    def check_room(self, count: int) -> None:
        """Check that the budget allows this number of additional logs.

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
        """Log how the budget is divided. Warn if the budget is too small."""
        there, connections = self._count_logs(), self.connections_max()
        is_short = there > self.logs_max or connections < self._connections_max
        log.log(
            logging.WARNING if is_short else logging.INFO,
            "the open file limit is %d (ulimit -n): %d of at most %d partitions, and up to %d connections "
            "(max.connections is %d)",
            self._files_max, there, self.logs_max, connections, self._connections_max,
            extra=event(LogEvent.FILES_SHORT) if is_short else None,
        )  # fmt: skip

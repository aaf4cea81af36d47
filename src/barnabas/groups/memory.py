"""The bytes that groups hold for their members: ids, metadata and assignments. Pure bookkeeping.

A member lasts as long as its session, whether its client is connected or not. So what members hand in is bounded: for
each group, and for all groups of a broker. The largest joins leave a part of the whole to the others.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.errors import ErrorCode

BYTES_MAX = 128 * 1024 * 1024
"""For all groups, unless the caller says otherwise."""

GROUP_PARTS = 4
"""One group may hold the whole divided by this."""

SMALL_BYTES = 64 * 1024
KEPT_PARTS = 4
"""Members that hand in more than `SMALL_BYTES` leave 1/`KEPT_PARTS` of the whole to the others."""


class GroupMemory:
    """Counts what all groups of a broker hold.

    :param bytes_max: for all groups together.
    :param on_refused: called with the reason, as a line for the log, when a request is refused.
    """

    def __init__(self, bytes_max: int = BYTES_MAX, on_refused: Callable[[str], None] = lambda _reason: None) -> None:
        self._bytes_max = bytes_max
        self._on_refused = on_refused
        self.used_bytes = 0

    @property
    def group_bytes_max(self) -> int:
        """How much one group may hold."""
        return self._bytes_max // GROUP_PARTS

    def change(self, difference: int) -> None:
        """Count more or fewer bytes."""
        self.used_bytes += difference

    def refusal(self, group_id: str, group_bytes: int, more_bytes: int) -> ErrorCode:
        """Return why a group may not hold `more_bytes` more, or NONE.

        :param group_bytes: what it holds now.
        :returns: GROUP_MAX_SIZE_REACHED, or COORDINATOR_NOT_AVAILABLE where other groups hold too much: clients try
            that again.
        """
        if more_bytes <= 0:
            return ErrorCode.NONE
        if group_bytes + more_bytes > self.group_bytes_max:
            self._on_refused(
                f"group {group_id[:100]!r} refuses {more_bytes} bytes of a member: it holds {group_bytes} bytes of"
                f" {self.group_bytes_max}"
            )
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        kept = self._bytes_max // KEPT_PARTS if more_bytes > SMALL_BYTES else 0
        if self.used_bytes + more_bytes > self._bytes_max - kept:
            self._on_refused(
                f"group {group_id[:100]!r} refuses {more_bytes} bytes of a member for now: all groups hold"
                f" {self.used_bytes} bytes of at most {self._bytes_max}; the client tries again"
            )
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

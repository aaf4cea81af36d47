"""Accounting of the memory that groups use for their members: ids, metadata and assignments.

A member exists as long as its session, even if its client is disconnected. So the size of the members' data is limited,
for each group and for all groups of a broker. Large joins must leave a part of the limit for other joins.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.errors import ErrorCode

BYTES_MAX = 128 * 1024 * 1024
"""The default memory limit for all groups together, in bytes."""

GROUP_PARTS = 4
"""The divisor for the limit of one group: a group may use 1/`GROUP_PARTS` of the total limit."""

SMALL_BYTES = 64 * 1024
KEPT_PARTS = 4
"""The divisor for the reserve for small joins.

Joins above `SMALL_BYTES` may not use the last 1/`KEPT_PARTS` of the total limit.
"""


class GroupMemory:
    """The memory accounting of all groups of a broker.

    :param bytes_max: the limit for all groups together, in bytes.
    :param on_refused: called when a request is rejected, with a reason for the log.
    """

    def __init__(self, bytes_max: int = BYTES_MAX, on_refused: Callable[[str], None] = lambda _reason: None) -> None:
        self._bytes_max = bytes_max
        self._on_refused = on_refused
        self.used_bytes = 0

    @property
    def group_bytes_max(self) -> int:
        """The limit for one group in bytes."""
        return self._bytes_max // GROUP_PARTS

    def change(self, difference: int) -> None:
        """Change the number of used bytes by a difference."""
        self.used_bytes += difference

    def refusal(self, group_id: str, group_bytes: int, more_bytes: int) -> ErrorCode:
        """Return the error if a group must not use `more_bytes` additional bytes, or NONE.

        :param group_bytes: the memory that the group uses now.
        :returns: GROUP_MAX_SIZE_REACHED if the group would use too much; COORDINATOR_NOT_AVAILABLE if all groups
            together would use too much. Clients retry after COORDINATOR_NOT_AVAILABLE.
        """
        if more_bytes <= 0:
            return ErrorCode.NONE
        if group_bytes + more_bytes > self.group_bytes_max:
            self._on_refused(
                f"group {group_id[:100]!r} rejects {more_bytes} bytes of a member: it uses {group_bytes} bytes of its"
                f" limit of {self.group_bytes_max}"
            )
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        kept = self._bytes_max // KEPT_PARTS if more_bytes > SMALL_BYTES else 0
        if self.used_bytes + more_bytes > self._bytes_max - kept:
            self._on_refused(
                f"group {group_id[:100]!r} rejects {more_bytes} bytes of a member: all groups use {self.used_bytes}"
                f" bytes of their limit of {self._bytes_max}; the client retries"
            )
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

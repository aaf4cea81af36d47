"""The events of a replica, and the interfaces of the objects that receive them.

A replica calls its listeners on the event loop's thread, within the call that caused the event. A listener must not
block, and must not raise.
"""

from __future__ import annotations

from typing import Protocol


class ReadListener(Protocol):
    """Waits for records below the high watermark."""

    def on_readable(self, size: int) -> None:
        """Called when the high watermark has risen.

        :param size: the bytes that became readable.
        """

    def on_reads_changed(self) -> None:
        """Called when a read may have another result, whatever was appended: the replica has resigned, is fenced or
        deleted, a flush has failed, the log was truncated or has its indexes again, or the high watermark has risen
        over records that the replica has not counted."""


class LogEndListener(Protocol):
    """Follows a leader's log up to its end, on behalf of a follower."""

    def on_appended(self, size: int, *, is_urgent: bool) -> None:
        """Called when records were appended.

        :param size: their bytes.
        :param is_urgent: whether a consumer waits until the followers have fetched them.
        """

    def on_fetch_awaited(self) -> None:
        """Called when a producer or an administrator waits for the next fetch of the followers."""

    def on_offsets_moved(self) -> None:
        """Called when the high watermark or the log start offset has moved, and nothing was appended."""

    def on_leadership_lost(self) -> None:
        """Called when the leader has resigned, is fenced, or is deleted."""

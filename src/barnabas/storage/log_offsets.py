"""The offsets of one log: log start offset, log end offset, high watermark, last stable offset and recovery point.

Invariants. Only `OffsetTracker` asserts these invariants, after each change:

    log_start_offset <= local_log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset
    recovery_point <= log_end_offset

There is one exception. If the log start offset of a follower is inside a batch of its leader's log,
`Log.lower_log_end_to` lowers the end of the empty log to the base offset of that batch. Until the batch is appended,
the log end offset is below the log start offset.

Threads. A `LogOffsets` is immutable, so its six offsets belong to the same moment. `OffsetTracker` replaces it under
the state lock of the log. Any thread may read `OffsetTracker.current` without a lock.

Errors. A violated invariant raises AssertionError.
"""

from __future__ import annotations

import threading
from typing import NamedTuple


class LogOffsets(NamedTuple):
    """The offsets of a log at one moment."""

    log_start_offset: int
    """The first offset that clients can read.

    Retention, DeleteRecords, and a truncation below this offset change it; all of them are methods of `Log`.
    """
    local_log_start_offset: int
    """The first offset on the broker's own disk.

    It is equal to the log start offset, because all segments are local.
    """
    last_stable_offset: int
    """The offset below which `read_committed` consumers read.

    It is equal to the high watermark, because there are no open transactions.
    """
    high_watermark: int
    """The offset below which consumers read.

    The leader or follower role of the replica sets it (`Log.move_high_watermark`). If the partition has only one
    replica and no flush policy, it is equal to the log end offset.
    """
    log_end_offset: int
    """The offset of the next record. `LogAppender` raises it; a truncation in `Log` lowers it."""
    recovery_point: int
    """The offset below which all records are durable. `LogFlusher` raises it; a truncation in `Log` lowers it."""

    def are_in_order(self) -> bool:
        """Return whether the offsets have the order in the module docstring."""
        start, local_start, stable, high_watermark, end, recovery_point = self
        if start > end:  # the exception in the module docstring
            return recovery_point <= stable == high_watermark == end
        return start <= local_start <= stable <= high_watermark <= end >= recovery_point


_new_tuple = tuple.__new__


class OffsetTracker:
    """The current offsets of one log, with a method for each change.

    Callers of `move_log_start`, `move_log_end` and `end_truncation` must hold the state lock, because they also change
    segments. The other methods acquire the state lock themselves.

    :param high_watermark: the stored high watermark; None if the log contains no records. It is used only if the log
        gets a role with other replicas (`hold_high_watermark`).
    """

    __slots__ = ("_follows_end", "_stored_high_watermark", "current", "state_lock")

    def __init__(
        self, log_start_offset: int, log_end_offset: int, recovery_point: int = 0, high_watermark: int | None = None
    ) -> None:
        self.state_lock = threading.Lock()
        """The state lock of the log. It guards offsets, segments, epochs and producers. No thread holds it during disk
        I/O."""
        self._follows_end = True
        self._stored_high_watermark = high_watermark
        self.current: LogOffsets
        """The current offsets."""
        self._set(
            log_start_offset, log_start_offset, log_end_offset, log_end_offset, min(recovery_point, log_end_offset)
        )

    # --- high watermark ---

    @property
    def high_watermark_to_store(self) -> int:
        """The high watermark to store in the checkpoint.

        If the log has had no role since it was opened, it is the stored high watermark.
        """
        stored = self._stored_high_watermark
        return self.current.high_watermark if stored is None else stored

    def move_high_watermark(self, offset: int) -> None:
        """Set the high watermark to `offset`, limited to the range from log start offset to log end offset."""
        with self.state_lock:
            start, local_start, _, _, end, recovery_point = self.current
            self._set(start, local_start, min(max(offset, start), end), end, recovery_point)

    def release_high_watermark(self, *, follows_end: bool) -> None:
        """Start the role of the only replica.

        :param follows_end: True if the high watermark follows the log end offset, from the next append on. False if
            only flushes raise it.
        """
        self._follows_end = follows_end
        self._stored_high_watermark = None

    def hold_high_watermark(self) -> None:
        """Start a role with other replicas. From now on, only `move_high_watermark` raises the high watermark.

        In a log that was just opened, the high watermark returns to the stored value, because other replicas may lack
        the later records.
        """
        self._follows_end = False
        stored = self._stored_high_watermark
        if stored is not None:
            self._stored_high_watermark = None
            self.move_high_watermark(stored)

    # --- other offsets ---

    def move_log_start(self, offset: int) -> None:
        """Raise the log start offset. `offset` must not exceed the high watermark."""
        _, local_start, _, high_watermark, end, recovery_point = self.current
        self._set(offset, max(local_start, offset), high_watermark, end, recovery_point)

    def move_log_end(self, offset: int) -> None:
        """Raise the log end offset after an append, or after a roll that skips offsets."""
        start, local_start, _, high_watermark, end, recovery_point = self.current
        if self._follows_end and offset > end:
            high_watermark = offset
        elif high_watermark < start:  # the exception ends: the log end offset is above the log start offset again
            high_watermark = min(start, offset)
        self._set(start, local_start, high_watermark, offset, recovery_point)

    def move_recovery_point(self, offset: int) -> None:
        """Raise the recovery point to `offset`, because all records below `offset` are durable."""
        with self.state_lock:
            start, local_start, _, high_watermark, end, recovery_point = self.current
            self._set(start, local_start, high_watermark, end, max(recovery_point, offset))

    # --- truncation ---

    def begin_truncation(self, offset: int) -> None:
        """Lower the recovery point and the high watermark to `offset`. The records are still in the files."""
        with self.state_lock:
            start, local_start, _, high_watermark, end, recovery_point = self.current
            high_watermark = min(max(min(high_watermark, offset), start), end)
            self._set(start, local_start, high_watermark, end, min(recovery_point, offset))

    def end_truncation(self, log_start_offset: int, log_end_offset: int) -> None:
        """Set the log start offset and the log end offset after a truncation of the segments."""
        _, _, _, high_watermark, _, recovery_point = self.current
        high_watermark = min(max(high_watermark, log_start_offset), log_end_offset)
        recovery_point = min(recovery_point, log_end_offset)
        self._set(log_start_offset, log_start_offset, high_watermark, log_end_offset, recovery_point)

    def _set(self, start: int, local_start: int, high_watermark: int, end: int, recovery_point: int) -> None:
        # There are no open transactions, so the last stable offset is the high watermark. No other code assumes this.
        # Each append calls this method, and `tuple.__new__` takes half the time of `LogOffsets(...)`.
        values = (start, local_start, high_watermark, high_watermark, end, recovery_point)
        offsets = _new_tuple(LogOffsets, values)
        assert start <= local_start <= high_watermark <= end >= recovery_point or offsets.are_in_order(), offsets
        self.current = offsets

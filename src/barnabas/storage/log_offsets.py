"""The offsets of one log: its start and end, the limits of consumers, and the recovery point.

Invariants. `OffsetTracker` asserts after every move, and no other module does:

    log_start_offset <= local_log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset
    recovery_point <= log_end_offset

There is one exception. A follower whose log begins within a batch of its leader lets its empty log end before that
batch (`Log.lower_log_end_to`). Until the batch is appended, the log end is below the log start.

Threads. A `LogOffsets` never changes, so its six offsets are always of the same moment. `OffsetTracker` replaces it
under the state lock of the log. Any thread may read `OffsetTracker.current` without a lock.

Errors: none. A violated invariant is an AssertionError.
"""

from __future__ import annotations

import threading
from typing import NamedTuple


class LogOffsets(NamedTuple):
    """The offsets of a log at one moment. Each offset has one part that moves it."""

    log_start_offset: int
    """The first offset that clients can read. `Log` moves it: retention, DeleteRecords, truncation below it."""
    local_log_start_offset: int
    """The first offset that this broker has on its own disk. It moves with the log start offset, since all segments
    are local."""
    last_stable_offset: int
    """Readers of committed records read below it. It moves with the high watermark, since no transaction is
    ever open."""
    high_watermark: int
    """Consumers read below it. The role of the replica moves it (`Log.move_high_watermark`). In a log of a sole
    replica without a flush policy it moves with the log end offset."""
    log_end_offset: int
    """The offset of the next record. `LogAppender` moves it forward, truncation in `Log` moves it back."""
    recovery_point: int
    """All records below are durable. `LogFlusher` moves it forward, truncation in `Log` moves it back."""

    def are_in_order(self) -> bool:
        """Return whether the offsets are in the order that the head of this module defines."""
        start, local_start, stable, high_watermark, end, recovery_point = self
        if start > end:  # the log has reached back
            return recovery_point <= stable == high_watermark == end
        return start <= local_start <= stable <= high_watermark <= end >= recovery_point


_new_tuple = tuple.__new__


class OffsetTracker:
    """The current offsets of one log, and the only way to move each of them.

    The callers of `move_log_start`, `move_log_end` and `end_truncation` hold the state lock, since they change segments
    at the same time. The other methods take it.

    :param high_watermark: where the high watermark was when the log was closed, if the log had records then. It counts
        only if the log gets a role with other replicas (`hold_high_watermark`).
    """

    __slots__ = ("_follows_end", "_stored_high_watermark", "current", "state_lock")

    def __init__(
        self, log_start_offset: int, log_end_offset: int, recovery_point: int = 0, high_watermark: int | None = None
    ) -> None:
        self.state_lock = threading.Lock()
        """The state lock of the log. It guards offsets, segments, epochs and producers; it is never held while the disk
        works."""
        self._follows_end = True
        self._stored_high_watermark = high_watermark
        self.current: LogOffsets
        """All offsets as they are now."""
        self._set(
            log_start_offset, log_start_offset, log_end_offset, log_end_offset, min(recovery_point, log_end_offset)
        )

    # --- the high watermark ---

    @property
    def high_watermark_to_store(self) -> int:
        """The high watermark; of a log that was opened and has no role yet, the one that was stored before."""
        stored = self._stored_high_watermark
        return self.current.high_watermark if stored is None else stored

    def move_high_watermark(self, offset: int) -> None:
        """Move the high watermark to an offset, or as near to it as the start and the end of the log allow."""
        with self.state_lock:
            start, local_start, _, _, end, recovery_point = self.current
            self._set(start, local_start, min(max(offset, start), end), end, recovery_point)

    def release_high_watermark(self, *, follows_end: bool) -> None:
        """Begin the role of a sole replica.

        :param follows_end: the high watermark moves with the log end from the next append on, not with the flushes.
        """
        self._follows_end = follows_end
        self._stored_high_watermark = None

    def hold_high_watermark(self) -> None:
        """Begin a role with other replicas: only `move_high_watermark` moves the high watermark from now on.

        In a log that was just opened, it goes back to the stored one. Other replicas may lack the records above.
        """
        self._follows_end = False
        stored = self._stored_high_watermark
        if stored is not None:
            self._stored_high_watermark = None
            self.move_high_watermark(stored)

    # --- the other offsets ---

    def move_log_start(self, offset: int) -> None:
        """Let the log begin later. The offset is at most the high watermark."""
        _, local_start, _, high_watermark, end, recovery_point = self.current
        self._set(offset, max(local_start, offset), high_watermark, end, recovery_point)

    def move_log_end(self, offset: int) -> None:
        """Let the log end later: records were appended, or a new segment leaves offsets out."""
        start, local_start, _, high_watermark, end, recovery_point = self.current
        if self._follows_end and offset > end:
            high_watermark = offset
        elif high_watermark < start:  # the log has reached back, and ends behind its start again
            high_watermark = min(start, offset)
        self._set(start, local_start, high_watermark, offset, recovery_point)

    def move_recovery_point(self, offset: int) -> None:
        """Count everything below an offset as durable."""
        with self.state_lock:
            start, local_start, _, high_watermark, end, recovery_point = self.current
            self._set(start, local_start, high_watermark, end, max(recovery_point, offset))

    # --- truncation ---

    def begin_truncation(self, offset: int) -> None:
        """Count nothing from an offset on as durable or readable. The records are still in the files."""
        with self.state_lock:
            start, local_start, _, high_watermark, end, recovery_point = self.current
            high_watermark = min(max(min(high_watermark, offset), start), end)
            self._set(start, local_start, high_watermark, end, min(recovery_point, offset))

    def end_truncation(self, log_start_offset: int, log_end_offset: int) -> None:
        """Let the log begin and end where its segments do after a truncation."""
        _, _, _, high_watermark, _, recovery_point = self.current
        high_watermark = min(max(high_watermark, log_start_offset), log_end_offset)
        recovery_point = min(recovery_point, log_end_offset)
        self._set(log_start_offset, log_start_offset, high_watermark, log_end_offset, recovery_point)

    def _set(self, start: int, local_start: int, high_watermark: int, end: int, recovery_point: int) -> None:
        # No transaction is ever open, so the last stable offset is the high watermark. No other place says so.
        # An append comes here for each batch: `tuple.__new__` takes half the time of `LogOffsets(...)`.
        values = (start, local_start, high_watermark, high_watermark, end, recovery_point)
        offsets = _new_tuple(LogOffsets, values)
        assert start <= local_start <= high_watermark <= end >= recovery_point or offsets.are_in_order(), offsets
        self.current = offsets

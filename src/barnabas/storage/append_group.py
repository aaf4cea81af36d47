"""Requests to append to one log that are on their way into one write. Pure: `Log` checks, writes and accounts.

The group knows what the active segment will look like after the write, so that a request is judged by those before
it as if they were in the log already: by their sequences, and by the room that they leave. Each request has an
outcome of its own. Until the write succeeded it is a promise: if the disk refuses, `fail` takes back all those that
are not in the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.errors import BarnabasError
from barnabas.model import NO_PRODUCER_ID, NO_TIMESTAMP
from barnabas.storage.append import AppendInfo, Placed, stamped
from barnabas.storage.producer_state import PendingProducers, ProducerStates
from barnabas.storage.segment import ActiveSegment, NewBatch

Outcome = AppendInfo | BarnabasError
"""Where a request's batches are, or why they were not appended."""


class AppendGroup:
    """The requests of one call of `Log.append_all`.

    :param append_time_ms: the timestamp that the batches get, or -1 to leave the producer's.
    """

    __slots__ = (
        "_final_count",
        "_leader_epoch",
        "_now_ms",
        "append_time_ms",
        "base_offset",
        "batches",
        "chunks",
        "first_timestamp_ms",
        "index_bytes",
        "next_offset",
        "outcomes",
        "producers",
        "size",
    )

    def __init__(
        self, active: ActiveSegment, producers: ProducerStates, leader_epoch: int, now_ms: int, append_time_ms: int
    ) -> None:
        self._leader_epoch = leader_epoch
        self._now_ms = now_ms
        self.append_time_ms = append_time_ms
        self.producers = PendingProducers(producers)
        self.outcomes: list[Outcome] = []
        self._final_count = 0
        self.chunks: list[memoryview] = []
        """What is to be written."""
        self.batches: list[NewBatch] = []
        """What `chunks` hold."""
        self.begin(active)

    def begin(self, active: ActiveSegment) -> None:
        """Go on at the end of a segment, with nothing on its way."""
        self.chunks.clear()
        self.batches.clear()
        self._final_count = len(self.outcomes)
        self.base_offset = active.base_offset
        self.next_offset = active.next_offset
        self.size = active.size
        self.index_bytes = active.index_bytes
        self.first_timestamp_ms = active.first_timestamp_ms

    def add(self, view: memoryview, batches: Sequence[Placed]) -> int:
        """Stamp a request's batches and let them come next; return their base offset."""
        base_offset = offset = self.next_offset
        self.chunks.append(stamped(view, batches, base_offset, self._leader_epoch, self.append_time_ms))
        by_broker = self.append_time_ms != NO_TIMESTAMP
        for _, header in batches:
            end_offset = offset + header.last_offset_delta + 1
            timestamp_ms = self.append_time_ms if by_broker else header.max_timestamp_ms
            self.batches.append((header.size, end_offset - 1, timestamp_ms))
            if header.producer_id != NO_PRODUCER_ID:
                self.producers.update(header, offset, self._now_ms)
            offset = end_offset
        if self.first_timestamp_ms is None:
            self.first_timestamp_ms = self.batches[0][2]
        self.size += len(view)
        self.next_offset = offset
        return base_offset

    def fail(self, error: BarnabasError) -> None:
        """The disk refused what was on its way: nothing of it may be acknowledged."""
        outcomes = self.outcomes
        for number in range(self._final_count, len(outcomes)):
            if isinstance(outcomes[number], AppendInfo):
                outcomes[number] = error
        self.chunks.clear()
        self.batches.clear()

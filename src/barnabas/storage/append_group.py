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
from barnabas.records.header import LENGTH_OVERHEAD
from barnabas.storage.append import AppendInfo, Placed, stamped
from barnabas.storage.producer_state import PendingProducers, ProducerBatch, ProducerStates
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
        "_log_start_offset",
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
        self, producers: ProducerStates, leader_epoch: int, now_ms: int, append_time_ms: int, log_start_offset: int
    ) -> None:
        self._leader_epoch = leader_epoch
        self._now_ms = now_ms
        self._log_start_offset = log_start_offset
        self.append_time_ms = append_time_ms
        self.producers = PendingProducers(producers)
        self.outcomes: list[Outcome] = []
        self._final_count = 0
        self.chunks: list[memoryview] = []
        """What is to be written."""
        self.batches: list[NewBatch] = []
        """What `chunks` hold."""

    def begin(self, active: ActiveSegment) -> None:
        """Go on at the end of a segment, with nothing on its way; to be called before anything is added."""
        self.chunks.clear()
        self.batches.clear()
        self._final_count = len(self.outcomes)
        self.base_offset = active.base_offset
        self.next_offset = active.next_offset
        self.size = active.size
        self.index_bytes = active.index_bytes
        self.first_timestamp_ms = active.first_timestamp_ms

    def known(self, batch: ProducerBatch) -> AppendInfo:
        """Return the outcome of a request that brought a batch which is in the log already, or on its way."""
        return AppendInfo(batch.base_offset, batch.last_offset, self.append_time_ms, self._log_start_offset, True)

    def add(self, view: memoryview, batches: Sequence[Placed]) -> AppendInfo:
        """Stamp a request's batches and let them come next."""
        base_offset = offset = self.next_offset
        append_time_ms, noted = self.append_time_ms, self.batches
        self.chunks.append(stamped(view, batches, base_offset, self._leader_epoch, append_time_ms))
        for _, header in batches:
            last_offset = offset + header.last_offset_delta
            timestamp_ms = header.max_timestamp_ms if append_time_ms == NO_TIMESTAMP else append_time_ms
            noted.append((header.batch_length + LENGTH_OVERHEAD, last_offset, timestamp_ms))
            if header.producer_id != NO_PRODUCER_ID:
                self.producers.update(header, offset, self._now_ms)
            offset = last_offset + 1
        if self.first_timestamp_ms is None:
            self.first_timestamp_ms = noted[0][2]
        self.size += len(view)
        self.next_offset = offset
        return AppendInfo(base_offset, offset - 1, append_time_ms, self._log_start_offset, False)

    def fail(self, error: BarnabasError) -> None:
        """The disk refused what was on its way: nothing of it may be acknowledged."""
        outcomes = self.outcomes
        self.producers.forget()
        for number in range(self._final_count, len(outcomes)):
            if isinstance(outcomes[number], AppendInfo):
                outcomes[number] = error
        self.chunks.clear()
        self.batches.clear()

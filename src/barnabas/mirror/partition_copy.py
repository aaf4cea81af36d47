"""The state machine of one mirrored partition: it decides about the next fetch and the next batch to send, and handles
responses. No I/O.

A `PartitionCopy` holds the map of acknowledged offsets, the batches in flight, and the batches ready to send. After any
unexpected response it drops all unacknowledged batches and reads the end of the target's log (`target_tail.py`).
Records in that log are mirrored; the copy fetches all other records again. So no response needs further interpretation.

With an audit account (`audit_account.py`), the copy also fetches records that are in the target but not counted,
because a mirror was killed or a response was lost. It only counts these records.

A *run* is a sequence of batches without gaps in the source offsets. All batches of a run have one producer id and
epoch.

Invariants:

- The next batch to send follows the previous one in the source.
- The response to a batch contains its target offset, which must equal the end of the map. So the copy detects a record
of another writer immediately.
- The first batch of a run, and the first batch after a read of the target's log, is the only batch in flight. A log
that does not know the producer accepts any sequence number (KIP-360), so it must not receive the second batch first.
- The copy sends nothing long after the last acknowledgement or the last read of the target's log. After such a time the
target may have forgotten the producer. It would then store a batch that another mirror has already sent. If the source
offsets have gaps, this time limit is short, because another mirror may have seen other gaps and built other runs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from barnabas.mirror.audit_account import CountedBatch, PartitionAuditAccount, count_batch
from barnabas.mirror.batch_rewriting import RewrittenBatch, rewrite_batch
from barnabas.mirror.batch_verification import SourceBatch
from barnabas.mirror.offset_map import OffsetMap
from barnabas.model import TopicPartition
from barnabas.records.header import BatchHeader, Buffer, iter_headers, set_identity
from barnabas.records.mirror_identity import Producer, fits_stretch, producer_of

READY_BYTES_MAX = 8 * 1024 * 1024
IN_FLIGHT_BYTES_MAX = 8 * 1024 * 1024
IN_FLIGHT_MAX = 64
FRESH_S = 10.0
"""The maximum age in seconds of the last read of the target's log if the source offsets have gaps."""
KNOWN_S = 3_600.0
"""The time in seconds for which a broker certainly remembers a producer. Brokers forget an inactive producer after a
day."""


@dataclass(slots=True, eq=False)
class Outgoing:
    """A batch that is ready to send or in flight to the target."""

    batch: bytearray | memoryview
    size: int
    """The size of the batch in bytes."""
    count: int
    source_first: int | None
    source_next: int
    origin: int
    target_offset: int
    """The base offset that the target must assign to the batch."""
    is_first: bool
    """True if the batch is the first of its run."""
    counted: CountedBatch | None = None
    """The counts of the batch for the audit account."""
    source: SourceBatch | None = None
    """The source batch before the rewriting."""

    @property
    def source_offsets(self) -> str:
        """The source offsets of the batch's records, as text for messages."""
        last = self.source_next - 1
        first = self.source_first if self.source is None or self.source_first is not None else self.source.base_offset
        if first is None:
            return f"source offsets up to {last}"
        return f"source offset {last}" if first == last else f"source offsets {first} to {last}"

    def source_offset_of(self, index: int) -> int | None:
        """Return the source offset of the record at this index of the batch; None if it is unknown or not in the
        batch."""
        return None if self.source_first is None or not 0 <= index < self.count else self.source_first + index


class PartitionCopy:
    """The state of one mirrored partition.

    :param where: the source partition, for messages.
    :param lineage: the number that `mirror_identity.lineage_of` returns.
    """

    def __init__(self, where: TopicPartition, lineage: int) -> None:
        self.where = where
        self.lineage = lineage
        self.offsets: OffsetMap | None = None
        """The map of the acknowledged offsets; None if they are not known yet."""
        self.origin: int | None = None
        """The first source offset of the run that contains the last acknowledged batch."""
        self.last_source: SourceBatch | None = None
        """The source batch that was acknowledged last; None if it is not known."""
        self.position = 0
        """The source offset of the next fetch."""
        self.is_placed = False
        """True if the end of the target's log is known."""
        self.account: PartitionAuditAccount | None = None
        """The account that counts the records in the target; None without an audit."""
        self._placed_at = 0
        self._ready: deque[Outgoing] = deque()
        self._in_flight: deque[Outgoing] = deque()
        self._ready_bytes = 0
        self._in_flight_bytes = 0
        self._end_origin: int | None = None
        self._end_sequence = 0
        self._end_target = 0
        self._producer: Producer | None = None
        """The producer id and epoch of the last run; None before the first batch is prepared."""
        self.may_have_holes = False
        """True if the source offsets may have gaps, because the source topic is compacted."""
        self._is_confirmed = False
        self._sure_at_s = 0.0

    @property
    def held_bytes(self) -> int:
        """The total size of all ready and in-flight batches in bytes."""
        return self._ready_bytes + self._in_flight_bytes

    @property
    def wants_data(self) -> bool:
        is_unreported = self.account is not None and self.account.topic.is_full
        return self.is_placed and self._ready_bytes < READY_BYTES_MAX and not is_unreported

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    @property
    def done_to(self) -> int | None:
        """The source offset below which the target has all records; None if it is not known yet."""
        if self.is_placed and not self._ready and not self._in_flight:
            return self.position
        return None if self.offsets is None else self.offsets.source_end

    @property
    def is_waiting(self) -> bool:
        """True if batches are in flight."""
        return bool(self._in_flight)

    def place(self, offsets: OffsetMap, origin: int | None, now_s: float, count_from: int | None = None) -> None:
        """Resume at the end of the target's log, and drop all earlier state.

        :param now_s: the monotonic time in seconds, taken before the target's log was read.
        :param count_from: an earlier source offset. The copy counts the records between this offset and the end of the
        map, but does not send them.
        """
        self.forget()
        self.offsets, self.origin = offsets, origin
        self._placed_at = offsets.source_end
        self.position = self._placed_at if count_from is None else min(count_from, self._placed_at)
        self._end_origin = origin
        self._producer = None
        self._end_sequence = 0 if origin is None else offsets.source_end - origin
        self._end_target = offsets.target_end
        self._is_confirmed = False
        self._sure_at_s = now_s
        self.is_placed = True

    def forget(self) -> None:
        """Drop all unacknowledged batches. The copy sends nothing until `place` is called again."""
        self._ready.clear()
        self._in_flight.clear()
        self._ready_bytes = self._in_flight_bytes = 0
        self.is_placed = False

    def skip_to(self, source_offset: int) -> int:
        """Advance to the source's log start offset. Return the number of skipped offsets."""
        left_out = max(0, source_offset - max(self.position, self._placed_at))
        self.position = max(self.position, source_offset)
        return left_out

    @property
    def expected(self) -> int:
        """The minimum source offset of the next batch."""
        return max(self.position, self._placed_at)

    def take(self, fetched: Buffer, asked_for: int) -> int:
        """Prepare fetched batches for sending; return the number of batches prepared.

        :param asked_for: the offset of the fetch request; responses to outdated requests are ignored.
        :raises CorruptBatchError: a batch is damaged; the batches before the damaged batch are prepared.
        :raises UnmirrorableBatchError: `rewrite_batch` cannot rewrite a batch.
        """
        if not self.is_placed or asked_for != self.position:
            return 0
        view = memoryview(fetched)
        taken = 0
        for place, header in iter_headers(view, partial_ok=True):
            next_offset = header.base_offset + header.last_offset_delta + 1
            if next_offset <= self._placed_at:
                self._count_only(view[place : place + header.size], header)
                continue
            piece = rewrite_batch(view, place, header, self.expected, self.where)
            if piece is not None:
                counted = None if self.account is None else self._counted(view[place : place + header.size], header)
                self._make_ready(piece, counted, SourceBatch(header.base_offset, next_offset, header.crc))
                taken += 1
            if next_offset > self.position:  # noqa: PLR1730 - max() takes longer
                self.position = next_offset
        return taken

    def _counted(self, batch: memoryview, header: BatchHeader) -> CountedBatch | None:
        if self.account is None or header.record_count != header.last_offset_delta + 1:
            return None  # do not count compacted logs
        return count_batch(batch, header, self.where.partition, self.position)

    def _count_only(self, batch: memoryview, header: BatchHeader) -> None:
        """Count a batch that is already in the target. If counting is suspended, skip the batch."""
        if self.account is not None and self.account.topic.is_put_off:
            self.position = self._placed_at
        if header.last_offset >= self.position and not header.is_control:
            counted = self._counted(batch, header)
            if self.account is not None and counted is not None:
                self.account.count(counted)
        self.position = max(self.position, header.next_offset)

    def _make_ready(self, piece: RewrittenBatch, counted: CountedBatch | None, source: SourceBatch) -> None:
        origin, first = self._end_origin, piece.source_next - piece.records
        sequence = self._end_sequence
        goes_on = origin is not None and first - origin == sequence and fits_stretch(sequence, piece.records)
        if origin is None or not goes_on:
            origin, sequence = first, 0
        if self._producer is None or origin != self._end_origin:
            self._producer = producer_of(self.lineage, origin)
        set_identity(piece.batch, *self._producer, sequence)
        size = len(piece.batch)
        self._ready.append(
            Outgoing(
                piece.batch,
                size,
                piece.records,
                piece.source_first,
                piece.source_next,
                origin,
                self._end_target,
                not goes_on,
                counted,
                source,
            )
        )
        self._ready_bytes += size
        self._end_origin, self._end_sequence = origin, sequence + piece.records
        self._end_target += piece.records

    def is_stale(self, now_s: float) -> bool:
        """Return whether the last read of the target's log is too old to send; the caller then calls `forget`."""
        if not self._ready:
            return False
        has_holes = self.may_have_holes or self._ready[0].is_first
        return now_s - self._sure_at_s >= (FRESH_S if has_holes else KNOWN_S)

    def next_to_send(self, now_s: float) -> Outgoing | None:
        """Return the next batch, and regard it as in flight. Return None if no batch can be sent now."""
        if not self._ready or self.is_stale(now_s):
            return None
        first = self._ready[0]
        if self._in_flight:
            is_full = len(self._in_flight) >= IN_FLIGHT_MAX or self._in_flight_bytes >= IN_FLIGHT_BYTES_MAX
            if is_full or first.is_first or not self._is_confirmed:
                return None
        self._is_confirmed = self._is_confirmed and not first.is_first
        self._ready.popleft()
        self._ready_bytes -= first.size
        self._in_flight.append(first)
        self._in_flight_bytes += first.size
        return first

    def is_under_way(self, sent: Outgoing) -> bool:
        """Return whether the batch is in flight; after `forget`, no batch is in flight."""
        return sent in self._in_flight

    def acknowledged(self, sent: Outgoing, target_offset: int, now_s: float) -> bool:
        """Record that a batch is in the target's log; return whether it has the expected target offset.

        If the batch has another offset, another writer has produced to the target, or batches were reordered. The
        caller then calls `forget` and reads the target's log.
        """
        if not self._in_flight or self._in_flight[0] is not sent or target_offset != sent.target_offset:
            return False
        assert self.offsets is not None
        self._in_flight.popleft()
        self._in_flight_bytes -= sent.size
        self.offsets.add(sent.source_next, sent.count, sent.source_first)
        self.origin = sent.origin
        self.last_source = sent.source
        if self.account is not None and sent.counted is not None:
            self.account.count(sent.counted)
        self._is_confirmed = True
        self._sure_at_s = now_s
        return True

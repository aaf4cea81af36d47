"""What is decided about one partition: what to fetch, what to send next, and what an answer means. No I/O.

Three things are kept: the map of what is acknowledged, batches under way, batches ready to be sent. Whenever an answer
is not the expected one, the copy forgets all that is not acknowledged, and reads the target's log (`target_tail.py`).
What the log has is mirrored; the rest is fetched again. No answer has to be interpreted any further.

Where there is an audit account (`audit_account.py`), records of the target that were not counted, because a mirror was
killed or an answer was lost, are fetched once more, and only counted.

Invariants:

- What is sent next is what follows in the source on what was sent before.
- The answer to a batch tells where it is, which must be where the map ends. So a stranger's record is noticed at once.
- The first batch of a stretch, and the first one after a look at the log, goes alone: a log that does not know the
  producer takes any batch as its first (KIP-360), and must not be given the second one.
- Nothing is sent long after the last look at the log or the last acknowledgement: by then the target may have forgotten
  the producer, and would take what another mirror has sent meanwhile a second time. Where there are holes this is soon:
  another mirror that found others there had other stretches to send.
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
"""So long a look at the target's log holds where there are holes between the source's offsets."""
KNOWN_S = 3_600.0
"""So long after it was seen to know a producer a broker surely does; it forgets one after a day."""


@dataclass(slots=True, eq=False)
class Outgoing:
    """A batch on its way to the target."""

    batch: bytearray | memoryview
    size: int
    """In bytes."""
    count: int
    source_first: int | None
    source_next: int
    origin: int
    target_offset: int
    """Where it has to be."""
    is_first: bool
    """Of its stretch."""
    counted: CountedBatch | None = None
    """For the account."""
    source: SourceBatch | None = None
    """The batch that it was made of."""

    @property
    def source_offsets(self) -> str:
        """The source offsets of its records, for messages."""
        last = self.source_next - 1
        first = self.source_first if self.source is None or self.source_first is not None else self.source.base_offset
        if first is None:
            return f"source offsets up to {last}"
        return f"source offset {last}" if first == last else f"source offsets {first} to {last}"

    def source_offset_of(self, index: int) -> int | None:
        """Return the source offset of a record by its index in the batch; None: it is not known."""
        return None if self.source_first is None or not 0 <= index < self.count else self.source_first + index


class PartitionCopy:
    """The state of one partition that is mirrored.

    :param where: the source's partition, for messages.
    :param lineage: see `mirror_identity.lineage_of`.
    """

    def __init__(self, where: TopicPartition, lineage: int) -> None:
        self.where = where
        self.lineage = lineage
        self.offsets: OffsetMap | None = None
        """What is acknowledged; None: not known yet."""
        self.origin: int | None = None
        """Of the stretch in which that ends."""
        self.last_source: SourceBatch | None = None
        """The source batch that was acknowledged last, where that is known."""
        self.position = 0
        """The source offset to be fetched next."""
        self.is_placed = False
        """Whether the end of the target's log is known."""
        self.account: PartitionAuditAccount | None = None
        """Where what is in the target is counted; None: nobody audits."""
        self._placed_at = 0
        self._ready: deque[Outgoing] = deque()
        self._in_flight: deque[Outgoing] = deque()
        self._ready_bytes = 0
        self._in_flight_bytes = 0
        self._end_origin: int | None = None
        self._end_sequence = 0
        self._end_target = 0
        self._producer: Producer | None = None
        """Of the stretch at the end, once there was one."""
        self.may_have_holes = False
        """Whether the source's topic is compacted."""
        self._is_confirmed = False
        self._sure_at_s = 0.0

    @property
    def held_bytes(self) -> int:
        """Bytes of batches that are ready or under way."""
        return self._ready_bytes + self._in_flight_bytes

    @property
    def wants_data(self) -> bool:
        is_untold = self.account is not None and self.account.topic.is_full
        return self.is_placed and self._ready_bytes < READY_BYTES_MAX and not is_untold

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    @property
    def done_to(self) -> int | None:
        """The source offset up to which all is in the target, or was nothing; None: not known yet."""
        if self.is_placed and not self._ready and not self._in_flight:
            return self.position
        return None if self.offsets is None else self.offsets.source_end

    @property
    def is_waiting(self) -> bool:
        """Whether answers are still to come."""
        return bool(self._in_flight)

    def place(self, offsets: OffsetMap, origin: int | None, now_s: float, count_from: int | None = None) -> None:
        """Go on where the target's log ends.

        :param now_s: when that was asked, or before.
        :param count_from: an earlier source offset: what follows it up to there is to be counted only.
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
        """Drop all that is not acknowledged; the target's log has to be read before anything else."""
        self._ready.clear()
        self._in_flight.clear()
        self._ready_bytes = self._in_flight_bytes = 0
        self.is_placed = False

    def skip_to(self, source_offset: int) -> int:
        """Go on at a later source offset, because the source has nothing before it; return how many are left out."""
        left_out = max(0, source_offset - max(self.position, self._placed_at))
        self.position = max(self.position, source_offset)
        return left_out

    @property
    def expected(self) -> int:
        """Up to where the source must have been, at least."""
        return max(self.position, self._placed_at)

    def take(self, fetched: Buffer, asked_for: int) -> int:
        """Make what was fetched ready to be sent; return how many batches that were.

        :param asked_for: the offset of the fetch: an answer to an earlier question is left alone.
        :raises CorruptBatchError: a batch is damaged; those before it are ready.
        :raises UnmirrorableBatchError: see `rewriting.rewrite_batch`.
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
            return None  # compacted logs are not audited
        return count_batch(batch, header, self.where.partition, self.position)

    def _count_only(self, batch: memoryview, header: BatchHeader) -> None:
        """Take a batch that is in the target already; while the audit is put off there is no use for the others."""
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
        """Whether the target's log has to be read again before anything is sent: `forget`, and do so."""
        if not self._ready:
            return False
        has_holes = self.may_have_holes or self._ready[0].is_first
        return now_s - self._sure_at_s >= (FRESH_S if has_holes else KNOWN_S)

    def next_to_send(self, now_s: float) -> Outgoing | None:
        """Return the batch to be sent now, which is under way then; None: nothing is to be sent."""
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
        """Whether an answer to this one still counts; not after `forget`."""
        return sent in self._in_flight

    def acknowledged(self, sent: Outgoing, target_offset: int, now_s: float) -> bool:
        """Take the answer to a batch: it is in the target's log. Returns whether it is where it belongs.

        If not, somebody else has written there, or batches overtook each other: `forget` and read the log.
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

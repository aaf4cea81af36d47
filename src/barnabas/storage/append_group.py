"""Requests to append to one log that share one write. Pure: `LogAppender` writes and accounts.

Invariants. The group knows the end of the active segment after the write. So it judges each request as if those before
it were in the log already: by their sequences, and by the room that they leave. Each request has an outcome of its own.
The outcome is a promise until the write succeeded; `fail` takes back all that are not in the log.

Threads. One thread at a time uses a group.

Errors. A refused request has a BarnabasError as its outcome. Batches of a leader (`replicate`) raise it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.model import NO_PRODUCER_ID, NO_TIMESTAMP, TimestampType
from barnabas.records.header import (
    BATCH_HEADER_SIZE,
    LENGTH_OVERHEAD,
    SEQUENCE_MAX,
    BatchHeader,
    Buffer,
    read_producer,
)
from barnabas.records.scan import (
    BATCHES_KEPT,
    RELATIVE_OFFSET_MAX,
    StampedBatch,
    plain_replicas,
    stamp_plain_batches,
)
from barnabas.storage.append import (
    OFFSET_MAX,
    AppendInfo,
    Placed,
    batches_to_replicate,
    check_timestamps,
    checked_batch,
    stamped,
)
from barnabas.storage.checkpoints import EpochStart
from barnabas.storage.log_config import LogConfig
from barnabas.storage.producer_state import PendingProducers, ProducerBatch, ProducerStates
from barnabas.storage.segment import ActiveSegment

Outcome = AppendInfo | BarnabasError
"""The offsets of a request's batches, or the error that kept them out of the log."""


_TIMESTAMP_MAX = 2**63 - 1


class SegmentEnd(Protocol):
    """The end of a segment, perhaps after the write of a group."""

    base_offset: int
    size: int
    first_timestamp_ms: int | None

    @property
    def index_bytes(self) -> int: ...


class _Room(NamedTuple):
    """The room in a segment: bytes, and the last offset and timestamp of batches that fit."""

    bytes_max: int
    offset_max: int
    timestamp_ms_max: int


def _room(end: SegmentEnd, config: LogConfig) -> _Room | None:
    """Return the room in a segment that has records with timestamps; None: the room depends on more than the header."""
    first_ms = end.first_timestamp_ms
    if first_ms is None or first_ms < 0 or end.index_bytes >= config.segment_index_bytes:
        return None
    return _Room(
        config.segment_bytes - end.size,
        min(end.base_offset + RELATIVE_OFFSET_MAX - 1, OFFSET_MAX),
        min(first_ms + config.roll_ms, _TIMESTAMP_MAX),
    )


def stamp_plain(
    requests: Sequence[Buffer], start: int, end: SegmentEnd, next_offset: int, leader_epoch: int, config: LogConfig
) -> list[StampedBatch]:
    """Check, stamp and return the batches from `start` on, as long as they are plain and fit into a segment with
    records."""
    room = _room(end, config)
    if room is None:
        return []
    return stamp_plain_batches(
        requests,
        start,
        next_offset,
        leader_epoch,
        batch_bytes_max=config.max_message_bytes,
        bytes_max=room.bytes_max,
        offset_max=room.offset_max,
        timestamp_ms_max=room.timestamp_ms_max,
    )


def stamp_own_batch(
    batch: bytearray, end: SegmentEnd, next_offset: int, leader_epoch: int, config: LogConfig
) -> list[StampedBatch]:
    """Do as `stamp_plain` does with one batch of records with keys, in a known epoch; return nothing if the batch needs
    more checks."""
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME or config.has_timestamp_bounds:
        return []
    return stamp_plain([batch], 0, end, next_offset, leader_epoch, config)


class LogState(NamedTuple):
    """The state of the log when a group begins."""

    active: ActiveSegment
    active_since_ms: int
    log_start_offset: int
    latest_epoch: int
    producers: ProducerStates
    config: LogConfig


class AppendGroup:
    """The requests of one write.

    :param leader_epoch: the epoch that the batches get; of a follower's append, the leader's epoch.
    :param now_ms: wall time.
    :param now_s: monotonic time.
    """

    __slots__ = (
        "_latest_epoch",
        "_leader_epoch",
        "_log_start_offset",
        "_now_ms",
        "_now_s",
        "_since_ms",
        "_takes_plain",
        "append_time_ms",
        "base_offset",
        "batches",
        "chunks",
        "config",
        "epochs",
        "failure",
        "first_timestamp_ms",
        "index_bytes",
        "needs_roll",
        "next_offset",
        "outcomes",
        "producers",
        "size",
    )

    def __init__(self, log: LogState, leader_epoch: int, now_ms: int, now_s: float) -> None:
        self._leader_epoch = leader_epoch
        self._now_ms = now_ms
        self._now_s = now_s
        self._log_start_offset = log.log_start_offset
        self._latest_epoch = log.latest_epoch
        self._since_ms = log.active_since_ms
        self.config = log.config
        by_broker = log.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        self.append_time_ms = now_ms if by_broker else NO_TIMESTAMP
        self._takes_plain = not (by_broker or log.config.has_timestamp_bounds or log.config.is_compacted)
        self.producers = PendingProducers(log.producers)
        self.outcomes: list[Outcome] = []
        self.needs_roll = False
        """Whether a request was left out that needs another segment."""
        self.epochs: list[EpochStart] = []
        """The leader epochs that begin with `batches`."""
        self.failure: BarnabasError | None = None
        """The error that kept the batches out of the log."""
        self.chunks: list[Buffer] = []
        """The bytes to write."""
        self.batches: list[StampedBatch] = []
        """The batches in `chunks`."""
        self.base_offset = log.active.base_offset
        self.next_offset = log.active.next_offset
        self.size = log.active.size
        self.index_bytes = log.active.index_bytes
        self.first_timestamp_ms = log.active.first_timestamp_ms

    def take_all(self, requests: Sequence[Buffer]) -> None:
        """Take the batches of several produce requests, up to the first that needs another segment."""
        number = 0
        while number < len(requests):
            if taken := self._take_plain(requests, number):
                number += taken
                continue
            if not self.take(memoryview(requests[number])):
                return
            number += 1

    def take(self, view: memoryview, checked: BatchHeader | None = None) -> bool:
        """Take the batch of a produce request; its outcome follows those before.

        :param checked: its header, if the batch was checked already; None: it is checked now.
        :returns: False if the batch needs another segment.
        """
        try:
            header = checked_batch(view, self.config) if checked is None else checked
            duplicate = self.producers.check(header, self._now_s) if header.producer_id != NO_PRODUCER_ID else None
            if duplicate is not None:
                self.outcomes.append(self._known(duplicate))
                return True
            if self.config.has_timestamp_bounds:
                check_timestamps(header, self.config, self._now_ms)
            if self.next_offset > OFFSET_MAX:
                raise ApiError(ErrorCode.INVALID_RECORD, "the log has no offsets left")
        except BarnabasError as error:
            self.outcomes.append(error)
            return True
        batches = ((0, header),)
        if self._must_roll(len(view), batches, self.next_offset + header.last_offset_delta):
            return False
        if self._leader_epoch > self._latest_epoch:
            self._begin_epoch(self._leader_epoch, self.next_offset)
        view = stamped(view, self.next_offset, self._leader_epoch, self.append_time_ms)
        self._put(view, ((self.next_offset, header),))
        return True

    def replicate(self, view: memoryview) -> bool:
        """Take batches with the offsets and epochs of a leader.

        :returns: False if the batches need another segment.
        :raises CorruptBatchError: a batch is damaged, or is not the next one.
        """
        self.append_time_ms = NO_TIMESTAMP
        if self._replicate_plain(view):
            return True
        batches = batches_to_replicate(view, self.next_offset, self._latest_epoch, self._leader_epoch)
        if batches and self._must_roll(len(view), batches, batches[-1][1].last_offset):
            return False
        for _, header in batches:
            if header.leader_epoch > self._latest_epoch:
                self._begin_epoch(header.leader_epoch, header.base_offset)
        self._put(view, [(header.base_offset, header) for _, header in batches])
        return True

    def fail(self, error: BarnabasError) -> None:
        """Replace the outcomes: the disk refused the write, and no batch may be acknowledged."""
        self.failure = error
        self.producers.forget()
        self.needs_roll = False
        self.outcomes[:] = [error if isinstance(outcome, AppendInfo) else outcome for outcome in self.outcomes]

    def _take_plain(self, requests: Sequence[Buffer], start: int) -> int:
        """Take the batches from `start` on as long as they are plain and fit into the segment; return their number.

        This does the checks of `take` once for all of them: segment and epoch have begun, timestamps do not matter, and
        the batches have no producer id, or follow on one another from a single producer.
        """
        if not self._takes_plain or self._latest_epoch < self._leader_epoch:
            return 0
        records = requests[start]
        if len(records) < BATCH_HEADER_SIZE:
            return 0
        producer_id, epoch, sequence = read_producer(records)
        is_known = producer_id != NO_PRODUCER_ID
        if is_known and not self.producers.goes_on(producer_id, epoch, sequence):
            return 0
        batches = stamp_plain(requests, start, self, self.next_offset, self._leader_epoch, self.config)
        if batches:
            if is_known:
                self._note_producer(producer_id, epoch, sequence, batches)
            self._put_plain(requests[start : start + len(batches)], batches)
        return len(batches)

    def _note_producer(self, producer_id: int, epoch: int, sequence: int, batches: Sequence[StampedBatch]) -> None:
        """Remember the last of consecutive batches of a producer.

        :param sequence: of their first record.
        """
        ahead = sequence - self.next_offset  # of the sequences, before the offsets
        left_out = max(0, len(batches) - BATCHES_KEPT)
        base_offset = batches[left_out - 1][1] + 1 if left_out else self.next_offset
        noted = []
        for _, last_offset, _ in batches[left_out:]:
            last = last_offset + ahead
            last_sequence = last if last <= SEQUENCE_MAX else last - SEQUENCE_MAX - 1
            noted.append((base_offset + ahead, last_sequence, base_offset, last_offset))
            base_offset = last_offset + 1
        self.producers.take_over(producer_id, epoch, noted, self._now_s)

    def _replicate_plain(self, view: memoryview) -> bool:
        """Take batches of a leader if all of them are plain and fit into the segment; return whether they do."""
        room = _room(self, self.config)
        if self._latest_epoch < 0 or room is None or len(view) > room.bytes_max:
            return False
        batches = plain_replicas(
            view,
            self.next_offset,
            self._latest_epoch,
            offset_max=room.offset_max,
            timestamp_ms_max=room.timestamp_ms_max,
        )
        if not batches or sum(batch[0] for batch in batches) != len(view):
            return False
        base_offset, self.next_offset = self.next_offset, batches[-1][1] + 1
        self.outcomes.append(
            AppendInfo(base_offset, batches[-1][1], NO_TIMESTAMP, self._log_start_offset, duplicate=False)
        )
        self.chunks.append(view)
        self.batches += batches
        self.size += len(view)
        return True

    def _put_plain(self, requests: Sequence[Buffer], batches: Sequence[StampedBatch]) -> None:
        offset, start, outcomes = self.next_offset, self._log_start_offset, self.outcomes
        for size, last_offset, _ in batches:
            outcomes.append(AppendInfo(offset, last_offset, NO_TIMESTAMP, start, False))
            self.size += size
            offset = last_offset + 1
        self.next_offset = offset
        self.chunks += requests
        self.batches += batches

    def _known(self, batch: ProducerBatch) -> AppendInfo:
        """Return the outcome of a request whose batch is in the log, or in the group, already."""
        return AppendInfo(batch.base_offset, batch.last_offset, self.append_time_ms, self._log_start_offset, True)

    def _begin_epoch(self, epoch: int, start_offset: int) -> None:
        self._latest_epoch = epoch
        self.epochs.append(EpochStart(epoch, start_offset))

    def _must_roll(self, size: int, batches: Sequence[Placed], last_offset: int) -> bool:
        self.needs_roll = self._is_full(size, batches, last_offset)
        return self.needs_roll

    def _is_full(self, size: int, batches: Sequence[Placed], last_offset: int) -> bool:
        """Return whether batches, of `size` bytes together, need another segment.

        They do if the segment would become too large, its index is full, the offsets would not fit the index, or the
        records would span more than `segment.ms`.

        :param last_offset: of the last of their records.
        """
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if not self.size:
            return False
        config = self.config
        if self.size + size > config.segment_bytes or self.index_bytes >= config.segment_index_bytes:
            return True
        latest_ms = NO_TIMESTAMP
        for _, header in batches:
            if header.max_timestamp_ms > latest_ms:  # noqa: PLR1730 - max() takes longer
                latest_ms = header.max_timestamp_ms
        first_ms = self.first_timestamp_ms
        if first_ms is None or first_ms == NO_TIMESTAMP:
            # Records without time: what counts is how long the segment has existed.
            first_ms, latest_ms = self._since_ms, self._now_ms
        elif self.append_time_ms != NO_TIMESTAMP:
            latest_ms = self.append_time_ms
        return latest_ms - first_ms > config.roll_ms

    def _put(self, view: memoryview, batches: Sequence[tuple[int, BatchHeader]]) -> None:
        """Take checked batches, each with its base offset."""
        base_offset = batches[0][0] if batches else self.next_offset
        append_time_ms, noted = self.append_time_ms, self.batches
        for offset, header in batches:
            last_offset = offset + header.last_offset_delta
            timestamp_ms = header.max_timestamp_ms if append_time_ms == NO_TIMESTAMP else append_time_ms
            noted.append((header.batch_length + LENGTH_OVERHEAD, last_offset, timestamp_ms))
            if header.producer_id != NO_PRODUCER_ID and not header.is_control:
                self.producers.update(header, offset, self._now_s)
            self.next_offset = last_offset + 1
        if batches:
            self.chunks.append(view)
            if self.first_timestamp_ms is None:
                self.first_timestamp_ms = noted[0][2]
        self.size += len(view)
        last_offset = self.next_offset - 1
        self.outcomes.append(AppendInfo(base_offset, last_offset, append_time_ms, self._log_start_offset, False))

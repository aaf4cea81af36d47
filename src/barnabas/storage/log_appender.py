"""Appends batches to a log: checks them, groups requests that share one write, and begins new segments.

`checked_batch`, `batches_to_replicate` and `stamped` are pure: buffers in, buffers out. `records.scan` accepts the
usual batches by the same rules; the checks here find what is wrong with the others. Both change together.

`AppendGroup` has the requests that share one write. It knows the end of the active segment after the write. So it
judges each request as if those before it were in the log already: by their sequences, and by the room that they leave.
Each request has an outcome of its own. The outcome is a promise until the write succeeded; `fail` takes back all that
are not in the log.

`LogAppender` writes and accounts.

Invariants. An append is one transaction. It checks everything before it writes the first byte; then it writes the
batches, accounts for them, and returns where they are. An error between the write and the accounting takes the log
offline, so no later batch is acknowledged behind bytes that are not accounted for. The cost of an append is per batch,
never per record; only keys of compacted topics are looked at. An append does no other work on files: one that needs a
new segment says so (`append_until_roll`), and `roll` makes the segment. A new leader epoch is in memory until the next
flush; recovery learns it from the batches.

Threads. The owner of the log appends. `roll` and `write_append` may wait for the disk on another thread, while no
append runs. Segments, epochs and producers change under the state lock.

Errors. A refused request has a BarnabasError as its outcome, and the log is as it was: CorruptBatchError for damage,
ApiError for what a producer may not send. Batches of a leader (`replicate`) raise it. If room, file descriptors or
memory are short, what was written is taken back. After any other refusal of the disk the log is offline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from crc32c import crc32c

from barnabas.clock import Clock
from barnabas.errors import ApiError, BarnabasError, CorruptBatchError, ErrorCode
from barnabas.model import NO_PRODUCER_ID, NO_TIMESTAMP, TimestampType, TopicPartition
from barnabas.records.compaction import records_without_key
from barnabas.records.header import (
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    CONTROL_MASK,
    CRC_START,
    LENGTH_OVERHEAD,
    MAGIC,
    SEQUENCE_MAX,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Buffer,
    check_batch,
    check_structure,
    read_header,
    read_producer,
    set_log_append_time,
    stamp,
)
from barnabas.records.scan import (
    BATCHES_KEPT,
    PRODUCERS_ATTRIBUTES,
    RELATIVE_OFFSET_MAX,
    StampedBatch,
    count_records,
    max_record_count,
    plain_replicas,
    stamp_plain_batches,
    usual_header,
)
from barnabas.storage.checkpoints import EpochStart
from barnabas.storage.filesystem import LogHealth
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_flusher import LogFlusher
from barnabas.storage.log_offsets import OffsetTracker
from barnabas.storage.producer_state import PendingProducers, ProducerBatch, ProducerStates
from barnabas.storage.segment import ActiveSegment
from barnabas.storage.segment_list import SegmentList

OFFSET_MAX = 2**63 - 1 - 2**32
"""The last offset of any log, so that sums of offsets fit into 64 bits."""

_MAGIC_POSITION = 16
"""The position of the magic in this batch format and in the two before it."""

KEYED_BYTES_MAX = 16 * 1024 * 1024
"""The decompressed size of a batch whose records must have keys."""


class InvalidRecordsError(ApiError):
    """A batch is refused for some of its records, all for the same reason.

    :param numbers: of these records in the batch; of the first ones where there are very many.
    """

    def __init__(self, numbers: Sequence[int], reason: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, f"record {numbers[0]} of the batch: {reason}")
        self.numbers = numbers
        self.reason = reason

    def __reduce__(self) -> tuple[type[InvalidRecordsError], tuple[Sequence[int], str]]:  # type: ignore[override]
        return type(self), (self.numbers, self.reason)


Placed = tuple[int, BatchHeader]
"""The position of a batch in a request, and its header."""


class AppendInfo(NamedTuple):
    """The offsets of appended batches."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """The broker's timestamp of the batches, or -1 if the producer's timestamps count."""
    log_start_offset: int
    duplicate: bool
    """The batch was in the log already, at these offsets."""


def checked_batch(view: memoryview, config: LogConfig) -> BatchHeader:
    """Return the header of a producer's batch, after all checks that do not depend on the log.

    As in Kafka, a request brings one batch for each partition.

    :raises CorruptBatchError: the batch is damaged.
    :raises ApiError: INVALID_RECORD, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE.
    """
    header = _checked_header(view, config)
    if config.is_compacted:
        _check_keys(view, config)
    return header


def _checked_header(view: memoryview, config: LogConfig) -> BatchHeader:
    if (fields := usual_header(view, min(config.max_message_bytes, config.segment_bytes))) is not None:
        return BatchHeader._make(fields)
    size = len(view)
    if size > _MAGIC_POSITION and view[_MAGIC_POSITION] < MAGIC:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"message format {view[_MAGIC_POSITION]}; only record batches (format {MAGIC}) are taken",
        )
    if size > config.segment_bytes:
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{size} bytes of batches at once, segment.bytes is {config.segment_bytes}",
        )
    if not size:
        raise ApiError(ErrorCode.INVALID_RECORD, "a produce request without record batches")
    header = read_header(view)
    check_structure(header, 0)
    end = header.batch_length + LENGTH_OVERHEAD
    if end > config.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE, f"batch of {end} bytes, max.message.bytes is {config.max_message_bytes}"
        )
    if end > size or crc32c(view[CRC_START:end]) != header.crc:
        check_batch(view, 0, header)  # raises
    _check_header(header)
    _check_body(view[BATCH_HEADER_SIZE:end], header)
    if end != size:
        message = f"{size - end} bytes behind the batch; a request brings one batch for each partition"
        raise ApiError(ErrorCode.INVALID_RECORD, message)
    return header


def _check_keys(view: memoryview, config: LogConfig) -> None:
    """Check that each record has a key, and that the cleaner can read the batch.

    :raises ApiError: INVALID_RECORD.
    """
    try:
        numbers = records_without_key(view, max(KEYED_BYTES_MAX, config.max_message_bytes))
    except CorruptBatchError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error
    if numbers:
        raise InvalidRecordsError(
            numbers, "a record without a key; the topic is compacted (cleanup.policy), which keeps the last of each key"
        )


def check_timestamps(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """Check that a producer's timestamps are as near to the broker's clock as the log asks (KIP-937).

    Kafka checks each record. Here the header is checked alone: its first timestamp for the age of the batch, its
    greatest one for how far the batch is ahead of the clock. An old record behind a newer one passes. So does a batch
    without timestamps, and any batch that the broker's clock stamps (`message.timestamp.type`).

    :raises ApiError: INVALID_TIMESTAMP.
    """
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        return
    first_ms, greatest_ms = header.base_timestamp_ms, header.max_timestamp_ms
    if greatest_ms - now_ms > config.message_timestamp_after_max_ms:
        message = (
            f"timestamp {greatest_ms} is {greatest_ms - now_ms} ms ahead of the broker's clock;"
            f" message.timestamp.after.max.ms is {config.message_timestamp_after_max_ms}"
        )
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, message)
    if first_ms != NO_TIMESTAMP and now_ms - first_ms > config.message_timestamp_before_max_ms:
        message = (
            f"timestamp {first_ms} is {now_ms - first_ms} ms behind the broker's clock;"
            f" message.timestamp.before.max.ms is {config.message_timestamp_before_max_ms}"
        )
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, message)


def batches_to_replicate(view: memoryview, next_offset: int, last_epoch: int, leader_epoch: int) -> list[Placed]:
    """Return the batches that a leader sent to its follower, after all checks.

    The leader has applied the rules for producers. Checked is what would make the two logs differ: offsets, epochs, and
    damaged bytes. There may be gaps between offsets, since the leader's log may have been compacted.

    :param next_offset: the log end offset of the follower.
    :param last_epoch: the epoch of its last batch, -1 if it is unknown.
    :param leader_epoch: of the leader.
    :raises CorruptBatchError: a batch is damaged, or is not the next one.
    """
    batches: list[Placed] = []
    position, size = 0, len(view)
    while position < size:
        header = read_header(view, position)
        check_batch(view, position, header)
        if header.base_offset < next_offset or header.last_offset > OFFSET_MAX:
            raise CorruptBatchError(
                f"batch with offsets {header.base_offset} to {header.last_offset}, the log ends with {next_offset}"
            )
        if not last_epoch <= header.leader_epoch <= leader_epoch:
            raise CorruptBatchError(
                f"batch of leader epoch {header.leader_epoch} at offset {next_offset}:"
                f" the one before has {last_epoch}, the leader {leader_epoch}"
            )
        batches.append((position, header))
        next_offset, last_epoch = header.next_offset, header.leader_epoch
        position += header.size
    if batches and next_offset - 1 - batches[0][1].base_offset > RELATIVE_OFFSET_MAX:
        raise CorruptBatchError(f"batches that span {next_offset - batches[0][1].base_offset} offsets")
    return batches


def _check_header(header: BatchHeader) -> None:
    if header.record_count < 1 or header.record_count != header.last_offset_delta + 1:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"batch of {header.record_count} records with {header.last_offset_delta + 1} offsets",
        )
    if header.attributes & ~PRODUCERS_ATTRIBUTES:
        raise ApiError(ErrorCode.INVALID_RECORD, _what_is_wrong_with(header.attributes))
    if header.producer_id != NO_PRODUCER_ID and (
        header.producer_id < 0 or header.base_sequence < 0 or header.producer_epoch < 0
    ):
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"batch of producer {header.producer_id} with epoch {header.producer_epoch}"
            f" and sequence {header.base_sequence}",
        )


def _what_is_wrong_with(attributes: int) -> str:
    if attributes & CONTROL_MASK:
        return "control batches are written by brokers only"
    if attributes & TRANSACTIONAL_MASK:
        return "a batch of a transaction, sent outside of one"
    return f"batch with unknown attributes {attributes & 0xFFFF:#06x}"


def _check_body(body: memoryview, header: BatchHeader) -> None:
    """Check that the body holds the records that the header counts; consumers would wait for missing ones forever.

    The records of an uncompressed body are counted. For a compressed body, its size bounds the number of records.
    """
    if header.attributes & COMPRESSION_MASK:
        is_whole = header.record_count <= max_record_count(len(body), header.compression)
    else:
        is_whole = count_records(body, header.record_count)
    if not is_whole:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"the header counts {header.record_count} records, and the body has others or cannot hold so many",
        )


def stamped(view: memoryview, base_offset: int, leader_epoch: int, append_time_ms: int) -> memoryview:
    """Write offset and leader epoch into a batch, in place if `view` is writable, otherwise in a copy; return it.

    :param append_time_ms: the new timestamp, or -1 to leave the producer's.
    """
    if view.readonly:
        view = memoryview(bytearray(view))
    stamp(view, 0, base_offset, leader_epoch)
    if append_time_ms != NO_TIMESTAMP:
        set_log_append_time(view, 0, append_time_ms)
    return view


Outcome = AppendInfo | BarnabasError
"""The offsets of a request's batches, or the error that kept them out of the log."""


_TIMESTAMP_MAX = 2**63 - 1


class SegmentEnd(Protocol):
    """The end of a segment, perhaps after the write of a group."""

    base_offset: int
    size: int
    first_timestamp_ms: int | None
    index_bytes: int


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
        """True if a request was left out that needs another segment."""
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
        self.producers.discard()
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
        if is_known and not self.producers.accepts_next(producer_id, epoch, sequence):
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
        self.producers.add_batches(producer_id, epoch, noted, self._now_s)

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


UNFLUSHED_SEGMENTS_MAX = 8
"""The most segments sealed and not flushed: each holds a file open. A roll beyond flushes first."""


class LogAppender:
    """The part of a log that lets it grow.

    :param on_rolled: called after a segment was sealed. The segment keeps its file open until it is flushed.
    """

    __slots__ = (
        "_clock",
        "_config",
        "_epochs",
        "_flusher",
        "_health",
        "_offsets",
        "_on_rolled",
        "_partition",
        "_producers",
        "_segments",
        "_state_lock",
        "_unaccounted",
        "active_since_ms",
        "appended_bytes",
        "appended_records",
    )

    def __init__(
        self,
        partition: TopicPartition,
        config: LogConfig,
        clock: Clock,
        segments: SegmentList,
        offsets: OffsetTracker,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        flusher: LogFlusher,
        health: LogHealth,
        on_rolled: Callable[[], None],
    ) -> None:
        self._partition = partition
        self._config = config
        self._clock = clock
        self._segments = segments
        self._offsets = offsets
        self._epochs = epochs
        self._producers = producers
        self._flusher = flusher
        self._health = health
        self._state_lock = offsets.state_lock
        self._on_rolled = on_rolled
        self._unaccounted: AppendGroup | None = None
        self.appended_bytes = 0
        """Bytes of the batches that were appended since the log was opened."""
        self.appended_records = 0
        """Offsets of these batches."""
        self.active_since_ms = clock.time_ms()
        """When the active segment was begun, or the log was opened."""

    def take_over_counts(self, size: int, count: int) -> None:
        """Go on with the counts of another log."""
        self.appended_bytes, self.appended_records = size, count

    def configure(self, config: LogConfig) -> None:
        """Use these settings from the next append on."""
        self._config = config

    # --- append ---

    def append_all(self, requests: Sequence[Buffer], leader_epoch: int) -> list[Outcome]:
        """Append the batches of several requests, in their order, as a leader does; wait for the disk if need be.

        Each request is judged alone, after those before it. An error of a request is its outcome.
        """
        outcomes = self.append_until_roll(requests, leader_epoch)
        while len(outcomes) < len(requests):
            try:
                self.roll()
            except BarnabasError as error:
                outcomes.append(error)
            outcomes += self.append_until_roll(requests[len(outcomes) :], leader_epoch)
        return outcomes

    def append_until_roll(self, requests: Sequence[Buffer], leader_epoch: int) -> list[Outcome]:
        """Do as `append_all` does, with one write, up to the first request that needs a new segment: `roll` makes it.

        :returns: the outcomes of the requests before that one; of all if there is none.
        """
        if (refusal := self._refusal(leader_epoch)) is not None:
            return [refusal] * len(requests)
        group = self._begin_group(leader_epoch)
        group.take_all(requests)
        with suppress(BarnabasError):  # the outcomes have it
            self.write_append(group)
            self._unaccounted = None
            self._account_for(group)
        return group.outcomes

    def append_own_batch(self, batch: bytearray, leader_epoch: int) -> bool:
        """Append a batch that this broker made, of records with keys, if nothing stands in the way.

        The batch is checked and stamped as `append_until_roll` does. The rest of `append_until_roll` is most of the
        cost of a batch of a few bytes.

        :returns: False where the batch is not in the log. `append_until_roll` returns why, or what must be done first.
        """
        if self._refusal(leader_epoch) is not None or leader_epoch > self._epochs.latest:
            return False
        active = self._segments.active
        stamped = stamp_own_batch(batch, active, self._offsets.current.log_end_offset, leader_epoch, self._config)
        if not stamped:
            return False
        with suppress(BarnabasError):  # the next append returns it
            active.append([batch], self._health)
            self._note(stamped)
            return True
        return False

    def append_as_follower(self, records: Buffer, leader_epoch: int) -> AppendInfo:
        """Append batches of a leader, with their offsets and epochs, after all others; wait for the disk if need be.

        Batches are checked for damage, as a leader does. The leader has decided whether a producer may send them.
        There may be gaps before and between the batches, since the leader's log may have been compacted.

        :param records: of one fetch answer, whole batches only.
        :param leader_epoch: of the leader that the batches come from.
        :raises CorruptBatchError: a batch is damaged, or does not follow the one before; nothing was appended.
        :raises ApiError: FENCED_LEADER_EPOCH; nothing was appended.
        :raises StorageError: the disk refused; nothing was appended.
        """
        view = memoryview(records)
        while (group := self.begin_append(lambda group: group.replicate(view), leader_epoch)) is None:
            self.roll(read_header(view).base_offset)
        self.write_append(group)
        outcome = self.finish_append(group)
        if not isinstance(outcome, AppendInfo):
            raise outcome
        return outcome

    # --- append in three steps ---

    def begin_append(self, take: Callable[[AppendGroup], bool], leader_epoch: int) -> AppendGroup | None:
        """Begin an append of records that are too many for the owner's thread to write at once.

        `write_append` puts the batches into the file, on any thread. Then `finish_append` ends the append, on the
        owner's thread. No other append runs meanwhile.

        :param take: puts one request into a group, by `AppendGroup.take` or `AppendGroup.replicate`.
        :returns: None if a new segment is needed first: `roll`.
        :raises BarnabasError: as `Log.append` does.
        """
        if (refusal := self._refusal(leader_epoch)) is not None:
            raise refusal
        group = self._begin_group(leader_epoch)
        return group if take(group) else None

    def write_append(self, group: AppendGroup) -> None:
        """Write the batches of a group, on any thread. `finish_append` returns an error, if there is one."""
        self._unaccounted = group
        try:
            self._health.check()
            if group.chunks:
                self._segments.active.append(group.chunks, self._health)
        except BarnabasError as error:
            group.fail(error)

    def finish_append(self, group: AppendGroup) -> Outcome:
        """End an append; return its outcome."""
        self._unaccounted = None
        with suppress(BarnabasError):  # the outcomes have it
            self._account_for(group)
        return group.outcomes[0]

    # --- new segments ---

    @property
    def is_roll_due(self) -> bool:
        """Return whether the active segment has been written to for as long as the settings allow."""
        since_ms = self._clock.time_ms() - self.active_since_ms
        return self._segments.active.size > 0 and since_ms > self._config.roll_ms

    def roll(self, base_offset: int | None = None) -> None:
        """Begin a new segment, unless the active one is empty. May be called from another thread; no append runs.

        :param base_offset: where the new segment begins if the active one is empty; the log then ends there. Otherwise
            the new segment begins with the end of the log: recovery takes a gap between two segments for a loss, so
            there is none except where offsets would not fit a segment.
        :raises StorageError: the disk refused.
        """
        self._health.check()
        log_end = self._offsets.current.log_end_offset
        is_empty = not self._segments.active.size
        base_offset = max(base_offset or 0, log_end) if is_empty else log_end
        if not is_empty or base_offset > log_end:
            self._flusher.note_change()
            if self._segments.unflushed_count >= UNFLUSHED_SEGMENTS_MAX:
                self._flusher.flush()
            with self._health.offline_on_error("roll", even_if_short=False):
                self._roll(base_offset, self._clock.time_ms())

    def _roll(self, base_offset: int, now_ms: int) -> None:
        with self._state_lock:
            self._producers.expire(self._clock.monotonic())
            indexes = self._segments.active.encode_indexes(closing=True)
        active = self._flusher.seal(indexes, base_offset, self._config.index_interval_bytes)
        with self._state_lock:
            self._segments.seal_active(active)
            self._offsets.move_log_end(base_offset)
            self._flusher.note_new_segment()
        self.active_since_ms = now_ms
        self._on_rolled()

    # --- inside ---

    def _refusal(self, leader_epoch: int) -> BarnabasError | None:
        """Return why nothing can be appended in this epoch, or None."""
        try:
            if self._unaccounted is not None:
                self._health.go_offline("append", RuntimeError("an append before it has not come to its end"))
            self._health.check()
        except BarnabasError as error:
            return error
        if leader_epoch < (latest := self._epochs.latest):
            message = f"{self._partition}: leader epoch {leader_epoch}, {latest} is known"
            return ApiError(ErrorCode.FENCED_LEADER_EPOCH, message)
        return None

    def _begin_group(self, leader_epoch: int) -> AppendGroup:
        state = LogState(
            self._segments.active,
            self.active_since_ms,
            self._offsets.current.log_start_offset,
            self._epochs.latest,
            self._producers,
            self._config,
        )
        return AppendGroup(state, leader_epoch, self._clock.time_ms(), self._clock.monotonic())

    def _account_for(self, group: AppendGroup) -> None:
        """:raises BarnabasError: what was written may not be acknowledged; the outcomes have the error."""
        if group.failure is not None:
            raise group.failure
        if not group.chunks:
            return
        try:
            self._note(group.batches, group)
        except BarnabasError as error:
            group.fail(error)
            raise

    def _note(self, batches: Sequence[StampedBatch], group: AppendGroup | None = None) -> None:
        """Account for batches that are in the file.

        :raises BarnabasError: they may not be acknowledged.
        """
        try:
            with self._state_lock:
                active = self._segments.active
                size, next_offset = active.size, active.next_offset
                active.note_all(batches)
                self.appended_bytes += active.size - size
                self.appended_records += active.next_offset - next_offset
                if group is not None:
                    group.producers.commit()
                    for epoch in group.epochs:
                        self._epochs.assign(*epoch)
                self._offsets.move_log_end(batches[-1][1] + 1)
            # A flush may have failed meanwhile: these batches may never reach the disk.
            self._health.check()
        except BarnabasError:
            raise
        except BaseException as error:
            # An unexpected error: it is not known what is accounted for.
            raise self._health.go_offline("append", error) from error
        self._health.note_success()

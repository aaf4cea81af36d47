"""Appends to a log: checks of batches, groups of requests that share one write, and rolls to new segments.

`checked_batch`, `batches_to_replicate` and `stamped` do no I/O: they map buffers to buffers. `records.scan` has a fast
path that accepts usual batches by the same rules. The checks in this module find the errors of all other batches. A
change of a rule must change both modules.

`AppendGroup` contains the requests that share one write. It tracks the end of the active segment as if all earlier
requests of the group were already in the log. So the checks of sequences and of the remaining space include the earlier
requests. Each request has its own outcome. An outcome is valid only after the write has succeeded. If the write fails,
`fail` replaces the outcomes.

`LogAppender` writes a group and then makes its batches visible.

Invariants. An append is a transaction. It does all checks before it writes the first byte. Then it writes the batches,
updates the offsets, epochs and producers, and returns the offsets. An error between the write and the update puts the
log offline. So no batch is acknowledged if unknown bytes precede it in the file. The cost of an append depends on the
number of batches, not of records, except for the keys in compacted topics. An append does no file operations except the
write. If it needs a new segment, it returns early (`append_until_roll`), and `roll` creates the segment. A new leader
epoch is only in memory until the next flush; recovery reads it from the batches.

Threads. The owner of the log appends. While no append runs, another thread may call `roll` and `write_append`, which
may block on the disk. Segments, epochs and producers change under the state lock.

Errors. If a request is rejected, its outcome is a BarnabasError, and the log is unchanged. The error is
CorruptBatchError for a damaged batch, and ApiError for a batch that violates a rule. For batches from a leader,
`replicate` raises the error. If disk space, file descriptors or memory are short, the log removes the written bytes.
After any other I/O error, the log is offline.
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
"""The greatest offset of a log. It is limited so that sums of offsets fit into 64 bits."""

_MAGIC_POSITION = 16
"""The position of the magic byte in record batches and in the two older message formats."""

KEYED_BYTES_MAX = 16 * 1024 * 1024
"""The maximum decompressed size of a batch for a compacted topic.

Such a batch is decompressed to check that its records have keys.
"""


class InvalidRecordsError(ApiError):
    """A batch is rejected because of some of its records. The reason is the same for all of them.

    :param numbers: the indexes of these records in the batch. If there are very many, only the first ones are listed.
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
    """The log append time of the batches; -1 if the batches keep the producer's timestamps."""
    log_start_offset: int
    duplicate: bool
    """True if the batch is a retry: the log already contained it at these offsets."""


def checked_batch(view: memoryview, config: LogConfig) -> BatchHeader:
    """Return the header of a producer's batch, after all checks that do not depend on the log.

    As in Kafka, a request contains one batch per partition.

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
            f"message format {view[_MAGIC_POSITION]} is not supported; send record batches (format {MAGIC})",
        )
    if size > config.segment_bytes:
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batches have {size} bytes, more than segment.bytes={config.segment_bytes}",
        )
    if not size:
        raise ApiError(ErrorCode.INVALID_RECORD, "the produce request has no record batch for this partition")
    header = read_header(view)
    check_structure(header, 0)
    end = header.batch_length + LENGTH_OVERHEAD
    if end > config.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {end} bytes, more than max.message.bytes={config.max_message_bytes}",
        )
    if end > size or crc32c(view[CRC_START:end]) != header.crc:
        check_batch(view, 0, header)  # raises the specific error
    _check_header(header)
    _check_body(view[BATCH_HEADER_SIZE:end], header)
    if end != size:
        message = f"{size - end} bytes follow the batch; a request must contain exactly one batch per partition"
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
            numbers, "the record has no key, which a compacted topic (cleanup.policy=compact) requires"
        )


def check_timestamps(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """Check that a producer's timestamps are within the topic's limits around the broker's time (KIP-937).

    Kafka checks each record. Barnabas checks only the header: the base timestamp must not be too old, and the max
    timestamp must not be too far in the future. So an old record that follows a newer record is accepted. Batches
    without timestamps, and batches that get the log append time (`message.timestamp.type`), are always accepted.

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
    """Check the batches that a leader has sent to its follower; return them.

    The leader has already applied the rules for producers. These checks find damaged bytes, and offsets or epochs that
    do not fit the follower's log. Gaps between offsets are accepted, because the leader's log may be compacted.

    :param next_offset: the log end offset of the follower.
    :param last_epoch: the epoch of the follower's last batch; -1 if it is unknown.
    :param leader_epoch: the epoch of the leader.
    :raises CorruptBatchError: a batch is damaged, or does not follow the previous batch.
    """
    batches: list[Placed] = []
    position, size = 0, len(view)
    while position < size:
        header = read_header(view, position)
        check_batch(view, position, header)
        if header.base_offset < next_offset or header.last_offset > OFFSET_MAX:
            raise CorruptBatchError(
                f"the batch has offsets {header.base_offset} to {header.last_offset}, but the log ends at {next_offset}"
            )
        if not last_epoch <= header.leader_epoch <= leader_epoch:
            raise CorruptBatchError(
                f"the batch at offset {next_offset} has leader epoch {header.leader_epoch},"
                f" outside of {last_epoch} (previous batch) to {leader_epoch} (leader)"
            )
        batches.append((position, header))
        next_offset, last_epoch = header.next_offset, header.leader_epoch
        position += header.size
    if batches and next_offset - 1 - batches[0][1].base_offset > RELATIVE_OFFSET_MAX:
        raise CorruptBatchError(
            f"the batches span {next_offset - batches[0][1].base_offset} offsets, more than a segment can have"
        )
    return batches


def _check_header(header: BatchHeader) -> None:
    if header.record_count < 1 or header.record_count != header.last_offset_delta + 1:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"the batch has {header.record_count} records, but {header.last_offset_delta + 1} offsets",
        )
    if header.attributes & ~PRODUCERS_ATTRIBUTES:
        raise ApiError(ErrorCode.INVALID_RECORD, _what_is_wrong_with(header.attributes))
    if header.producer_id != NO_PRODUCER_ID and (
        header.producer_id < 0 or header.base_sequence < 0 or header.producer_epoch < 0
    ):
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"producer id {header.producer_id}, epoch {header.producer_epoch} and sequence {header.base_sequence}"
            " must not be negative",
        )


def _what_is_wrong_with(attributes: int) -> str:
    if attributes & CONTROL_MASK:
        return "producers cannot write control batches"
    if attributes & TRANSACTIONAL_MASK:
        return "the batch belongs to a transaction, but none is open"
    return f"the batch has unknown attributes {attributes & 0xFFFF:#06x}"


def _check_body(body: memoryview, header: BatchHeader) -> None:
    """Check that the number of records in the body equals the record count in the header.

    Consumers would wait forever for missing records.

    In an uncompressed body, the records are counted. For a compressed body, the record count is only compared with the
    maximum for the body's size.
    """
    if header.attributes & COMPRESSION_MASK:
        most = max_record_count(len(body), header.compression)
        if header.record_count > most:
            raise _wrong_record_count(header, f"a compressed body of {len(body)} bytes contains at most {most}")
    elif not count_records(body, header.record_count):
        raise _wrong_record_count(header, "the body contains a different number")


def _wrong_record_count(header: BatchHeader, problem: str) -> ApiError:
    message = f"the batch header declares {header.record_count} records, but {problem}"
    return ApiError(ErrorCode.INVALID_RECORD, message)


def stamped(view: memoryview, base_offset: int, leader_epoch: int, append_time_ms: int) -> memoryview:
    """Write the base offset and the leader epoch into a batch; return the batch, or a copy if `view` is read-only.

    :param append_time_ms: the log append time to write; -1 to keep the producer's timestamps.
    """
    if view.readonly:
        view = memoryview(bytearray(view))
    stamp(view, 0, base_offset, leader_epoch)
    if append_time_ms != NO_TIMESTAMP:
        set_log_append_time(view, 0, append_time_ms)
    return view


Outcome = AppendInfo | BarnabasError
"""The offsets of a request's batches, or the error if they were rejected."""


_TIMESTAMP_MAX = 2**63 - 1


class SegmentEnd(Protocol):
    """The end of a segment: its current end, or its end after the write of a group."""

    base_offset: int
    size: int
    first_timestamp_ms: int | None
    index_bytes: int


class _Room(NamedTuple):
    """The limits for batches that fit into a segment: size in bytes, last offset, and greatest timestamp."""

    bytes_max: int
    offset_max: int
    timestamp_ms_max: int


def _room(end: SegmentEnd, config: LogConfig) -> _Room | None:
    """Return the limits of a segment that contains records with timestamps.

    Return None if the limits depend on more than the batch header.
    """
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
    """Check and stamp the batches from `start` on, as long as they are plain and fit into the segment; return them."""
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
    """Check and stamp one batch that this broker created in a known epoch.

    Return an empty list if the batch needs more checks.
    """
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME or config.has_timestamp_bounds:
        return []
    return stamp_plain([batch], 0, end, next_offset, leader_epoch, config)


class LogState(NamedTuple):
    """The state of the log at the start of a group."""

    active: ActiveSegment
    active_since_ms: int
    log_start_offset: int
    latest_epoch: int
    producers: ProducerStates
    config: LogConfig


class AppendGroup:
    """The requests that share one write.

    :param leader_epoch: the leader epoch of the appended batches. For a follower, it is the epoch of the current
        leader.
    :param now_ms: the wall time.
    :param now_s: the monotonic time.
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
        """True if a request was not added because it needs a new segment."""
        self.epochs: list[EpochStart] = []
        """The leader epochs that begin in this group."""
        self.failure: BarnabasError | None = None
        """The error because of which the write failed or was not started; None if there is none."""
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
        """Add the batches of produce requests, up to the first batch that needs a new segment."""
        number = 0
        while number < len(requests):
            if taken := self._take_plain(requests, number):
                number += taken
                continue
            if not self.take(memoryview(requests[number])):
                return
            number += 1

    def take(self, view: memoryview, checked: BatchHeader | None = None) -> bool:
        """Add the batch of a produce request, and append its outcome.

        :param checked: the header of the batch if the batch was already checked. None to check the batch in this call.
        :returns: False if the batch needs a new segment.
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
                raise ApiError(ErrorCode.INVALID_RECORD, "the log has reached the maximum offset")
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
        """Add batches from a leader, with the offsets and epochs of the leader.

        :returns: False if the batches need a new segment.
        :raises CorruptBatchError: a batch is damaged, or does not follow the previous batch.
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
        """Replace the outcomes of all batches with an error. The write has failed, so no batch may be acknowledged."""
        self.failure = error
        self.producers.discard()
        self.needs_roll = False
        self.outcomes[:] = [error if isinstance(outcome, AppendInfo) else outcome for outcome in self.outcomes]

    def _take_plain(self, requests: Sequence[Buffer], start: int) -> int:
        """Add the batches from `start` on, as long as they are plain and fit into the segment; return their number.

        This method does the checks of `take` once for all of these batches. It is used if the segment contains records,
        the epoch has already begun, and timestamps have no limits. The batches have no producer id, or they have
        contiguous sequences of a single producer.
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
        """Record the last batches in a series of consecutive batches of a producer.

        :param sequence: the sequence of the first record in the series.
        """
        ahead = sequence - self.next_offset  # sequence minus offset, which is equal for all records in the series
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
        """Add batches from a leader if all of them are plain and fit into the segment; otherwise, return False."""
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
        """Return the outcome of a retry. Its batch is already in the log or in the group."""
        return AppendInfo(batch.base_offset, batch.last_offset, self.append_time_ms, self._log_start_offset, True)

    def _begin_epoch(self, epoch: int, start_offset: int) -> None:
        self._latest_epoch = epoch
        self.epochs.append(EpochStart(epoch, start_offset))

    def _must_roll(self, size: int, batches: Sequence[Placed], last_offset: int) -> bool:
        self.needs_roll = self._is_full(size, batches, last_offset)
        return self.needs_roll

    def _is_full(self, size: int, batches: Sequence[Placed], last_offset: int) -> bool:
        """Return whether batches need a new segment. `size` is their total size in bytes.

        A new segment is needed in these cases: the active segment would become too large, its index is full, an offset
        would not fit into the index, or the timestamps would span more than `segment.ms`.

        :param last_offset: the offset of the last record in the batches.
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
            # If records have no timestamps, the age of the segment is used.
            first_ms, latest_ms = self._since_ms, self._now_ms
        elif self.append_time_ms != NO_TIMESTAMP:
            latest_ms = self.append_time_ms
        return latest_ms - first_ms > config.roll_ms

    def _put(self, view: memoryview, batches: Sequence[tuple[int, BatchHeader]]) -> None:
        """Add checked batches, each with its base offset."""
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
"""The maximum number of sealed and unflushed segments per log.

Each of them has an open file. At this limit, a roll flushes the log first.
"""


class LogAppender:
    """The part of a log that appends batches and rolls segments.

    :param on_rolled: called after a segment was sealed. The segment keeps its file open until a flush.
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
        """The size of the batches appended since the log was opened, in bytes."""
        self.appended_records = 0
        """The number of offsets of the batches appended since the log was opened."""
        self.active_since_ms = clock.time_ms()
        """The wall time at which the active segment was created, or the log was opened."""

    def take_over_counts(self, size: int, count: int) -> None:
        """Set the counters of appended bytes and records, because this log replaces another log of the partition."""
        self.appended_bytes, self.appended_records = size, count

    def configure(self, config: LogConfig) -> None:
        """Apply new settings from the next append on."""
        self._config = config

    # --- append ---

    def append_all(self, requests: Sequence[Buffer], leader_epoch: int) -> list[Outcome]:
        """Append the batches of several requests in order, as a leader.

        If needed, roll a segment, which may block on the disk.

        The checks of each request include the earlier requests. The outcome of a rejected request is an error.
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
        """Append like `append_all`, but with one write, and only up to the first request that needs a new segment.

        :returns: the outcomes of the requests before the first request that needs a new segment. The caller must call
            `roll` and then append the others.
        """
        if (refusal := self._refusal(leader_epoch)) is not None:
            return [refusal] * len(requests)
        group = self._begin_group(leader_epoch)
        group.take_all(requests)
        with suppress(BarnabasError):  # the outcomes contain the error
            self.write_append(group)
            self._unaccounted = None
            self._account_for(group)
        return group.outcomes

    def append_own_batch(self, batch: bytearray, leader_epoch: int) -> bool:
        """Append a batch that this broker created, on a fast path for small batches.

        All records in the batch must have keys.

        The checks are the same as in `append_until_roll`. For a batch of a few bytes, the overhead of
        `append_until_roll` would take most of the time.

        :returns: False if the batch was not appended. The caller must then call `append_until_roll`, which returns the
            reason.
        """
        if self._refusal(leader_epoch) is not None or leader_epoch > self._epochs.latest:
            return False
        active = self._segments.active
        stamped = stamp_own_batch(batch, active, self._offsets.current.log_end_offset, leader_epoch, self._config)
        if not stamped:
            return False
        with suppress(BarnabasError):  # the next append returns this error
            active.append([batch], self._health)
            self._note(stamped)
            return True
        return False

    def append_as_follower(self, records: Buffer, leader_epoch: int) -> AppendInfo:
        """Append batches from a leader, with their offsets and epochs.

        If needed, roll a segment, which may block on the disk.

        The batches are checked for damage, but not against the rules for producers, because the leader has already done
        this. Gaps before and between the batches are accepted, because the leader's log may be compacted.

        :param records: the complete batches in one fetch response.
        :param leader_epoch: the epoch of the leader that sent the batches.
        :raises CorruptBatchError: a batch is damaged, or does not follow the previous batch; nothing was appended.
        :raises ApiError: FENCED_LEADER_EPOCH; nothing was appended.
        :raises StorageError: the write failed; nothing was appended.
        """
        view = memoryview(records)
        while (group := self.begin_append(lambda group: group.replicate(view), leader_epoch)) is None:
            self.roll(read_header(view).base_offset)
        self.write_append(group)
        outcome = self.finish_append(group)
        if not isinstance(outcome, AppendInfo):
            raise outcome
        return outcome

    # --- large appends, in three steps ---

    def begin_append(self, take: Callable[[AppendGroup], bool], leader_epoch: int) -> AppendGroup | None:
        """Start a large append, whose write would block the owner's thread too long.

        `write_append` writes the batches to the file, on any thread. Then `finish_append` completes the append on the
        owner's thread. No other append may run in between.

        :param take: adds one request to a group, with `AppendGroup.take` or `AppendGroup.replicate`.
        :returns: None if the append needs a new segment. The caller must call `roll` and try again.
        :raises BarnabasError: the request was rejected; see `Log.append`.
        """
        if (refusal := self._refusal(leader_epoch)) is not None:
            raise refusal
        group = self._begin_group(leader_epoch)
        return group if take(group) else None

    def write_append(self, group: AppendGroup) -> None:
        """Write the batches of a group.

        Any thread may call this method. If the write fails, `finish_append` returns the error.
        """
        self._unaccounted = group
        try:
            self._health.check()
            if group.chunks:
                self._segments.active.append(group.chunks, self._health)
        except BarnabasError as error:
            group.fail(error)

    def finish_append(self, group: AppendGroup) -> Outcome:
        """Complete an append; return its outcome."""
        self._unaccounted = None
        with suppress(BarnabasError):  # the outcomes contain the error
            self._account_for(group)
        return group.outcomes[0]

    # --- new segments ---

    @property
    def is_roll_due(self) -> bool:
        """True if the active segment is older than `segment.ms` allows."""
        since_ms = self._clock.time_ms() - self.active_since_ms
        return self._segments.active.size > 0 and since_ms > self._config.roll_ms

    def roll(self, base_offset: int | None = None) -> None:
        """Create a new active segment, unless the current one is empty.

        Any thread may call this method while no append runs.

        Usually, the new segment starts at the log end offset, because recovery treats a gap between two segments as a
        loss of records. A gap is only made if the offsets do not fit into the segment, which is empty in this case.

        :param base_offset: the base offset of the new segment if the active segment is empty. It becomes the log end
            offset.
        :raises StorageError: the file system returned an error.
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
        """Return the error if nothing can be appended with this leader epoch, otherwise None."""
        try:
            if self._unaccounted is not None:
                self._health.go_offline("append", RuntimeError("an earlier append did not finish"))
            self._health.check()
        except BarnabasError as error:
            return error
        if leader_epoch < (latest := self._epochs.latest):
            message = f"{self._partition}: leader epoch {leader_epoch} is older than the log's latest epoch {latest}"
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
        """Make the batches of a group visible.

        :raises BarnabasError: the batches must not be acknowledged. The outcomes contain the error.
        """
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
        """Update the state of the log after batches were written.

        :raises BarnabasError: the batches must not be acknowledged.
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
            # If a flush has failed in the meantime, these batches may never reach the disk.
            self._health.check()
        except BarnabasError:
            raise
        except BaseException as error:
            # The log goes offline, because its state is unknown after an unexpected error.
            raise self._health.go_offline("append", error) from error
        self._health.note_success()

"""The checks and stamps of a batch between a request and the write. Pure: buffers in, buffers out.

Invariants. The cost is per batch, never per record; only keys of compacted topics are looked at. `records.scan` accepts
the usual batches by the same rules, and this module finds what is wrong with the others. Both change together.

Threads. Any thread, with buffers of its own.

Errors. CorruptBatchError for damage, ApiError for what a producer may not send.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from barnabas.errors import ApiError, CorruptBatchError, ErrorCode
from barnabas.model import NO_PRODUCER_ID, NO_TIMESTAMP, TimestampType
from barnabas.records.compaction import records_without_key
from barnabas.records.header import (
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    CONTROL_MASK,
    CRC_START,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_MASK,
    BatchHeader,
    check_batch,
    check_structure,
    read_header,
    set_log_append_time,
    stamp,
)
from barnabas.records.scan import (
    PRODUCERS_ATTRIBUTES,
    RELATIVE_OFFSET_MAX,
    count_records,
    max_record_count,
    usual_header,
)
from barnabas.storage.log_config import LogConfig

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

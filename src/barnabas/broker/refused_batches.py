"""Tracks the rejected batches of a connection, to reject the batches that an idempotent producer has already sent after
them.

An idempotent producer has up to five batches in flight (KIP-98). After a batch is rejected, the following batches still
arrive. By then, the reason for the rejection may no longer exist, for example because enough replicas are in sync
again. The log must not get these batches, for two reasons:

- If the log has state for the producer, it would return OUT_OF_ORDER_SEQUENCE_NUMBER, as in Apache Kafka. librdkafka
  then begins a new producer epoch, and sends all unacknowledged records again, to any partition. This duplicates
  records that are already in a log (librdkafka issue 4953).
- If the log has no state for the producer, it rejects a sequence number other than 0 once, and then accepts it
  (KIP-360). But the rejected batch must be appended first, because librdkafka assumes that all batches before an
  acknowledged batch are in the log.

`RefusedBatches` therefore rejects such a batch with the error of the batch before it. The producer then sends all
rejected batches again, in order. Each batch is rejected in this way only once. If it arrives again without the batch
before it, the producer has given up the earlier batch, so the log decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.broker.error_codes import error_code, error_message
from barnabas.broker.topic_names import TOPIC_NAME_CHARACTERS_MAX
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.records.header import BATCH_HEADER_SIZE, SEQUENCE_MAX, BatchHeader, Buffer, read_header

REFUSED_FOR_NOW = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The retriable error codes of batches that are not in the log."""

PLACES_MAX = 1_000
"""The maximum number of partitions with tracked rejections. The oldest partitions are dropped first."""

Place = tuple[str | bytes, int]
"""A topic, by name or id, and a partition number."""


class _Behind(NamedTuple):
    """The batch that the producer sent after a rejected batch, which is expected next."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    code: ErrorCode
    message: str
    """The error message of the rejected batch.

    Keeping the exception would keep its request in memory through the traceback.
    """

    @property
    def error(self) -> ApiError:
        """The error for this batch, which is the error of the rejected batch."""
        return ApiError(self.code, self.message)


class RefusedBatches:
    """The rejected batches of one connection. Used from the event loop's thread only."""

    __slots__ = ("_behind",)

    def __init__(self) -> None:
        self._behind: dict[Place, _Behind] = {}

    def refusals(self, place: Place, requests: Sequence[Buffer]) -> dict[int, BarnabasError]:
        """Return the errors of the batches for a partition that must be rejected without passing them to the log.

        :param requests: the batches, in their order.
        :returns: the errors by index in `requests`. The caller must pass these batches to `note`, too.
        """
        found: dict[int, BarnabasError] = {}
        behind = self._behind.get(place)
        for number, records in enumerate(requests):
            if behind is None:
                break
            header = _header(records)
            if header is not None and _is(behind, header):
                found[number] = behind.error
                behind = _after(header, behind.code, behind.message)
            else:
                # The producer has begun to send batches again, so the log decides.
                behind = None
                del self._behind[place]
        return found

    def note(self, place: Place, records: Buffer, error: BarnabasError) -> BarnabasError:
        """Record a rejected batch, in the order of the batches. Return the error for the producer."""
        header = _header(records)
        if header is None or len(place[0]) > TOPIC_NAME_CHARACTERS_MAX:
            return error
        code = error_code(error)
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # The rejected batch and this batch arrived together, so `refusals` could not reject this batch. The log
            # detected the missing batch.
            behind = self._behind.get(place)
            if behind is None or not _is(behind, header):
                return error
            error = behind.error
        elif code not in REFUSED_FOR_NOW:
            return error
        self._behind.pop(place, None)
        while len(self._behind) >= PLACES_MAX:
            del self._behind[next(iter(self._behind))]
        self._behind[place] = _after(header, error_code(error), error_message(error) or "")
        return error


def _header(records: Buffer) -> BatchHeader | None:
    """Return the header of a batch that has a sequence number, or None. The rest of the batch is not checked yet."""
    if len(records) < BATCH_HEADER_SIZE:
        return None
    header = read_header(records)
    return header if header.producer_id >= 0 and header.base_sequence >= 0 else None


def _is(behind: _Behind, header: BatchHeader) -> bool:
    return (header.producer_id, header.producer_epoch, header.base_sequence) == behind[:3]


def _after(header: BatchHeader, code: ErrorCode, message: str) -> _Behind:
    last = header.last_sequence
    return _Behind(header.producer_id, header.producer_epoch, 0 if last == SEQUENCE_MAX else last + 1, code, message)

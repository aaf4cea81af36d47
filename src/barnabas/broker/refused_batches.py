"""The rejected batches of a connection, and the batches that the producer had already sent behind them.

An idempotent producer has up to five batches in flight (KIP-98). After a rejected batch, the batches behind it still
arrive, possibly when the reason is gone: this broker leads the partition by then, or enough replicas are in sync again.
The log must not see these batches, for two reasons:

- A log with state of the producer would return OUT_OF_ORDER_SEQUENCE_NUMBER, as Apache Kafka's does. librdkafka then
  begins a new epoch, and sends all unacknowledged records again, to any partition. Records that were in a log already
  are then duplicated (librdkafka issue 4953).
- A log without state of the producer rejects a sequence number other than 0 once, and then accepts it (KIP-360). The
  rejected batch must come first: librdkafka assumes that all batches sent before an acknowledged batch are in the log.

`RefusedBatches` therefore rejects such a batch with the error of the batch before it. The producer then sends all of
them again, in order. Each batch is rejected in this way once. If it arrives again without the batch before it, the log
decides, because the producer has given up the earlier batch.
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
"""The retriable error codes for a batch that is not in the log."""

PLACES_MAX = 1_000
"""The maximum number of partitions with remembered batches; the oldest are dropped first."""

Place = tuple[str | bytes, int]
"""A topic, by name or id, and a partition number."""


class _Behind(NamedTuple):
    """The expected batch behind a rejected one."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    code: ErrorCode
    message: str
    """The message of the rejection. The exception itself would keep the request in memory through its traceback."""

    @property
    def error(self) -> ApiError:
        """The error for this batch."""
        return ApiError(self.code, self.message)


class RefusedBatches:
    """The rejected batches of one connection. Used from the event loop's thread only."""

    __slots__ = ("_behind",)

    def __init__(self) -> None:
        self._behind: dict[Place, _Behind] = {}

    def refusals(self, place: Place, requests: Sequence[Buffer]) -> dict[int, BarnabasError]:
        """Return the errors of the batches for a partition that must be rejected before the log sees them.

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
                # The producer has begun again, at the rejected batch or at another one.
                behind = None
                del self._behind[place]
        return found

    def note(self, place: Place, records: Buffer, error: BarnabasError) -> BarnabasError:
        """Record a rejected batch, after all earlier ones; return the error for the producer."""
        header = _header(records)
        if header is None or len(place[0]) > TOPIC_NAME_CHARACTERS_MAX:
            return error
        code = error_code(error)
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # Both batches arrived together, and only the log could detect that the earlier one is missing.
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
    """Return the header of a batch with a sequence number. No other part of the batch has been checked."""
    if len(records) < BATCH_HEADER_SIZE:
        return None
    header = read_header(records)
    return header if header.producer_id >= 0 and header.base_sequence >= 0 else None


def _is(behind: _Behind, header: BatchHeader) -> bool:
    return (header.producer_id, header.producer_epoch, header.base_sequence) == behind[:3]


def _after(header: BatchHeader, code: ErrorCode, message: str) -> _Behind:
    last = header.last_sequence
    return _Behind(header.producer_id, header.producer_epoch, 0 if last == SEQUENCE_MAX else last + 1, code, message)

"""Batches that were refused for now on a connection, and those that their producers had sent right behind them.

An idempotent producer has up to five batches on their way (KIP-98), and learns from an answer that one was refused.
What it has sent behind that one comes nevertheless, perhaps when the reason is gone: the partition is led from here by
now, or enough replicas are in sync again. The log must not judge it then:

- A log that knows the producer would say OUT_OF_ORDER_SEQUENCE_NUMBER, as that of Apache Kafka does. librdkafka takes
  that for a reason to begin a new epoch, in which it sends again what was not acknowledged, to any partition; what
  was in a log already, and not acknowledged yet, is there twice then (librdkafka issue 4953).
- A log that does not know it refuses any number but 0 once, and then takes it (KIP-360): what was refused before it is
  to come first, for librdkafka believes of what it sent before a batch that was acknowledged that it is there too.

So it is refused as the batch before it was: its producer sends all of them again, in order. That is done once for each
batch. One that comes again without the one before it is left to the log, for its producer has given that one up.
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
"""What a producer is told of a batch that is not in the log, and that it is to send again."""

PLACES_MAX = 1_000
"""Of so many partitions it is remembered, of those in which something was refused last."""

Place = tuple[str | bytes, int]
"""Name or id of the topic, and partition."""


class _Behind(NamedTuple):
    """The batch behind one that was refused."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    code: ErrorCode
    message: str
    """Why that one was refused: not the exception, whose traceback keeps all that was sent with it."""

    @property
    def error(self) -> ApiError:
        """What to tell of it."""
        return ApiError(self.code, self.message)


class RefusedBatches:
    """What was refused on one connection. Used from the event loop's thread only."""

    __slots__ = ("_behind",)

    def __init__(self) -> None:
        self._behind: dict[Place, _Behind] = {}

    def refusals(self, place: Place, requests: Sequence[Buffer]) -> dict[int, BarnabasError]:
        """Return which of the batches that come next to a place are to be refused before the log sees them, and why.

        :param requests: a batch each, in their order.
        :returns: the errors by the number of the batch; `note` is to be told of these, too.
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
                # Its producer has begun anew, from the batch that was refused or somewhere else.
                behind = None
                del self._behind[place]
        return found

    def note(self, place: Place, records: Buffer, error: BarnabasError) -> BarnabasError:
        """Note that a batch was refused, after all that was refused before it; return what to tell of it."""
        header = _header(records)
        if header is None or len(place[0]) > TOPIC_NAME_CHARACTERS_MAX:
            return error
        code = error_code(error)
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # Only the log knew that the one before it is not there: both came at once.
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
    """Return the header of a batch with a sequence. Nothing else of it was checked."""
    if len(records) < BATCH_HEADER_SIZE:
        return None
    header = read_header(records)
    return header if header.producer_id >= 0 and header.base_sequence >= 0 else None


def _is(behind: _Behind, header: BatchHeader) -> bool:
    return (header.producer_id, header.producer_epoch, header.base_sequence) == behind[:3]


def _after(header: BatchHeader, code: ErrorCode, message: str) -> _Behind:
    last = header.last_sequence
    return _Behind(header.producer_id, header.producer_epoch, 0 if last == SEQUENCE_MAX else last + 1, code, message)

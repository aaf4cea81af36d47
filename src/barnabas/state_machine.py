"""The interface of a replicated state machine. It takes events and the time, and returns records, replies and a
deadline.

A coordinator (of groups, of transactions) is a state machine over one partition of an internal topic. The runtime
(`barnabas.broker.coordinators`) creates the topic, loads the machine from the log, appends its records, delivers its
replies and calls `tick` at its deadline. The machine is pure: it has no I/O, no clock and no futures.

An event is a method of the machine. It takes the time and returns `Effects`. These rules apply:

- A machine that changes its state only after replication does so in `apply`. The runtime calls `apply` in the order of
  the log: during loading, and for each new record after its replication. If `apply` raises, the runtime closes the
  machine and loads the partition into a new one.
- A machine may change its state in the event, before the record is replicated. If the append fails, `failed` restores
  the state that the log has. The exceptions are in `docs/decisions/026-coordinator-runtime.md`.
- `appended` returns the replies that depend on a record; the event itself does not.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from barnabas.errors import ApiError, ErrorCode

RecordT = TypeVar("RecordT")

Key = bytes
Value = bytes | None
"""The value of a record; None is a tombstone, so compaction removes the key."""


class Reply(NamedTuple):
    """A result and its receiver: a token that the caller of the event passed in."""

    waiter: Any
    result: Any


class Append(Generic[RecordT]):
    """Records that a state machine wants to append. A subclass may hold the requests that wait for the append.

    :param order_key: appends with the same key are in order, one batch each. The runtime writes the next one when the
        previous one is below the high watermark. If an append fails, later appends with the same key fail before it, in
        reverse order. Appends without a key are independent.
    """

    __slots__ = ("order_key", "records")

    def __init__(self, records: Sequence[RecordT], order_key: Hashable | None = None) -> None:
        self.records = records
        self.order_key = order_key


class Effects(NamedTuple, Generic[RecordT]):
    """The result of an event: the replies to send and the records to append."""

    replies: Sequence[Reply] = ()
    """The replies to send now."""
    appends: Sequence[Append[RecordT]] = ()


class StateMachine(Protocol[RecordT]):
    """The methods of a state machine that the runtime calls, besides the events."""

    def apply(self, record: RecordT) -> None:
        """Change the state as the record requires.

        The runtime calls this in the order of the log; an exception ends the machine.
        """

    def loaded(self, now: float, now_ms: int | None) -> Generator[None, None, None]:
        """Start to handle events, after all records of the log were applied. Yield regularly, so that other work can
        run.

        :param now: monotonic time in seconds, as in all methods.
        :param now_ms: wall time in ms; None if the wall clock may be wrong.
        """

    def appended(self, now: float, append: Append[RecordT]) -> Effects[RecordT]:
        """Continue the requests that waited for an append. The records of the append are in the log, and the state
        machine has applied them. The runtime may already have called `unconfirmed` for the same append."""

    def unconfirmed(self, now: float, append: Append[RecordT], error: ApiError) -> Effects[RecordT]:
        """Reply with an error to the requests that wait for an append; keep the state.

        The append timed out, or the records are in the log but lack replicas. The runtime calls `appended` or `failed`
        later, unless the machine is closed.
        """

    def failed(self, now: float, append: Append[RecordT], error: ApiError) -> Effects[RecordT]:
        """Undo the state changes of an append, and reply with an error to the requests that wait: its records are not
        in the log.

        The runtime may have called `unconfirmed` for the same append before.

        :param error: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, or MESSAGE_TOO_LARGE.
        """

    def next_deadline(self) -> float | None:
        """Return the monotonic time of the next `tick`; the time may be in the past."""

    def tick(self, now: float, events_max: int) -> Effects[RecordT]:
        """Handle at most `events_max` due timeouts. The others keep their deadline."""

    def close(self, error: ErrorCode) -> Sequence[Reply]:
        """Stop, and return replies to all waiting requests, except requests that wait for an append."""

    def release(self) -> Iterator[None]:
        """Free the memory of a closed machine step by step. Yield about once per millisecond, so that other work can
        run.
        """


@dataclass(frozen=True, slots=True)
class RecordCodec(Generic[RecordT]):
    """Encodes and decodes the records of a state machine.

    :param encode: takes a record and the time of the append in milliseconds, and returns key and value. Raises
        MalformedMessageError if the record cannot be encoded.
    :param decode: returns the record; None for a record of another kind or of a later version. Raises
        MalformedMessageError.
    """

    encode: Callable[[RecordT, int], tuple[Key, Value]]
    decode: Callable[[bytes | memoryview | None, bytes | memoryview | None], RecordT | None]

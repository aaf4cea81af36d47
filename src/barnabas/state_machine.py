"""The interface of a replicated state machine: events and the time in; records, replies and a deadline out.

A coordinator (of groups, of transactions) is such a machine over one partition of an internal topic. The runtime
(`barnabas.broker.coordinators`) makes the topic, loads the machine from the log, appends its records, delivers its
replies and wakes it at its deadline. The machine is pure: no I/O, no clock, no futures.

An event is a method of the machine. It takes the time and returns `Effects`. The machine keeps these rules:

- A machine that changes its state only when a record is replicated does so in `apply`. The runtime calls `apply` in the
  order of the log: while it loads the partition, and for each own record once the record is in the log and its
  replication has ended. If `apply` raises, the runtime closes the machine and loads the partition into another one.
- A machine may change its state in the event, before the record is replicated. If the append fails, `failed` makes the
  state agree with the log again. The exceptions are in `docs/decisions/026-coordinator-runtime.md`.
- A reply that depends on a record is returned by `appended`, not by the event.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from barnabas.errors import ApiError, ErrorCode

RecordT = TypeVar("RecordT")

Key = bytes
Value = bytes | None
"""None is a tombstone: compaction removes the key."""


class Reply(NamedTuple):
    """A result, and the waiter that it is for: a token that the caller passed in."""

    waiter: Any
    result: Any


class Append(Generic[RecordT]):
    """Records that a state machine wants appended. Its owner may derive from it to note what waits for them.

    :param order_key: appends of one key build on each other. Each is one batch; the next is written when the one before
        is below the high watermark; if one fails, those behind it fail first, the last one before all others. Appends
        without a key are independent.
    """

    __slots__ = ("order_key", "records")

    def __init__(self, records: Sequence[RecordT], order_key: Hashable | None = None) -> None:
        self.records = records
        self.order_key = order_key


class Effects(NamedTuple, Generic[RecordT]):
    """What an event comes to."""

    replies: Sequence[Reply] = ()
    """Those that are due now."""
    appends: Sequence[Append[RecordT]] = ()


class StateMachine(Protocol[RecordT]):
    """What the runtime asks of a state machine besides its events."""

    def apply(self, record: RecordT) -> None:
        """Change the state as a record says. Called in the order of the log; an exception ends the machine."""

    def loaded(self, now: float, now_ms: int | None) -> Generator[None, None, None]:
        """Begin to serve, after all records of the log were applied; yield now and then.

        :param now: monotonic seconds, as everywhere.
        :param now_ms: by the wall clock; None while that is in doubt.
        """

    def appended(self, now: float, append: Append[RecordT]) -> Effects[RecordT]:
        """Go on with what waited for an append: its records are in the log, and applied. `unconfirmed` may have come
        before."""

    def unconfirmed(self, now: float, append: Append[RecordT], error: ApiError) -> Effects[RecordT]:
        """Answer those that wait for an append with an error; keep the state.

        The records took too long, or are in the log with too few replicas. `appended` or `failed` follows, unless the
        machine is closed.
        """

    def failed(self, now: float, append: Append[RecordT], error: ApiError) -> Effects[RecordT]:
        """Roll back what was changed for an append, and answer those that wait for it: its records are not in the log.
        `unconfirmed` may have come before.

        :param error: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, or MESSAGE_TOO_LARGE.
        """

    def next_deadline(self) -> float | None:
        """Return when `tick` is wanted next; it may lie in the past."""

    def tick(self, now: float, events_max: int) -> Effects[RecordT]:
        """Do what has become due, at most so much of it; what is left keeps its deadline."""

    def close(self, error: ErrorCode) -> Sequence[Reply]:
        """Stop: answer everyone who waits for another reason than an append."""

    def release(self) -> Iterator[None]:
        """Free the state of a closed machine, and yield after each slice of about a millisecond."""


@dataclass(frozen=True, slots=True)
class RecordCodec(Generic[RecordT]):
    """Encodes and decodes the records of a state machine.

    :param encode: returns key and value; given the time of the append in milliseconds. Raises MalformedMessageError
        where the record does not fit.
    :param decode: returns the record; None for one of another kind or a later version. Raises MalformedMessageError.
    """

    encode: Callable[[RecordT, int], tuple[Key, Value]]
    decode: Callable[[bytes | memoryview | None, bytes | memoryview | None], RecordT | None]

"""A small replicated state machine: named counters that expire when nobody adds to them.

An event changes the counter at once, so that the next event builds on it; the log has it later. So a failed append must
be rolled back, with those that were built on it.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

from barnabas.errors import ApiError, ErrorCode, MalformedMessageError
from barnabas.state_machine import Append, Effects, RecordCodec, Reply

IDLE_S = 30.0

_VALUE = struct.Struct(">q")


class CounterRecord(NamedTuple):
    """The value of a counter; None: it has expired."""

    name: str
    value: int | None


def encode(record: CounterRecord, _now_ms: int) -> tuple[bytes, bytes | None]:
    if len(record.name) > 1_000_000:
        raise MalformedMessageError(f"a name of {len(record.name)} characters")
    return record.name.encode(), None if record.value is None else _VALUE.pack(record.value)


def decode(key: Any, value: Any) -> CounterRecord | None:
    if key is None:
        raise MalformedMessageError("a record without a key")
    name = bytes(key).decode()
    if name.startswith("another kind"):
        return None
    if value is None:
        return CounterRecord(name, None)
    if len(value) != _VALUE.size:
        raise MalformedMessageError(f"{len(value)} bytes for a value")
    return CounterRecord(name, _VALUE.unpack(value)[0])


COUNTERS = RecordCodec(encode, decode)


class CounterAppend(Append[CounterRecord]):
    """A change of one counter.

    :param before: what the counter was before; None: it did not exist.
    """

    def __init__(self, record: CounterRecord, before: int | None, waiter: Any = None) -> None:
        super().__init__((record,), record.name)
        self.record = record
        self.before = before
        self.waiter = waiter


class CounterMachine:
    """Adds to counters. The reply to `add` is the new value."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        """As the log has them."""
        self.latest: dict[str, int] = {}
        """With what is on its way to the log."""
        self.deadlines: dict[str, float] = {}
        self.is_closed = False

    def idle_s_of(self, _name: str) -> float:
        """Return how long a counter lives without an addition."""
        return IDLE_S

    # -- events --------------------------------------------------------------------------------------------

    def add(self, now: float, waiter: Any, name: str, amount: int) -> Effects[CounterRecord]:
        before = self.latest.get(name)
        after = (before or 0) + amount
        self.latest[name] = after
        self.deadlines[name] = now + self.idle_s_of(name)
        return Effects((), (CounterAppend(CounterRecord(name, after), before, waiter),))

    # -- the runtime ---------------------------------------------------------------------------------------

    def apply(self, record: CounterRecord) -> None:
        if record.value is None:
            self.values.pop(record.name, None)
        else:
            self.values[record.name] = record.value

    def loaded(self, now: float, _now_ms: int | None) -> Generator[None, None, None]:
        for name, value in self.values.items():
            self.latest[name] = value
            self.deadlines[name] = now + self.idle_s_of(name)
            yield

    def appended(self, _now: float, append: Append[CounterRecord]) -> Effects[CounterRecord]:
        assert isinstance(append, CounterAppend)
        return self._answer(append, append.record.value)

    def unconfirmed(self, _now: float, append: Append[CounterRecord], error: ApiError) -> Effects[CounterRecord]:
        assert isinstance(append, CounterAppend)
        return self._answer(append, error)

    def failed(self, now: float, append: Append[CounterRecord], error: ApiError) -> Effects[CounterRecord]:
        assert isinstance(append, CounterAppend)
        self.roll_back(now, append)
        return self._answer(append, error)

    def roll_back(self, now: float, append: CounterAppend) -> None:
        name = append.record.name
        if append.before is None:
            self.latest.pop(name, None)
            self.deadlines.pop(name, None)
        else:
            self.latest[name] = append.before
            self.deadlines.setdefault(name, now + self.idle_s_of(name))

    def next_deadline(self) -> float | None:
        return min(self.deadlines.values(), default=None)

    def tick(self, now: float, events_max: int) -> Effects[CounterRecord]:
        due = [name for name, deadline in self.deadlines.items() if deadline <= now][:events_max]
        appends = []
        for name in due:
            del self.deadlines[name]
            appends.append(CounterAppend(CounterRecord(name, None), self.latest.pop(name)))
        return Effects((), appends)

    def close(self, _error: ErrorCode) -> Sequence[Reply]:
        self.is_closed = True
        return ()

    def release(self) -> Iterator[None]:
        while self.latest:
            self.latest.popitem()
            yield

    def _answer(self, append: CounterAppend, result: Any) -> Effects[CounterRecord]:
        waiter, append.waiter = append.waiter, None
        return Effects(() if waiter is None else (Reply(waiter, result),))

"""Interceptors: code of the application at fixed points of a client.

A producer calls `on_send` before a record enters its batch, and `on_delivery` when the outcome of a batch is known, or
when the producer refuses a record. A consumer calls `on_records` when it has decoded records for the application, and
`on_commit` after a commit.

The hooks for records have a second form for batches. A client calls the batch form of a class that overrides it, else
the record form, and nothing where a class overrides neither. It looks up the overridden hooks once, at construction: a
hook that nobody overrides costs nothing, and a class with batch forms alone costs nothing per record.

A hook that raises does no harm. The client goes on without its result, and logs the exception once for each class of
interceptor, hook and type of exception.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from barnabas.client.cluster import Cluster
from barnabas.clock import Clock
from barnabas.errors import BarnabasError, ConfigurationError
from barnabas.metrics.otlp import Point
from barnabas.model import (
    NO_OFFSET,
    NO_TIMESTAMP,
    Header,
    Headers,
    OffsetAndMetadata,
    RecordHeader,
    TimestampType,
    TopicPartition,
)
from barnabas.records import Record

log = logging.getLogger(__name__)

WAIT_S_MAX = 30.0
"""Time limit of a hook that is awaited, if the caller sets none."""

GRACE_S = 1.0
"""Time beyond the caller's limit after which the client cancels a hook that is awaited."""

UNKNOWN_PARTITION = -1
"""The partition of a refused record for which none was chosen."""

InterceptorT = TypeVar("InterceptorT")
BatchT = TypeVar("BatchT", bound="SendBatch")
Buffer = bytes | bytearray | memoryview


class ProducerRecord(NamedTuple):
    """A record before its batch: the key and the value are serialized, and the partition may be open."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    """None: the key and the partitioner choose the partition."""
    timestamp_ms: int | None = None
    """The event time in milliseconds since 1970; None: the time of `send`."""
    headers: Headers = ()

    def with_headers(self, *headers: Header) -> ProducerRecord:
        """Return the same record with these headers after its own.

        >>> ProducerRecord("clicks", b"/jobs").with_headers(("trace", b"7")).headers
        (('trace', b'7'),)
        """
        return self._replace(headers=(*self.headers, *headers))


class SendBatch(ABC):
    """The records of one call of `send_many` or `send_arrow`."""

    topic: str

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of records."""

    @abstractmethod
    def records(self) -> list[ProducerRecord]:
        """Return the records as objects, which costs time for each."""

    @abstractmethod
    def with_records(self, records: Sequence[ProducerRecord]) -> SendBatch:
        """Return a batch that sends these records in place of its own, one for one.

        :raises ValueError: the number of records differs.
        :raises TypeError: an element is not a valid record.
        :raises ConfigurationError: a record names another topic, or a partition that does not exist.
        :raises ApiError: MESSAGE_TOO_LARGE.
        """

    def with_headers(self, *headers: Header) -> SendBatch:
        """Return a batch whose records have these headers after their own. Errors are those of `with_records`."""
        return self.with_records([record.with_headers(*headers) for record in self.records()])


class RecordCounts(Protocol):
    """What an encoder knows of its records."""

    @property
    def count(self) -> int: ...
    @property
    def min_timestamp_ms(self) -> int: ...
    @property
    def max_timestamp_ms(self) -> int: ...


class SentBatch(Protocol):
    """A record batch of a producer whose outcome is known. Valid until the hook returns."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def producer_id(self) -> int:
        """Return the producer id; -1 without idempotence."""
        ...

    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int:
        """Return the sequence number of the first record; -1: it has none."""
        ...

    @property
    def in_sequence(self) -> bool:
        """Return whether the batch has a sequence number, so that a broker may have seen the batch."""
        ...

    @property
    def attempts(self) -> int:
        """Return the number of requests that carried the batch."""
        ...

    @property
    def base_offset(self) -> int:
        """Return the offset of the first record; -1: unknown."""
        ...

    @property
    def log_append_time_ms(self) -> int:
        """Return the timestamp that the broker gave all records; -1: they keep their own."""
        ...

    @property
    def builder(self) -> RecordCounts:
        """Return the number of records, and the earliest and the latest timestamp."""
        ...

    @property
    def data(self) -> Buffer | None:
        """Return the encoded batch; None: it was not built yet."""
        ...

    @property
    def count(self) -> int:
        """Return the number of records."""
        ...

    def payload(self) -> Buffer:
        """Return the encoded batch."""
        ...

    def records(self) -> list[Record]:
        """Return the records as objects, decoded for this call; their offset is -1 where it is unknown."""
        ...


DeliveryHook = Callable[[SentBatch, BarnabasError | None], object]


class FetchedBatch(ABC):
    """Records of one partition that a consumer has decoded, as objects or as columns.

    The same records may come again: after a seek, a rebalance, or an interrupted poll.

    :ivar position: the position of the partition; the records begin there, or later.
    """

    partition: TopicPartition
    position: int

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of records."""

    @abstractmethod
    def records(self) -> Sequence[Record]:
        """Return the records, before deserializers. For columns this decodes them once more."""

    @abstractmethod
    def stretches(self, width_ms: int) -> list[tuple[int, int, int]]:
        """Return the records by windows of their timestamps, without objects for records.

        :param width_ms: of a window.
        :return: for each run of consecutive offsets in the same window: its first offset, the number of its records,
            the begin of the window in ms (-1 for records without a timestamp).
        """


@dataclass(frozen=True, slots=True)
class ClientContext:
    """The client that an interceptor belongs to.

    :ivar group: the consumer's group; None for a producer, and for a consumer without a group.
    :ivar cluster: the client's connections. Internal: no promise of compatibility covers it.
    :ivar locked: returns a context in which no other thread changes the consumer's positions.
    :ivar positions: returns the position of each partition of a consumer: the offset after the last record that the
        application has.
    :ivar standard_metrics: returns the client's metrics as KIP-714 names them; counters begin with zero.
    """

    client_id: str
    group: str | None
    request_timeout_ms: int
    clock: Clock
    cluster: Cluster
    locked: Callable[[], AbstractContextManager[object]]
    positions: Callable[[], Mapping[TopicPartition, int | None]]
    standard_metrics: Callable[[], Iterable[Point]] = tuple


class ProducerInterceptor:
    """Base class of a producer's interceptors. Override the hooks that you need; the others cost nothing.

    Sends and deliveries wait for hooks, so hooks should be quick. What `start`, `flush` and `close` return is awaited
    on the producer's event loop if it is awaitable, for at most `WAIT_S_MAX`. An instance belongs to one producer.

        class Tracing(barnabas.ProducerInterceptor):
            def on_send(self, record):
                return record.with_headers(("traceparent", current_trace()))

        producer = barnabas.Producer("localhost:9092", interceptors=[Tracing()])
    """

    def start(self, context: ClientContext) -> Awaitable[None] | None:
        """Begin. The producer calls this once, before it delivers the first record."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """Return the record to send in place of `record`; None leaves `record` as it is.

        The thread or task that sends calls this, after the serialisers and before the partition is chosen. The records
        of `send_many` and `send_arrow` come one by one unless the class overrides `on_send_batch`. A record of another
        topic, or one that the producer would refuse, counts as an exception of this hook.
        """

    def on_send_batch(self, batch: SendBatch) -> SendBatch | None:
        """Return the batch to send in place of `batch`, made by `with_headers` or `with_records`; None leaves it.

        Called once for each `send_many` and `send_arrow`, like `on_send`; not for `send`.
        """

    def on_delivery(self, record: Record, error: BarnabasError | None) -> None:
        """Look at a record whose outcome is known.

        The producer's event loop calls this before deliveries and their callbacks know the outcome.

        A record may be refused after `on_send`: it is too large, memory is full, the producer is closed, the call is
        cancelled. Then the thread or task that sends calls this, before the call raises. If `send_many` or `send_arrow`
        refuses a record, this gets each record of the call that is in no batch.

        :param record: its offset is -1 where it is unknown. The same holds for the partition and the timestamp of a
            refused record.
        :param error: why the record was not delivered; None: it was. The `__cause__` of a plain `BarnabasError` is
            the exception with which another part refused the record, for example the partitioner.
        """

    def on_delivery_batch(self, batch: SentBatch, error: BarnabasError | None) -> None:
        """Look at a record batch whose outcome is known, in place of `on_delivery`. No records are decoded.

        A refused record is in no batch. `on_delivery` gets it, also in a class that overrides both.
        """

    def flush(self, timeout_s: float | None) -> Awaitable[None] | None:
        """Finish what `flush` of the producer should wait for. Called when all records sent so far are settled.

        :param timeout_s: the time that is left; None: no limit.
        """

    def close(self, timeout_s: float | None) -> Awaitable[None] | None:
        """End. Called once, when all records are settled, while the connections are still open.

        :param timeout_s: a limit for this call; None: no limit but the client's.
        """


class ConsumerInterceptor:
    """Base class of a consumer's interceptors. Override the hooks that you need; the others cost nothing.

    What `start`, `before_commit` and `close` return is awaited on the consumer's event loop if it is awaitable. An
    instance belongs to one consumer.
    """

    def start(self, context: ClientContext) -> Awaitable[None] | None:
        """Begin. The consumer calls this once, before it hands out the first record."""

    def on_records(self, records: Sequence[Record]) -> None:
        """Look at records before the application gets them, and before deserializers.

        The thread or task that polls calls this, once for each fetched chunk of a partition, in all ways of reading.
        For `poll_arrow` and its kin the records are decoded for this hook alone: `on_records_batch` avoids that.
        """

    def on_records_batch(self, batch: FetchedBatch) -> None:
        """Look at decoded records, in place of `on_records`, without an object for each.

        Called under the consumer's lock, so that no seek comes in between: be quick, and never wait.
        """

    def on_reposition(self, reached: Mapping[TopicPartition, int | None]) -> None:
        """Learn that positions are about to change in another way than by reading.

        Called under the consumer's lock before a seek, a reset, and when partitions are given up. What was decoded of
        these partitions and lies at or after the offset is not handed out.

        :param reached: the offset after the last record that the application has; None where it is unknown.
        """

    def before_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float | None
    ) -> Awaitable[None] | None:
        """Finish what must come before the group's offsets are committed. The commit waits for this call.

        :param timeout_s: the time limit of the commit; None: the default.
        """

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Look at offsets that were committed for the group, by a call or by auto-commit.

        The consumer's event loop calls this.
        """

    def close(self, timeout_s: float | None) -> Awaitable[None] | None:
        """End. Called once, after the last commit, while the connections are still open.

        :param timeout_s: a limit for this call; None: no limit but the client's.
        """


class Hook(NamedTuple):
    """A method of an interceptor."""

    call: Callable[..., Any]
    interceptor: object
    name: str


class HookCalls:
    """Calls hooks, and keeps their exceptions from the client. Thread-safe."""

    def __init__(self) -> None:
        self._logged: set[tuple[type, str, type]] = set()

    def note(self, hook: Hook, error: Exception) -> None:
        """Log an exception, the first of its kind with its traceback."""
        kind = (type(hook.interceptor), hook.name, type(error))
        if kind not in self._logged:
            self._logged.add(kind)
            log.warning(
                "interceptor %s raised %r in %s; the client ignores it, and logs no other %s of this hook",
                kind[0].__qualname__, error, hook.name, kind[2].__name__, exc_info=error,
            )  # fmt: skip

    def call_all(self, hooks: Iterable[Hook], *arguments: object) -> None:
        """Call hooks that return nothing."""
        for hook in hooks:
            try:
                hook.call(*arguments)
            except Exception as error:  # noqa: BLE001 - of the application's own code
                self.note(hook, error)

    async def await_all(self, hooks: Iterable[Hook], *arguments: object) -> None:
        """Call hooks one after the other, and await what they return; cancel a hook after `WAIT_S_MAX`."""
        for hook in hooks:
            await self._await(hook, WAIT_S_MAX, *arguments)

    async def await_within(self, timeout_s: float | None, hooks: Iterable[Hook], *arguments: object) -> None:
        """Do as `await_all` does, within a time. Each hook gets the time that is left as its last argument.

        :param timeout_s: for all hooks together; a hook that takes longer is cancelled `GRACE_S` later. None: no limit
            but `WAIT_S_MAX` for each.
        """
        now_s = asyncio.get_running_loop().time
        deadline_s = None if timeout_s is None else now_s() + timeout_s
        for hook in hooks:
            left_s = None if deadline_s is None else max(0.0, deadline_s - now_s())
            await self._await(hook, WAIT_S_MAX if left_s is None else left_s + GRACE_S, *arguments, left_s)

    async def _await(self, hook: Hook, limit_s: float, *arguments: object) -> None:
        try:
            outcome = hook.call(*arguments)
            if inspect.isawaitable(outcome):
                async with asyncio.timeout(limit_s):
                    await outcome
        except TimeoutError as error:
            self.note(hook, error if str(error) else TimeoutError(f"not done after {limit_s:g} s"))
        except Exception as error:  # noqa: BLE001 - of the application's own code
            self.note(hook, error)


def _hooks(interceptors: Iterable[object], base: type, *names: str) -> tuple[Hook, ...]:
    """Return for each interceptor its first method of these names that overrides the one of the base class."""
    found = []
    for interceptor in interceptors:
        for name in names:
            method = getattr(interceptor, name)
            if getattr(method, "__func__", None) is not getattr(base, name):
                found.append(Hook(method, interceptor, name))
                break
    return tuple(found)


def _checked(given: Iterable[InterceptorT], base: type[InterceptorT]) -> list[InterceptorT]:
    """:raises ConfigurationError: an element is no interceptor of this kind of client."""
    interceptors = list(given)
    for each in interceptors:
        if not isinstance(each, base):
            raise ConfigurationError(f"interceptors are instances of {base.__name__}, not {each!r}")
    return interceptors


class ProducerInterceptors:
    """All interceptors of one producer, in the order in which they are called.

    :ivar delivery_hooks: the accumulator calls these with each settled batch; `delivery_failed` takes what they raise.
    :ivar see_send: whether `on_send` has to be called, or `refused` after it.
    :ivar see_batches: whether `on_send_batch` has to be called, or `refused` after it.
    :raises ConfigurationError: an element is no `ProducerInterceptor`.
    """

    def __init__(self, interceptors: Iterable[ProducerInterceptor] = ()) -> None:
        base = ProducerInterceptor
        every = _checked(interceptors, base)
        self._calls = HookCalls()
        self._send = _hooks(every, base, "on_send")
        self._send_batch = _hooks(every, base, "on_send_batch", "on_send")
        self._delivery = _hooks(every, base, "on_delivery_batch", "on_delivery")
        self._refusal = _hooks(every, base, "on_delivery")
        self._start = _hooks(every, base, "start")
        self._flush = _hooks(every, base, "flush")
        self._close = _hooks(every, base, "close")
        self._has_started = False
        self.see_send = bool(self._send or self._refusal)
        self.see_batches = bool(self._send_batch or self._refusal)
        self.delivery_hooks: tuple[DeliveryHook, ...] = tuple(
            hook.call if hook.name == "on_delivery_batch" else _RecordDeliveries(hook, self._calls)
            for hook in self._delivery
        )

    def on_send(self, record: ProducerRecord, check: Callable[[ProducerRecord], None]) -> ProducerRecord:
        """Return the record to send in place of one.

        :param check: raises where a record cannot be sent to the topic of `record`.
        """
        for hook in self._send:
            record = self._replaced(hook, record, check)
        return record

    def _replaced(self, hook: Hook, record: ProducerRecord, check: Callable[[ProducerRecord], None]) -> ProducerRecord:
        try:
            other = hook.call(record)
            if other is None or other is record:
                return record
            check_topic(other, record.topic)
        except Exception as error:  # noqa: BLE001 - of the application's own code
            self._calls.note(hook, error)
            return record
        refusal = _reason_to_refuse(other, check)
        if refusal is not None and type(_reason_to_refuse(record, check)) is not type(refusal):
            self._calls.note(hook, refusal)
            return record
        # If the producer refuses the record with or without the hook, `refused` gets the record of the hook.
        return other  # type: ignore[no-any-return]  # check_topic has checked the type

    def on_send_batch(
        self,
        batch: BatchT,
        check: Callable[[ProducerRecord], None],
        remake: Callable[[BatchT, list[ProducerRecord]], BatchT],
    ) -> BatchT:
        """Return the batch to send in place of one; see `on_send`.

        :param remake: returns the batch with other records, without a check of them.
        """
        for hook in self._send_batch:
            if hook.name == "on_send":
                before = batch.records()
                after = [self._replaced(hook, record, check) for record in before]
                if any(one is not other for one, other in zip(before, after, strict=True)):
                    batch = remake(batch, after)
            else:
                batch = self._replaced_batch(hook, batch)
        return batch

    def _replaced_batch(self, hook: Hook, batch: BatchT) -> BatchT:
        try:
            other = hook.call(batch)
            return batch if other is None else _made_of(batch, other)
        except Exception as error:  # noqa: BLE001 - of the application's own code
            self._calls.note(hook, error)
            return batch

    def refused(self, records: Iterable[ProducerRecord], error: BaseException) -> None:
        """Pass records that the producer refused to `on_delivery`.

        :param error: the exception that the caller of the producer gets.
        """
        if self._refusal:
            reason = _as_barnabas_error(error)
            for record in records:
                self._calls.call_all(self._refusal, _undelivered(record), reason)

    def delivery_failed(self, hook: DeliveryHook, error: Exception) -> None:
        """Note that one of `delivery_hooks` raised."""
        self._calls.note(self._delivery[self.delivery_hooks.index(hook)], error)

    async def start(self, context: ClientContext) -> None:
        """Let all begin."""
        self._has_started = True
        await self._calls.await_all(self._start, context)

    @property
    def have_flush(self) -> bool:
        """Whether one has to be flushed."""
        return bool(self._flush)

    async def flush(self, timeout_s: float | None) -> None:
        """Let all finish what the producer's `flush` waits for."""
        await self._calls.await_within(timeout_s, self._flush)

    async def close(self, timeout_s: float | None = None) -> None:
        """End all that have begun."""
        if self._has_started:
            self._has_started = False
            await self._calls.await_within(timeout_s, self._close)


def _reason_to_refuse(record: ProducerRecord, check: Callable[[ProducerRecord], None]) -> Exception | None:
    """Return the exception with which the producer would refuse a record; None: it would not."""
    try:
        check(record)
    except Exception as error:  # noqa: BLE001 - the caller notes it
        return error
    return None


def _undelivered(record: ProducerRecord) -> Record:
    """Return a record that is in no batch as `on_delivery` gets it."""
    try:
        headers = tuple(RecordHeader(*header) for header in record.headers)
    except TypeError:  # perhaps why the producer refused the record
        headers = ()
    return Record(
        record.topic,
        UNKNOWN_PARTITION if record.partition is None else record.partition,
        NO_OFFSET,
        NO_TIMESTAMP if record.timestamp_ms is None else record.timestamp_ms,
        TimestampType.CREATE_TIME,
        record.key,
        record.value,
        headers,
    )


def _as_barnabas_error(error: BaseException) -> BarnabasError:
    """Return an error as it is; for another exception an error whose cause it is."""
    if isinstance(error, BarnabasError):
        return error
    made = BarnabasError(f"the record was not sent: {error!r}")
    made.__cause__ = error
    return made


class _RecordDeliveries:
    """Calls `on_delivery` of one interceptor with each record of a batch."""

    def __init__(self, hook: Hook, calls: HookCalls) -> None:
        self._hook = hook
        self._calls = calls

    def __call__(self, batch: SentBatch, error: BarnabasError | None) -> None:
        for record in batch.records():
            self._calls.call_all((self._hook,), record, error)


class ConsumerInterceptors:
    """All interceptors of one consumer, in the order in which they are called.

    :ivar see_batches: whether `on_records_batch` has to be called.
    :ivar see_records: whether `on_records` has to be called.
    :ivar see_repositions: whether `on_reposition` has to be called.
    :raises ConfigurationError: an element is no `ConsumerInterceptor`.
    """

    def __init__(self, interceptors: Iterable[ConsumerInterceptor] = ()) -> None:
        base = ConsumerInterceptor
        every = _checked(interceptors, base)
        self._calls = HookCalls()
        reading = _hooks(every, base, "on_records_batch", "on_records")
        self._batches = tuple(hook for hook in reading if hook.name == "on_records_batch")
        self._records = tuple(hook for hook in reading if hook.name == "on_records")
        self._reposition = _hooks(every, base, "on_reposition")
        self._before_commit = _hooks(every, base, "before_commit")
        self._commit = _hooks(every, base, "on_commit")
        self._start = _hooks(every, base, "start")
        self._close = _hooks(every, base, "close")
        self._has_started = False
        self.see_batches = bool(self._batches)
        self.see_records = bool(self._records)
        self.see_repositions = bool(self._reposition)

    def on_records_batch(self, batch: FetchedBatch) -> None:
        """Show decoded records, under the consumer's guard."""
        self._calls.call_all(self._batches, batch)

    def on_records(self, records: Sequence[Record]) -> None:
        """Show records, without the guard."""
        if records:
            self._calls.call_all(self._records, tuple(records))

    def on_reposition(self, reached: Mapping[TopicPartition, int | None]) -> None:
        """Announce that positions change, under the consumer's guard."""
        if reached:
            self._calls.call_all(self._reposition, reached)

    async def before_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float | None) -> None:
        """Let all finish what comes before a commit."""
        await self._calls.await_within(timeout_s, self._before_commit, offsets)

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Show committed offsets."""
        self._calls.call_all(self._commit, offsets)

    async def start(self, context: ClientContext) -> None:
        """Let all begin."""
        self._has_started = True
        await self._calls.await_all(self._start, context)

    async def close(self, timeout_s: float | None = None) -> None:
        """End all that have begun."""
        if self._has_started:
            self._has_started = False
            await self._calls.await_within(timeout_s, self._close)


def _made_of(batch: BatchT, other: object) -> BatchT:
    """Return `other`.

    :raises TypeError: `with_headers` or `with_records` of this batch did not make it.
    """
    if not isinstance(other, type(batch)) or other.topic != batch.topic or len(other) != len(batch):
        raise TypeError(f"on_send_batch must return what with_headers or with_records made, not {other!r}")
    return other


def check_topic(record: object, topic: str) -> None:
    """:raises TypeError: not a record. :raises ConfigurationError: a record of another topic."""
    if not isinstance(record, ProducerRecord):
        raise TypeError(f"on_send must return a ProducerRecord, not {type(record).__name__}")
    if record.topic != topic:
        raise ConfigurationError(f"an interceptor cannot send a record of topic {topic!r} to {record.topic!r}")

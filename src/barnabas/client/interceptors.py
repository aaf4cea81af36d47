"""Interceptors: hooks of the application in a producer or consumer.

A producer calls `on_send` before a record enters its batch. It calls `on_delivery` when a batch is acknowledged or has
failed, or when the producer refuses a record. A consumer calls `on_records` when it has decoded records for the
application, and `on_commit` after a commit.

Each hook for records also has a form for batches. A client calls the batch form if the class overrides it, and
otherwise the record form if the class overrides that. The client looks up the overridden hooks once, in its
constructor. So a hook that no class overrides costs nothing, and a class that overrides only batch forms adds no cost
per record.

If a hook raises an exception, the client continues as if there were no hook. It logs the exception once for each
interceptor class, hook and exception type.
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
"""The time limit in seconds of an awaited hook, if the caller sets none."""

GRACE_S = 1.0
"""The time in seconds that an awaited hook may exceed the caller's timeout before the client cancels the hook."""

UNKNOWN_PARTITION = -1
"""The partition number of a record that the producer refuses before it has chosen a partition."""

InterceptorT = TypeVar("InterceptorT")
BatchT = TypeVar("BatchT", bound="SendBatch")
Buffer = bytes | bytearray | memoryview


class ProducerRecord(NamedTuple):
    """A record that is not in a batch yet. Key and value are serialized; the partition may be undecided."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    """The partition, or None if the partitioner will choose it."""
    timestamp_ms: int | None = None
    """The event time in ms since the epoch, or None for the time of `send`."""
    headers: Headers = ()

    def with_headers(self, *headers: Header) -> ProducerRecord:
        """Return a copy of the record with additional headers at the end.

        >>> ProducerRecord("clicks", b"/jobs").with_headers(("trace", b"7")).headers
        (('trace', b'7'),)
        """
        return self._replace(headers=(*self.headers, *headers))


class SendBatch(ABC):
    """The records of one `send_many` or `send_arrow` call."""

    topic: str

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of records."""

    @abstractmethod
    def records(self) -> list[ProducerRecord]:
        """Return the records as objects. The cost grows with the number of records."""

    @abstractmethod
    def with_records(self, records: Sequence[ProducerRecord]) -> SendBatch:
        """Return a batch that sends these records instead. Their number must be the same.

        :raises ValueError: the number of records differs.
        :raises TypeError: an element is not a valid record.
        :raises ConfigurationError: a record names another topic, or a partition that does not exist.
        :raises ApiError: MESSAGE_TOO_LARGE.
        """

    def with_headers(self, *headers: Header) -> SendBatch:
        """Return a batch whose records have additional headers at the end. Raises the same errors as `with_records`."""
        return self.with_records([record.with_headers(*headers) for record in self.records()])


class RecordCounts(Protocol):
    """The number of records in an encoder, and their earliest and latest timestamp."""

    @property
    def count(self) -> int: ...
    @property
    def min_timestamp_ms(self) -> int: ...
    @property
    def max_timestamp_ms(self) -> int: ...


class SentBatch(Protocol):
    """A producer's record batch that is acknowledged or has failed. Valid until the hook returns."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def producer_id(self) -> int:
        """Return the producer id, or -1 if the producer is not idempotent."""
        ...

    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int:
        """Return the sequence number of the first record, or -1 if it has none."""
        ...

    @property
    def in_sequence(self) -> bool:
        """Return whether the batch has a sequence number, so that a broker may have received it."""
        ...

    @property
    def attempts(self) -> int:
        """Return the number of requests that contained the batch."""
        ...

    @property
    def base_offset(self) -> int:
        """Return the offset of the first record, or -1 if it is unknown."""
        ...

    @property
    def log_append_time_ms(self) -> int:
        """Return the timestamp in ms that the broker has set for all records, or -1 if the records keep their own
        timestamps.
        """
        ...

    @property
    def builder(self) -> RecordCounts:
        """Return the encoder, which provides the number of records, and their earliest and latest timestamp."""
        ...

    @property
    def data(self) -> Buffer | None:
        """Return the encoded batch, or None if it is not encoded yet."""
        ...

    @property
    def count(self) -> int:
        """Return the number of records."""
        ...

    def payload(self) -> Buffer:
        """Return the encoded batch."""
        ...

    def records(self) -> list[Record]:
        """Return the decoded records. Each call decodes the batch; unknown offsets are -1."""
        ...


DeliveryHook = Callable[[SentBatch, BarnabasError | None], object]


class FetchedBatch(ABC):
    """Records of one partition that a consumer has decoded, as objects or as columns.

    A consumer may decode the same records again after a seek, a rebalance, or an interrupted poll.

    :ivar position: the position of the partition; the records begin at this offset or later.
    """

    partition: TopicPartition
    position: int

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of records."""

    @abstractmethod
    def records(self) -> Sequence[Record]:
        """Return the records without deserialization. If they were decoded to columns, this call decodes them again."""

    @abstractmethod
    def stretches(self, width_ms: int) -> list[tuple[int, int, int]]:
        """Group consecutive records in the same window into ranges, without creating record objects.

        :param width_ms: the width of a window.
        :return: for each range: the first offset, the number of records, and the start of the window in ms since the
            epoch (-1 for records without a timestamp).
        """


@dataclass(frozen=True, slots=True)
class ClientContext:
    """The client that an interceptor belongs to.

    :ivar group: the consumer's group; None for a producer, and for a consumer without a group.
    :ivar cluster: the client's connections. This attribute is internal and may change in any version.
    :ivar locked: returns a context manager; inside it, no other thread changes the consumer's positions.
    :ivar positions: returns the position of each partition of a consumer: the offset after the last record that the
        application has received.
    :ivar standard_metrics: returns the client's metrics under the names of KIP-714; counters begin at zero.
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
    """The base class of interceptors of a producer. Override the hooks that you need; all other hooks cost nothing.

    Hooks must be fast, because they delay sends and deliveries. `start`, `flush` and `close` may return an awaitable.
    The producer awaits it on its event loop, for at most `WAIT_S_MAX` seconds. An instance belongs to one producer.

        class Tracing(barnabas.ProducerInterceptor):
            def on_send(self, record):
                return record.with_headers(("traceparent", current_trace()))

        producer = barnabas.Producer("localhost:9092", interceptors=[Tracing()])
    """

    def start(self, context: ClientContext) -> Awaitable[None] | None:
        """Start the interceptor. The producer calls this once, before it sends the first batch."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """Return the record to send instead of `record`, or None to send `record` unchanged.

        The sending thread or task calls this, after the serializers and before the choice of the partition. The records
        of `send_many` and `send_arrow` are passed one by one, unless the class overrides `on_send_batch`. A result with
        another topic, or a record that the producer would refuse, is treated like an exception of this hook.
        """

    def on_send_batch(self, batch: SendBatch) -> SendBatch | None:
        """Return the batch to send instead of `batch`, or None to send `batch` unchanged.

        The result must come from `with_headers` or `with_records`. The producer calls this once for each `send_many`
        and `send_arrow`, but not for `send`.
        """

    def on_delivery(self, record: Record, error: BarnabasError | None) -> None:
        """Handle a record that is acknowledged or has failed.

        The producer's event loop calls this before the deliveries and their callbacks receive the outcome.

        The producer may refuse a record after `on_send`, because the record is too large, memory is full, the producer
        is closed, or the call is cancelled. In this case, the sending thread or task calls this hook before the call
        raises. If `send_many` or `send_arrow` refuses a record, the producer calls this hook for each record of the
        call that is in no batch.

        :param record: the record; an unknown offset is -1. A refused record may also have an unknown partition and
            timestamp.
        :param error: the reason of the failure; None if the record was delivered. If the partitioner or another
            component has raised an exception of another type, the error is a `BarnabasError` with this exception as its
            `__cause__`.
        """

    def on_delivery_batch(self, batch: SentBatch, error: BarnabasError | None) -> None:
        """Handle a record batch that is acknowledged or has failed, instead of `on_delivery`.

        The records are not decoded.

        A refused record is in no batch. The producer calls `on_delivery` for it, even if the class overrides both
        hooks.
        """

    def flush(self, timeout_s: float | None) -> Awaitable[None] | None:
        """Finish the work that the producer's `flush` must wait for.

        Called when all records sent so far have an outcome.

        :param timeout_s: the remaining time in seconds, or None if there is no timeout.
        """

    def close(self, timeout_s: float | None) -> Awaitable[None] | None:
        """Stop the interceptor. Called once, when all records have an outcome, before the connections are closed.

        :param timeout_s: the time limit of this call in seconds; None means `WAIT_S_MAX`.
        """


class ConsumerInterceptor:
    """The base class of interceptors of a consumer. Override the hooks that you need; all other hooks cost nothing.

    `start`, `before_commit` and `close` may return an awaitable: the consumer awaits it on its event loop. An instance
    belongs to one consumer.
    """

    def start(self, context: ClientContext) -> Awaitable[None] | None:
        """Start the interceptor. The consumer calls this once, before it returns the first record."""

    def on_records(self, records: Sequence[Record]) -> None:
        """Handle records before the deserializers run and the application gets them.

        The polling thread or task calls this once for each fetched chunk of a partition. `poll_arrow` and similar
        methods must decode the records to objects for this hook only; `on_records_batch` avoids this cost.
        """

    def on_records_batch(self, batch: FetchedBatch) -> None:
        """Handle decoded records, instead of `on_records`, without an object for each record.

        The consumer holds its lock during the call, so positions do not change. The hook must be fast and must not
        wait.
        """

    def on_reposition(self, reached: Mapping[TopicPartition, int | None]) -> None:
        """Handle a change of positions other than by reading. The consumer calls this with its lock held before a seek
        or a reset, and when it gives up partitions. Decoded records at or after the reached offset are not returned to
        the application.

        :param reached: the offset after the last record that the application has received; None if it is unknown.
        """

    def before_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float | None
    ) -> Awaitable[None] | None:
        """Finish the work that must precede a commit of the group's offsets. The commit waits for this call.

        :param timeout_s: the timeout of the commit in seconds, or None for the default timeout.
        """

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Handle committed offsets of the group, after a call of `commit` or an auto-commit. The consumer's event loop
        calls this.
        """

    def close(self, timeout_s: float | None) -> Awaitable[None] | None:
        """Stop the interceptor. Called once, after the last commit, before the connections are closed.

        :param timeout_s: the time limit of this call in seconds; None means `WAIT_S_MAX`.
        """


class Hook(NamedTuple):
    """A method of an interceptor."""

    call: Callable[..., Any]
    interceptor: object
    name: str


class HookCalls:
    """Calls hooks, and catches and logs their exceptions. Thread-safe."""

    def __init__(self) -> None:
        self._logged: set[tuple[type, str, type]] = set()

    def note(self, hook: Hook, error: Exception) -> None:
        """Log an exception of a hook, unless an exception of the same kind was logged before."""
        kind = (type(hook.interceptor), hook.name, type(error))
        if kind not in self._logged:
            self._logged.add(kind)
            log.warning(
                "interceptor %s raised %r in %s; the client ignores it, and does not log further %s of this hook",
                kind[0].__qualname__, error, hook.name, kind[2].__name__, exc_info=error,
            )  # fmt: skip

    def call_all(self, hooks: Iterable[Hook], *arguments: object) -> None:
        """Call hooks and ignore their results."""
        for hook in hooks:
            try:
                hook.call(*arguments)
            except Exception as error:  # noqa: BLE001 - the application's hook may raise any exception
                self.note(hook, error)

    async def await_all(self, hooks: Iterable[Hook], *arguments: object) -> None:
        """Call hooks one after another, and await their results. A hook is cancelled after `WAIT_S_MAX`."""
        for hook in hooks:
            await self._await(hook, WAIT_S_MAX, *arguments)

    async def await_within(self, timeout_s: float | None, hooks: Iterable[Hook], *arguments: object) -> None:
        """Call and await hooks with a common timeout. The last argument of each hook is the remaining time in seconds.

        :param timeout_s: the timeout of all hooks together in seconds; a hook is cancelled `GRACE_S` seconds after this
            time. With None, each hook has `WAIT_S_MAX`.
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
        except Exception as error:  # noqa: BLE001 - the application's hook may raise any exception
            self.note(hook, error)


def _hooks(interceptors: Iterable[object], base: type, *names: str) -> tuple[Hook, ...]:
    """Return, for each interceptor, the first of the named methods that its class overrides."""
    found = []
    for interceptor in interceptors:
        for name in names:
            method = getattr(interceptor, name)
            if getattr(method, "__func__", None) is not getattr(base, name):
                found.append(Hook(method, interceptor, name))
                break
    return tuple(found)


def _checked(given: Iterable[InterceptorT], base: type[InterceptorT]) -> list[InterceptorT]:
    """Return the interceptors as a list.

    :raises ConfigurationError: an element is not an interceptor of this kind of client.
    """
    interceptors = list(given)
    for each in interceptors:
        if not isinstance(each, base):
            raise ConfigurationError(f"interceptors are instances of {base.__name__}, not {each!r}")
    return interceptors


class ProducerInterceptors:
    """All interceptors of one producer, in the order of the calls.

    :ivar delivery_hooks: the functions that the accumulator calls with each finished batch. It passes their exceptions
        to `delivery_failed`.
    :ivar see_send: True if the producer must call `on_send`, and `refused` for a record that it refuses afterwards.
    :ivar see_batches: True if the producer must call `on_send_batch`, and `refused` for records that it refuses
        afterwards.
    :raises ConfigurationError: an element is not a `ProducerInterceptor`.
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
        """Pass a record through all interceptors, and return the record to send.

        :param check: raises if a record cannot be sent to the topic of `record`.
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
        except Exception as error:  # noqa: BLE001 - the application's hook may raise any exception
            self._calls.note(hook, error)
            return record
        refusal = _reason_to_refuse(other, check)
        if refusal is not None and type(_reason_to_refuse(record, check)) is not type(refusal):
            self._calls.note(hook, refusal)
            return record
        # If the producer would refuse the record even without this hook, keep the hook's result: `refused` then gets
        # it.
        return other  # type: ignore[no-any-return]  # `check_topic` has checked that it is a record

    def on_send_batch(
        self,
        batch: BatchT,
        check: Callable[[ProducerRecord], None],
        remake: Callable[[BatchT, list[ProducerRecord]], BatchT],
    ) -> BatchT:
        """Pass a batch through all interceptors, and return the batch to send; see `on_send`.

        :param remake: returns a copy of the batch with other records, without checking them.
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
        except Exception as error:  # noqa: BLE001 - the application's hook may raise any exception
            self._calls.note(hook, error)
            return batch

    def refused(self, records: Iterable[ProducerRecord], error: BaseException) -> None:
        """Call `on_delivery` for records that the producer has refused.

        :param error: the exception that the producer raises to its caller.
        """
        if self._refusal:
            reason = _as_barnabas_error(error)
            for record in records:
                self._calls.call_all(self._refusal, _undelivered(record), reason)

    def delivery_failed(self, hook: DeliveryHook, error: Exception) -> None:
        """Log an exception of one of `delivery_hooks`."""
        self._calls.note(self._delivery[self.delivery_hooks.index(hook)], error)

    async def start(self, context: ClientContext) -> None:
        self._has_started = True
        await self._calls.await_all(self._start, context)

    @property
    def have_flush(self) -> bool:
        """True if an interceptor overrides `flush`."""
        return bool(self._flush)

    async def flush(self, timeout_s: float | None) -> None:
        """Wait for the work that the producer's `flush` must wait for."""
        await self._calls.await_within(timeout_s, self._flush)

    async def close(self, timeout_s: float | None = None) -> None:
        """Stop the interceptors that were started."""
        if self._has_started:
            self._has_started = False
            await self._calls.await_within(timeout_s, self._close)


def _reason_to_refuse(record: ProducerRecord, check: Callable[[ProducerRecord], None]) -> Exception | None:
    """Return the exception with which the producer would refuse a record, or None if it would accept the record."""
    try:
        check(record)
    except Exception as error:  # noqa: BLE001 - the caller notes it
        return error
    return None


def _undelivered(record: ProducerRecord) -> Record:
    """Convert a record that is in no batch to the record that is passed to `on_delivery`."""
    try:
        headers = tuple(RecordHeader(*header) for header in record.headers)
    except TypeError:  # the record may have been refused for a header of the wrong type
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
    """Return a `BarnabasError` unchanged; wrap any other exception as the cause of a new `BarnabasError`."""
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
    """All interceptors of one consumer, in the order of the calls.

    :ivar see_batches: True if the consumer must call `on_records_batch`.
    :ivar see_records: True if the consumer must call `on_records`.
    :ivar see_repositions: True if the consumer must call `on_reposition`.
    :raises ConfigurationError: an element is not a `ConsumerInterceptor`.
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
        """Pass decoded records to the interceptors. The caller must hold the guard."""
        self._calls.call_all(self._batches, batch)

    def on_records(self, records: Sequence[Record]) -> None:
        """Pass decoded records to the interceptors, without the guard."""
        if records:
            self._calls.call_all(self._records, tuple(records))

    def on_reposition(self, reached: Mapping[TopicPartition, int | None]) -> None:
        """Report that positions are about to change. The caller must hold the guard."""
        if reached:
            self._calls.call_all(self._reposition, reached)

    async def before_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float | None) -> None:
        """Wait for the work that must precede a commit."""
        await self._calls.await_within(timeout_s, self._before_commit, offsets)

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Pass committed offsets to the interceptors."""
        self._calls.call_all(self._commit, offsets)

    async def start(self, context: ClientContext) -> None:
        self._has_started = True
        await self._calls.await_all(self._start, context)

    async def close(self, timeout_s: float | None = None) -> None:
        """Stop the interceptors that were started."""
        if self._has_started:
            self._has_started = False
            await self._calls.await_within(timeout_s, self._close)


def _made_of(batch: BatchT, other: object) -> BatchT:
    """Return `other`, if it was made from this batch.

    :raises TypeError: `other` is not a result of `with_headers` or `with_records` of this batch.
    """
    if not isinstance(other, type(batch)) or other.topic != batch.topic or len(other) != len(batch):
        raise TypeError(f"on_send_batch must return a result of with_headers or with_records, not {other!r}")
    return other


def check_topic(record: object, topic: str) -> None:
    """Check the result of an `on_send` hook.

    :raises TypeError: `record` is not a `ProducerRecord`.
    :raises ConfigurationError: the record has another topic.
    """
    if not isinstance(record, ProducerRecord):
        raise TypeError(f"on_send must return a ProducerRecord, not {type(record).__name__}")
    if record.topic != topic:
        raise ConfigurationError(f"an interceptor cannot send a record of topic {topic!r} to {record.topic!r}")

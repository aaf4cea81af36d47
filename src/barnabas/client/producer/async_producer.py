"""`AsyncProducer`: a producer for programs with an event loop. It shares the core of `Producer`, but has no background
thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial as bind
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack, overload

from barnabas.addresses import host_ports
from barnabas.client.client_lifecycle import ApplicationLoop
from barnabas.client.config import Bootstrap, ProducerConfig, make_config
from barnabas.client.configured_interceptors import producer_interceptors
from barnabas.client.interceptors import ProducerInterceptor, ProducerRecord
from barnabas.client.producer.accumulator import TopicQueues
from barnabas.client.producer.delivery import Deliveries, Delivery
from barnabas.client.producer.engine import CLOSED, ProducerEngine
from barnabas.client.producer.record_appender import BatchSend, Run
from barnabas.client.producer.serializers import ColumnSerializer, Serializer, Serializers, with_values
from barnabas.client.setting_types import ProducerSettings
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import BarnabasError, BufferFullError, ClosedError, Failure, TimedOutError
from barnabas.model import Bytes, GivenHeaders, GivenK, GivenV, K_contra, V_contra
from barnabas.records import OnDelivery
from barnabas.shielded import completed

T = TypeVar("T")

TURN_S = 0.002
"""The time in seconds for which the producer may append records before other tasks of the loop run."""


class OwnLoop(ApplicationLoop):
    """The `SenderLoop` of an `AsyncProducer`: the application's event loop. The callers run on this loop, so no call
    may block.
    """

    inside = True

    def __init__(self) -> None:
        super().__init__()
        self.turn_due = False
        """True if the sender's next turn is scheduled."""

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Always raise, because a wait on the thread of the event loop would block the loop.

        `AsyncProducer` looks up a topic before it appends records.
        """
        coroutine.close()
        raise AssertionError("AsyncProducer must look up a topic before it appends records")

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call `function` once, after the tasks that are ready now, however often this method is called before."""
        assert self.loop is not None
        if not self.turn_due:
            self.turn_due = True
            self.loop.call_soon(self._take_turn, function)

    def _take_turn(self, function: Callable[[], object]) -> None:
        self.turn_due = False
        function()


class AsyncProducer(Generic[K_contra, V_contra]):
    """Sends records to topics from an event loop. All calls must be made on this loop, from any number of tasks.

    The methods are coroutines; arguments, settings, errors and guarantees are those of `Producer`. The same loop sends
    requests and handles responses, so deliveries stop while a task computes or blocks.

        async with barnabas.AsyncProducer("localhost:9092") as producer:
            delivery = await producer.send("clicks", b"/jobs", key=b"member-42")
            print((await delivery).offset)
            deliveries = await producer.send_many("clicks", [b"/jobs", b"/feed"])
            print([metadata.offset for metadata in await deliveries])
    """

    @overload
    def __init__(
        self: AsyncProducer[Bytes, Bytes],
        bootstrap: Bootstrap = None,
        *,
        key_serializer: None = None,
        value_serializer: None = None,
        interceptors: Iterable[ProducerInterceptor] = (),
        **settings: Unpack[ProducerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: AsyncProducer[GivenK, Bytes],
        bootstrap: Bootstrap = None,
        *,
        key_serializer: Serializer[GivenK],
        value_serializer: None = None,
        interceptors: Iterable[ProducerInterceptor] = (),
        **settings: Unpack[ProducerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: AsyncProducer[Bytes, GivenV],
        bootstrap: Bootstrap = None,
        *,
        key_serializer: None = None,
        value_serializer: Serializer[GivenV],
        interceptors: Iterable[ProducerInterceptor] = (),
        **settings: Unpack[ProducerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: AsyncProducer[GivenK, GivenV],
        bootstrap: Bootstrap = None,
        *,
        key_serializer: Serializer[GivenK],
        value_serializer: Serializer[GivenV],
        interceptors: Iterable[ProducerInterceptor] = (),
        **settings: Unpack[ProducerSettings],
    ) -> None: ...
    def __init__(
        self,
        bootstrap: Bootstrap = None,
        *,
        key_serializer: Serializer[Any] | None = None,
        value_serializer: Serializer[Any] | None = None,
        interceptors: Iterable[ProducerInterceptor] = (),
        **settings: Unpack[ProducerSettings],
    ) -> None:
        config = make_config(ProducerConfig, bootstrap, settings)
        self._clock = SYSTEM_CLOCK
        self._own_loop = OwnLoop()
        self._engine = ProducerEngine(
            config,
            self._clock,
            self._own_loop,
            Serializers(key_serializer, value_serializer),
            interceptors=producer_interceptors(config, interceptors),
        )
        self._records = self._engine.records
        self._append_one = self._records.appender().send
        self._intercepts_send = self._records.intercepts_send
        self._accumulator = self._engine.accumulator
        self._lookups: dict[str, asyncio.Task[Failure | None]] = {}
        self._gave_way_s = 0.0
        self._append_in_line = asyncio.Lock()
        """Held by the one task that waits for memory. Other tasks wait for this lock, in the order of their calls."""
        self._closed = False
        self._own_loop.end_with(
            self,
            self._engine.finish,
            "an AsyncProducer",
            after_fork=self._engine.after_fork,
            on_program_end=bind(
                self._engine.warn_of_losses,
                "the program ended without `await close()` or an `async with` block of the producer",
            ),
        )

    async def start(self) -> Self:
        """Start the producer. `async with` and the first call that sends also start it.

        :raises ClosedError: the producer is closed, or belongs to the parent of this forked process.
        """
        self._accumulator.check_open()
        if self._own_loop.loop is None:
            self._own_loop.start()
            await self._engine.start()
        return self

    # --- sending ----------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: V_contra | None = None,
        key: K_contra | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: GivenHeaders = (),
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Append one record to a batch, and return its delivery. The call waits only if memory is full or the topic is
        new.

        Arguments and errors are those of `Producer.send`. The event loop calls `on_delivery`, which must be a plain
        function. A cancelled call sends no record.

        :returns: the delivery, which a program may await or ignore.
        """
        queues = self._accumulator.topic(topic)
        if queues is None:
            queues = await self._await_topic(topic)
        value_bytes: Any = value
        key_bytes: Any = key
        if self._records.serializers:
            value_bytes = self._records.serializers.value(topic, value)
            key_bytes = self._records.serializers.key(topic, key)
        await self._give_way()
        record: ProducerRecord | None = None
        if self._intercepts_send:
            record = self._records.intercept(queues, value_bytes, key_bytes, partition, timestamp_ms, headers)
            _topic, value_bytes, key_bytes, partition, timestamp_ms, headers = record
        send = self._append_one
        try:
            if not self._append_in_line.locked():
                try:
                    return send(
                        topic,
                        value_bytes,
                        key_bytes,
                        partition=partition,
                        timestamp_ms=timestamp_ms,
                        headers=headers,
                        on_delivery=on_delivery,
                    )
                except BufferFullError:
                    pass
            return await self._when_room(
                bind(
                    send,
                    topic,
                    value_bytes,
                    key_bytes,
                    partition=partition,
                    timestamp_ms=timestamp_ms,
                    headers=headers,
                    on_delivery=on_delivery,
                )
            )
        except (Exception, asyncio.CancelledError) as error:
            if record is not None:
                self._records.refused(record, error)
            raise

    async def send_many(
        self,
        topic: str,
        values: Sequence[V_contra | None],
        *,
        keys: Sequence[K_contra | None] | None = None,
        partition: int | None = None,
        timestamps_ms: Sequence[int] | int | None = None,
        headers: Sequence[GivenHeaders] | None = None,
    ) -> Deliveries:
        """Send many records in one call; see `Producer.send_many`. A cancelled call may have sent some of them."""
        queues = await self._queues(topic)
        return await self._append_all(
            self._records.runs_of_values(queues, values, keys, partition, timestamps_ms, headers)
        )

    async def send_arrow(
        self,
        topic: str,
        batch: Any,
        *,
        value: str | None = None,
        key: str | None = None,
        timestamp: str | None = None,
        partition: int | None = None,
        value_schema: ColumnSerializer | None = None,
    ) -> Deliveries:
        """Send the rows of an Arrow table; see `Producer.send_arrow`. A cancelled call may have sent some of them."""
        if value_schema is not None:
            # Serialize in a thread, because the schema registry may respond slowly.
            batch, value = await asyncio.to_thread(with_values, batch, topic, value_schema, value)
        queues = await self._queues(topic)
        return await self._append_all(self._records.runs_of_rows(queues, batch, value, key, timestamp, partition))

    async def _append_all(self, batch_send: BatchSend) -> Deliveries:
        try:
            for run in batch_send.runs:
                await self._append(run)
        except (Exception, asyncio.CancelledError) as error:
            batch_send.refuse(error)
            raise
        return batch_send.deliveries

    async def _append(self, run: Run) -> None:
        advance = bind(run.advance, self._accumulator)
        whole = False
        while not whole:
            await self._give_way()
            if not self._append_in_line.locked():
                try:
                    whole = advance()
                    continue
                except BufferFullError:
                    pass
            whole = await self._when_room(advance)

    # Each call waits for metadata and memory before it appends, so a call that is cancelled while it waits has appended
    # nothing.

    async def _give_way(self) -> None:
        """Yield to the sender and other tasks periodically, even if a task sends records without a pause."""
        if self._own_loop.turn_due or self._clock.monotonic() - self._gave_way_s >= TURN_S:
            await asyncio.sleep(0)
            self._gave_way_s = self._clock.monotonic()

    async def _when_room(self, append: Callable[[], T]) -> T:
        """Wait until memory is free, and append.

        :raises BufferFullError: no memory became free within `max_block_ms`.
        """
        try:
            async with asyncio.timeout(self._engine.config.max_block_ms / 1000) as limit, self._append_in_line:
                while True:
                    try:
                        return append()
                    except BufferFullError:
                        await self._engine.settled.wait()
        except TimeoutError:
            if not limit.expired():
                raise
            return append()

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partition numbers of a topic; see `Producer.partitions_for`."""
        return list(range(len((await self._queues(topic)).queues)))

    partitions_for_topic = partitions_for

    def metrics(self) -> dict[str, float]:
        """Return the current metrics of this producer; see `Producer.metrics`."""
        return self._engine.metrics()

    async def _queues(self, topic: str) -> TopicQueues:
        return self._accumulator.topic(topic) or await self._await_topic(topic)

    async def _await_topic(self, topic: str) -> TopicQueues:
        """Return the queues of a topic that is new to this producer. Concurrent tasks share one metadata request."""
        await self.start()
        self._engine.check_topic(topic)
        lookup = self._lookups.get(topic)
        if lookup is None:
            lookup = self._lookups[topic] = asyncio.create_task(self._look_up(topic))
            lookup.add_done_callback(lambda _done: self._lookups.pop(topic, None))
        try:
            failure = await completed(lookup, is_shared=True)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if lookup.cancelled() and task is not None and not task.cancelling():
                raise ClosedError(CLOSED) from None
            raise
        if failure is not None:
            raise failure.error()
        queues = self._accumulator.topic(topic)
        assert queues is not None
        return queues

    async def _look_up(self, topic: str) -> Failure | None:
        """Request the metadata of a topic.

        Return the error instead of raising it: all tasks that wait share the result.
        """
        try:
            await self._engine.look_up(topic)
        except BarnabasError as error:
            return Failure.of(error)
        return None

    # --- finishing --------------------------------------------------------------------------------------

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every record sent so far is acknowledged or has failed; see `Producer.flush`.

        :param timeout_s: the timeout in seconds; None means no timeout.
        :raises TimedOutError: some records were still unacknowledged after `timeout_s`.
        """
        if self._own_loop.is_forked_copy:
            self._accumulator.check_open()
        await self._engine.flush(timeout_s)

    async def close(self, *, timeout_s: float | None = None) -> None:
        """Flush, stop all tasks, and close the connections. Further calls, and calls in a forked child, do nothing.

        If another task is already closing the producer, this call waits for that task.

        :param timeout_s: the timeout in seconds for the records, the interceptors and the last metrics push. None means
            no timeout.
        :raises TimedOutError: some records were still unacknowledged after `timeout_s`. The producer drops them, unless
            another task waits for them.
        """
        if self._own_loop.is_forked_copy:
            return
        if not self._own_loop.claim_end():
            try:
                await self._own_loop.wait_until_ended(timeout_s)
            except TimedOutError:
                raise self._engine.unfinished_error(timeout_s) from None
            return
        try:
            await self._close(timeout_s)
        finally:
            self._own_loop.ended.set()

    async def _close(self, timeout_s: float | None) -> None:
        deadline_s = None if timeout_s is None else self._clock.monotonic() + timeout_s
        self._closed = True
        self._own_loop.unregister()
        self._accumulator.refuse(ClosedError(CLOSED))
        if self._own_loop.loop is None:
            return
        self._engine.notify_settled()
        try:
            await self._engine.flush(timeout_s)
        except asyncio.CancelledError:
            self._engine.warn_of_losses("closing the producer was cancelled")
            raise
        finally:
            for task in self._lookups.values():
                task.cancel()
            await self._engine.give_up(deadline_s)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        servers = host_ports(self._engine.config.bootstrap_servers)
        return f"<AsyncProducer to {servers}{', closed' if self._closed else ''}>"

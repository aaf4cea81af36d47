"""`AsyncConsumer`: a consumer for programs with an event loop. It shares the core of `Consumer`, but has no background
thread.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack, overload

from barnabas.client.client_lifecycle import ApplicationLoop
from barnabas.client.cluster import Cluster, dial_with
from barnabas.client.config import Bootstrap
from barnabas.client.configured_interceptors import consumer_interceptors
from barnabas.client.consumer.call_steps import FOREVER_S, CallSteps
from barnabas.client.consumer.core import Committable, ConsumerCore, consumer_config
from barnabas.client.consumer.fetched_records import Deserializer, Deserializers
from barnabas.client.consumer.polled_columns import (
    COLUMNS_MAX,
    check_schema,
    import_for_frames,
    to_pandas,
    to_polars,
    with_fields,
)
from barnabas.client.consumer.sync_async_drivers import AsyncDriver, Background, Listener, LoopGuard, listeners_of
from barnabas.client.interceptors import ConsumerInterceptor
from barnabas.client.setting_types import ConsumerSettings
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ClosedError
from barnabas.model import K_co, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition, V_co
from barnabas.records import Record

if TYPE_CHECKING:
    import pandas
    import polars  # type: ignore[import-not-found, unused-ignore]
    import pyarrow

    from barnabas.serialization.avro import AvroDeserializer

T = TypeVar("T")


class AsyncConsumer(Generic[K_co, V_co]):
    """Reads records of topics on the event loop of the application, alone or as a member of a group.

    Arguments, settings, errors and guarantees are those of `Consumer`; methods that may wait are coroutines. Only one
    task at a time may poll or iterate. The same loop runs heartbeats, commits and fetches, so they stop while a task
    computes or blocks. The consumer loses its partitions if a task blocks the loop for longer than
    `session_timeout_ms`.

        async with barnabas.AsyncConsumer("localhost:9092", group="feed", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("clicks")
            async for record in consumer:
                print(record.partition, record.offset, record.value)
    """

    @overload
    def __init__(
        self: AsyncConsumer[bytes, bytes],
        bootstrap: Bootstrap = None,
        *,
        group: str | None = None,
        key_deserializer: None = None,
        value_deserializer: None = None,
        interceptors: Iterable[ConsumerInterceptor] = (),
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: AsyncConsumer[K_co, bytes],
        bootstrap: Bootstrap = None,
        *,
        group: str | None = None,
        key_deserializer: Deserializer[K_co],
        value_deserializer: None = None,
        interceptors: Iterable[ConsumerInterceptor] = (),
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: AsyncConsumer[bytes, V_co],
        bootstrap: Bootstrap = None,
        *,
        group: str | None = None,
        key_deserializer: None = None,
        value_deserializer: Deserializer[V_co],
        interceptors: Iterable[ConsumerInterceptor] = (),
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self,
        bootstrap: Bootstrap = None,
        *,
        group: str | None = None,
        key_deserializer: Deserializer[K_co],
        value_deserializer: Deserializer[V_co],
        interceptors: Iterable[ConsumerInterceptor] = (),
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...
    def __init__(
        self,
        bootstrap: Bootstrap = None,
        *,
        group: str | None = None,
        key_deserializer: Deserializer[Any] | None = None,
        value_deserializer: Deserializer[Any] | None = None,
        interceptors: Iterable[ConsumerInterceptor] = (),
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        config = consumer_config(bootstrap, group, settings)
        deserializers = Deserializers(key_deserializer, value_deserializer)
        every = consumer_interceptors(config, interceptors)
        guard = LoopGuard()
        self._core = ConsumerCore(config, guard, SYSTEM_CLOCK, deserializers=deserializers, interceptors=every)
        self._driver = AsyncDriver(self._core.state, guard)
        cluster = Cluster(config, dial=dial_with(config), clock=SYSTEM_CLOCK, random=random.random)
        self._background = Background(self._core.state, cluster, guard.waker)
        self._lifecycle = ApplicationLoop()
        self._lifecycle.end_with(
            self,
            partial(self._background.finish, self._core),
            f"an AsyncConsumer{self._core}",
            after_fork=self._core.state.stop_with,
        )

    async def start(self) -> Self:
        """Start the consumer. `async with` and the first call that waits also start it."""
        if not self._runs:
            self._core.state.check_usable()
            self._lifecycle.start()
            await self._background.start()
        return self

    @property
    def _runs(self) -> bool:
        return self._lifecycle.loop is not None

    async def _run(self, call: CallSteps[T]) -> T:
        if not self._runs:
            await self.start()
        return await self._driver.run(call)

    # --- subscription and assignment
    # -----------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assign: Listener | None = None,
        on_revoke: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Subscribe to topics instead of the previous ones; see `Consumer.subscribe`.

        The listeners may be functions or coroutine functions.
        """
        listeners = listeners_of(on_assign, on_revoke, on_lost)
        self._core.subscribe(topics, pattern, listeners)
        self._driver.listeners = listeners

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions, without an assignment by a group; see `Consumer.assign`."""
        self._core.assign(partitions)

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that this consumer reads."""
        return self._core.assignment()

    async def unsubscribe(self) -> None:
        """Stop reading, and leave the group."""
        await self._run(self._core.unsubscribe(nested=self._driver.inside_listener))

    # --- reading ----------------------------------------------------------------------------------------

    async def poll(self, *, max_records: int = 500, timeout_s: float = 1.0) -> list[Record[K_co, V_co]]:
        """Return the next records, or an empty list if no record arrives within `timeout_s`; see `Consumer.poll`. The
        next poll marks the returned records as processed, so that auto-commit includes them.
        """
        self._core.check_readable()
        await self._driver.yield_to_loop()
        nested = self._driver.inside_listener
        return await self._run(self._core.poll(max_records, timeout_s, nested=nested))

    async def poll_arrow(
        self, *, max_records: int = COLUMNS_MAX, timeout_s: float = 1.0, value_schema: AvroDeserializer | None = None
    ) -> pyarrow.RecordBatch:
        """Return the next records as an Arrow record batch; see `Consumer.poll_arrow`."""
        self._core.check_readable()
        await self._driver.yield_to_loop()
        nested = self._driver.inside_listener
        if value_schema is not None:
            check_schema(value_schema)
        batch = await self._run(self._core.poll_columns(max_records, timeout_s, nested=nested))
        if value_schema is None:
            return batch
        with self._core.taken_back_on_failure():
            # Decode in a thread, because the schema registry may respond slowly.
            return await asyncio.to_thread(with_fields, batch, value_schema)

    async def poll_polars(self, *, max_records: int = COLUMNS_MAX, timeout_s: float = 1.0) -> polars.DataFrame:
        """Return the next records as a Polars data frame; see `Consumer.poll_arrow`."""
        import_for_frames("polars")
        return to_polars(await self.poll_arrow(max_records=max_records, timeout_s=timeout_s))

    async def poll_pandas(self, *, max_records: int = COLUMNS_MAX, timeout_s: float = 1.0) -> pandas.DataFrame:
        """Return the next records as a pandas data frame; see `Consumer.poll_arrow`."""
        import_for_frames("pandas")
        return to_pandas(await self.poll_arrow(max_records=max_records, timeout_s=timeout_s))

    async def batches(self, max_records: int = 500) -> AsyncIterator[list[Record[K_co, V_co]]]:
        """Iterate over non-empty lists of at most `max_records` records, until the consumer is closed."""
        while True:
            try:
                records = await self.poll(max_records=max_records, timeout_s=float("inf"))
            except ClosedError:
                if self._core.closed:
                    return
                raise
            yield records

    async def __aiter__(self) -> AsyncIterator[Record[K_co, V_co]]:
        core, driver = self._core, self._driver
        core.check_readable()
        while True:
            await driver.yield_to_loop()
            try:
                records = await self._run(core.next_slice(core.cursor, nested=driver.inside_listener))
            except ClosedError:
                if core.closed:
                    return
                raise
            for record in records:
                yield record

    # --- positions --------------------------------------------------------------------------------------

    async def position(self, tp: tuple[str, int], *, timeout_s: float | None = None) -> int:
        """Return the offset of the next record that the consumer reads in a partition; see `Consumer.position`."""
        return await self._run(self._core.position(tp, timeout_s))

    def seek(self, tp: tuple[str, int], offset: int) -> None:
        """Continue in a partition at `offset`; see `Consumer.seek`."""
        self._core.seek(tp, offset)

    def seek_to_beginning(self, *tps: tuple[str, int]) -> None:
        """Continue at the first offset of these partitions, or of all assigned partitions if none are given."""
        self._core.seek_by_policy(tps, "earliest")

    def seek_to_end(self, *tps: tuple[str, int]) -> None:
        """Continue at the end of these partitions, or of all assigned partitions if none are given."""
        self._core.seek_by_policy(tps, "latest")

    def pause(self, *tps: tuple[str, int]) -> None:
        """Stop returning records of these partitions until `resume`. The partitions stay assigned."""
        self._core.set_paused(tps, True)

    def resume(self, *tps: tuple[str, int]) -> None:
        """Continue to return records of paused partitions."""
        self._core.set_paused(tps, False)

    # --- offsets ----------------------------------------------------------------------------------------

    async def commit(
        self, offsets: Mapping[TopicPartition, Committable] | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Commit offsets for the group, by default of all returned records; see `Consumer.commit`."""
        await self._run(self._core.commit(offsets, timeout_s))

    @overload
    async def committed(self, tps: tuple[str, int], *, timeout_s: float | None = None) -> OffsetAndMetadata | None: ...
    @overload
    async def committed(
        self, tps: Iterable[tuple[str, int]], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]: ...
    async def committed(
        self, tps: tuple[str, int] | Iterable[tuple[str, int]], *, timeout_s: float | None = None
    ) -> OffsetAndMetadata | dict[TopicPartition, OffsetAndMetadata | None] | None:
        """Return the committed offsets of the group for one partition or several; see `Consumer.committed`."""
        return await self._run(self._core.committed(tps, timeout_s))

    async def beginning_offsets(self, tps: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition, which is its log start offset."""
        return await self._run(self._core.beginning_offsets(tps))

    async def end_offsets(self, tps: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record of each partition, which is its high watermark."""
        return await self._run(self._core.end_offsets(tps))

    async def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return, for each partition, the offset of the first record at or after a timestamp, or None if there is no
        such record.
        """
        return await self._run(self._core.offsets_for_times(timestamps_ms))

    # --- looking around ---------------------------------------------------------------------------------

    async def topics(self) -> set[str]:
        """Return the names of all topics except internal ones."""
        return await self._run(self._core.topics())

    async def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition numbers of a topic, or None if the topic does not exist.

        The call never creates the topic.
        """
        return await self._run(self._core.partitions_for_topic(topic))

    def metrics(self) -> dict[str, Any]:
        """Return the current metrics of this consumer by name; see `Consumer.metrics`."""
        return self._core.metrics()

    # --- finishing --------------------------------------------------------------------------------------

    async def close(self, *, timeout_s: float | None = None) -> None:
        """Commit the returned records if auto-commit is enabled, and leave the group. Further calls do nothing.
        Iterations in other tasks end. If another task is already closing the consumer, this call waits for that task.

        :param timeout_s: see `Consumer.close`.
        :raises TimedOutError: the commit or the leave request took longer; the consumer is closed nevertheless.
        """
        await self._close(all_done=True, timeout_s=timeout_s)

    async def _close(self, *, all_done: bool, timeout_s: float | None = None) -> None:
        if self._lifecycle.is_forked_copy:
            return
        if not self._lifecycle.claim_end():
            await self._lifecycle.wait_until_ended(timeout_s)
            return
        self._lifecycle.unregister()
        deadline_s = FOREVER_S if timeout_s is None else SYSTEM_CLOCK.monotonic() + timeout_s
        try:
            if self._runs:
                await self._driver.run(self._core.close(all_done=all_done, deadline_s=deadline_s))
            else:
                self._core.stop(all_done=all_done)
        finally:
            # Close also after a cancellation: further heartbeats would keep the partitions from other members.
            try:
                await self._background.close(deadline_s)
                await self._driver.stop()
            finally:
                self._lifecycle.ended.set()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an exception, do not commit the current record: it was not processed, and the group must receive it
        # again.
        await self._close(all_done=error is None)

    def __repr__(self) -> str:
        return f"<AsyncConsumer{self._core}>"

"""The consumer that programs use: iterate, poll or take streams; a background thread fetches ahead."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack, overload

from barnabas.client.client_lifecycle import LoopThread
from barnabas.client.cluster import Cluster, dial_with
from barnabas.client.config import Bootstrap
from barnabas.client.configured_interceptors import consumer_interceptors
from barnabas.client.consumer.call_steps import FOREVER_S
from barnabas.client.consumer.core import Committable, ConsumerCore, consumer_config
from barnabas.client.consumer.fetched_records import Cursor, Deserializer, Deserializers
from barnabas.client.consumer.message_streams import MessageStream
from barnabas.client.consumer.polled_columns import (
    COLUMNS_MAX,
    check_schema,
    import_for_frames,
    to_pandas,
    to_polars,
    with_fields,
)
from barnabas.client.consumer.sync_async_drivers import Background, BlockingDriver, Listener, ThreadGuard, listeners_of
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


class Consumer(Generic[K_co, V_co]):
    """Reads records of topics, alone or as a member of a group.

    :param bootstrap: `"host:port,..."`, or a dict of settings under Kafka's names.
    :param group: the name of the group, whose members share partitions and committed offsets. Without a group the
        consumer reads all partitions of its topics and commits nothing.
    :param key_deserializer: returns `Record.key` for the bytes of a key, for example `bytes.decode`. The consumer does
        not call it for a missing key, nor for columns (`poll_arrow` and the like).
    :param value_deserializer: the same for values, for example `json.loads`. If a deserializer raises, reading raises
        DeserializationError, and the position stays before that record.
    :param interceptors: `ConsumerInterceptor` objects, called in this order. Each belongs to one consumer.
    :param settings: see `barnabas.client.config.ConsumerConfig`; keyword arguments win over the dict.
    :raises ConfigurationError: a setting does not exist or cannot have this value, or an interceptor has a wrong type.

    One thread at a time may poll or iterate; each message stream may have its own. A program may mix the ways of
    reading.

        with barnabas.Consumer("localhost:9092", group="ctr") as consumer:
            consumer.subscribe("clicks")
            for record in consumer:
                ...
    """

    @overload
    def __init__(
        self: Consumer[bytes, bytes],
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
        self: Consumer[K_co, bytes],
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
        self: Consumer[bytes, V_co],
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
        thread = LoopThread("barnabas-consumer")
        guard = ThreadGuard(thread)
        self._core = ConsumerCore(config, guard, SYSTEM_CLOCK, deserializers=deserializers, interceptors=every)
        cluster = Cluster(config, dial=dial_with(config), clock=SYSTEM_CLOCK, random=random.random)
        self._background = Background(self._core.state, cluster, guard.waker)
        self._driver = BlockingDriver(self._core.state, guard)
        self._thread = thread
        thread.end_with(
            self,
            partial(self._background.finish, self._core),
            f"a Consumer{self._core}",
            after_fork=partial(_after_fork, self._core, guard),
        )
        thread.call(self._background.start())

    # --- what to read -----------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assign: Listener | None = None,
        on_revoke: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Subscribe to these topics instead of the previous ones; the members of a group share the partitions.

        The thread that polls calls the listeners.

        :param pattern: a regular expression for whole names of topics, also of topics that are created later.
        :param on_assign: called with the partitions that this consumer gains; it may seek in them.
        :param on_revoke: called with the partitions that this consumer gives up; it may commit offsets for them.
        :param on_lost: called instead of `on_revoke` with partitions that other members own already. A commit for them
            would fail.
        :raises ConfigurationError: topics and pattern are missing, or partitions were assigned by hand.
        """
        listeners = listeners_of(on_assign, on_revoke, on_lost)
        self._core.subscribe(topics, pattern, listeners)
        self._driver.listeners = listeners

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions, without the assignment of a group.

        :raises ConfigurationError: the consumer has subscribed to topics.
        """
        self._core.assign(partitions)

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that this consumer reads."""
        return self._core.assignment()

    def unsubscribe(self) -> None:
        """Stop reading, and leave the group."""
        self._driver.run(self._core.unsubscribe(nested=self._driver.inside_listener))

    def create_message_streams(self, counts: Mapping[str, int]) -> dict[str, list[MessageStream[K_co, V_co]]]:
        """Subscribe to topics and return as many streams of each as `counts` says (paper, section 3).

        Each stream is an iterator for a thread of its own; the partitions that this consumer has are divided
        among the streams of their topic. `close()` ends them.
        """
        streams: dict[str, list[MessageStream[K_co, V_co]]] = {}
        for topic, number, cursor in self._core.create_streams(counts):
            streams.setdefault(topic, []).append(MessageStream(topic, number, StreamSlices(self, cursor)))
        self.subscribe(counts)
        return streams

    # --- reading ----------------------------------------------------------------------------------------

    def poll(self, *, max_records: int = 500, timeout_s: float = 1.0) -> list[Record[K_co, V_co]]:
        """Return the next records, at most `max_records`, or none if none came within `timeout_s`.

        A further poll marks the records of the previous one as processed: auto-commit commits them.

        :raises ApiError: there is no valid offset to start from, the group refuses this member, and others.
        :raises CorruptBatchError: a batch is damaged; the position stays before it.
        :raises DisconnectedError: no broker (or not the `coordination`) was reachable for `default_api_timeout_ms`.
        """
        self._core.check_readable()
        nested = self._driver.inside_listener
        return self._driver.run(self._core.poll(max_records, timeout_s, nested=nested))

    def poll_arrow(
        self, *, max_records: int = COLUMNS_MAX, timeout_s: float = 1.0, value_schema: AvroDeserializer | None = None
    ) -> pyarrow.RecordBatch:
        """Return the next records as columns, none if none came within `timeout_s`; else like `poll`.

        The columns are topic, partition, offset, timestamp, timestamp_type, key, value and headers. No object is
        made for a record, and other threads run while batches are decoded.

        :param value_schema: adds the columns `value_fields`, a struct of what Avro values hold, and `value_error`: why
            that is null for a bad record.
        :raises ConfigurationError: pyarrow is not installed.
        :raises TimedOutError: no schema registry answers; the next call returns the same records.
        """
        self._core.check_readable()
        if value_schema is not None:
            check_schema(value_schema)
        nested = self._driver.inside_listener
        batch = self._driver.run(self._core.poll_columns(max_records, timeout_s, nested=nested))
        if value_schema is None:
            return batch
        with self._core.taken_back_on_failure():
            return with_fields(batch, value_schema)

    def poll_polars(self, *, max_records: int = COLUMNS_MAX, timeout_s: float = 1.0) -> polars.DataFrame:
        """Return what `poll_arrow` would as a data frame of polars.

        :raises ConfigurationError: polars or pyarrow is not installed.
        """
        import_for_frames("polars")
        return to_polars(self.poll_arrow(max_records=max_records, timeout_s=timeout_s))

    def poll_pandas(self, *, max_records: int = COLUMNS_MAX, timeout_s: float = 1.0) -> pandas.DataFrame:
        """Return what `poll_arrow` would as a data frame of pandas.

        :raises ConfigurationError: pandas or pyarrow is not installed.
        """
        import_for_frames("pandas")
        return to_pandas(self.poll_arrow(max_records=max_records, timeout_s=timeout_s))

    def __iter__(self) -> Iterator[Record[K_co, V_co]]:
        self._core.check_readable()
        return chain.from_iterable(RecordSlices(self, self._core.cursor))

    def __next__(self) -> Record[K_co, V_co]:
        for record in self._core.cursor.iterator:
            return record
        return next(iter(self))

    # --- positions --------------------------------------------------------------------------------------

    def position(self, tp: tuple[str, int], *, timeout_s: float | None = None) -> int:
        """Return the offset of the next record of a partition, after a request to the broker if necessary.

        :raises ConfigurationError: the partition is not assigned to this consumer.
        :raises TimedOutError: no broker answered within `timeout_s`.
        """
        return self._driver.run(self._core.position(tp, timeout_s))

    def seek(self, tp: tuple[str, int], offset: int) -> None:
        """Continue a partition at `offset`.

        :raises ConfigurationError: the partition is not assigned to this consumer, or the offset is negative.
        """
        self._core.seek(tp, offset)

    def seek_to_beginning(self, *tps: tuple[str, int]) -> None:
        """Continue at the first offset of these partitions, or of all assigned partitions."""
        self._core.seek_by_policy(tps, "earliest")

    def seek_to_end(self, *tps: tuple[str, int]) -> None:
        """Continue behind the last offset of these partitions, or of all assigned partitions."""
        self._core.seek_by_policy(tps, "latest")

    def pause(self, *tps: tuple[str, int]) -> None:
        """Return no records of these partitions until `resume`; they stay assigned."""
        self._core.set_paused(tps, True)

    def resume(self, *tps: tuple[str, int]) -> None:
        """Return records of these partitions again."""
        self._core.set_paused(tps, False)

    # --- offsets ----------------------------------------------------------------------------------------

    def commit(
        self, offsets: Mapping[TopicPartition, Committable] | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Commit offsets for the group and wait for the answer.

        :param offsets: the next offset to read of each partition, with or without metadata; None commits all records
            that were returned, including the current one.
        :raises ConfigurationError: the consumer has no group.
        :raises ApiError: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION: other members may own the partitions.
            REBALANCE_IN_PROGRESS: poll, and then commit for the remaining partitions.
        :raises FencedError: another consumer has joined with the same `group_instance_id`.
        """
        self._driver.run(self._core.commit(offsets, timeout_s))

    @overload
    def committed(self, tps: tuple[str, int], *, timeout_s: float | None = None) -> OffsetAndMetadata | None: ...
    @overload
    def committed(
        self, tps: Iterable[tuple[str, int]], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]: ...
    def committed(
        self, tps: tuple[str, int] | Iterable[tuple[str, int]], *, timeout_s: float | None = None
    ) -> OffsetAndMetadata | dict[TopicPartition, OffsetAndMetadata | None] | None:
        """Return the offset that the group has committed for a partition, or None.

        :param tps: one partition, or several. For several, one request brings the offsets of all by partition.
        :raises ConfigurationError: the consumer has no group.
        :raises TimedOutError: the coordinator did not answer within `timeout_s`.
        """
        return self._driver.run(self._core.committed(tps, timeout_s))

    def beginning_offsets(self, tps: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return self._driver.run(self._core.beginning_offsets(tps))

    def end_offsets(self, tps: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition."""
        return self._driver.run(self._core.end_offsets(tps))

    def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return for each partition the first offset whose timestamp is at least the given one, or None."""
        return self._driver.run(self._core.offsets_for_times(timestamps_ms))

    # --- looking around ---------------------------------------------------------------------------------

    def topics(self) -> set[str]:
        """Return the names of all topics but the internal ones."""
        return self._driver.run(self._core.topics())

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the numbers of a topic's partitions, or None if the topic does not exist; does not create it."""
        return self._driver.run(self._core.partitions_for_topic(topic))

    def metrics(self) -> dict[str, Any]:
        """Return current metrics of this consumer by name.

        `records_total`, `bytes_total`, `fetches_total` of all its life; `records_per_s`, `bytes_per_s`,
        `fetch_latency_avg_ms`, `fetch_latency_max_ms` of the last 30 seconds, the wait for new records at the broker
        included; `buffered_bytes` that wait for the application; `assigned_partitions`; `lag` by partition, the records
        that its end is ahead as far as the last fetch has said, and `lag_max`.
        """
        return self._core.metrics()

    # --- finishing --------------------------------------------------------------------------------------

    def close(self, *, timeout_s: float | None = None) -> None:
        """Commit the returned records (if auto-commit is on), leave the group, end the background thread.

        Iterations and streams of other threads end. May be called again: a call waits for another thread that closes
        the consumer already.

        :param timeout_s: seconds for the commit and for leaving; None: `default_api_timeout_ms` bounds each.
        :raises TimedOutError: the commit or the leaving took longer. The consumer is closed all the same: uncommitted
            records come again, and the group shares the partitions after `session_timeout_ms`.
        """
        self._close(all_done=True, timeout_s=timeout_s)

    def _close(self, *, all_done: bool, timeout_s: float | None = None) -> None:
        if not self._thread.begin_close(timeout_s):
            return
        deadline_s = FOREVER_S if timeout_s is None else SYSTEM_CLOCK.monotonic() + timeout_s
        try:
            self._driver.run(self._core.close(all_done=all_done, deadline_s=deadline_s))
        finally:
            # Also if this was interrupted: heartbeats that go on would keep the partitions from others.
            self._thread.stop(partial(self._background.close, deadline_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an exception the record in hand is not processed: the group shall get it again.
        self._close(all_done=error is None)

    def __repr__(self) -> str:
        return f"<Consumer{self._core}>"


def _after_fork(core: ConsumerCore, guard: ThreadGuard, error: ClosedError) -> None:
    guard.after_fork()
    core.state.stop_with(error)


class RecordSlices(Iterator[Iterator[Record[Any, Any]]]):
    """Iterators over stretches of records, one after the other, until the consumer is closed.

    Chained (`itertools.chain`) they run without any Python code between the records of a stretch.
    """

    def __init__(self, consumer: Consumer[Any, Any], cursor: Cursor) -> None:
        self._consumer = consumer
        self._cursor = cursor

    def __next__(self) -> Iterator[Record[Any, Any]]:
        core, driver = self._consumer._core, self._consumer._driver
        try:
            return driver.run(core.next_slice(self._cursor, nested=driver.inside_listener))
        except ClosedError:
            if core.closed:
                raise StopIteration from None
            raise


class StreamSlices(RecordSlices):
    """The stretches of a message stream. An error ends `records` for good; then there is another one, which goes on."""

    def __init__(self, consumer: Consumer[Any, Any], cursor: Cursor) -> None:
        super().__init__(consumer, cursor)
        self.records: Iterator[Record[Any, Any]] = chain.from_iterable(self)

    def __next__(self) -> Iterator[Record[Any, Any]]:
        try:
            return super().__next__()
        except StopIteration:
            raise
        except BaseException:
            self.records = chain.from_iterable(self)
            raise

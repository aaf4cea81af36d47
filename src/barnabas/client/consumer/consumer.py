"""`Consumer`: a consumer for programs without an event loop. A background thread fetches ahead.

A program may iterate, poll, or take message streams.
"""

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
    """Reads records of topics, alone or as a member of a consumer group.

    :param bootstrap: `"host:port,..."`, or a dict of settings under Kafka's names.
    :param group: the name of the group, whose members share partitions and committed offsets. A consumer without a
        group reads all partitions of its topics and commits nothing.
    :param key_deserializer: a function that returns `Record.key` for the bytes of a key, for example `bytes.decode`.
        The consumer does not call it for a missing key, nor for columns (`poll_arrow` and similar methods).
    :param value_deserializer: the same for values, for example `json.loads`. If a deserializer raises an error, the
        consumer raises DeserializationError, and its position stays before the record.
    :param interceptors: `ConsumerInterceptor` objects, in the order of the calls. An interceptor belongs to one
        consumer.
    :param settings: the fields of `barnabas.client.config.ConsumerConfig`; keyword arguments override the dict.
    :raises ConfigurationError: a setting does not exist or cannot have this value, or an interceptor has the wrong
        type.

    Only one thread at a time may poll or iterate; each message stream may have its own thread. A program may mix
    iteration, polls and streams.

        with barnabas.Consumer("localhost:9092", group="ctr", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("clicks")
            for record in consumer:
                print(record.partition, record.offset, record.value)
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
        """Subscribe to topics instead of the previous ones. The members of a group share the partitions.

        The thread that polls calls the listeners.

        :param topics: a topic, or several.
        :param pattern: a regular expression for whole topic names, which also applies to topics that are created later.
        :param on_assign: called with the partitions that this consumer gains; it may call `seek` for them.
        :param on_revoke: called with the partitions that this consumer gives up; it may commit their offsets.
        :param on_lost: called instead of `on_revoke` with partitions that another member already owns. A commit for
            them would fail.
        :raises ConfigurationError: neither topics nor a pattern are given, or partitions were assigned with `assign`.
        """
        listeners = listeners_of(on_assign, on_revoke, on_lost)
        self._core.subscribe(topics, pattern, listeners)
        self._driver.listeners = listeners

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions, without an assignment by a group.

        :param partitions: (topic, partition number) pairs.
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
        """Subscribe to topics, and return message streams for them, as in section 3 of the Kafka paper.

        Each stream is an iterator for one thread. The consumer divides its partitions of a topic among the streams of
        the topic. `close()` ends the streams.

        :param counts: the number of streams by topic.
        :returns: the streams by topic.
        """
        streams: dict[str, list[MessageStream[K_co, V_co]]] = {}
        for topic, number, cursor in self._core.create_streams(counts):
            streams.setdefault(topic, []).append(MessageStream(topic, number, StreamSlices(self, cursor)))
        self.subscribe(counts)
        return streams

    # --- reading ----------------------------------------------------------------------------------------

    def poll(self, *, max_records: int = 500, timeout_s: float = 1.0) -> list[Record[K_co, V_co]]:
        """Return the next records, or an empty list if no record arrives within `timeout_s`.

        The next poll marks the returned records as processed, so that auto-commit includes them.

        :param max_records: the maximum number of records.
        :param timeout_s: the time in seconds to wait for a first record.
        :raises ApiError: there is no committed offset and no reset policy, or the coordinator rejects this member, and
            other errors.
        :raises CorruptBatchError: a batch is damaged; the position stays before it.
        :raises DeserializationError: a deserializer raised an error; the position stays before the record.
        :raises DisconnectedError: no broker was reachable for `default_api_timeout_ms`. With `coordination`, the same
            applies to ZooKeeper servers.
        """
        self._core.check_readable()
        nested = self._driver.inside_listener
        return self._driver.run(self._core.poll(max_records, timeout_s, nested=nested))

    def poll_arrow(
        self, *, max_records: int = COLUMNS_MAX, timeout_s: float = 1.0, value_schema: AvroDeserializer | None = None
    ) -> pyarrow.RecordBatch:
        """Return the next records as an Arrow record batch, which is empty if no record arrives within `timeout_s`.

        The columns are topic, partition, offset, timestamp, timestamp_type, key, value and headers. The consumer
        creates no Python object per record, and other threads run during the decoding. The call raises the errors of
        `poll`, and those listed here.

        :param max_records: the maximum number of rows.
        :param timeout_s: the time in seconds to wait for a first record.
        :param value_schema: an `AvroDeserializer`, which adds two columns: `value_fields`, a struct of the fields of
            the Avro values, and `value_error`, the error of a value that cannot be decoded.
        :raises ConfigurationError: pyarrow is not installed.
        :raises TimedOutError: the schema registry does not respond; the next call returns the same records.
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
        """Return the next records as a Polars data frame; see `poll_arrow`.

        :raises ConfigurationError: polars or pyarrow is not installed.
        """
        import_for_frames("polars")
        return to_polars(self.poll_arrow(max_records=max_records, timeout_s=timeout_s))

    def poll_pandas(self, *, max_records: int = COLUMNS_MAX, timeout_s: float = 1.0) -> pandas.DataFrame:
        """Return the next records as a pandas data frame; see `poll_arrow`.

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
        """Return the offset of the next record that the consumer reads in a partition.

        The first call for a partition may send a request to a broker.

        :param tp: topic and partition number.
        :param timeout_s: the timeout in seconds; None means `default_api_timeout_ms`.
        :raises ConfigurationError: the partition is not assigned to this consumer.
        :raises TimedOutError: no broker responded within the timeout.
        """
        return self._driver.run(self._core.position(tp, timeout_s))

    def seek(self, tp: tuple[str, int], offset: int) -> None:
        """Continue in a partition at `offset`.

        :param tp: topic and partition number.
        :raises ConfigurationError: the partition is not assigned to this consumer, or the offset is negative.
        """
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

    def commit(
        self, offsets: Mapping[TopicPartition, Committable] | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Commit offsets for the group, and wait for the response.

        :param offsets: the offset of the next record to read in each partition, with or without metadata. None commits
            all records that the consumer has returned, including the current one.
        :param timeout_s: the timeout in seconds; None means `default_api_timeout_ms`.
        :raises ConfigurationError: the consumer has no group.
        :raises ApiError: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION: other members may own the partitions.
            REBALANCE_IN_PROGRESS: the group rebalances; poll, and then commit for the remaining partitions.
        :raises FencedError: another consumer has joined with the same `group_instance_id`.
        :raises TimedOutError: the coordinator did not respond within the timeout.
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
        """Return the group's committed offset of a partition, or None if there is none.

        :param tps: one partition, or several. For several partitions, one request returns the offsets by partition.
        :param timeout_s: the timeout in seconds; None means `default_api_timeout_ms`.
        :raises ConfigurationError: the consumer has no group.
        :raises TimedOutError: the coordinator did not respond within the timeout.
        """
        return self._driver.run(self._core.committed(tps, timeout_s))

    def beginning_offsets(self, tps: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition, which is its log start offset."""
        return self._driver.run(self._core.beginning_offsets(tps))

    def end_offsets(self, tps: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record of each partition, which is its high watermark."""
        return self._driver.run(self._core.end_offsets(tps))

    def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return, for each partition, the offset of the first record at or after a timestamp, or None if there is no
        such record.

        :param timestamps_ms: the timestamp in ms since the epoch, by partition.
        """
        return self._driver.run(self._core.offsets_for_times(timestamps_ms))

    # --- looking around ---------------------------------------------------------------------------------

    def topics(self) -> set[str]:
        """Return the names of all topics except internal ones."""
        return self._driver.run(self._core.topics())

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition numbers of a topic, or None if the topic does not exist.

        The call never creates the topic.
        """
        return self._driver.run(self._core.partitions_for_topic(topic))

    def metrics(self) -> dict[str, Any]:
        """Return the current metrics of this consumer by name.

        Totals since the start: `records_total`, `bytes_total`, `fetches_total`, `throttle_time_total_ms` (the waits
        that quotas demanded). Rates, averages and maxima of the last 30 seconds: `records_per_s`, `bytes_per_s`,
        `fetch_latency_avg_ms`, `fetch_latency_max_ms` (the wait for new records at the broker included). Current
        values: `buffered_bytes` (fetched, but not yet returned to the application), `assigned_partitions`, `lag`
        (records up to the high watermark of the last fetch, by partition), `lag_max`.
        """
        return self._core.metrics()

    # --- finishing --------------------------------------------------------------------------------------

    def close(self, *, timeout_s: float | None = None) -> None:
        """Commit the returned records if auto-commit is enabled, leave the group, and stop the background thread.
        Iterations and streams in other threads end. Further calls do nothing. If another thread is already closing the
        consumer, this call waits for that thread.

        :param timeout_s: the timeout in seconds for the commit and the leave request together. None means
            `default_api_timeout_ms` for each of them.
        :raises TimedOutError: the commit or the leave request took longer. The consumer is closed nevertheless: the
            group receives uncommitted records again, and reassigns the partitions after `session_timeout_ms`.
        """
        self._close(all_done=True, timeout_s=timeout_s)

    def _close(self, *, all_done: bool, timeout_s: float | None = None) -> None:
        if not self._thread.begin_close(timeout_s):
            return
        deadline_s = FOREVER_S if timeout_s is None else SYSTEM_CLOCK.monotonic() + timeout_s
        try:
            self._driver.run(self._core.close(all_done=all_done, deadline_s=deadline_s))
        finally:
            # Close also after an interruption: further heartbeats would keep the partitions from other members.
            self._thread.stop(partial(self._background.close, deadline_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an exception, do not commit the current record: it was not processed, and the group must receive it
        # again.
        self._close(all_done=error is None)

    def __repr__(self) -> str:
        return f"<Consumer{self._core}>"


def _after_fork(core: ConsumerCore, guard: ThreadGuard, error: ClosedError) -> None:
    guard.after_fork()
    core.state.stop_with(error)


class RecordSlices(Iterator[Iterator[Record[Any, Any]]]):
    """Yields iterators over consecutive buffered records, until the consumer is closed. `itertools.chain` joins them
    without Python code between two records.
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
    """Yields iterators over the buffered records of a message stream.

    `records` iterates over all of these records. If it raises an error, it ends, and a new iterator that continues
    after the error replaces it.
    """

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

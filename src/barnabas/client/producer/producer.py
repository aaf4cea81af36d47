"""The producer that programs use: `send` returns at once, a background thread delivers."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from barnabas.client.cluster import Cluster
from barnabas.client.config import ProducerConfig, make_config
from barnabas.client.dialing import dial_with
from barnabas.client.loop_thread import LoopThread, at_exit
from barnabas.client.producer.accumulator import TopicQueues
from barnabas.client.producer.delivery import Deliveries
from barnabas.client.producer.entrance import Entrance
from barnabas.client.producer.routing import Run
from barnabas.client.producer.send_loop import SendLoop
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import BarnabasError, ClosedError, ConfigurationError, TimedOutError
from barnabas.model import Headers

log = logging.getLogger(__name__)

EXIT_FLUSH_S = 30.0
"""How long the end of a program waits for records that were not flushed."""


class Producer(Entrance):
    """Sends records to topics. Safe to use from several threads.

    :param bootstrap: `"host:port,..."`, or a dict of settings under Kafka's names.
    :param settings: see `barnabas.client.config.ProducerConfig`; keyword arguments win over the dict.
    :raises ConfigurationError: a setting that does not exist or cannot be.

    The constructor does not wait for a broker: one that is down is tried again until `max_block_ms` (the first
    `send` to a topic) and `delivery_timeout_ms` (each record) are over.

        with barnabas.Producer("localhost:9092") as producer:
            delivery = producer.send("clicks", b"/jobs", key=b"member-42")
            print(delivery.result().offset)
    """

    def __init__(self, bootstrap: str | Iterable[str] | Mapping[str, Any] | None = None, **settings: Any) -> None:
        config = make_config(ProducerConfig, bootstrap, settings)
        super().__init__(config, SYSTEM_CLOCK, self._wake_sender)
        self._config = config
        self._closed = False
        self._thread = LoopThread("barnabas-producer")
        self._accumulator.may_block = lambda: not self._thread.inside
        self._thread.after_fork = self._accumulator.after_fork
        self._send_loop: SendLoop
        self._cluster: Cluster
        self._thread.call(self._start())
        at_exit(self)

    async def _start(self) -> None:
        self._cluster = Cluster(self._config, dial=dial_with(self._config), clock=self._clock, random=random.random)
        self._send_loop = SendLoop(self._config, self._cluster, self._accumulator, self._clock)
        self._cluster.updated.append(lambda _view: self._send_loop.on_metadata())
        self._thread.start(self._cluster.keep_fresh())
        self._thread.start(self._send_loop.run()).add_done_callback(self._on_stopped)

    def _on_stopped(self, done: Any) -> None:
        """The send loop only ends by cancellation; if it failed, nothing may wait for it for ever."""
        error = None if done.cancelled() else done.exception()
        if error is not None:
            log.error("the producer stopped", exc_info=error)
            stopped = ClosedError(f"the producer stopped because of {error!r}; make a new one")
            self._accumulator.refuse(stopped)
            self._thread.soon(lambda: self._send_loop.settle_all(stopped))

    def _wake_sender(self) -> None:
        self._thread.soon(self._send_loop.wake)

    # --- sending ----------------------------------------------------------------------------------------
    # `send` is inherited: the codec's `Appender` deals with the usual record itself, `Entrance._send` with all others.

    def _queues(self, topic: str) -> TopicQueues:
        """Return the queues of a topic, waiting for its partitions to be known if it is new to this producer."""
        return self._accumulator.topic(topic) or self._await_topic(topic)

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        partition: int | None = None,
        timestamps_ms: Sequence[int] | int | None = None,
        headers: Sequence[Headers] | None = None,
    ) -> Deliveries:
        """Send many records in one call: the paper's message set.

        :param keys: as many as `values`, or None for none.
        :param timestamps_ms: one for each, or one for all; None is now.
        :param headers: as many as `values`, or None for none.
        :returns: the outcomes, in the order of `values`.
        :raises ValueError: keys, timestamps or headers are not as many as values.
        """
        deliveries, runs = self._value_runs(self._queues(topic), values, keys, partition, timestamps_ms, headers)
        return self._append_all(deliveries, runs)

    def send_arrow(
        self,
        topic: str,
        batch: Any,
        *,
        value: str | None = None,
        key: str | None = None,
        timestamp: str | None = None,
        partition: int | None = None,
    ) -> Deliveries:
        """Send the rows of an Arrow table, without making Python objects of them.

        :param batch: a pyarrow Table, RecordBatch, Array or ChunkedArray, or what Arrow's PyCapsule interface makes
            one of: a data frame of Polars, a relation of DuckDB ...
        :param value: the column of payloads, of type binary or string; it may be left out for a single column, and
            for one that is called `value`.
        :param key: the column of keys; None for records without one.
        :param timestamp: the column of event times, timestamps or int64 in ms; None is now.
        :param partition: overrules key and partitioner.
        :returns: the outcomes, in the order of the rows.
        :raises TypeError: it is no Arrow data, or a column has another type.
        :raises ConfigurationError: pyarrow is not installed, or a column does not exist.
        """
        deliveries, runs = self._row_runs(self._queues(topic), batch, value, key, timestamp, partition)
        return self._append_all(deliveries, runs)

    def _append_all(self, deliveries: Deliveries, runs: Iterable[Run]) -> Deliveries:
        for run in runs:
            while not run.advance(self._accumulator):
                pass
        return deliveries

    def partitions_for(self, topic: str) -> list[int]:
        """Return the partition numbers of a topic; creates it where brokers do that by themselves.

        :raises TimedOutError: they were not known within `max_block_ms`.
        """
        return list(range(len(self._queues(topic).queues)))

    def _await_topic(self, topic: str) -> TopicQueues:
        """Return the queues of a topic that is new to this producer, waiting for its partitions to be known."""
        if self._accumulator.refusal is not None:
            raise self._accumulator.refusal
        if not isinstance(topic, str) or not topic:
            raise ConfigurationError(f"a topic is a string that is not empty, not {topic!r}")
        self._thread.call(self._look_up(topic))
        queues = self._accumulator.topic(topic)
        assert queues is not None
        return queues

    async def _look_up(self, topic: str) -> None:
        self._cluster.watch_topics([topic], auto_creates=self._config.allow_auto_create_topics)
        await self._cluster.topic(topic, timeout_s=self._config.max_block_ms / 1000)

    # --- finishing --------------------------------------------------------------------------------------

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every record sent so far is acknowledged or has failed.

        Failures are not raised here: deliveries and their callbacks tell them.

        :raises TimedOutError: some were still on their way after `timeout_s`.
        """
        deadline_s = None if timeout_s is None else self._clock.monotonic() + timeout_s
        for batch in self._accumulator.close_all():
            remaining_s = None if deadline_s is None else max(0.0, deadline_s - self._clock.monotonic())
            if not self._accumulator.await_batch(batch, remaining_s):
                raise TimedOutError(
                    f"{self._accumulator.unfinished_records()} records were still on their way after {timeout_s} s"
                    f"{self._trouble()}"
                )

    def close(self, timeout_s: float | None = None) -> None:
        """Flush, then end the background thread. May be called again.

        :raises TimedOutError: some records were still on their way after `timeout_s`; they are given up.
        """
        if self._closed:
            return
        self._closed = True
        self._accumulator.refuse(ClosedError("this producer is closed; make a new one"))
        try:
            self.flush(timeout_s)
        finally:
            self._thread.call(self._give_up())
            self._thread.stop()

    async def _give_up(self) -> None:
        """Settle what was not delivered, so that nobody waits for it for ever."""
        given_up = TimedOutError(f"the producer was closed before the record was acknowledged{self._trouble()}")
        self._send_loop.settle_all(given_up)
        self._cluster.close()

    def close_at_exit(self) -> None:
        """Deliver what is left when the program ends; say so if something could not be."""
        try:
            self.close(EXIT_FLUSH_S)
        except BarnabasError as error:
            log.warning("at the end of the program: %s; they are lost (use close() or a with block)", error)

    def _trouble(self) -> str:
        trouble = self._send_loop.sender.last_trouble
        return f": {trouble}" if trouble else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        servers = ",".join(f"{host}:{port}" for host, port in self._config.bootstrap_servers)
        return f"<Producer to {servers}{', closed' if self._closed else ''}>"

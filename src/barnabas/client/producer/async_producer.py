"""The producer for programs on an event loop: the same core as `Producer`, without a thread; batches come first."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial as bind
from types import TracebackType
from typing import Any, Self, TypeVar

from barnabas.client.cluster import Cluster
from barnabas.client.config import ProducerConfig, make_config
from barnabas.client.dialing import dial_with
from barnabas.client.loop_thread import at_exit
from barnabas.client.producer.accumulator import TopicQueues
from barnabas.client.producer.delivery import Deliveries, Delivery
from barnabas.client.producer.entrance import Entrance
from barnabas.client.producer.routing import Run
from barnabas.client.producer.send_loop import SendLoop
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import BufferFullError, ClosedError, ConfigurationError, TimedOutError
from barnabas.model import Headers

log = logging.getLogger(__name__)

T = TypeVar("T")

TURN_S = 0.002
"""How long records may be appended before others on the loop have their turn."""

CLOSED = "this producer is closed; make a new one"


class AsyncProducer:
    """Sends records to topics from an event loop, on which all calls must be made, from any number of tasks.

    Arguments, settings, errors and promises are those of `Producer`; what waits there is awaited here. Requests
    and answers are handled on the same loop: they go on while the application awaits, and stand still while it
    computes or blocks.

        async with barnabas.AsyncProducer("localhost:9092") as producer:
            delivery = await producer.send("clicks", b"/jobs", key=b"member-42")
            metadata = await delivery                                       # RecordMetadata, or raises
            await (await producer.send_many("clicks", [b"/a", b"/b"]))      # a message set in one call
    """

    def __init__(self, bootstrap: str | Iterable[str] | Mapping[str, Any] | None = None, **settings: Any) -> None:
        config = make_config(ProducerConfig, bootstrap, settings)
        self._config = config
        self._clock = SYSTEM_CLOCK
        self._entrance = Entrance(config, self._clock, self._wake)
        self._accumulator = self._entrance._accumulator
        self._accumulator.may_block = lambda: False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cluster: Cluster
        self._send_loop: SendLoop
        self._tasks: list[asyncio.Task[None]] = []
        self._lookups: dict[str, asyncio.Task[None]] = {}
        self._turn_due = False
        self._gave_way_s = 0.0
        self._settled = asyncio.Event()
        self._door = asyncio.Lock()
        """Held by who waits for room; all others queue behind, so that nobody overtakes."""
        self._closed = False
        _live.add(self)
        at_exit(self)

    async def start(self) -> Self:
        """Begin; entering `async with`, or the first call that sends, does it as well.

        :raises ClosedError: after `close`, or in a forked child.
        """
        if self._accumulator.refusal is not None:
            raise self._accumulator.refusal
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._cluster = Cluster(self._config, dial=dial_with(self._config), clock=self._clock, random=random.random)
            self._send_loop = SendLoop(self._config, self._cluster, self._accumulator, self._clock)
            self._send_loop.on_settled = self._ring
            self._cluster.updated.append(lambda _view: self._send_loop.on_metadata())
            sending = asyncio.create_task(self._send_loop.run())
            sending.add_done_callback(self._on_stopped)
            self._tasks = [sending, asyncio.create_task(self._cluster.keep_fresh())]
        return self

    def _on_stopped(self, done: asyncio.Task[None]) -> None:
        """The send loop only ends by cancellation; however it ended, nothing may wait for it for ever."""
        if self._closed:
            return
        error = None if done.cancelled() else done.exception()
        if error is None:
            self._warn_of_losses("the event loop ended before `await close()` or the `async with` block of a producer")
            stopped = ClosedError("the event loop of this producer has ended; make a new one")
        else:
            log.error("the producer stopped", exc_info=error)
            stopped = ClosedError(f"the producer stopped because of {error!r}; make a new one")
        self._accumulator.refuse(stopped)
        self._send_loop.settle_all(stopped)

    def _wake(self) -> None:
        """Have the sender take a turn when the tasks that are ready now have had theirs."""
        assert self._loop is not None
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        self._send_loop.wake()

    def _ring(self) -> None:
        """Wake who waits for something to be settled."""
        self._settled.set()
        self._settled.clear()

    # --- sending ----------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Send one record; waits only while memory is full or the topic is new to this producer.

        Arguments and errors are those of `Producer.send`. If it is cancelled, the record is not sent.

        :returns: the outcome, to be awaited or not.
        """
        if self._accumulator.topic(topic) is None:
            await self._await_topic(topic)
        await self._give_way()
        send = self._entrance.send
        if not self._door.locked():
            try:
                return send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
            except BufferFullError:
                pass
        return await self._when_room(
            bind(send, topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
        )

    async def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        partition: int | None = None,
        timestamps_ms: Sequence[int] | int | None = None,
        headers: Sequence[Headers] | None = None,
    ) -> Deliveries:
        """Send many records in one call; see `Producer.send_many`. If it is cancelled, some may be sent."""
        queues = await self._queues(topic)
        deliveries, runs = self._entrance._value_runs(queues, values, keys, partition, timestamps_ms, headers)
        return await self._append_all(deliveries, runs)

    async def send_arrow(
        self,
        topic: str,
        batch: Any,
        *,
        value: str | None = None,
        key: str | None = None,
        timestamp: str | None = None,
        partition: int | None = None,
    ) -> Deliveries:
        """Send the rows of an Arrow table; see `Producer.send_arrow`. If it is cancelled, some may be sent."""
        queues = await self._queues(topic)
        deliveries, runs = self._entrance._row_runs(queues, batch, value, key, timestamp, partition)
        return await self._append_all(deliveries, runs)

    async def _append_all(self, deliveries: Deliveries, runs: Iterable[Run]) -> Deliveries:
        for run in runs:
            await self._append(run)
        return deliveries

    async def _append(self, run: Run) -> None:
        advance = bind(run.advance, self._accumulator)
        whole = False
        while not whole:
            await self._give_way()
            if not self._door.locked():
                try:
                    whole = advance()
                    continue
                except BufferFullError:
                    pass
            whole = await self._when_room(advance)

    # What is awaited comes before the append: a call that is cancelled while it waits has done nothing.

    async def _give_way(self) -> None:
        """Let the sender, and others on the loop, have their turn: a flood of records must not keep them from it."""
        if self._turn_due or self._clock.monotonic() - self._gave_way_s >= TURN_S:
            await asyncio.sleep(0)
            self._gave_way_s = self._clock.monotonic()

    async def _when_room(self, append: Callable[[], T]) -> T:
        """Append as soon as memory is free.

        :raises BufferFullError: none became free within `max_block_ms`.
        """
        try:
            async with asyncio.timeout(self._config.max_block_ms / 1000) as limit, self._door:
                while True:
                    try:
                        return append()
                    except BufferFullError:
                        await self._settled.wait()
        except TimeoutError:
            if not limit.expired():
                raise
            return append()

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partition numbers of a topic; see `Producer.partitions_for`."""
        return list(range(len((await self._queues(topic)).queues)))

    async def _queues(self, topic: str) -> TopicQueues:
        return self._accumulator.topic(topic) or await self._await_topic(topic)

    async def _await_topic(self, topic: str) -> TopicQueues:
        """Return the queues of a topic that is new to this producer; many tasks that ask for one ask once."""
        await self.start()
        if not isinstance(topic, str) or not topic:
            raise ConfigurationError(f"a topic is a string that is not empty, not {topic!r}")
        lookup = self._lookups.get(topic)
        if lookup is None:
            lookup = self._lookups[topic] = asyncio.create_task(self._look_up(topic))
            lookup.add_done_callback(lambda done: self._on_looked_up(topic, done))
        try:
            await asyncio.shield(lookup)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if lookup.cancelled() and task is not None and not task.cancelling():
                raise ClosedError(CLOSED) from None
            raise
        queues = self._accumulator.topic(topic)
        assert queues is not None
        return queues

    async def _look_up(self, topic: str) -> None:
        self._cluster.watch_topics([topic], auto_creates=self._config.allow_auto_create_topics)
        await self._cluster.topic(topic, timeout_s=self._config.max_block_ms / 1000)

    def _on_looked_up(self, topic: str, done: asyncio.Task[None]) -> None:
        self._lookups.pop(topic, None)
        if not done.cancelled():
            done.exception()  # told to those who wait, if they still do

    # --- finishing --------------------------------------------------------------------------------------

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every record sent so far is acknowledged or has failed; see `Producer.flush`.

        :raises TimedOutError: some were still on their way after `timeout_s`.
        """
        try:
            async with asyncio.timeout(timeout_s):
                for batch in self._accumulator.close_all():
                    while not batch.done:
                        await self._settled.wait()
        except TimeoutError:
            raise TimedOutError(
                f"{self._accumulator.unfinished_records()} records were still on their way after {timeout_s} s"
                f"{self._trouble()}"
            ) from None

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush, then end the tasks and connections. May be called again.

        :raises TimedOutError: some records were still on their way after `timeout_s`; they are given up.
        """
        if self._closed:
            return
        self._closed = True
        self._accumulator.refuse(ClosedError(CLOSED))
        self._ring()
        try:
            await self.flush(timeout_s)
        except asyncio.CancelledError:
            self._warn_of_losses("closing the producer was cancelled")
            raise
        finally:
            self._give_up()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _give_up(self) -> None:
        """End all that runs, and settle what was not delivered, so that nobody waits for it for ever."""
        if self._loop is None:
            return
        given_up = TimedOutError(f"the producer was closed before the record was acknowledged{self._trouble()}")
        self._send_loop.settle_all(given_up)
        self._cluster.close()
        for task in (*self._tasks, *self._lookups.values()):
            task.cancel()

    def _trouble(self) -> str:
        trouble = "" if self._loop is None else self._send_loop.sender.last_trouble
        return f": {trouble}" if trouble else ""

    def _warn_of_losses(self, why: str) -> None:
        lost = self._accumulator.unfinished_records()
        if lost:
            log.warning("%s: %d records were not acknowledged and may be lost", why, lost)

    def close_at_exit(self) -> None:
        """Say what was not delivered when the program ends: without its event loop nothing can be any more."""
        self._warn_of_losses("the program ended without `await close()` or an `async with` block of the producer")

    def _after_fork(self) -> None:
        self._accumulator.after_fork(ClosedError("this producer belongs to the parent process; make a new one here"))

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        servers = ",".join(f"{host}:{port}" for host, port in self._config.bootstrap_servers)
        return f"<AsyncProducer to {servers}{', closed' if self._closed else ''}>"


_live: weakref.WeakSet[AsyncProducer] = weakref.WeakSet()


def _tell_forked() -> None:
    for producer in list(_live):
        producer._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell_forked)

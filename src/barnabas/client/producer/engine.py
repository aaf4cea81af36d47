"""The parts that `Producer` and `AsyncProducer` share.

Application threads add records through `records`. The sender takes them from the accumulator on an event loop: the loop
of a background thread, or the loop of the application. The engine has no reference to its producer. So the garbage
collector can free a producer that is not closed, and the engine still delivers its records.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from typing import Any, Protocol, TypeVar

from barnabas.client.cluster import Cluster, Dial, dial_with
from barnabas.client.config import ProducerConfig
from barnabas.client.interceptors import ClientContext, ProducerInterceptors
from barnabas.client.producer.accumulator import Accumulator, TopicQueues
from barnabas.client.producer.record_appender import RecordAppender, RecordPartitioner
from barnabas.client.producer.send_loop import SendLoop
from barnabas.client.producer.serializers import Serializers
from barnabas.client.standard_metrics import producer_metrics
from barnabas.clock import Clock
from barnabas.errors import ClosedError, ConfigurationError, TimedOutError
from barnabas.records import Compression, OpenEncoders

INTERCEPTORS_CUT_OFF_S = 2.0
"""The time limit in seconds for the `close` hooks of interceptors, if the producer could not deliver all records."""

LATE_S = 1.0
"""Seconds added to `delivery_timeout_ms` when a producer must finish at the exit of a program. Undelivered records then
fail with their own errors, even on a busy machine.
"""

log = logging.getLogger(__name__)

T = TypeVar("T")

CLOSED = "this producer is closed; make a new one"
ENDED = "this producer was dropped without close(), or the program ends; keep it for as long as you send"


class SenderLoop(Protocol):
    """The interface of the sender's event loop for application threads, which `LoopThread` implements."""

    @property
    def inside(self) -> bool:
        """True if the caller runs on this loop. Such a caller must not block."""
        ...

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result."""
        ...

    def call_soon(self, function: Callable[[], object]) -> None:
        """Schedule a call of `function` on the loop."""
        ...


class _ProducerTopics:
    """The topics for which the producer needs metadata, and which it may create."""

    def __init__(self, accumulator: Accumulator, may_create: bool) -> None:
        self._accumulator = accumulator
        self._may_create = may_create

    def topics_to_create(self) -> set[str]:
        return {queue.topic for queue in self._accumulator.waiting()} if self._may_create else set()

    def topics_in_use(self, since_s: float) -> set[str]:
        return self._accumulator.topics_in_use(since_s)


class ProducerEngine:
    """Accepts records and delivers them.

    :param serializers: convert keys and values to bytes, before the interceptors run.
    :param sender_loop: the event loop that runs `start`, `look_up`, `flush`, `finish` and `give_up`.
    :param dial: connects to a broker; None selects a function with the settings of `config`.
    :param random_source: returns a number in [0, 1).
    :param interceptors: the interceptors of this producer, or None.
    """

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        sender_loop: SenderLoop,
        serializers: Serializers,
        dial: Dial | None = None,
        random_source: Callable[[], float] = random.random,
        interceptors: ProducerInterceptors | None = None,
    ) -> None:
        self.config = config
        self._interceptors = interceptors or ProducerInterceptors()
        self._sender_loop = sender_loop
        open_encoders: dict[str, OpenEncoders] = {}
        self.accumulator = Accumulator(
            batch_size=config.batch_size,
            buffer_memory=config.buffer_memory,
            linger_s=config.linger_ms / 1000,
            max_block_s=config.max_block_ms / 1000,
            max_record_bytes=config.max_request_size,
            compression=Compression[config.compression_type.upper()],
            clock=clock,
            wake=self._wake,
            random=random_source,
            # If the application has its own partitioner, it must be called for each record, so no record may bypass the
            # lock.
            open_encoders=open_encoders if config.partitioner is None else None,
            may_block=lambda: not sender_loop.inside,
            interceptors=self._interceptors,
        )
        self.records = RecordAppender(
            self.accumulator,
            RecordPartitioner(config.partitioner),
            open_encoders,
            self.queues,
            clock,
            serializers,
            self._interceptors,
        )
        sends = _ProducerTopics(self.accumulator, config.allow_auto_create_topics)
        dial = dial or dial_with(config)
        self._cluster = Cluster(config, dial=dial, clock=clock, random=random_source, sending=sends)
        self.settled = asyncio.Event()
        """An event that wakes waiting tasks whenever a batch is acknowledged or fails, and its memory is freed."""
        self._send_loop = SendLoop(config, self._cluster, self.accumulator, clock, self.notify_settled)
        self._cluster.updated.append(lambda _view: self._send_loop.on_metadata())
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self._has_ended = False

    # --- topics -------------------------------------------------------------------------

    def queues(self, topic: str) -> TopicQueues:
        """Return the queues of a topic. Wait for the metadata of a topic that is new to this producer."""
        queues = self.accumulator.topic(topic) if isinstance(topic, str) else None
        if queues is not None:
            return queues
        self.check_topic(topic)
        self._sender_loop.call(self.look_up(topic))
        queues = self.accumulator.topic(topic)
        assert queues is not None
        return queues

    def check_topic(self, topic: str) -> None:
        """Check the name of a topic before its metadata is requested.

        :raises ClosedError: the producer is closed, or belongs to the parent of this forked process.
        :raises ConfigurationError: the topic is not a string, or is empty.
        """
        self.accumulator.check_open()
        if not isinstance(topic, str) or not topic:
            raise ConfigurationError(f"the name of a topic must be a non-empty string, not {topic!r}")

    def _wake(self) -> None:
        self._sender_loop.call_soon(self._send_loop.wake)

    def after_fork(self, error: ClosedError) -> None:
        """Stop deliveries in a forked child; calls of the producer raise `error`."""
        self.accumulator.after_fork(error)

    def metrics(self) -> dict[str, float]:
        return {**self.accumulator.metrics(), "requests_in_flight": self._send_loop.sender.in_flight()}

    def last_error_suffix(self) -> str:
        """Return a suffix for error messages with the producer's last error, or an empty string if there was none."""
        trouble = self._send_loop.sender.last_error
        return f": {trouble}" if trouble else ""

    def unfinished_error(self, timeout_s: float | None) -> TimedOutError:
        """Return the error for records that are still unacknowledged after `timeout_s`."""
        left = self.accumulator.unfinished_records()
        return TimedOutError(f"{left} records were still on their way after {timeout_s} s{self.last_error_suffix()}")

    def warn_of_losses(self, why: str) -> None:
        """Log a warning with the number of unacknowledged records, if there are any."""
        lost = self.accumulator.unfinished_records()
        if lost:
            log.warning("%s: %d records were not acknowledged and may be lost%s", why, lost, self.last_error_suffix())

    # --- on the event loop ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start to send records."""
        context = ClientContext(
            client_id=self.config.client_id,
            group=None,
            request_timeout_ms=self.config.request_timeout_ms,
            clock=self._clock,
            cluster=self._cluster,
            locked=nullcontext,
            positions=dict,
            standard_metrics=lambda: producer_metrics(self.accumulator.produced, self._cluster.connections),
        )
        await self._interceptors.start(context)
        if self._has_ended:  # `close` was called while this method waited
            return
        works = [self._send_loop.run(), self._cluster.refresh_forever()]
        self._tasks = [asyncio.create_task(work) for work in works]
        for task in self._tasks:
            task.add_done_callback(self._on_stopped)

    def _on_stopped(self, done: asyncio.Task[None]) -> None:
        """Fail all records when a task of the producer ends unexpectedly, so that no caller waits forever.

        A task that `give_up` has cancelled is expected to end.
        """
        if self._has_ended:
            return
        error = None if done.cancelled() else done.exception()
        if error is None:
            self.warn_of_losses("the event loop ended before `await close()` or the `async with` block of a producer")
            stopped = ClosedError("the event loop of this producer has ended; make a new one")
        else:
            log.error("the producer stopped because of a defect; its records fail", exc_info=error)
            stopped = ClosedError(f"the producer stopped because of {error!r}; make a new one")
        self.accumulator.refuse(stopped)
        self._send_loop.settle_all(stopped)

    async def look_up(self, topic: str) -> None:
        """Request the metadata of a topic.

        :raises TimedOutError: the metadata did not arrive within `max_block_ms`.
        """
        auto_creates = self.config.allow_auto_create_topics
        await self._cluster.topic(topic, timeout_s=self.config.max_block_ms / 1000, auto_creates=auto_creates)

    def notify_settled(self) -> None:
        """Wake the tasks that wait until a batch is acknowledged or fails."""
        self.settled.set()
        self.settled.clear()

    async def flush(self, timeout_s: float | None) -> None:
        """Wait until every record sent so far is acknowledged or has failed.

        :raises TimedOutError: some records were still unacknowledged after `timeout_s`.
        """
        deadline_s = None if timeout_s is None else self._clock.monotonic() + timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                for batch in self.accumulator.close_all():
                    while not batch.done:
                        await self.settled.wait()
        except TimeoutError:
            raise self.unfinished_error(timeout_s) from None
        remaining_s = None if deadline_s is None else max(0.0, deadline_s - self._clock.monotonic())
        await self.flush_interceptors(remaining_s)

    @property
    def interceptors_flush(self) -> bool:
        """True if `flush` must wait for interceptors."""
        return self._interceptors.have_flush

    async def flush_interceptors(self, timeout_s: float | None = None) -> None:
        """Wait until the interceptors have handled the acknowledged and failed records."""
        await self._interceptors.flush(timeout_s)

    async def finish(self) -> None:
        """Deliver all records within `delivery_timeout_ms`, stop, and log lost records. Called for a producer that the
        application has not closed.
        """
        self.accumulator.refuse(ClosedError(ENDED))
        self.notify_settled()
        try:
            await self.flush(self.config.delivery_timeout_ms / 1000 + LATE_S)
        except TimedOutError as error:
            log.warning("a producer was not closed, and not all of its records were delivered: %s", error)
        finally:
            self.warn_of_losses("a producer was not closed")
            await self.give_up()

    async def give_up(self, deadline_s: float | None = None) -> None:
        """Stop all tasks, close the connections, and fail the undelivered records, so that no caller waits forever.

        :param deadline_s: the monotonic time in seconds at which `close` must return, or None if there is no deadline.
        """
        self._has_ended = True
        is_cut_off = self.accumulator.unfinished_records() > 0
        self._send_loop.settle_all(
            TimedOutError(f"the producer was closed before the record was acknowledged{self.last_error_suffix()}")
        )
        # If the producer could not deliver records, its interceptors probably cannot send anything either.
        try:
            limits_s = [INTERCEPTORS_CUT_OFF_S] if is_cut_off else []
            if deadline_s is not None:
                limits_s.append(max(0.0, deadline_s - self._clock.monotonic()))
            await self._interceptors.close(min(limits_s, default=None))
        finally:
            self._cluster.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

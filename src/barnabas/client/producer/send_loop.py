"""The producer's shell: carries the sender's plans to the brokers and their answers back. One task, one event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from barnabas.client.cluster import Cluster
from barnabas.client.config import ProducerConfig
from barnabas.client.producer.accumulator import NEVER_S, Accumulator
from barnabas.client.producer.batch import ProducerBatch
from barnabas.client.producer.sender import Plan, Send, Sender
from barnabas.clock import Clock
from barnabas.errors import BarnabasError, ErrorCode, KafkaError, UnsupportedVersionError
from barnabas.model import TopicPartition
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

log = logging.getLogger(__name__)

TRANSACTION_TIMEOUT_MS = 60_000
"""Means nothing without a transactional id, but brokers check that it is a time."""

UNSENT_BYTES_MAX = 4 * 1024 * 1024
"""With acks=0 nothing but the socket's backlog says that a broker is slower than we are."""

BACKLOG_PAUSE_S = 0.001

TOPIC_LOST = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)


class SendLoop:
    """Runs a `Sender` on the event loop of `cluster`."""

    def __init__(self, config: ProducerConfig, cluster: Cluster, accumulator: Accumulator, clock: Clock) -> None:
        self._config = config
        self._cluster = cluster
        self._accumulator = accumulator
        self._clock = clock
        self._wake = asyncio.Event()
        self._queues: dict[int, asyncio.Queue[Send]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._fault: BaseException | None = None
        self.sender = Sender(
            accumulator,
            leader_of=self._leader_of,
            run=run_callbacks,
            acks=config.acks,
            idempotent=config.enable_idempotence,
            in_flight_max=config.max_in_flight_requests_per_connection,
            request_bytes_max=config.max_request_size,
            request_timeout_ms=config.request_timeout_ms,
            delivery_timeout_s=config.delivery_timeout_ms / 1000,
            retries_max=config.retries,
            backoff=cluster.backoff,
        )

    def _leader_of(self, tp: TopicPartition) -> int | None:
        return self._cluster.view.leader(tp)

    def wake(self) -> None:
        """Look for work now; runs on the loop."""
        self._wake.set()

    async def run(self) -> None:
        """Send what is ready, for ever; raises what went wrong, here or in a task that feeds a broker."""
        while True:
            self._wake.clear()
            if self._fault is not None:
                raise self._fault
            # From here on an append that makes something ready wakes us again.
            self._accumulator.wakes_at_s = NEVER_S
            plan = self.sender.plan(self._clock.monotonic())
            for send in plan.sends:
                self._queue_for(send.node_id).put_nowait(send)
            if plan.topics_to_refresh:
                self._cluster.want_refresh()
            if self.sender.needs_identity and self._accumulator.unfinished_count():
                await self._get_identity()
            else:
                await self._sleep(plan)

    def _queue_for(self, node_id: int) -> asyncio.Queue[Send]:
        """Return the queue of a broker; a task of its own empties it, so that one that is down delays no other."""
        queue = self._queues.get(node_id)
        if queue is None:
            queue = self._queues[node_id] = asyncio.Queue()
            task = asyncio.create_task(self._feed(queue))
            task.add_done_callback(self._on_fed)
            self._tasks.append(task)
        return queue

    def _on_fed(self, task: asyncio.Task[None]) -> None:
        """Feeding ends by cancellation alone; if it failed, its requests would be waited for, for ever."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._stop(error)

    def _stop(self, error: BaseException) -> None:
        """Have `run` raise an error that nobody foresaw."""
        self._fault = error
        self._wake.set()

    async def _feed(self, queue: asyncio.Queue[Send]) -> None:
        while True:
            await self._send(await queue.get())

    async def _sleep(self, plan: Plan) -> None:
        self._accumulator.sleep_until(plan.wake_at_s)
        delay_s = plan.wake_at_s - self._clock.monotonic()
        if delay_s == NEVER_S:
            await self._wake.wait()
        elif delay_s > 0:
            timer = asyncio.get_running_loop().call_later(delay_s, self._wake.set)
            await self._wake.wait()
            timer.cancel()

    async def _send(self, send: Send) -> None:
        """Hand one request to its connection, in the order of the plan; the answer is handled later."""
        try:
            channel = await self._cluster.channel_to(send.node_id)
            if self._config.acks == 0:
                channel.post(send.request)
                self.sender.on_posted(send)
                while channel.is_open and channel.unsent_bytes > UNSENT_BYTES_MAX:  # noqa: ASYNC110  no event tells
                    await asyncio.sleep(BACKLOG_PAUSE_S)
                return
            answer = channel.send_soon(send.request, timeout_s=self._timeout_s(send))
        except BarnabasError as error:
            self._failed(send, error)
            return
        answer.add_done_callback(lambda done: self._answered(send, done))

    def _timeout_s(self, send: Send) -> float:
        """How long an answer is waited for: a request timeout, but not (much) past the delivery timeout."""
        oldest_s = min(batch.created_at_s for batch in send.batches)
        left_s = oldest_s + self._config.delivery_timeout_ms / 1000 - self._clock.monotonic()
        return max(0.001, min(self._config.request_timeout_ms / 1000, left_s))

    def _answered(self, send: Send, done: asyncio.Future[object]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, BarnabasError):
            self._failed(send, error)
        elif error is not None:
            self._failed(send, BarnabasError(f"unexpected: {error!r}"))
        else:
            self._take_response(send, done.result())

    def _take_response(self, send: Send, response: object) -> None:
        try:
            stale = self.sender.on_response(send, response, self._clock.monotonic())  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001 - a callback's error reaches nobody; it is raised by `run`
            self._stop(error)
            return
        if stale:
            self._cluster.want_refresh()
        self._wake.set()

    def _failed(self, send: Send, error: BarnabasError) -> None:
        log.debug("produce to broker %d: %s", send.node_id, error)
        if self.sender.on_failure(send, error, self._clock.monotonic()):
            self._cluster.want_refresh()
        self._wake.set()

    async def _get_identity(self) -> None:
        """Get a producer id from some broker; on an error that will not pass, give everything up."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        try:
            channel = await self._cluster.any_channel()
            response: InitProducerIdResponse = await self._cluster.ask(channel, request)
            if response.error_code:
                raise KafkaError(response.error_code, "no producer id for an idempotent producer")
            self.sender.set_identity(response.producer_id, response.producer_epoch)
        except BarnabasError as error:
            self.sender.last_trouble = str(error)
            if not error.retriable:
                self._give_up(error)
            await asyncio.sleep(self._cluster.backoff.delay_s(1))

    def _give_up(self, error: BarnabasError) -> None:
        if isinstance(error, UnsupportedVersionError):
            error = UnsupportedVersionError(f"{error}; with enable_idempotence=False it can do without")
        self._accumulator.refuse(error)
        self.sender.fail_all(error)

    def settle(self, batch: ProducerBatch, error: BarnabasError) -> None:
        """Give up a batch wherever it is; an answer that still comes for it is ignored."""
        run_callbacks(self._accumulator.complete(batch, error=error))

    def settle_all(self, error: BarnabasError) -> None:
        """Give up all that is not settled, also what is in flight."""
        for batch in self._accumulator.close_all():
            if not batch.done:
                self.settle(batch, error)

    def on_metadata(self) -> None:
        """Take over what the cluster now says about the topics that are produced to."""
        for name, topic in self._cluster.view.topics.items():
            if topic.error in TOPIC_LOST:
                self.sender.fail_topic(name, KafkaError(topic.error, f"topic {name!r}"))
            elif topic.partitions:
                partitions = range(len(topic.partitions))
                led = [each for each in partitions if self._cluster.view.leader(TopicPartition(name, each)) is not None]
                self._accumulator.set_partitions(name, len(topic.partitions), led)
        self._wake.set()


def run_callbacks(callbacks: list[Callable[[], object]]) -> None:
    """Run the callbacks of deliveries; one that raises is reported and disturbs nobody."""
    for callback in callbacks:
        try:
            callback()
        except Exception:
            log.exception("a delivery callback raised")

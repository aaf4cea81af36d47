"""Sends the requests that the sender plans, and passes the responses to it, on one event loop.

The loop works in turns. In a turn, it asks the sender for a plan and submits all requests of the plan. A turn starts
after a wake-up from `send`, after one read of a connection has returned responses, or at a timer. Each turn makes one
system call per broker. This matters if another thread is busy: each system call releases the interpreter lock, and the
loop may wait for the switch interval to acquire the lock again.

`ProduceTemplates` encodes a request with one small batch, and decodes its response, in one step each. The general codec
handles all other messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from barnabas.client.cluster import PRODUCE_VERSION_MAX, Channel, Cluster
from barnabas.client.config import ProducerConfig
from barnabas.client.producer.accumulator import NEVER_S, Accumulator, ProducerBatch, run_callbacks
from barnabas.client.producer.sender import Plan, Send, Sender, SinglePartitionProduce
from barnabas.clock import Clock
from barnabas.errors import ApiError, BarnabasError, ErrorCode, TimedOutError, UnsupportedVersionError
from barnabas.model import TopicPartition
from barnabas.protocol.codec import Buffer, EncodedRequest, ResponseTemplate, template_encoder_with_records
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

log = logging.getLogger(__name__)

PACKED_BYTES_MAX = 4096
"""The maximum size of a batch that is copied into a request.

Copying a larger batch takes longer than the template saves.
"""

STEADY_SINCE = 5
"""The first Produce version whose response has all fields of `SinglePartitionProduce`."""

PATTERNS_MAX = 64
"""The maximum number of topics with templates. The number is limited because creating a template takes as long as ten
requests.
"""


class ProduceTemplates:
    """The templates of all requests of one version.

    :param acks: the acks of all requests; `timeout_ms` applies to all requests, too.
    """

    def __init__(self, version: int, *, acks: int, timeout_ms: int) -> None:
        self._version = version
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._topics: dict[str, _Topic] = {}

    def request(self, topic: str, partition: int, records: Buffer) -> EncodedRequest | None:
        """Return a request with one batch, or None if the batch is too large or the maximum number of templates is
        reached.
        """
        if len(records) > PACKED_BYTES_MAX or self._version < STEADY_SINCE:
            return None
        known = self._topics.get(topic)
        if known is None:
            if len(self._topics) == PATTERNS_MAX:
                return None
            known = self._topics[topic] = _Topic(topic, self._packer(topic))
        return EncodedRequest(ProduceRequest, known.pack(records, partition), known.read)

    def _packer(self, topic: str) -> Callable[..., bytes]:
        def request_with(records: bytes, partition: int) -> ProduceRequest:
            data = [PartitionProduceData(index=partition, records=records)]
            topics = [TopicProduceData(name=topic, partition_data=data)]
            return ProduceRequest(acks=self._acks, timeout_ms=self._timeout_ms, topic_data=topics)

        return template_encoder_with_records(request_with, 1, self._version)

    def learn(self, response: ProduceResponse) -> None:
        """Create a template from a decoded response of the usual form, unless the topic already has a template."""
        if len(response.responses) != 1 or response.throttle_time_ms:
            return
        (topic,) = response.responses
        known = self._topics.get(topic.name)
        if known is None or known.reader is not None or len(topic.partition_responses) != 1:
            return
        (result,) = topic.partition_responses
        if not result.error_code:
            known.reader = _reader(response, self._version)


class _Topic:
    __slots__ = ("name", "pack", "reader")

    def __init__(self, name: str, pack: Callable[..., bytes]) -> None:
        self.name = name
        self.pack = pack
        self.reader: ResponseTemplate | None = None
        """The template for responses, or None before the first decoded response."""

    def read(self, frame: Buffer) -> SinglePartitionProduce | None:
        """Return the decoded response, or None if the general codec must decode it."""
        found = None if self.reader is None else self.reader.read(frame)
        if found is None:
            return None
        partition, base_offset, log_append_time_ms, _ = found
        return SinglePartitionProduce(self.name, partition, base_offset, log_append_time_ms)


def _reader(response: ProduceResponse, version: int) -> ResponseTemplate:
    (topic,) = response.responses
    (result,) = topic.partition_responses

    def answer_with(index: int, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> ProduceResponse:
        other: PartitionProduceResponse = replace(
            result,
            index=index,
            base_offset=base_offset,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=log_start_offset,
        )
        return replace(response, responses=[replace(topic, partition_responses=[other])])

    return ResponseTemplate(answer_with, 4, version)


LOOK_S_MIN = 0.001
"""The minimum pause in seconds between two plans while records accumulate and a request is in flight."""

TRANSACTION_TIMEOUT_MS = 60_000
"""The transaction timeout. It has no effect without a transactional id, but brokers check that it is in range."""

UNSENT_BYTES_MAX = 4 * 1024 * 1024
"""The maximum unsent bytes of a connection with acks=0.

Without responses, only unsent bytes show that a broker is slower than the producer.
"""

IDENTITY = -1
"""The key of the InitProducerId request in `_waiting`. The request has no broker id, because it may
go to any broker.
"""

TOPIC_LOST = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)


class SendLoop:
    """Runs a `Sender` on the event loop of `cluster`.

    :param on_settled: called on the loop after each batch that is acknowledged or has failed, when its memory is free.
    """

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        accumulator: Accumulator,
        clock: Clock,
        on_settled: Callable[[], None] | None = None,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._accumulator = accumulator
        self._clock = clock
        self._linger_s = config.linger_ms / 1000
        # Do not shorten the request timeout for a batch that expires earlier: a timeout closes the connection, and then
        # all requests on it fail.
        self._answer_timeout_s = min(config.request_timeout_ms, config.delivery_timeout_ms) / 1000
        self._running = False
        self._in_turn = False
        self._turn_wanted = False
        self._fault: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = NEVER_S
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[int, list[Send]] = {}
        """The requests that wait for a connection to a broker, in order, by the broker's id."""
        self._templates: dict[int, ProduceTemplates] = {}
        """The templates by the version of the requests."""
        self._backlog: list[tuple[Channel, Send]] = []
        """The requests with acks=0 that wait because their broker is slow."""
        self._on_settled = on_settled
        self.sender = Sender(
            accumulator,
            leader_of=self._leader_of,
            run=self._settled,
            acks=config.acks,
            idempotent=config.enable_idempotence,
            batch_size=config.batch_size,
            linger_s=config.linger_ms / 1000,
            in_flight_max=config.max_in_flight_requests_per_connection,
            request_bytes_max=config.max_request_size,
            request_timeout_ms=config.request_timeout_ms,
            delivery_timeout_s=config.delivery_timeout_ms / 1000,
            retries_max=config.retries,
            backoff=cluster.backoff,
            principal=config.principal,
        )

    def _leader_of(self, tp: TopicPartition) -> int | None:
        return self._cluster.view.leader(tp)

    async def run(self) -> None:
        """Send batches until cancelled; raises unexpected errors."""
        self._fault = asyncio.get_running_loop().create_future()
        self._running = True
        try:
            self.wake()
            await self._fault
        finally:
            self._running = False
            if self._timer is not None:
                self._timer.cancel()
            for task in self._tasks:
                task.cancel()

    def wake(self) -> None:
        """Start a turn. Call this on the event loop. `run` raises unexpected errors of the turn."""
        self._turn_wanted = True
        if self._in_turn:
            return  # a write of the current turn has closed a connection; start another turn afterwards
        self._in_turn = True
        try:
            while self._turn_wanted and self._running:
                self._turn_wanted = False
                self._take_turn()
        except Exception as error:  # noqa: BLE001 - no caller would receive the error of a callback; `run` raises it
            self._stop(error)
        finally:
            self._in_turn = False

    def _take_turn(self) -> None:
        if self._backlog:
            self._take_backlog()
        # From now on, an append that makes a batch ready wakes the loop.
        self._accumulator.wakes_at_s = NEVER_S
        now_s = self._clock.monotonic()
        plan = self.sender.plan(now_s)
        channels = self._submit_all(plan.sends, now_s)
        if plan.topics_to_refresh:
            # The last metadata has no leader or a wrong leader. Its broker may be disconnected from the cluster.
            self._cluster.request_refresh(is_stale=True)
        if self.sender.needs_identity and IDENTITY not in self._waiting and self._accumulator.unfinished_count():
            self._waiting[IDENTITY] = []
            self._start(self._get_identity())
        if self._config.acks == 0:
            self._flush_all(channels)  # flush first, because the flush acknowledges or fails batches
            self._sleep(plan, now_s)
        else:
            # Other threads may have appended records during the flush. They have not woken the loop, because it expects
            # a response.
            self._sleep(plan, now_s)
            self._flush_all(channels)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """Stop the loop if a task has failed. Otherwise callers would wait forever for its batches."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._stop(error)

    def _stop(self, error: BaseException) -> None:
        """Stop the loop: `run` raises the unexpected error."""
        self._running = False
        if self._fault is not None and not self._fault.done():
            self._fault.set_exception(error)

    # --- sleeping ---------------------------------------------------------------------------------------

    def _sleep(self, plan: Plan, now_s: float) -> None:
        """Schedule the next turn according to the plan. Appends then wake the loop only if a batch
        must leave earlier.
        """
        at_s = plan.wake_at_s
        if self._backlog:
            at_s = min(at_s, *(self._gives_up_at_s(send) for _, send in self._backlog))
        brokers = self._cluster.view.brokers
        in_flight = [self.sender.in_flight_to(node_id) for node_id in brokers]
        self._accumulator.eager = not all(in_flight)
        busy = plan.held_back and not any(map(self.sender.may_send_to, brokers))
        if any(in_flight) and not busy:
            # Records accumulate until a response arrives, or until the first ones have lingered. So a timer suffices,
            # and appends need not wake the loop.
            at_s = min(at_s, now_s + max(self._linger_s, LOOK_S_MIN))
        if at_s < self._timer_at_s:
            self._look_again_at(at_s, now_s)
        # If all brokers are busy, appends need not wake the loop: nothing can be sent before a response.
        self._accumulator.sleep_until(0.0 if busy else at_s)

    def _look_again_at(self, at_s: float, now_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_s = at_s
        self._timer = asyncio.get_running_loop().call_later(max(0.0, at_s - now_s), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at_s = NEVER_S
        self.wake()

    # --- requests and responses ---------------------------------------------------------------------------

    def _submit_all(self, sends: list[Send], now_s: float) -> list[Channel]:
        """Queue requests in the order of the plan. Return the connections to flush."""
        channels: dict[int, Channel] = {}
        for send in sends:
            node_id = send.node_id
            waiting = self._waiting.get(node_id)
            channel = channels.get(node_id) or self._cluster.open_channel(node_id)
            send.is_connecting = waiting is not None or channel is None
            if waiting is not None:
                waiting.append(send)
            elif channel is None:
                self._waiting[node_id] = [send]
                self._start(self._connect(node_id))
            else:
                channels[node_id] = channel
                self._submit(channel, send, now_s)
        return list(channels.values())

    def _flush_all(self, channels: list[Channel]) -> None:
        for channel in channels:
            self._flush(channel)

    async def _connect(self, node_id: int) -> None:
        """Connect to a broker and send the requests that wait for it. An unreachable broker does not delay requests to
        other brokers.
        """
        try:
            async with asyncio.timeout(self._config.delivery_timeout_ms / 1000):
                channel = await self._cluster.channel_to(node_id)
        except BarnabasError as error:
            self._not_connected(node_id, error)
        except TimeoutError:
            self._not_connected(node_id, TimedOutError(f"no connection to broker {node_id} yet"))
        else:
            now_s = self._clock.monotonic()
            for send in self._waiting.pop(node_id):
                self._submit(channel, send, now_s)
            self._flush(channel)
        self.wake()

    def _not_connected(self, node_id: int, error: BarnabasError) -> None:
        for send in self._waiting.pop(node_id):
            self._failed(send, error)

    def _submit(self, channel: Channel, send: Send, now_s: float) -> None:
        send.is_connecting = False
        try:
            version = min(channel.version_for(ProduceRequest), PRODUCE_VERSION_MAX)
            if self._config.acks == 0:
                channel.submit(send.request, None, version=version)
                self._backlog.append((channel, send))
                send.expires_at_s = NEVER_S  # `_gives_up_at_s` determines the time
            else:
                templates = self._templates.get(version) or self._new_templates(send, version)
                on_answer = partial(self._answered, templates, send, now_s)
                request = _packed(templates, send) or send.request
                channel.submit(request, on_answer, version=version, timeout_s=self._answer_timeout_s)
        except BarnabasError as error:
            self._failed(send, error)

    def _new_templates(self, send: Send, version: int) -> ProduceTemplates:
        templates = self._templates[version] = ProduceTemplates(version, acks=send.acks, timeout_ms=send.timeout_ms)
        return templates

    def _flush(self, channel: Channel) -> None:
        channel.on_progress = self.wake
        channel.flush()
        if self._backlog:
            self._take_backlog()

    def _take_backlog(self) -> None:
        """Send waiting requests with acks=0, unless the broker is still too slow, and complete their batches."""
        backlog, self._backlog = self._backlog, []
        now_s = self._clock.monotonic()
        for channel, send in backlog:
            if not channel.is_open or channel.unsent_bytes <= UNSENT_BYTES_MAX:
                self.sender.on_sent_unacknowledged(send)
            elif now_s < self._gives_up_at_s(send):
                self._backlog.append((channel, send))
            else:
                self._failed(send, TimedOutError("a broker takes no more"))

    def _gives_up_at_s(self, send: Send) -> float:
        """Return the monotonic time at which all batches of a request will have expired. Expired batches are not sent
        again, because they may be stored.
        """
        return max([batch.created_at_s for batch in send.batches]) + self._config.delivery_timeout_ms / 1000

    def _answered(
        self,
        templates: ProduceTemplates,
        send: Send,
        sent_at_s: float,
        response: ProduceResponse | SinglePartitionProduce,
        error: BarnabasError | None,
    ) -> None:
        """Handle a response. The next turn starts after all responses that arrived in the same read."""
        if error is not None:
            self._failed(send, error)
            return
        now_s = self._clock.monotonic()
        produced = self._accumulator.produced
        produced.answered(send.node_id, now_s - sent_at_s)
        try:
            if isinstance(response, ProduceResponse):
                if response.throttle_time_ms:
                    produced.throttle_ms.add(response.throttle_time_ms)
                templates.learn(response)
            stale = self.sender.on_response(send, response, now_s)
        except Exception as unforeseen:  # noqa: BLE001 - no caller would receive the error of a callback; `run` raises it
            self._stop(unforeseen)
            return
        if stale:
            self._cluster.request_refresh(is_stale=True)

    def _failed(self, send: Send, error: BarnabasError) -> None:
        log.debug("a produce request to broker %d failed: %s", send.node_id, error)
        if self.sender.on_failure(send, error, self._clock.monotonic()):
            self._cluster.request_refresh(is_stale=True)

    async def _get_identity(self) -> None:
        """Request a producer id from any broker; after an error that is not retriable, fail all records."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        try:
            channel = await self._cluster.any_channel()
            response: InitProducerIdResponse = await self._cluster.ask(channel, request)
            if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                # WRITE on any topic is enough for a producer id. Later records may be allowed.
                self.sender.fail_unwritable(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            elif response.error_code:
                raise ApiError(response.error_code, subject="request for a producer id")
            else:
                self.sender.set_identity(response.producer_id, response.producer_epoch)
        except BarnabasError as error:
            self.sender.note_error(str(error), self._clock.monotonic())
            if not error.retriable:
                self._give_up(error)
            await asyncio.sleep(self._cluster.backoff.delay_s(1))
        del self._waiting[IDENTITY]
        self.wake()

    def _give_up(self, error: BarnabasError) -> None:
        if isinstance(error, UnsupportedVersionError):
            error = UnsupportedVersionError(f"{error}; enable_idempotence=False avoids this request")
        self._accumulator.refuse(error)
        self.sender.fail_all(error)

    def settle(self, batch: ProducerBatch, error: BarnabasError) -> None:
        """Fail a batch in any state; a later response for it is ignored."""
        self._settled(self._accumulator.complete(batch, error=error))

    def _settled(self, callbacks: list[Callable[[], object]]) -> None:
        if callbacks:
            run_callbacks(callbacks)
        if self._on_settled is not None:
            self._on_settled()

    def settle_all(self, error: BarnabasError) -> None:
        """Fail all unfinished batches, including those in flight."""
        for batch in self._accumulator.close_all():
            if not batch.done:
                self.settle(batch, error)

    def on_metadata(self) -> None:
        """Apply new metadata to the topics of the producer."""
        for name, topic in self._cluster.view.topics.items():
            if topic.error in TOPIC_LOST:
                self.sender.fail_topic(name, self._cluster.topic_error(name, topic.error))
            elif topic.partitions:
                partitions = range(len(topic.partitions))
                led = [each for each in partitions if self._cluster.view.leader(TopicPartition(name, each)) is not None]
                self._accumulator.set_partitions(name, len(topic.partitions), led)
        self.wake()


def _packed(templates: ProduceTemplates, send: Send) -> EncodedRequest | None:
    if len(send.batches) != 1:
        return None
    (batch,), (records,) = send.batches, send.records
    return templates.request(batch.topic, batch.partition, records)

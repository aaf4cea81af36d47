"""Which batches go to which broker next, and what an answer means for them. No I/O: time and answers come in,
produce requests and wake-up times come out.

Order within a partition is kept over retries: batches leave from the head of their queue, a batch to be tried
again goes back to its place, and under idempotence the broker refuses what would overtake (see `sequences`).
Up to `in_flight_max` requests per broker are under way at once. Used by the producer's own thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from barnabas.client.backoff import Backoff
from barnabas.client.producer.accumulator import NEVER_S, Accumulator, PartitionQueue
from barnabas.client.producer.batch import ProducerBatch
from barnabas.client.producer.sequences import PartitionSequences
from barnabas.client.producer.splitting import split_records
from barnabas.errors import BarnabasError, ErrorCode, FencedError, KafkaError, TimedOutError
from barnabas.model import NO_OFFSET, NO_PRODUCER_ID, TopicPartition
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

log = logging.getLogger(__name__)

LEADER_MAY_HAVE_MOVED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
OUT_OF_SEQUENCE = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)


@dataclass(slots=True)
class Send:
    """One produce request for one broker, and the batches in it."""

    node_id: int
    batches: list[ProducerBatch]
    request: ProduceRequest


@dataclass(slots=True)
class Plan:
    """What to do now, and until when to sleep if nothing happens."""

    sends: list[Send] = field(default_factory=list)
    topics_to_refresh: set[str] = field(default_factory=set)
    """Topics with batches that wait for a leader to be known."""
    wake_at_s: float = NEVER_S


class _Lane:
    """What the sender remembers of one partition."""

    __slots__ = ("in_flight", "queue", "retry_at_s", "sequences")

    def __init__(self, queue: PartitionQueue) -> None:
        self.queue = queue
        self.sequences = PartitionSequences()
        self.in_flight = 0
        self.retry_at_s = 0.0


class Sender:
    """The producer's state machine for sending.

    :param leader_of: returns the id of the broker that leads a partition, or None if that is not known.
    :param run: runs callbacks of deliveries, outside all locks.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        *,
        leader_of: Callable[[TopicPartition], int | None],
        run: Callable[[list[Callable[[], object]]], None],
        acks: int,
        idempotent: bool,
        in_flight_max: int,
        request_bytes_max: int,
        request_timeout_ms: int,
        delivery_timeout_s: float,
        retries_max: int,
        backoff: Backoff,
    ) -> None:
        self._accumulator = accumulator
        self._leader_of = leader_of
        self._run = run
        self._acks = acks
        self._idempotent = idempotent
        self._in_flight_max = in_flight_max
        self._request_bytes_max = request_bytes_max
        self._request_timeout_ms = request_timeout_ms
        self._delivery_timeout_s = delivery_timeout_s
        self._retries_max = retries_max
        self._backoff = backoff
        self._lanes: dict[PartitionQueue, _Lane] = {}
        self._in_flight: dict[int, int] = {}
        self._identity: tuple[int, int] | None = None
        self.last_trouble = ""
        """The last thing that went wrong on the way, for the message of a delivery that times out."""

    # --- identity ---------------------------------------------------------------------------------------

    @property
    def needs_identity(self) -> bool:
        """Whether a producer id must be had from a broker before anything can be sent."""
        return self._idempotent and self._identity is None

    def set_identity(self, producer_id: int, epoch: int) -> None:
        """Take the producer id that a broker has given out."""
        assert producer_id != NO_PRODUCER_ID
        self._identity = (producer_id, epoch)

    # --- what to send -----------------------------------------------------------------------------------

    def plan(self, now_s: float) -> Plan:
        """Take what is ready, give up what is too old, and say what to send and when to come back."""
        plan = Plan()
        by_node: dict[int, list[_Lane]] = {}
        for queue in self._accumulator.waiting():
            lane = self._lanes.get(queue) or self._lanes.setdefault(queue, _Lane(queue))
            self._expire(lane, now_s, plan)
            if not queue.batches:
                continue
            leader = self._leader_of(TopicPartition(queue.topic, queue.partition))
            if leader is None:
                plan.topics_to_refresh.add(queue.topic)
            elif not self.needs_identity:
                by_node.setdefault(leader, []).append(lane)
        for node_id, lanes in by_node.items():
            self._plan_node(node_id, lanes, now_s, plan)
        return plan

    def _expire(self, lane: _Lane, now_s: float, plan: Plan) -> None:
        queue = lane.queue
        while queue.batches:
            batch = queue.batches[0]
            expires_at_s = batch.created_at_s + self._delivery_timeout_s
            if now_s < expires_at_s:
                plan.wake_at_s = min(plan.wake_at_s, expires_at_s)
                return
            self._accumulator.take(queue)
            lane.sequences.resolve(batch)
            why = f": {self.last_trouble}" if self.last_trouble else ""
            self._settle(
                batch,
                error=TimedOutError(
                    f"{batch} not acknowledged within delivery_timeout_ms={self._delivery_timeout_s * 1000:.0f}{why}"
                ),
            )

    def _plan_node(self, node_id: int, lanes: list[_Lane], now_s: float, plan: Plan) -> None:
        ready, lingering = self._ready(lanes, now_s, plan)
        while ready and self._in_flight.get(node_id, 0) < self._in_flight_max:
            send = self._fill(node_id, ready, now_s)
            if send is None:
                return
            plan.sends.append(send)
            ready, lingering = self._ready(ready + lingering, now_s, plan)

    def _ready(self, lanes: list[_Lane], now_s: float, plan: Plan) -> tuple[list[_Lane], list[_Lane]]:
        """Return the lanes whose head may leave now, and the others.

        Where one batch has lingered its time, the open ones for the same broker travel with it: one request
        with many small batches costs less than many requests.
        """
        ready: list[_Lane] = []
        lingering: list[_Lane] = []
        one_has_lingered = False
        for lane in lanes:
            if not lane.queue.batches or not self._may_leave(lane, now_s, plan):
                continue
            head = lane.queue.batches[0]
            at_s = self._accumulator.ready_at_s(head)
            if at_s <= now_s:
                ready.append(lane)
                one_has_lingered = one_has_lingered or at_s > 0.0
            else:
                lingering.append(lane)
                plan.wake_at_s = min(plan.wake_at_s, at_s)
        return (ready + lingering, []) if one_has_lingered else (ready, lingering)

    def _may_leave(self, lane: _Lane, now_s: float, plan: Plan) -> bool:
        if lane.retry_at_s > now_s:
            plan.wake_at_s = min(plan.wake_at_s, lane.retry_at_s)
            return False
        if not self._idempotent:
            return True
        sequences = lane.sequences
        if sequences.restart_due and lane.in_flight == 0 and not sequences.restart():
            self._identity = None
            return False
        if sequences.producer_id == NO_PRODUCER_ID:
            if self._identity is None:
                return False
            sequences.start(*self._identity)
        return sequences.may_send(lane.queue.batches[0])

    def _fill(self, node_id: int, ready: list[_Lane], now_s: float) -> Send | None:
        """Take one batch of each ready lane, up to the size of a request."""
        taken: list[ProducerBatch] = []
        size_bytes = 0
        for lane in ready:
            head = lane.queue.batches[0]
            if taken and size_bytes + head.size_bytes > self._request_bytes_max:
                break
            batch = self._accumulator.take(lane.queue)
            batch.attempts += 1
            if self._idempotent and not batch.in_sequence:
                lane.sequences.assign(batch)
            lane.in_flight += 1
            size_bytes += batch.size_bytes
            taken.append(batch)
        if not taken:
            return None
        # The lanes that were served come last the next time, so that a busy one starves nobody.
        ready[:] = ready[len(taken) :] + ready[: len(taken)]
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
        return Send(node_id, taken, self._request(taken))

    def _request(self, batches: list[ProducerBatch]) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            data = PartitionProduceData(index=batch.partition, records=batch.payload())
            topics.setdefault(batch.topic, []).append(data)
        return ProduceRequest(
            acks=self._acks,
            timeout_ms=self._request_timeout_ms,
            topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
        )

    # --- what came of it --------------------------------------------------------------------------------

    def on_posted(self, send: Send) -> None:
        """A request without acknowledgement (acks=0) was handed to the connection: that is all one will know."""
        for _lane, batch in self._landed(send):
            self._settle(batch)

    def on_response(self, send: Send, response: ProduceResponse, now_s: float) -> set[str]:
        """Settle or retry each batch by its answer; return the topics whose leaders should be looked up again."""
        answers = {
            (topic.name, answer.index): answer for topic in response.responses for answer in topic.partition_responses
        }
        stale: set[str] = set()
        for lane, batch in self._landed(send):
            answer = answers.get((batch.topic, batch.partition))
            if answer is None:
                self._retry(lane, batch, now_s, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "no answer in response"))
            elif self._on_answer(lane, batch, answer, now_s):
                stale.add(batch.topic)
        return stale

    def on_failure(self, send: Send, error: BarnabasError, now_s: float) -> set[str]:
        """No answer came: try all again, or give up if `error` will not pass; return topics to look up again."""
        for lane, batch in self._landed(send):
            if error.retriable:
                self._retry(lane, batch, now_s, error)
            else:
                lane.sequences.resolve(batch)
                self._settle(batch, error=error)
        return {batch.topic for batch in send.batches}

    def _landed(self, send: Send) -> Iterator[tuple[_Lane, ProducerBatch]]:
        self._in_flight[send.node_id] -= 1
        queues = [(self._lane_of(batch), batch) for batch in send.batches]
        for lane, batch in queues:
            lane.in_flight -= 1
            if not batch.done:  # given up meanwhile, when the producer was closed
                yield lane, batch

    def _lane_of(self, batch: ProducerBatch) -> _Lane:
        topic = self._accumulator.topic(batch.topic)
        assert topic is not None
        return self._lanes[topic.queues[batch.partition]]

    def _on_answer(self, lane: _Lane, batch: ProducerBatch, answer: PartitionProduceResponse, now_s: float) -> bool:
        """Handle one partition's answer; return whether its leader may have moved."""
        code = ErrorCode.of(answer.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            lane.sequences.acknowledged(batch)
            known = code is ErrorCode.NONE
            self._settle(batch, answer.base_offset if known else NO_OFFSET, answer.log_append_time_ms)
            return False
        error = self._error(batch, code, answer.error_message)
        if code in OUT_OF_SEQUENCE and self._idempotent:
            self._on_out_of_sequence(lane, batch, error, now_s)
        elif code in TOO_LARGE and batch.count > 1:
            lane.sequences.refused_untouched(batch)
            self._accumulator.split(lane.queue, batch, split_records(batch))
        elif error.retriable:
            self._retry(lane, batch, now_s, error)
        else:
            lane.sequences.refused_untouched(batch)
            self._settle(batch, error=error)
        return code in LEADER_MAY_HAVE_MOVED

    def _on_out_of_sequence(self, lane: _Lane, batch: ProducerBatch, error: KafkaError, now_s: float) -> None:
        if error.code is ErrorCode.INVALID_PRODUCER_EPOCH and batch.attempts > self._retries_max:
            lane.sequences.resolve(batch)
            self._settle(batch, error=FencedError(str(error)))
            return
        lane.sequences.out_of_order(batch)
        if lane.sequences.restart_due:
            log.info("%s-%d: %s; starting again with a new epoch", batch.topic, batch.partition, error.code.name)
        self._retry(lane, batch, now_s, error, backoff=False)

    def _retry(
        self, lane: _Lane, batch: ProducerBatch, now_s: float, error: BarnabasError, *, backoff: bool = True
    ) -> None:
        self.last_trouble = str(error)
        if batch.attempts > self._retries_max:
            lane.sequences.resolve(batch)
            self._settle(batch, error=error)
            return
        if backoff:
            lane.retry_at_s = max(lane.retry_at_s, now_s + self._backoff.delay_s(batch.attempts - 1))
        self._accumulator.put_back(lane.queue, batch)

    def _error(self, batch: ProducerBatch, code: ErrorCode, message: str | None) -> KafkaError:
        text = str(batch)
        if code in TOO_LARGE:
            text += (
                f": {len(batch.payload())} bytes are more than the broker takes; "
                "send less at once or raise the topic's max.message.bytes"
            )
        if message:
            text += f": {message}"
        return KafkaError(code, text)

    def _settle(
        self,
        batch: ProducerBatch,
        base_offset: int = NO_OFFSET,
        log_append_time_ms: int = -1,
        error: BarnabasError | None = None,
    ) -> None:
        if error is not None and not batch.watched:
            log.warning("lost: %s: %s", batch, error)
        self._run(self._accumulator.complete(batch, base_offset, log_append_time_ms, error))

    def fail_topic(self, topic: str, error: BarnabasError) -> None:
        """Give up everything that waits for a topic that cannot be had."""
        for queue in self._accumulator.waiting():
            if queue.topic == topic:
                self._fail_queue(queue, error)

    def fail_all(self, error: BarnabasError) -> None:
        """Give up everything that waits; what is in flight is settled by its answers."""
        for queue in self._accumulator.waiting():
            self._fail_queue(queue, error)

    def _fail_queue(self, queue: PartitionQueue, error: BarnabasError) -> None:
        lane = self._lanes.get(queue)
        while queue.batches:
            batch = self._accumulator.take(queue)
            if lane is not None:
                lane.sequences.resolve(batch)
            self._settle(batch, error=error)

    @property
    def in_flight_count(self) -> int:
        """How many requests are under way."""
        return sum(self._in_flight.values())

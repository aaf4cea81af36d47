"""Decides which batches to send to which broker next, and handles the responses.

No I/O: the time and responses go in, produce requests and wake-up times come out. Only the thread of the send loop uses
it.

Order. Retries keep the order within a partition: batches leave from the head of their queue, a batch to retry returns
to its position, and an idempotent broker rejects a batch that is out of order. Up to `in_flight_max` requests to a
broker are in flight.

Timeouts. A batch in any state fails when its delivery timeout expires. The request that contains it continues, and its
response determines the outcome of the other batches.

Linger (`TopicThroughput`). Waiting increases the latency, so a batch waits only if this saves requests:

- While no request to a broker is in flight, an open batch for it leaves at once. Otherwise records accumulate until the
  response arrives, similar to Nagle's algorithm.
- If the throughput fills a batch within `linger_s`, an open batch waits until it is full.
- No batch waits longer than `linger_s`. With acks=0, a pause after each request replaces the response.

Sequence numbers (`PartitionSequences`, KIP-98, KIP-360). A broker appends a batch only if its sequence number follows
the last one. For a batch that it already has, it returns the stored offset. So a retry is stored once, in order. A
failed batch leaves a gap, after which the broker rejects all later batches as out of order. Then the producer
increments the epoch and numbers the remaining batches from 0. This is safe only for batches that are not in the log.
Therefore the producer does so only when the broker rejects the first unresolved batch as out of order. Then neither
this batch nor any later batch is in the log, and the new epoch fences late requests on other connections.

A broker remembers the last five batches of a producer. So a batch gets a sequence number only while fewer than five
batches have numbers from the first unresolved batch on. A limit of five unresolved batches would not suffice. For
example, a retry of the first unresolved batch may be in flight to a former leader, while the new leader has stored this
batch and many later batches.

A broker without state for a producer accepts any first sequence number. So the first batch of a new epoch is sent
alone: otherwise the broker could store the second batch without the first. The producer increments the epoch without a
request to a broker, as Kafka's idempotent producers do: brokers keep epochs by partition, and no other producer uses
this producer id.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from barnabas.client.backoff import Backoff
from barnabas.client.permissions import Need, missing, with_permission
from barnabas.client.producer.accumulator import NEVER_S, Accumulator, PartitionQueue, ProducerBatch
from barnabas.errors import ApiError, BarnabasError, ErrorCode, FencedError, TimedOutError
from barnabas.model import NO_OFFSET, NO_PRODUCER_ID, TopicPartition
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records import BatchBuilder, read_header, read_records

log = logging.getLogger(__name__)

POST_PAUSE_S = 0.0005
"""The pause in seconds between two small requests with acks=0, so at most 2,000 requests per second."""


class TopicThroughput:
    """The throughput of one topic, measured whenever a batch leaves."""

    __slots__ = ("_batch_size", "_left_at_s", "_level_bytes", "_linger_s", "flooded_until_s")

    def __init__(self, *, batch_size: int, linger_s: float) -> None:
        self._batch_size = batch_size
        self._linger_s = linger_s
        self._left_at_s = 0.0
        self._level_bytes = 0.0
        """The recently sent bytes, weighted by age: the weight falls by a factor of e in each `linger_s`. With a steady
        throughput, the level equals the bytes sent within `linger_s`.
        """
        self.flooded_until_s = float("-inf")
        """The monotonic time until which an open batch may wait to become full."""

    def note_sent(self, size_bytes: int, now_s: float) -> None:
        """Count a batch of `size_bytes` that leaves.

        >>> flow = TopicThroughput(batch_size=1000, linger_s=0.005)
        >>> for millisecond in range(100):
        ...     flow.note_sent(100, millisecond / 1000)  # 500 bytes in 5 ms
        >>> flow.flooded_until_s
        -inf
        >>> for millisecond in range(100, 200):
        ...     flow.note_sent(250, millisecond / 1000)  # 1250 bytes in 5 ms
        >>> round(flow.flooded_until_s, 3)
        0.204
        """
        if now_s > self._left_at_s:
            fading = math.exp((self._left_at_s - now_s) / self._linger_s) if self._linger_s else 0.0
            self._level_bytes *= fading
            self._left_at_s = now_s
        self._level_bytes += size_bytes
        if self._level_bytes >= self._batch_size:
            self.flooded_until_s = now_s + self._linger_s

    def leaves_at_s(self, lingered_at_s: float, idle_at_s: float) -> float:
        """Return the monotonic time at which an open batch leaves.

        :param lingered_at_s: the time at which `linger_ms` of the batch expires.
        :param idle_at_s: the time from which no request to the broker is in flight.
        """
        return min(lingered_at_s, max(idle_at_s, self.flooded_until_s))


EPOCH_MAX = 2**15 - 1
SEQUENCE_MASK = 2**31 - 1
RECOGNISED_MAX = 5
"""The number of batches that brokers remember for each producer. A retry of an older batch could be stored twice.
"""


class PartitionSequences:
    """The sequence numbers of one partition's batches. Used by the sender's thread only.

    Invariants: `unresolved` contains, in order, the batches with a sequence number and without an outcome, in flight or
    not. `_recognised` contains all batches that got a sequence number from the first unresolved batch on. Brokers must
    remember each of them.
    """

    __slots__ = ("_known", "_recognised", "_restart", "epoch", "next_sequence", "producer_id", "unresolved")

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.epoch = 0
        self.next_sequence = 0
        self.unresolved: list[ProducerBatch] = []
        self._recognised: deque[ProducerBatch] = deque()
        self._known = False
        self._restart = False

    def start(self, producer_id: int, epoch: int) -> None:
        """Start at sequence number 0 with a producer id and an epoch from a broker."""
        assert not self.unresolved
        self.producer_id, self.epoch, self.next_sequence = producer_id, epoch, 0

    def assign(self, batch: ProducerBatch) -> None:
        """Assign the next sequence numbers to a batch that has none."""
        assert not batch.in_sequence
        assert not self._restart
        batch.identify(self.producer_id, self.epoch, self.next_sequence)
        self.next_sequence = (self.next_sequence + batch.count) & SEQUENCE_MASK
        self.unresolved.append(batch)
        self._recognised.append(batch)

    def may_send(self, batch: ProducerBatch) -> bool:
        """Return whether `batch` may leave.

        It must wait if a restart is due, or if brokers might forget an unresolved batch.
        """
        if self._restart:
            return False
        if not self._known:
            return not self.unresolved or self.unresolved[0] is batch
        return batch.in_sequence or len(self._recognised) < RECOGNISED_MAX

    def acknowledged(self, batch: ProducerBatch) -> None:
        """Record that a broker has acknowledged the batch. The broker now has state for this producer."""
        self._known = self._known or (batch.producer_id, batch.producer_epoch) == (self.producer_id, self.epoch)
        self.resolve(batch)

    def resolve(self, batch: ProducerBatch) -> None:
        """Remove a batch that has an outcome: stored, rejected or failed."""
        if batch in self.unresolved:
            self.unresolved.remove(batch)
            while self._recognised and self._recognised[0] not in self.unresolved:
                self._recognised.popleft()

    def refused_untouched(self, batch: ProducerBatch) -> None:
        """Reuse the sequence numbers of a batch that was rejected at its first attempt, unless later numbers exist."""
        if self._recognised and self._recognised[-1] is batch and batch.attempts == 1:
            self.next_sequence = batch.base_sequence
            self._recognised.pop()
        self.resolve(batch)

    def out_of_order(self, batch: ProducerBatch) -> None:
        """Handle a gap before `batch`, as reported by the broker.

        If no earlier batch can fill the gap, a restart is due.
        """
        if self.unresolved and self.unresolved[0] is batch:
            self._restart = True

    @property
    def restart_due(self) -> bool:
        """Return whether the sequence numbers must restart as soon as no batch of the partition is in flight."""
        return self._restart

    def restart(self) -> bool:
        """Increment the epoch, and remove the sequence numbers of all unresolved batches. No batch may be in flight.

        :return: False if there is no higher epoch, so that the producer needs a new producer id.
        """
        for batch in self.unresolved:
            batch.forget_sequence()
        self.unresolved.clear()
        self._recognised.clear()
        self._known = self._restart = False
        self.next_sequence = 0
        if self.epoch >= EPOCH_MAX:
            self.producer_id = NO_PRODUCER_ID
            return False
        self.epoch += 1
        return True


def split_records(batch: ProducerBatch) -> list[BatchBuilder]:
    """Return encoders with the first and the second half of `batch`, which must contain at least two records. The
    records are decoded from the encoded batch.
    """
    assert batch.count > 1
    compression = read_header(batch.payload()).compression
    records = read_records(batch.payload(), batch.topic, batch.partition, check_crc=False)
    middle = len(records) // 2
    halves = []
    for part in (records[:middle], records[middle:]):
        builder = BatchBuilder(compression)
        for record in part:
            builder.append(record.timestamp_ms, record.key, record.value, record.headers)
        halves.append(builder)
    return halves


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
RESTARTS_AT_ONCE = 2
"""The number of attempts for which a batch is sent again with a new epoch immediately. Further attempts are delayed."""
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
OUT_OF_SEQUENCE = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)


class SinglePartitionProduce(NamedTuple):
    """The fields of a successful response for one partition that a producer reads, as decoded by `ProduceTemplates`."""

    topic: str
    partition: int
    base_offset: int
    log_append_time_ms: int
    error_code: int = 0


@dataclass(slots=True, eq=False)
class Send:
    """A produce request to one broker, with its batches."""

    node_id: int
    batches: list[ProducerBatch]
    partitions: list[_Partition]
    """The partition of each batch."""
    records: list[bytes | bytearray | memoryview]
    """The encoded bytes of each batch; released when a batch fails."""
    expires_at_s: float
    """The monotonic time at which the first batch of the request expires."""
    acks: int
    timeout_ms: int
    is_connecting: bool = False
    """True if the request waits for a connection to the broker."""

    @property
    def request(self) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch, records in zip(self.batches, self.records, strict=True):
            data = PartitionProduceData(index=batch.partition, records=records)
            topics.setdefault(batch.topic, []).append(data)
        return ProduceRequest(
            acks=self.acks,
            timeout_ms=self.timeout_ms,
            topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
        )


@dataclass(slots=True)
class Plan:
    """The requests to send now, and the time of the next plan unless an event requires an earlier one."""

    sends: list[Send] = field(default_factory=list)
    topics_to_refresh: set[str] = field(default_factory=set)
    """The topics with batches that wait for a new leader."""
    wake_at_s: float = NEVER_S
    held_back: bool = False
    """True if batches wait because a broker has the maximum number of requests in flight."""


class _Partition:
    """The sender's state of one partition."""

    __slots__ = ("doubted_leader", "flow", "in_flight", "queue", "retry_at_s", "sequences", "tp")

    def __init__(self, queue: PartitionQueue, flow: TopicThroughput) -> None:
        self.queue = queue
        self.flow = flow
        self.tp = TopicPartition(queue.topic, queue.partition)
        self.sequences = PartitionSequences()
        self.in_flight = 0
        self.retry_at_s = 0.0
        self.doubted_leader: int | None = None
        """The broker that may no longer be the leader, according to the last attempt; None if there is no doubt."""


class _Node:
    """The sender's state of one broker."""

    __slots__ = ("sends", "sent_at_s")

    def __init__(self) -> None:
        self.sends: dict[Send, None] = {}
        """The requests in flight."""
        self.sent_at_s = -NEVER_S

    @property
    def in_flight(self) -> int:
        return len(self.sends)


class Sender:
    """The state machine that sends a producer's batches.

    :param leader_of: returns the broker id of a partition's leader, or None if the leader is unknown.
    :param run: runs the callbacks of a finished batch's deliveries, outside all locks.
    :param batch_size: the size of a full batch in bytes.
    :param linger_s: the maximum time in seconds that a batch waits for more records.
    :param principal: the principal of the producer, for the error of a missing permission; None if it is unknown.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        *,
        leader_of: Callable[[TopicPartition], int | None],
        run: Callable[[list[Callable[[], object]]], None],
        acks: int,
        idempotent: bool,
        batch_size: int,
        linger_s: float,
        in_flight_max: int,
        request_bytes_max: int,
        request_timeout_ms: int,
        delivery_timeout_s: float,
        retries_max: int,
        backoff: Backoff,
        principal: str | None = None,
    ) -> None:
        self._accumulator = accumulator
        self._leader_of = leader_of
        self._run = run
        self._acks = acks
        self._idempotent = idempotent
        self._batch_size = batch_size
        self._linger_s = linger_s
        self._in_flight_max = in_flight_max
        self._request_bytes_max = request_bytes_max
        self._request_timeout_ms = request_timeout_ms
        self._delivery_timeout_s = delivery_timeout_s
        self._retries_max = retries_max
        self._backoff = backoff
        self._principal = principal
        self._partitions: dict[PartitionQueue, _Partition] = {}
        self._flows: dict[str, TopicThroughput] = {}
        self._nodes: dict[int, _Node] = {}
        self._identity: tuple[int, int] | None = None
        self.last_error = ""
        """The last error, for the message of a delivery that times out."""
        self._error_at_s = -NEVER_S

    # --- identity ---------------------------------------------------------------------------------------

    @property
    def needs_identity(self) -> bool:
        """Return whether the producer must request a producer id before it can send."""
        return self._idempotent and self._identity is None

    def set_identity(self, producer_id: int, epoch: int) -> None:
        """Set the producer id and epoch that a broker has assigned."""
        assert producer_id != NO_PRODUCER_ID
        self._identity = (producer_id, epoch)

    def note_error(self, trouble: str, now_s: float) -> None:
        """Keep an error for the messages of deliveries that time out."""
        self.last_error, self._error_at_s = trouble, now_s

    # --- planning -----------------------------------------------------------------------------------

    def plan(self, now_s: float) -> Plan:
        """Fail expired batches, take ready batches, and return the requests to send and the time of the next plan."""
        plan = Plan()
        for node in self._nodes.values():
            for send in node.sends:
                if send.expires_at_s <= now_s:
                    self._expire_under_way(send, now_s)
                plan.wake_at_s = min(plan.wake_at_s, send.expires_at_s)
        by_node: dict[int, list[_Partition]] = {}
        for queue in self._accumulator.waiting():
            partition = self._partitions.get(queue) or self._new_partition(queue)
            expires_at_s = queue.batches[0].created_at_s + self._delivery_timeout_s
            if expires_at_s <= now_s:
                expires_at_s = self._expire(partition, now_s)
            plan.wake_at_s = min(plan.wake_at_s, expires_at_s)
            if not queue.batches:
                continue
            leader = self._leader_of(partition.tp)
            if partition.doubted_leader is not None:
                self._look_for_leader(partition, leader, now_s, plan)
            if leader is None:
                plan.topics_to_refresh.add(queue.topic)
            elif leader in by_node:
                by_node[leader].append(partition)
            else:
                by_node[leader] = [partition]
        if not self.needs_identity:
            for node_id, partitions in by_node.items():
                self._plan_node(node_id, partitions, now_s, plan)
        return plan

    def _look_for_leader(self, partition: _Partition, leader: int | None, now_s: float, plan: Plan) -> None:
        """Look up the leader while a retry is delayed. A new leader ends the delay."""
        if leader == partition.doubted_leader:
            if partition.retry_at_s > now_s:
                plan.topics_to_refresh.add(partition.queue.topic)
        elif leader is not None:
            partition.doubted_leader = None
            partition.retry_at_s = 0.0

    def _new_partition(self, queue: PartitionQueue) -> _Partition:
        flow = self._flows.get(queue.topic)
        if flow is None:
            flow = self._flows[queue.topic] = TopicThroughput(batch_size=self._batch_size, linger_s=self._linger_s)
        partition = self._partitions[queue] = _Partition(queue, flow)
        return partition

    def _expire(self, partition: _Partition, now_s: float) -> float:
        """Fail expired batches; return the time at which the next batch expires."""
        queue = partition.queue
        while queue.batches:
            batch = queue.batches[0]
            expires_at_s = batch.created_at_s + self._delivery_timeout_s
            if now_s < expires_at_s:
                return expires_at_s
            self._accumulator.take(queue)
            partition.sequences.resolve(batch)
            self._settle(batch, error=self._too_late(batch, now_s, f"in tries, of which there were {batch.attempts}"))
        return NEVER_S

    def _expire_under_way(self, send: Send, now_s: float) -> None:
        """Fail the expired batches of a request in flight, but not the request. A broker may still store these batches,
        but they are not sent again. They do not delay a restart of the sequence numbers, because its new epoch fences
        late requests.
        """
        what = "waiting for a connection to" if send.is_connecting else "in flight to"
        expires_at_s = NEVER_S
        for partition, batch in zip(send.partitions, send.batches, strict=True):
            if batch.done:
                continue
            at_s = batch.created_at_s + self._delivery_timeout_s
            if now_s < at_s:
                expires_at_s = min(expires_at_s, at_s)
                continue
            partition.in_flight -= 1
            partition.sequences.resolve(batch)
            where = f"{what} broker {send.node_id} (try {batch.attempts})"
            self._settle(batch, error=self._too_late(batch, now_s, where))
        send.expires_at_s = expires_at_s

    def _too_late(self, batch: ProducerBatch, now_s: float, where: str) -> TimedOutError:
        """Return the error of an expired batch, with the time spent in each state and the last error.

        :param where: the state of the batch since it left the queue.
        """
        sent_at_s = now_s if batch.sent_at_s is None else batch.sent_at_s
        queued_s, rest_s = sent_at_s - batch.created_at_s, now_s - sent_at_s
        story = f"{queued_s:.3g} s in the producer's queue"
        story += ", never sent" if batch.sent_at_s is None else f", then {rest_s:.3g} s {where}; it may yet be stored"
        if self.last_error and self._error_at_s >= batch.created_at_s:
            story += f": {self.last_error}"
        elif queued_s > rest_s:
            story += "; the broker is slow, or records come faster than they leave (a larger batch_size helps)"
        timeout_ms = self._delivery_timeout_s * 1000
        return TimedOutError(f"{batch} not acknowledged within delivery_timeout_ms={timeout_ms:.0f}: {story}")

    def _plan_node(self, node_id: int, partitions: list[_Partition], now_s: float, plan: Plan) -> None:
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = _Node()
        while partitions:
            if node.in_flight >= self._in_flight_max:
                plan.held_back = True
                return
            ready = self._ready(node, partitions, now_s, plan)
            if not ready:
                return
            taken = self._fill(node_id, node, ready, now_s, plan)
            # The partitions in this request come last in the next request, so that a busy partition does not starve
            # others.
            served = set(taken)
            partitions = [partition for partition in partitions if partition not in served] + [
                partition for partition in taken if partition.queue.batches
            ]

    def _ready(self, node: _Node, partitions: list[_Partition], now_s: float, plan: Plan) -> list[_Partition]:
        """Return the partitions whose first batch may leave now. When the linger of one batch has expired, the open
        batches for the same broker leave with it, because one request with many small batches costs less than many
        requests.
        """
        ready: list[_Partition] = []
        lingering: list[_Partition] = []
        one_has_lingered = False
        idle_at_s = self._idle_at_s(node)
        for partition in partitions:
            if not self._may_leave(partition, now_s, plan):
                continue
            at_s = lingered_at_s = self._accumulator.ready_at_s(partition.queue.batches[0])
            if at_s > now_s:
                at_s = partition.flow.leaves_at_s(lingered_at_s, idle_at_s)
            elif at_s > 0.0:
                one_has_lingered = True
            if at_s <= now_s:
                ready.append(partition)
            else:
                lingering.append(partition)
                plan.wake_at_s = min(plan.wake_at_s, at_s)
        return ready + lingering if one_has_lingered else ready

    def _idle_at_s(self, node: _Node) -> float:
        """Return the monotonic time from which a batch need not wait for requests in flight."""
        if node.in_flight:
            return NEVER_S
        return node.sent_at_s + POST_PAUSE_S if self._acks == 0 else 0.0

    def _may_leave(self, partition: _Partition, now_s: float, plan: Plan) -> bool:
        if partition.retry_at_s > now_s:
            plan.wake_at_s = min(plan.wake_at_s, partition.retry_at_s)
            return False
        if not self._idempotent:
            return True
        sequences = partition.sequences
        if sequences.restart_due and partition.in_flight == 0 and not sequences.restart():
            self._identity = None
            return False
        if sequences.producer_id == NO_PRODUCER_ID:
            if self._identity is None:
                return False
            sequences.start(*self._identity)
        return sequences.may_send(partition.queue.batches[0])

    def _fill(self, node_id: int, node: _Node, ready: list[_Partition], now_s: float, plan: Plan) -> list[_Partition]:
        """Plan a request with one batch of each ready partition, up to the size limit; return the partitions in it."""
        batches: list[ProducerBatch] = []
        size_bytes = 0
        for partition in ready:
            size_bytes += partition.queue.batches[0].builder.size_bytes
            if batches and size_bytes > self._request_bytes_max:
                break
            batch = self._accumulator.take(partition.queue)
            batch.attempts += 1
            if batch.sent_at_s is None:
                batch.sent_at_s = now_s
            if self._idempotent and not batch.in_sequence:
                partition.sequences.assign(batch)
            partition.in_flight += 1
            partition.doubted_leader = None
            partition.flow.note_sent(batch.size_bytes, now_s)
            batches.append(batch)
        taken = ready[: len(batches)]
        expires_at_s = min([batch.created_at_s for batch in batches]) + self._delivery_timeout_s
        records = [batch.payload() for batch in batches]
        send = Send(node_id, batches, taken, records, expires_at_s, self._acks, self._request_timeout_ms)
        node.sends[send] = None
        node.sent_at_s = now_s
        plan.sends.append(send)
        plan.wake_at_s = min(plan.wake_at_s, expires_at_s)
        return taken

    def may_send_to(self, node_id: int) -> bool:
        """Return whether another request may be sent to a broker now."""
        return self.in_flight_to(node_id) < self._in_flight_max

    def in_flight(self) -> int:
        """Return the number of requests in flight to all brokers."""
        return sum(node.in_flight for node in list(self._nodes.values()))

    def in_flight_to(self, node_id: int) -> int:
        """Return the number of requests in flight to a broker."""
        node = self._nodes.get(node_id)
        return 0 if node is None else node.in_flight

    # --- outcomes --------------------------------------------------------------------------------

    def on_sent_unacknowledged(self, send: Send) -> None:
        """Complete the batches of a request with acks=0, which has no response, because the connection has accepted
        them.
        """
        for _partition, batch in self._landed(send):
            self._settle(batch)

    def on_response(self, send: Send, response: ProduceResponse | SinglePartitionProduce, now_s: float) -> set[str]:
        """Complete or retry each batch according to the response.

        Return the topics whose leaders must be looked up again.
        """
        answers: dict[tuple[str, int], PartitionProduceResponse | SinglePartitionProduce]
        if isinstance(response, SinglePartitionProduce):
            answers = {(response.topic, response.partition): response}
        else:
            answers = {
                (topic.name, each.index): each for topic in response.responses for each in topic.partition_responses
            }
        stale: set[str] = set()
        for partition, batch in self._landed(send):
            answer = answers.get((batch.topic, batch.partition))
            if answer is not None and not answer.error_code:
                self._acknowledge(partition, batch, answer.base_offset, answer.log_append_time_ms)
            elif answer is None:
                self._retry(partition, batch, now_s, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "no answer in response"))
            elif self._on_error(partition, batch, cast(PartitionProduceResponse, answer), now_s):
                partition.doubted_leader = send.node_id
                stale.add(batch.topic)
        return stale

    def on_failure(self, send: Send, error: BarnabasError, now_s: float) -> set[str]:
        """Handle a failed request: retry its batches, or fail them if `error` is not retriable.

        :return: the topics whose leaders must be looked up again.
        """
        for partition, batch in self._landed(send):
            if error.retriable:
                partition.doubted_leader = send.node_id
                self._retry(partition, batch, now_s, error)
            else:
                partition.sequences.resolve(batch)
                self._settle(batch, error=error)
        return {batch.topic for batch in send.batches}

    def _landed(self, send: Send) -> list[tuple[_Partition, ProducerBatch]]:
        del self._nodes[send.node_id].sends[send]
        landed = []
        for partition, batch in zip(send.partitions, send.batches, strict=True):
            if not batch.done:  # if not, the batch has already failed, because it expired or the producer was closed
                partition.in_flight -= 1
                landed.append((partition, batch))
        return landed

    def _acknowledge(
        self, partition: _Partition, batch: ProducerBatch, base_offset: int, log_append_time_ms: int
    ) -> None:
        if self._idempotent:
            partition.sequences.acknowledged(batch)
        self._settle(batch, base_offset, log_append_time_ms)

    def _on_error(
        self, partition: _Partition, batch: ProducerBatch, answer: PartitionProduceResponse, now_s: float
    ) -> bool:
        """Handle the error of a partition; return whether its leader may have changed."""
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._acknowledge(partition, batch, NO_OFFSET, answer.log_append_time_ms)
            return False
        error = self._error(batch, code, answer.error_message)
        if code in OUT_OF_SEQUENCE and self._idempotent:
            self._on_out_of_sequence(partition, batch, error, now_s)
        elif code in TOO_LARGE and batch.count > 1:
            partition.sequences.refused_untouched(batch)
            self._accumulator.split(partition.queue, batch, split_records(batch))
        elif error.retriable:
            self._retry(partition, batch, now_s, error)
        else:
            partition.sequences.refused_untouched(batch)
            self._settle(batch, error=error)
        return code in LEADER_MAY_HAVE_MOVED

    def _on_out_of_sequence(self, partition: _Partition, batch: ProducerBatch, error: ApiError, now_s: float) -> None:
        if error.code is ErrorCode.INVALID_PRODUCER_EPOCH and batch.attempts > self._retries_max:
            partition.sequences.resolve(batch)
            self._settle(batch, error=FencedError(str(error)))
            return
        partition.sequences.out_of_order(batch)
        if partition.sequences.restart_due:
            log.info(
                "%s-%d: %s; restarting the sequence numbers with a new epoch",
                batch.topic,
                batch.partition,
                error.code.name,
            )
        # Pause: an earlier batch may need time to fill the gap, and repeated restarts must not be immediate.
        at_once = partition.sequences.restart_due and batch.attempts <= RESTARTS_AT_ONCE
        self._retry(partition, batch, now_s, error, backoff=not at_once)

    def _retry(
        self, partition: _Partition, batch: ProducerBatch, now_s: float, error: BarnabasError, *, backoff: bool = True
    ) -> None:
        self.note_error(str(error), now_s)
        if batch.attempts > self._retries_max:
            partition.sequences.resolve(batch)
            self._settle(batch, error=error)
            return
        if backoff:
            partition.retry_at_s = max(partition.retry_at_s, now_s + self._backoff.delay_s(batch.attempts - 1))
        self._accumulator.put_back(partition.queue, batch)

    def _error(self, batch: ProducerBatch, code: ErrorCode, message: str | None) -> ApiError:
        reasons = [message] if message else []
        if code in TOO_LARGE:
            reasons.insert(
                0,
                f"{len(batch.payload())} bytes are more than the broker takes; "
                "send less at once or raise the topic's max.message.bytes",
            )
        error = ApiError(code, ": ".join(reasons), subject=str(batch))
        return with_permission(error, self._principal, Need("write", "topic", batch.topic))

    def _settle(
        self,
        batch: ProducerBatch,
        base_offset: int = NO_OFFSET,
        log_append_time_ms: int = -1,
        error: BarnabasError | None = None,
    ) -> None:
        if error is not None and not batch.watched:
            log.warning("the producer lost %s: %s", batch, error)
        self._run(self._accumulator.complete(batch, base_offset, log_append_time_ms, error))

    def fail_topic(self, topic: str, error: BarnabasError) -> None:
        """Fail all batches of a topic that is not available."""
        for queue in self._accumulator.waiting():
            if queue.topic == topic:
                self._fail_queue(queue, error)

    def fail_unwritable(self, code: ErrorCode) -> None:
        """Fail all waiting batches, because the producer may write to none of the topics of the cluster."""
        for queue in self._accumulator.waiting():
            lacking = missing(self._principal, Need("write", "topic", queue.topic))
            self._fail_queue(queue, ApiError(code, lacking, subject=f"topic {queue.topic!r}"))

    def fail_all(self, error: BarnabasError) -> None:
        """Fail all waiting batches; responses determine the outcome of those in flight."""
        for queue in self._accumulator.waiting():
            self._fail_queue(queue, error)

    def _fail_queue(self, queue: PartitionQueue, error: BarnabasError) -> None:
        partition = self._partitions.get(queue)
        while queue.batches:
            batch = self._accumulator.take(queue)
            if partition is not None:
                partition.sequences.resolve(batch)
            self._settle(batch, error=error)

"""The sender against a model of two brokers, under every mishap that a network has: nothing lost, nothing twice, in
order.

The model keeps, per partition, the log and what Kafka's brokers remember of a producer: its epoch and its last
five batches. One of the brokers leads, and both have the same log. Hypothesis decides what happens to each request: it
is answered, lost on the way there, or its answer is lost on the way back, and to which of the requests under way; when
the other broker begins to lead, and when the sender hears of it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.client.backoff import Backoff
from barnabas.client.producer.accumulator import Accumulator
from barnabas.client.producer.sender import Sender
from barnabas.clock import ManualClock
from barnabas.errors import DisconnectedError, ErrorCode
from barnabas.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.records import Compression, read_header, read_records
from tests.support.searches import examples

PARTITIONS = 2
NODES = 1, 2
LINGER_S = 0.15
"""More than one step of the clock: batches leave open and full, and some have to wait."""


@dataclass
class ModelPartition:
    log: list[bytes] = field(default_factory=list)
    epoch: int = -1
    recent: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))
    """(base sequence, count, base offset) of the last batches."""

    def append(self, data, size_max):
        header = read_header(data)
        values = [record.value for record in read_records(data, "t", 0)]
        if len(data) > size_max:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        if header.producer_epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if header.producer_epoch == self.epoch:
            for sequence, count, offset in self.recent:
                if (sequence, count) == (header.base_sequence, header.record_count):
                    return ErrorCode.NONE, offset
            sequence, count, _ = self.recent[-1]
            if header.base_sequence != sequence + count:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        elif self.epoch != -1 and header.base_sequence != 0:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        else:
            self.recent.clear()
        self.epoch = header.producer_epoch
        offset = len(self.log)
        self.recent.append((header.base_sequence, header.record_count, offset))
        self.log += values
        return ErrorCode.NONE, offset


class Model:
    """Brokers, connections to them that may break, and a sender."""

    def __init__(self, *, size_max=10**9, retries=10**9, delivery_timeout_s=1e9):
        self.clock = ManualClock()
        self.leader = self.known_leader = NODES[0]
        self.partitions = [ModelPartition() for _ in range(PARTITIONS)]
        self.size_max = size_max
        self.accumulator = Accumulator(
            batch_size=300,
            buffer_memory=10**9,
            linger_s=LINGER_S,
            max_block_s=0.0,
            max_record_bytes=10**6,
            compression=Compression.NONE,
            clock=self.clock,
            wake=lambda: None,
            random=lambda: 0.0,
        )
        self.topic = self.accumulator.set_partitions("t", PARTITIONS, range(PARTITIONS))
        self.sender = Sender(
            self.accumulator,
            leader_of=lambda tp: self.known_leader,
            run=lambda callbacks: [callback() for callback in callbacks],
            acks=-1,
            idempotent=True,
            batch_size=300,
            linger_s=LINGER_S,
            in_flight_max=5,
            request_bytes_max=10**6,
            request_timeout_ms=30_000,
            delivery_timeout_s=delivery_timeout_s,
            retries_max=retries,
            backoff=Backoff(10, 10, lambda: 0.5),
        )
        self.sender.set_identity(7, 0)
        self.under_way = {node: deque() for node in NODES}
        self.sent = [[] for _ in range(PARTITIONS)]

    def send(self, partition, count):
        for _ in range(count):
            value = b"%d" % len(self.sent[partition])
            batch, index = self.accumulator.append(self.topic, partition, 1, None, value, ())
            self.sent[partition].append((value, batch, index))

    def step(self):
        """Let the sender send what it wants to."""
        self.clock.advance(0.1)
        for send in self.sender.plan(self.clock.monotonic()).sends:
            self.under_way[send.node_id].append(send)
        assert all(len(requests) <= 5 for requests in self.under_way.values())

    def carry_out(self, send):
        answers = []
        for topic in send.request.topic_data:
            for data in topic.partition_data:
                code, offset = self.partitions[data.index].append(data.records, self.size_max)
                answers.append(PartitionProduceResponse(index=data.index, error_code=code, base_offset=offset))
        return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=answers)])

    def answer(self, node):
        """The oldest request to a broker is answered, and carried out if that one leads."""
        if node != self.leader:
            self.refuse(node)
        elif self.under_way[node]:
            send = self.under_way[node].popleft()
            self.sender.on_response(send, self.carry_out(send), self.clock.monotonic())

    def disconnect(self, node, carried_out):
        """A connection breaks: the first `carried_out` requests arrived, no answer to any comes."""
        for place, send in enumerate(self.under_way[node]):
            if place < carried_out and node == self.leader:
                self.carry_out(send)
        while self.under_way[node]:
            send = self.under_way[node].popleft()
            self.sender.on_failure(send, DisconnectedError("broken"), self.clock.monotonic())

    def refuse(self, node):
        """The oldest request is refused by a broker that leads nothing (now)."""
        if self.under_way[node]:
            self._refuse(self.under_way[node].popleft())

    def take_and_refuse(self, node):
        """The oldest request is carried out, and the broker leads no more before it is acknowledged."""
        if node == self.leader and self.under_way[node]:
            send = self.under_way[node].popleft()
            self.carry_out(send)
            self._refuse(send)

    def _refuse(self, send):
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        answers = [
            PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)
            for topic in send.request.topic_data
            for data in topic.partition_data
        ]
        response = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=answers)])
        self.sender.on_response(send, response, self.clock.monotonic())

    def move(self):
        """The other broker leads from now on."""
        (self.leader,) = set(NODES) - {self.leader}

    def learn(self):
        """The sender hears who leads."""
        self.known_leader = self.leader

    def settle(self):
        """Heal everything and finish."""
        self.learn()
        for _ in range(1000):
            self.step()
            if not any(self.under_way.values()) and not self.accumulator.unfinished_count():
                return
            for node, requests in self.under_way.items():
                while requests:
                    self.answer(node)
        raise AssertionError("the sender does not come to an end")


steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, PARTITIONS - 1), st.integers(1, 25)),
        st.tuples(st.just("step")),
        st.tuples(st.just("answer"), st.sampled_from(NODES)),
        st.tuples(st.just("disconnect"), st.sampled_from(NODES), st.integers(0, 5)),
        st.tuples(st.just("refuse"), st.sampled_from(NODES)),
        st.tuples(st.just("take_and_refuse"), st.sampled_from(NODES)),
        st.tuples(st.just("move")),
        st.tuples(st.just("learn")),
    ),
    max_size=60,
)

ONE_WAITS_AT_THE_LEADER_BEFORE = [
    ("send", 0, 1), ("step",), ("answer", 1),
    *[("send", 0, 20), ("step",), ("step",)] * 3,
    ("take_and_refuse", 1), ("step",), ("move",),  # it is sent there again
    *[("refuse", 1)] * 2, ("learn",), ("step",), *[("answer", 2)] * 2,
    *[("send", 0, 20), ("step",), ("step",), ("answer", 2)] * 5,
]  # fmt: skip
"""The batches behind a first one, and new ones, go to the next leader while that one has no answer yet."""


@settings(max_examples=examples(100))
@given(steps)
@example(ONE_WAITS_AT_THE_LEADER_BEFORE)
def test_everything_is_stored_once_and_in_order(history):
    model = Model()
    for name, *arguments in history:
        getattr(model, name)(*arguments)
    model.settle()
    for partition, sent in zip(model.partitions, model.sent, strict=True):
        assert partition.log == [value for value, _, _ in sent]
        for offset, (_, batch, index) in enumerate(sent):
            part, place = batch.part_of(index)
            assert part.error is None
            assert part.base_offset + place == offset


@settings(max_examples=examples(100))
@given(steps, st.integers(120, 290))
def test_batches_that_are_too_large_are_split_without_loss_or_disorder(history, size_max):
    model = Model(size_max=size_max)
    for name, *arguments in history:
        getattr(model, name)(*arguments)
    model.settle()
    for partition, sent in zip(model.partitions, model.sent, strict=True):
        assert partition.log == [value for value, _, _ in sent]
        assert all(batch.part_of(index)[0].error is None for _, batch, index in sent)


@settings(max_examples=examples(100))
@given(steps, st.integers(0, 3))
def test_what_is_given_up_costs_the_others_nothing(history, retries):
    """With few retries batches are given up in between; what is acknowledged is there, and nothing is twice."""
    model = Model(retries=retries)
    for name, *arguments in history:
        getattr(model, name)(*arguments)
    model.settle()
    for partition, sent in zip(model.partitions, model.sent, strict=True):
        assert len(set(partition.log)) == len(partition.log)
        assert partition.log == sorted(partition.log, key=int)
        for value, batch, index in sent:
            part, place = batch.part_of(index)
            if part.error is None:
                assert partition.log[part.base_offset + place] == value
    assert model.accumulator.used_bytes == 0


@settings(max_examples=examples(100))
@given(steps, st.sampled_from([0.35, 1.0, 2.0]))
def test_what_comes_too_late_costs_the_others_nothing(history, delivery_timeout_s):
    """Batches are given up in queues and under way; nothing is twice, and what comes after them is delivered."""
    model = Model(delivery_timeout_s=delivery_timeout_s)
    for name, *arguments in history:
        getattr(model, name)(*arguments)
    model.settle()
    if delivery_timeout_s >= 1.0:  # else a new epoch may take longer
        for partition in range(PARTITIONS):
            model.send(partition, 1)
        model.settle()
        assert all(sent[-1][1].error is None for sent in model.sent)
    for partition, sent in zip(model.partitions, model.sent, strict=True):
        assert len(set(partition.log)) == len(partition.log)
        assert partition.log == sorted(partition.log, key=int)
        for value, batch, index in sent:
            part, place = batch.part_of(index)
            if part.error is None:
                assert partition.log[part.base_offset + place] == value
    assert model.accumulator.used_bytes == 0

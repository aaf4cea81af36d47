"""The producer's shell over a cluster that is a function: identities, retries, settings that meet the wire."""

from __future__ import annotations

import asyncio
from functools import partial

from barnabas.client.backoff import Backoff
from barnabas.client.cluster import ClusterView, PartitionView, TopicView
from barnabas.client.config import ProducerConfig
from barnabas.client.producer.accumulator import Accumulator
from barnabas.client.producer.send_loop import UNSENT_BYTES_MAX, SendLoop
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ApiError, DisconnectedError, UnsupportedVersionError
from barnabas.model import Node
from barnabas.protocol.codec import EncodedRequest, decode
from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse
from barnabas.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.records import Compression, read_header


class FakeCluster:
    """A broker that takes everything, after the errors that it was given."""

    def __init__(self):
        self.view = ClusterView(
            brokers={1: Node(1, "a", 1)}, topics={"t": TopicView("t", partitions=(PartitionView(0, 1),))}
        )
        self.backoff = Backoff(1, 1, lambda: 0.5)
        self.identity_errors = []
        self.send_errors = []
        self.connect_errors = []
        self.refreshes = 0
        self.doubts = 0
        self.headers = []
        self.posted = []
        self.is_open = True
        self.unsent_bytes = 0
        self.on_progress = None
        self.connected = False
        self.connects = 0
        self.answers = []
        self.under_way = []
        self.nonsense = None
        self.submit_error = None
        self.flushes = 0
        self.versions = set()

    async def any_channel(self):
        return self

    async def channel_to(self, node_id):
        self.connects += 1
        await asyncio.sleep(0)
        if self.connect_errors:
            raise self.connect_errors.pop(0)
        self.connected = True
        return self

    async def ask(self, channel, request):
        if self.identity_errors:
            raise self.identity_errors.pop(0)
        return InitProducerIdResponse(error_code=0, producer_id=55, producer_epoch=0)

    def request_refresh(self, *, is_stale=False):
        self.refreshes += 1
        self.doubts += is_stale

    def open_channel(self, node_id):
        return self if self.connected else None

    def version_for(self, _request):
        return 13

    def submit(self, request, on_answer, *, version, timeout_s=None):
        self.versions.add(version)
        if isinstance(request, EncodedRequest):
            request = decode(request.cls, request.body, version)
        if self.submit_error is not None:
            raise self.submit_error
        self.under_way.append(on_answer)
        if on_answer is None:
            self.posted.append(request)
        elif self.send_errors:
            self.answers.append(partial(on_answer, None, self.send_errors.pop(0)))
        else:
            data = request.topic_data[0].partition_data[0]
            self.headers.append(read_header(data.records))
            answer = PartitionProduceResponse(index=0, error_code=0, base_offset=10)
            response = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[answer])])
            self.answers.append(partial(on_answer, self.nonsense or response, None))

    def flush(self):
        self.flushes += 1
        asyncio.get_running_loop().call_soon(self.give_answers)

    def give_answers(self):
        answers, self.answers = self.answers, []
        for answer in answers:
            answer()
        self.on_progress()


class Running:
    """A send loop at work on the loop of the test."""

    def __init__(self, cluster, settings):
        self.loop = asyncio.get_running_loop()
        self.cluster = cluster
        self.wakes = 0
        linger_ms = settings.pop("linger_ms", 0)
        self.accumulator = Accumulator(
            batch_size=1000,
            buffer_memory=100_000,
            linger_s=linger_ms / 1000,
            max_block_s=0.0,
            max_record_bytes=2000,
            compression=Compression.NONE,
            clock=SYSTEM_CLOCK,
            wake=self.wake,
            random=lambda: 0.0,
        )
        config = ProducerConfig(linger_ms=linger_ms, **settings)
        self.send_loop = SendLoop(config, cluster, self.accumulator, SYSTEM_CLOCK)
        self.send_loop.on_metadata()
        self.task = asyncio.create_task(self.send_loop.run())
        self.task.add_done_callback(
            lambda done: done.cancelled() or self.send_loop.settle_all(ApiError(-1, repr(done.exception())))
        )

    def wake(self):
        self.wakes += 1
        self.loop.call_soon(self.send_loop.wake)

    def append(self, value=b"v"):
        return self.accumulator.append(self.accumulator.topic("t"), None, 1, None, value, ())[0]

    async def until_done(self, *batches):
        async with asyncio.timeout(60):
            for batch in batches:
                settled = asyncio.Event()
                self.accumulator.when_done(batch, settled.set)
                await settled.wait()


def with_loop(test, cluster, **settings):
    """Run `await test(running)` and return its result."""

    async def main():
        running = Running(cluster, settings)
        await asyncio.sleep(0)
        try:
            return await test(running)
        finally:
            running.task.cancel()

    return asyncio.run(main())


def send_one(cluster, **settings):
    """Send one record and return its batch when it is settled."""

    async def test(running):
        batch = running.append()
        await running.until_done(batch)
        return batch

    return with_loop(test, cluster, **settings)


def test_a_producer_id_is_fetched_and_used():
    cluster = FakeCluster()
    batch = send_one(cluster)
    assert batch.base_offset == 10
    assert [(header.producer_id, header.base_sequence) for header in cluster.headers] == [(55, 0)]


def test_topics_are_named_by_name_also_to_brokers_that_know_them_by_id():
    async def test(running):
        await running.until_done(running.append())

    cluster = FakeCluster()
    with_loop(test, cluster)
    assert cluster.versions == {12}


def test_without_idempotence_there_is_no_producer_id():
    cluster = FakeCluster()
    send_one(cluster, acks=1, enable_idempotence=False)
    assert [header.producer_id for header in cluster.headers] == [-1]


def test_a_lost_connection_is_tried_again_and_metadata_refreshed():
    cluster = FakeCluster()
    cluster.identity_errors = [DisconnectedError("x")]
    cluster.send_errors = [DisconnectedError("x"), DisconnectedError("x")]
    batch = send_one(cluster)
    assert batch.error is None
    assert batch.attempts == 3
    assert cluster.refreshes >= 2


def test_a_broker_that_cannot_be_reached_is_tried_again_and_metadata_refreshed():
    cluster = FakeCluster()
    cluster.connect_errors = [DisconnectedError("x")]
    batch = send_one(cluster, acks=1, enable_idempotence=False)
    assert batch.error is None
    assert batch.attempts == 2
    assert cluster.refreshes >= 1


def test_of_a_partition_that_nobody_leads_another_broker_is_asked_than_the_one_that_said_so():
    async def test(running):
        batch = running.append()
        await asyncio.sleep(0)
        assert running.cluster.doubts == running.cluster.refreshes > 0
        running.cluster.view = FakeCluster().view
        running.send_loop.on_metadata()
        await running.until_done(batch)

    cluster = FakeCluster()
    cluster.view = ClusterView(cluster.view.brokers, {"t": TopicView("t", partitions=(PartitionView(0, -1),))})
    with_loop(test, cluster)


def test_what_was_planned_before_there_is_a_connection_leaves_over_the_first_one_together():
    async def test(running):
        batches = [running.append(bytes(900)) for _ in range(4)]
        await running.until_done(*batches[:3])
        return running.cluster.connects, running.cluster.flushes, len(running.cluster.headers)

    assert with_loop(test, FakeCluster(), acks=1, enable_idempotence=False) == (1, 1, 4)


def test_a_turn_sends_all_its_requests_at_once():
    cluster = FakeCluster()
    cluster.connected = True

    async def test(running):
        batches = [running.append(bytes(900)) for _ in range(4)]
        await running.until_done(*batches)
        return running.cluster.connects, len(running.cluster.headers), running.cluster.flushes

    assert with_loop(test, cluster, acks=1, enable_idempotence=False) == (0, 4, 1)


def test_what_is_appended_while_a_request_leaves_waits_for_the_answer_and_wakes_nobody():
    cluster = FakeCluster()
    cluster.connected = True
    deliver = cluster.flush

    async def test(running):
        appended = []

        def flush():
            cluster.flush = deliver
            wakes = running.wakes
            appended.append(running.append())  # as another thread does while the system call lasts
            assert running.wakes == wakes
            deliver()

        cluster.flush = flush
        first = running.append()
        await running.until_done(first)
        await running.until_done(*appended)
        return first, *appended

    batches = with_loop(test, cluster, acks=1, enable_idempotence=False, linger_ms=1_000)
    assert [batch.error for batch in batches] == [None, None]
    assert len(cluster.headers) == 2


def test_a_connection_that_ends_while_it_is_written_to_is_followed_by_another():
    cluster = FakeCluster()
    cluster.connected = True
    deliver = cluster.flush

    def end():
        cluster.connected = False
        cluster.flush = deliver
        cluster.answers.clear()
        for send in cluster.under_way:
            send(None, DisconnectedError("x"))
        cluster.on_progress()

    cluster.flush = end
    batch = send_one(cluster, acks=1, enable_idempotence=False)
    assert batch.error is None
    assert batch.attempts == 2
    assert cluster.connects == 1


def test_brokers_without_producer_ids_are_told_apart():
    cluster = FakeCluster()
    cluster.identity_errors = [UnsupportedVersionError("InitProducerId is not served")]
    batch = send_one(cluster)
    assert "enable_idempotence=False" in str(batch.error)


def test_acks_0_posts_and_is_done():
    cluster = FakeCluster()
    batch = send_one(cluster, acks=0, enable_idempotence=False)
    assert batch.done
    assert len(cluster.posted) == 1
    assert cluster.posted[0].acks == 0


def test_acks_0_waits_while_a_broker_is_too_slow_to_take_more():
    cluster = FakeCluster()
    cluster.connected = True
    cluster.unsent_bytes = UNSENT_BYTES_MAX + 1

    async def test(running):
        batches = [running.append(bytes(900)) for _ in range(9)]
        for _ in range(10):
            await asyncio.sleep(0)
        posted = len(cluster.posted)
        assert not any(batch.done for batch in batches)
        cluster.unsent_bytes = 0
        cluster.on_progress()
        await running.until_done(*batches)
        return posted, len(cluster.posted)

    assert with_loop(test, cluster, acks=0, enable_idempotence=False) == (5, 9)


def test_acks_0_waits_no_longer_than_the_delivery_timeout_for_a_broker_that_takes_nothing_more():
    cluster = FakeCluster()
    cluster.connected = True
    cluster.unsent_bytes = UNSENT_BYTES_MAX + 1
    batch = send_one(cluster, acks=0, enable_idempotence=False, delivery_timeout_ms=20, request_timeout_ms=10)
    assert "a broker takes no more" in str(batch.error)
    assert len(cluster.posted) == 1, "it may have arrived, and must not arrive twice"


def test_a_connection_is_waited_for_no_longer_than_the_delivery_timeout():
    cluster = FakeCluster()

    async def connect(node_id):
        await asyncio.sleep(3600)

    cluster.channel_to = connect
    batch = send_one(cluster, acks=1, enable_idempotence=False, delivery_timeout_ms=20, request_timeout_ms=10)
    assert "not acknowledged within delivery_timeout_ms=20: " in str(batch.error)
    assert "connection to broker 1" in str(batch.error)


def test_the_little_time_that_is_left_to_a_batch_is_no_bound_of_its_request():
    """It would end the connection, and each batch in a long queue would leave with as little time as the one before."""
    cluster = FakeCluster()
    cluster.connected = True
    timeouts_s = []
    submit = cluster.submit

    def noted(request, on_answer, *, version, timeout_s):
        timeouts_s.append(timeout_s)
        submit(request, on_answer, version=version, timeout_s=timeout_s)

    cluster.submit = noted

    async def test(running):
        batch = running.append()
        batch.created_at_s -= 100
        await running.until_done(batch)
        return batch

    with_loop(test, cluster, acks=1, enable_idempotence=False, delivery_timeout_ms=120_000)
    assert timeouts_s == [30.0]


def test_the_end_of_the_loop_ends_its_tasks():
    cluster = FakeCluster()
    cluster.identity_errors = [DisconnectedError("x")] * 1000

    async def test(running):
        running.append()
        await asyncio.sleep(0.01)
        running.task.cancel()
        await asyncio.gather(running.task, return_exceptions=True)
        await asyncio.sleep(0)
        return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    assert with_loop(test, cluster) == []


def test_an_error_that_nobody_expected_while_sending_ends_the_loop_and_not_in_silence():
    cluster = FakeCluster()
    cluster.submit_error = ValueError("bug")
    assert "bug" in str(send_one(cluster).error)


def test_an_answer_that_cannot_be_dealt_with_ends_the_loop_and_not_in_silence():
    cluster = FakeCluster()
    cluster.nonsense = "nonsense"
    assert "AttributeError" in str(send_one(cluster).error)


def test_a_loop_without_linger_does_not_spin_while_an_answer_is_awaited():
    cluster = FakeCluster()
    cluster.connected = True
    cluster.submit = lambda request, on_answer, *, timeout_s=None: None  # nobody ever answers

    async def test(running):
        running.append()
        for _ in range(20):
            await asyncio.sleep(0)
        turns = 0
        plan = running.send_loop.sender.plan

        def counted(now_s):
            nonlocal turns
            turns += 1
            return plan(now_s)

        running.send_loop.sender.plan = counted
        for _ in range(2_000):
            await asyncio.sleep(0)
        return turns

    assert with_loop(test, cluster) < 500

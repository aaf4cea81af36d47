"""The producer's shell over a cluster that is a function: identities, retries, settings that meet the wire."""

from __future__ import annotations

import asyncio

from barnabas.client.backoff import Backoff
from barnabas.client.config import ProducerConfig
from barnabas.client.metadata import ClusterView, PartitionView, TopicView
from barnabas.client.producer.accumulator import Accumulator
from barnabas.client.producer.send_loop import SendLoop, run_callbacks
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import DisconnectedError, KafkaError, UnsupportedVersionError
from barnabas.model import Node
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
        self.refreshes = 0
        self.headers = []
        self.posted = []
        self.is_open = True
        self.unsent_bytes = 0

    async def any_channel(self):
        return self

    async def channel_to(self, node_id):
        return self

    async def ask(self, channel, request):
        if self.identity_errors:
            raise self.identity_errors.pop(0)
        return InitProducerIdResponse(error_code=0, producer_id=55, producer_epoch=0)

    def want_refresh(self):
        self.refreshes += 1

    def send_soon(self, request, *, timeout_s):
        future = asyncio.get_running_loop().create_future()
        if self.send_errors:
            future.set_exception(self.send_errors.pop(0))
            return future
        data = request.topic_data[0].partition_data[0]
        self.headers.append(read_header(data.records))
        answer = PartitionProduceResponse(index=0, error_code=0, base_offset=10)
        future.set_result(ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[answer])]))
        return future

    def post(self, request):
        self.posted.append(request)


def send_one(cluster, **settings):
    """Send one record and return its batch when it is settled."""

    async def main():
        config = ProducerConfig(linger_ms=0, **settings)
        loop = asyncio.get_running_loop()
        accumulator = Accumulator(
            batch_size=1000,
            buffer_memory=10_000,
            linger_s=0.0,
            max_block_s=0.0,
            max_record_bytes=1000,
            compression=Compression.NONE,
            clock=SYSTEM_CLOCK,
            wake=lambda: loop.call_soon(send_loop.wake),
            random=lambda: 0.0,
        )
        send_loop = SendLoop(config, cluster, accumulator, SYSTEM_CLOCK)
        send_loop.on_metadata()
        task = asyncio.create_task(send_loop.run())
        task.add_done_callback(
            lambda done: done.cancelled() or send_loop.settle_all(KafkaError(-1, repr(done.exception())))
        )
        await asyncio.sleep(0)
        batch, _ = accumulator.append(accumulator.topic("t"), None, 1, None, b"v", ())
        settled = asyncio.Event()
        accumulator.when_done(batch, settled.set)
        async with asyncio.timeout(10):
            await settled.wait()
        task.cancel()
        return batch

    return asyncio.run(main())


def test_a_producer_id_is_fetched_and_used():
    cluster = FakeCluster()
    batch = send_one(cluster)
    assert batch.base_offset == 10
    assert [(header.producer_id, header.base_sequence) for header in cluster.headers] == [(55, 0)]


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


def test_an_error_that_nobody_expected_settles_the_batch():
    cluster = FakeCluster()
    cluster.send_errors = [ValueError("bug")]
    assert "bug" in str(send_one(cluster).error)


def test_an_error_that_nobody_expected_while_sending_ends_the_loop_and_not_in_silence():
    cluster = FakeCluster()
    cluster.send_soon = None
    assert "TypeError" in str(send_one(cluster).error)


def test_an_answer_that_cannot_be_dealt_with_ends_the_loop_and_not_in_silence():
    cluster = FakeCluster()

    def answer_nonsense(request, *, timeout_s):
        future = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    cluster.send_soon = answer_nonsense
    assert "AttributeError" in str(send_one(cluster).error)


def test_a_callback_that_raises_disturbs_no_other(caplog):
    called = []

    def fail():
        raise ValueError("user")

    run_callbacks([fail, lambda: called.append(1)])
    assert called == [1]
    assert "callback" in caplog.text

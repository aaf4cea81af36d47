"""The consumer's shell over a cluster that is a function: how often a broker is asked."""

from __future__ import annotations

import asyncio
import threading

from barnabas.client.backoff import Backoff
from barnabas.client.config import ConsumerConfig
from barnabas.client.consumer.engine import ConsumerEngine
from barnabas.client.metadata import ClusterView, PartitionView, TopicView
from barnabas.clock import ManualClock
from barnabas.errors import ErrorCode
from barnabas.model import Node, TopicPartition
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

HERE = TopicPartition("t", 0)


class RefusingCluster:
    """A broker that answers every fetch at once, with an error."""

    def __init__(self, error):
        self.view = ClusterView({1: Node(1, "a", 1)}, {"t": TopicView("t", partitions=(PartitionView(0, 1),))})
        self.backoff = Backoff(0, 0, lambda: 0.5)
        self.clock = ManualClock()
        self.error = error
        self.fetches = 0

    def want_refresh(self):
        pass

    async def send(self, node_id, request, **_options):
        self.fetches += 1
        part = PartitionData(partition_index=0, error_code=self.error, high_watermark=0, records=None)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[part])])


async def give_way():
    for _ in range(50):
        await asyncio.sleep(0)


def test_an_error_is_fetched_once_until_the_application_has_taken_it():
    async def main():
        cluster = RefusingCluster(ErrorCode.CORRUPT_MESSAGE)
        engine = ConsumerEngine(ConsumerConfig(), cluster, threading.Condition(), alive=lambda: True, done_offsets=dict)
        engine.subscription.assign_by_hand([HERE])
        engine.subscription.state(HERE).move_to(0)
        engine.kick()
        await give_way()
        assert cluster.fetches == 1
        assert engine.idle
        assert engine.fetcher.take_error().code is ErrorCode.CORRUPT_MESSAGE
        engine.kick()
        await give_way()
        assert cluster.fetches == 2
        for task in engine._tasks:
            task.cancel()

    asyncio.run(main())

"""The consumer's shell over a cluster that is a function: how often a broker is asked."""

from __future__ import annotations

import asyncio
import threading

import pytest

from barnabas.client.backoff import Backoff
from barnabas.client.config import ConsumerConfig
from barnabas.client.consumer.engine import ConsumerEngine
from barnabas.client.metadata import ClusterView, PartitionView, TopicView
from barnabas.clock import ManualClock
from barnabas.errors import BarnabasError, DisconnectedError, ErrorCode, KafkaError
from barnabas.model import Node, TopicPartition
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.records import BatchBuilder, stamp

HERE = TopicPartition("t", 0)


class RefusingCluster:
    """A broker that answers every fetch at once, with an error."""

    def __init__(self, error):
        self.view = ClusterView({1: Node(1, "a", 1)}, {"t": TopicView("t", partitions=(PartitionView(0, 1),))})
        self.backoff = Backoff(0, 0, lambda: 0.5)
        self.clock = ManualClock()
        self.error = error
        self.fetches = 0

    def close(self):
        pass

    def want_refresh(self):
        pass

    def open_channel(self, node_id, purpose=""):
        return FakeChannel(self, purpose)

    def answer(self, request, purpose):
        self.fetches += 1
        part = PartitionData(partition_index=0, error_code=self.error, high_watermark=0, records=None)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[part])])


class FakeChannel:
    """A connection on which each request is answered in the next turn of the loop, or never."""

    def __init__(self, cluster, purpose):
        self.cluster = cluster
        self.purpose = purpose

    def version_for(self, kind):
        return 12

    def submit(self, request, on_answer, *, version, timeout_s):
        answer = self.cluster.answer(request, self.purpose)
        if isinstance(answer, BarnabasError):
            asyncio.get_running_loop().call_soon(on_answer, None, answer)
        elif answer is not None:
            asyncio.get_running_loop().call_soon(on_answer, answer, None)

    def flush(self):
        pass


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
        await engine.close()

    asyncio.run(main())


class WaitingCluster(RefusingCluster):
    """A broker that has something for the second partition, and lets fetches of the first one wait."""

    def __init__(self):
        super().__init__(ErrorCode.NONE)
        partitions = (PartitionView(0, 1), PartitionView(1, 1))
        self.view = ClusterView({1: Node(1, "a", 1)}, {"t": TopicView("t", partitions=partitions)})
        self.asked = []
        self.waits = 0

    def answer(self, request, purpose):
        asked = sorted(part.partition for topic in request.topics for part in topic.partitions)
        self.asked.append((purpose, asked))
        if 1 not in asked:
            self.waits += 1
            return None
        builder = BatchBuilder()
        builder.append_many(1, [bytes(300)])
        batch = builder.build()
        stamp(batch, 0, request.topics[0].partitions[-1].fetch_offset, 0)
        part = PartitionData(partition_index=1, error_code=0, high_watermark=9, records=bytes(batch))
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[part])])


def test_a_fetch_that_waits_does_not_hold_up_what_another_would_bring():
    async def main():
        cluster = WaitingCluster()
        config = ConsumerConfig(max_partition_fetch_bytes=200)
        engine = ConsumerEngine(config, cluster, threading.Condition(), alive=lambda: True, done_offsets=dict)
        other = TopicPartition("t", 1)
        engine.subscription.assign_by_hand([HERE, other])
        for tp in (HERE, other):
            engine.subscription.state(tp).move_to(0)
        engine.kick()
        await give_way()
        # The second partition has more at hand than it should, so only the first one was asked for again.
        assert cluster.asked == [("fetch-0", [0, 1]), ("fetch-0", [0])]
        assert engine.fetcher.take(lambda tp: tp == other)
        assert engine.fetcher.hungry
        engine.kick()
        await give_way()
        assert cluster.asked[2:] == [("fetch-1", [1])]
        assert cluster.waits == 1
        await engine.close()

    asyncio.run(main())


class SessionCluster(RefusingCluster):
    """A broker with fetch sessions; answers come from a list."""

    def __init__(self, answers):
        super().__init__(ErrorCode.NONE)
        self.answers = list(answers)
        self.requests = []

    def answer(self, request, purpose):
        self.requests.append(request)
        return self.answers.pop(0) if self.answers else None


def epochs_of(answers):
    """The session ids and epochs of the fetches that follow each other when these answers come."""

    async def main():
        cluster = SessionCluster(answers)
        engine = ConsumerEngine(ConsumerConfig(), cluster, threading.Condition(), alive=lambda: True, done_offsets=dict)
        engine.subscription.assign_by_hand([HERE])
        engine.subscription.state(HERE).move_to(0)
        engine.kick()
        await give_way()
        await engine.close()
        return cluster.requests

    requests = asyncio.run(main())
    return [(each.session_id, each.session_epoch, len(each.topics)) for each in requests]


NOTHING = FetchResponse(session_id=7, responses=[])


def test_a_reader_that_waits_goes_on_with_its_session_and_says_nothing_twice():
    assert epochs_of([NOTHING, NOTHING]) == [(0, 0, 1), (7, 1, 0), (7, 2, 0)]


def test_a_session_that_is_lost_is_begun_anew_at_once():
    lost = FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
    assert epochs_of([NOTHING, lost, NOTHING]) == [(0, 0, 1), (7, 1, 0), (7, 0, 1), (7, 1, 0)]


@pytest.mark.parametrize("error", [DisconnectedError("gone"), KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved")])
def test_after_a_failure_all_is_said_anew(error):
    assert epochs_of([NOTHING, error]) == [(0, 0, 1), (7, 1, 0), (7, 0, 1)]


def test_an_error_that_nobody_foresaw_is_told():
    async def main():
        cluster = SessionCluster([NOTHING])
        engine = ConsumerEngine(ConsumerConfig(), cluster, threading.Condition(), alive=lambda: True, done_offsets=dict)
        engine.subscription.assign_by_hand([HERE])
        engine.subscription.state(HERE).move_to(0)
        engine.fetcher.on_response = None
        engine.kick()
        await give_way()
        error = engine.fetcher.take_error()
        await engine.close()
        return error

    assert "the consumer stopped because of TypeError" in str(asyncio.run(main()))

"""The consumer's background over a cluster that is a function: how often a broker is asked."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from barnabas.client.backoff import Backoff
from barnabas.client.cluster import ClusterView, PartitionView, TopicView
from barnabas.client.config import ConsumerConfig
from barnabas.client.consumer.call_steps import Leave, Query
from barnabas.client.consumer.fetcher import ERRORS_MAX
from barnabas.client.consumer.state import ConsumerState
from barnabas.client.consumer.sync_async_drivers import Background, LoopGuard
from barnabas.clock import ManualClock
from barnabas.errors import ApiError, BarnabasError, ClosedError, DisconnectedError, ErrorCode
from barnabas.model import Node, OffsetAndTimestamp, TopicPartition
from barnabas.protocol.codec import EncodedRequest, decode
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
        self.will_refresh = False

    def close(self):
        pass

    def request_refresh(self, *, is_stale=False):
        pass

    def hold_topics(self, topics, *, auto_creates):
        assert not auto_creates

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

    def submit(self, request, on_answer, *, version, timeout_s=30):
        if isinstance(request, EncodedRequest):
            request = decode(request.cls, request.body, version)
        answer = self.cluster.answer(request, self.purpose)
        if isinstance(answer, BarnabasError):
            asyncio.get_running_loop().call_soon(on_answer, None, answer)
        elif answer is not None:
            asyncio.get_running_loop().call_soon(on_answer, answer, None)

    def flush(self):
        pass


async def yield_to_loop():
    for _ in range(50):
        await asyncio.sleep(0)


class Engine:
    """A background that is told to look by hand, and what it shares with the application."""

    def __init__(self, cluster, partitions=(HERE,), **settings):
        guard = LoopGuard()
        state = ConsumerState(ConsumerConfig(**settings), guard, cluster.clock)
        state.subscription.assign_by_hand(partitions)
        for tp in partitions:
            state.subscription.state(tp).move_to(0)
        self.state = state
        self.fetcher = state.fetcher
        self.background = Background(state, cluster, guard.waker)

    def kick(self):
        self.background.run_pending()

    async def close(self):
        await self.background.close()


def test_an_error_is_fetched_once_until_the_application_has_taken_it():
    async def main():
        cluster = RefusingCluster(ErrorCode.CORRUPT_MESSAGE)
        engine = Engine(cluster)
        engine.kick()
        await yield_to_loop()
        assert cluster.fetches == 1
        assert engine.fetcher.take_error().code is ErrorCode.CORRUPT_MESSAGE
        engine.kick()
        await yield_to_loop()
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
        other = TopicPartition("t", 1)
        engine = Engine(cluster, [HERE, other], max_partition_fetch_bytes=200)
        engine.kick()
        await yield_to_loop()
        # The second partition has more at hand than it should, so only the first one was asked for again.
        assert cluster.asked == [("fetch-0", [0, 1]), ("fetch-0", [0])]
        assert engine.fetcher.take(lambda tp: tp == other)
        assert engine.fetcher.wants_fetch
        engine.kick()
        await yield_to_loop()
        assert cluster.asked[2:] == [("fetch-1", [1])]
        assert cluster.waits == 1
        await engine.close()

    asyncio.run(main())


class SessionCluster(RefusingCluster):
    """A broker with fetch sessions, whose answers come from a list."""

    def __init__(self, answers=()):
        super().__init__(ErrorCode.NONE)
        self.answers = list(answers)
        self.requests = []

    def answer(self, request, purpose):
        self.requests.append(request)
        return self.answers.pop(0) if self.answers else None


def requests_to(cluster):
    """What a broker is asked for one after the other, from the first fetch to the end of the consumer."""

    async def main():
        engine = Engine(cluster)
        engine.kick()
        await yield_to_loop()
        await engine.close()
        return [(each.session_id, each.session_epoch, len(each.topics)) for each in cluster.requests]

    return asyncio.run(main())


NOTHING = FetchResponse(session_id=7, responses=[])
SESSION_LOST = FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
FAREWELL = (7, -1, 0)


def test_a_reader_that_waits_goes_on_with_its_session_and_says_nothing_twice():
    assert requests_to(SessionCluster([NOTHING, NOTHING])) == [(0, 0, 1), (7, 1, 0), (7, 2, 0), FAREWELL]


def test_a_session_that_is_lost_is_begun_anew_at_once():
    asked = requests_to(SessionCluster([NOTHING, SESSION_LOST, NOTHING]))
    assert asked == [(0, 0, 1), (7, 1, 0), (7, 0, 1), (7, 1, 0), FAREWELL]


@pytest.mark.parametrize("error", [DisconnectedError("gone"), ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved")])
def test_after_a_failure_all_is_said_anew(error):
    assert requests_to(SessionCluster([NOTHING, error])) == [(0, 0, 1), (7, 1, 0), (7, 0, 1), FAREWELL]


def test_a_broker_without_sessions_is_told_no_farewell():
    nothing = FetchResponse(session_id=0, responses=[])
    assert requests_to(SessionCluster([nothing])) == [(0, 0, 1), (0, 0, 1)]


class FullCluster(SessionCluster):
    """A broker whose answers have room for what is asked first alone, in a session or without one."""

    def __init__(self, session_id):
        super().__init__()
        self.session_id = session_id
        self.view = ClusterView(
            {1: Node(1, "a", 1)}, {"t": TopicView("t", partitions=tuple(PartitionView(each, 1) for each in range(3)))}
        )

    def answer(self, request, purpose):
        self.requests.append(request)
        if len(self.requests) > 4:
            return None
        first = request.topics[0].partitions[0]
        builder = BatchBuilder()
        builder.append_many(1, [b"some"])
        batch = builder.build()
        stamp(batch, 0, first.fetch_offset, 0)
        part = PartitionData(partition_index=first.partition, error_code=0, high_watermark=9, records=bytes(batch))
        topics = [FetchableTopicResponse(topic="t", partitions=[part])]
        return FetchResponse(session_id=self.session_id, responses=topics)


@pytest.mark.parametrize(
    ("session_id", "asked"),
    [(0, [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2], [1, 2, 0]]), (7, [[0, 1, 2], [0], [0], [0], [0]])],
)
def test_without_a_session_what_has_waited_longest_is_asked_first(session_id, asked):
    async def main():
        cluster = FullCluster(session_id)
        engine = Engine(cluster, [TopicPartition("t", partition) for partition in range(3)])
        engine.kick()
        for _ in range(20):
            await asyncio.sleep(0)
            while engine.fetcher.take(lambda tp: True):
                pass
        await engine.close()
        return [[part.partition for part in each.topics[0].partitions] for each in cluster.requests if each.topics]

    assert asyncio.run(main()) == asked


class DialedCluster(SessionCluster):
    """A broker to which there is no connection yet; connecting fails so many times."""

    def __init__(self, failures):
        super().__init__([NOTHING])
        self.failures = failures
        self.channel = None

    def open_channel(self, node_id, purpose=""):
        return self.channel if purpose else None

    async def channel_to(self, node_id, purpose):
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise DisconnectedError("nobody listens")
        self.channel = FakeChannel(self, purpose)
        return self.channel


@pytest.mark.parametrize("failures", [0, 2])
def test_a_connection_is_made_first_however_often_that_fails(failures):
    assert requests_to(DialedCluster(failures)) == [(0, 0, 1), (7, 1, 0)]


class BreakingChannel(FakeChannel):
    """Ends while the first request is written to it: the answer, an error, comes before `flush` has ended."""

    on_answer = None

    def submit(self, request, on_answer, **options):
        if self.cluster.requests:
            super().submit(request, on_answer, **options)
        else:
            self.cluster.requests.append(request)
            self.on_answer = on_answer

    def flush(self):
        if self.on_answer is not None:
            self.on_answer(None, DisconnectedError("the other end is gone"))


class BreakingCluster(SessionCluster):
    def open_channel(self, node_id, purpose=""):
        return BreakingChannel(self, purpose)


def test_a_connection_that_ends_while_it_is_written_to_is_tried_again():
    assert requests_to(BreakingCluster([NOTHING])) == [(0, 0, 1), (0, 0, 1), (7, 1, 0), FAREWELL]


def test_nothing_is_sent_after_the_end():
    async def main():
        cluster = SessionCluster([DisconnectedError("gone")])
        cluster.backoff = Backoff(60_000, 60_000, lambda: 0.5)
        engine = Engine(cluster)
        engine.kick()
        await yield_to_loop()
        await engine.close()  # during the pause after the failure
        scheduled = asyncio.get_running_loop()._scheduled
        return len(cluster.requests), [handle for handle in scheduled if not handle.cancelled()]

    assert asyncio.run(main()) == (1, [])


class NotedChannel(FakeChannel):
    """The test gives the answers."""

    def submit(self, request, on_answer, **_options):
        if self.purpose:
            asked = [part.partition for topic in request.topics for part in topic.partitions]
            self.cluster.asked.append((self.node_id, asked, on_answer))


class MovingCluster(SessionCluster):
    """Three brokers that lead a partition or more each."""

    def __init__(self, leaders):
        super().__init__()
        self.asked = []
        self.set_leaders(leaders)

    def set_leaders(self, leaders):
        partitions = tuple(PartitionView(partition, leader) for partition, leader in enumerate(leaders))
        brokers = {node_id: Node(node_id, "a", node_id) for node_id in (1, 2, 3)}
        self.view = ClusterView(brokers, {"t": TopicView("t", partitions=partitions)})

    def open_channel(self, node_id, purpose=""):
        channel = NotedChannel(self, purpose)
        channel.node_id = node_id
        return channel


@pytest.mark.parametrize("answer", [NOTHING, SESSION_LOST])
def test_a_partition_that_has_moved_while_a_fetch_waited_is_asked_for_where_it_is_now(answer):
    async def main():
        cluster = MovingCluster([1])
        engine = Engine(cluster)
        engine.kick()
        cluster.set_leaders([2])
        engine.kick()
        ((_, _, answered),) = cluster.asked  # it is under way still
        answered(answer, None)
        await engine.close()
        return [(node_id, asked) for node_id, asked, _ in cluster.asked]

    assert asyncio.run(main()) == [(1, [0]), (2, [0])]


def test_brokers_take_turns_where_there_is_room_for_one():
    async def main():
        cluster = MovingCluster([1, 2, 3])
        partitions = [TopicPartition("t", partition) for partition in range(3)]
        engine = Engine(cluster, partitions, max_partition_fetch_bytes=300, fetch_buffer_bytes=500)
        engine.kick()
        turns = []
        for _ in range(6):
            node_id, _, answered = cluster.asked[-1]
            turns.append(node_id)
            assert len(cluster.asked) == len(turns)
            answered(NOTHING, None)
        await engine.close()
        return turns

    assert sorted(asyncio.run(main())) == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("what", ["on_response", "next_fetch"])
def test_an_error_that_nobody_foresaw_is_told(what):
    async def main():
        engine = Engine(SessionCluster([NOTHING]))
        setattr(engine.fetcher, what, None)
        engine.kick()
        await yield_to_loop()
        errors = []
        for _ in range(3):
            with pytest.raises(ClosedError, match="the consumer stopped because of TypeError") as caught:
                engine.state.raise_pending_error()
            errors.append(caught.value)
        await engine.close()
        assert len(set(map(id, errors))) == 3, "whoever polls again is told again, and waits for nothing"

    asyncio.run(main())


def test_an_error_that_nobody_foresaw_ends_the_work_that_calls_wait_for():
    async def main():
        engine = Engine(SessionCluster())
        engine.background._watch_topics = None
        work = Leave("test")
        engine.state.add_task(work)
        engine.background._on_wake()
        await engine.close()
        return work

    work = asyncio.run(main())
    assert work.done
    assert "the consumer stopped because of TypeError" in str(work.error)


def test_topics_that_are_missing_are_looked_for_by_one_timer_however_often_metadata_comes():
    async def main():
        engine = Engine(SessionCluster())
        engine.state.subscription.unsubscribe()
        engine.state.subscription.subscribe(["missing"], None)
        for _ in range(5):
            engine.background._on_metadata(engine.background._cluster.view)
        loop = asyncio.get_running_loop()
        scheduled = [handle for handle in loop._scheduled if not handle.cancelled()]
        await engine.close()
        return len(scheduled), [handle for handle in loop._scheduled if not handle.cancelled()]

    assert asyncio.run(main()) == (1, [])


def test_a_partition_without_leader_is_looked_for_until_it_has_one():
    """No fetch of it fails meanwhile, which would ask for metadata."""

    async def run():
        cluster = CountingCluster()
        engine = Engine(cluster)
        leaderless = ClusterView(cluster.view.brokers, {"t": TopicView("t", partitions=(PartitionView(0, -1),))})
        for asked in range(1, 4):
            for _ in range(3):
                engine.background._on_metadata(leaderless)
            await yield_to_loop()
            assert cluster.refreshes == asked
        engine.background._on_metadata(cluster.view)
        await yield_to_loop()
        assert cluster.refreshes == 3
        await engine.background.close()

    asyncio.run(run())


def test_a_partition_that_comes_after_metadata_has_its_leader_looked_for():
    """The metadata said that it is led by nobody when that was of no interest yet."""

    async def run():
        cluster = CountingCluster()
        cluster.view = ClusterView(cluster.view.brokers, {"t": TopicView("t", partitions=(PartitionView(0, -1),))})
        engine = Engine(cluster, partitions=())
        engine.state.subscription.unsubscribe()
        engine.state.subscription.subscribe(["t"], None)
        engine.kick()
        assert cluster.refreshes == 1, "the topic is new"
        cluster.will_refresh = False
        engine.background._on_metadata(cluster.view)
        assert cluster.refreshes == 1
        engine.state.replace_partitions([HERE])
        for _ in range(3):
            engine.kick()
            assert cluster.refreshes == 2
        await engine.close()

    asyncio.run(run())


def test_while_a_broker_cannot_be_reached_it_is_looked_whether_another_one_leads():
    async def run():
        cluster = UnreachableCluster()
        engine = Engine(cluster)
        engine.background._on_metadata(cluster.view)  # begins to connect
        assert cluster.refreshes == 0
        await yield_to_loop()
        assert cluster.refreshes == 1, "the failure itself asks"
        for asked in (2, 3):
            engine.background._on_metadata(cluster.view)
            assert cluster.refreshes == asked
        await engine.background.close()

    asyncio.run(run())


class CountingCluster(RefusingCluster):
    """Counts how often metadata is wanted."""

    refreshes = 0

    def __init__(self):
        super().__init__(ErrorCode.NONE)

    def request_refresh(self, *, is_stale=False):
        self.refreshes += 1
        self.will_refresh = True

    def answer(self, request, purpose):
        return None


class UnreachableCluster(CountingCluster):
    """Nobody listens, and it is a long time until the next try."""

    def __init__(self):
        super().__init__()
        self.backoff = Backoff(3_600_000, 3_600_000, lambda: 0.5)

    def open_channel(self, node_id, purpose=""):
        return None

    async def channel_to(self, node_id, purpose):
        raise DisconnectedError("nobody listens")


OUT_OF_RANGE = PartitionData(
    partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=-1, records=None
)
LOST = FetchResponse(session_id=7, responses=[FetchableTopicResponse(topic="t", partitions=[OUT_OF_RANGE])])


@pytest.mark.parametrize(("policy", "looked_up"), [("earliest", 1), ("none", 0)])
def test_a_position_is_looked_up_when_an_answer_says_that_there_is_nothing_and_only_then(
    monkeypatch, policy, looked_up
):
    lookups = []

    async def found(_cluster, wanted):
        lookups.append(list(wanted))
        return {HERE: OffsetAndTimestamp(40, 0)}

    monkeypatch.setattr("barnabas.client.consumer.sync_async_drivers.list_offsets", found)

    async def main():
        cluster = SessionCluster([NOTHING, LOST, NOTHING, NOTHING])
        engine = Engine(cluster, auto_offset_reset=policy)
        engine.background._spawn(engine.background._find_positions())
        engine.kick()  # once: all that follows comes of answers
        await yield_to_loop()
        await engine.close()
        assert lookups == [[HERE]] * looked_up
        offsets = [part.fetch_offset for each in cluster.requests for topic in each.topics for part in topic.partitions]
        assert offsets == [0] + [40] * looked_up
        assert not engine.fetcher.lost_positions

    asyncio.run(main())


def test_errors_that_the_application_does_not_ask_for_are_kept_once_each_and_not_without_end():
    state = Engine(SessionCluster()).state
    for _ in range(3):
        state.report_error(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the same"))
    assert len(state.fetcher.errors) == 1
    for number in range(10 * ERRORS_MAX):
        state.report_error(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(number)))
    assert len(state.fetcher.errors) == ERRORS_MAX
    assert "the same" in str(state.fetcher.take_error())


def test_a_committed_offset_that_was_looked_up_too_late_counts_no_more():
    state = Engine(SessionCluster()).state
    partition = state.subscription.state(HERE)
    asked = {partition: partition.version}
    partition.move_to(50)
    partition.committed = 60
    state.set_positions(asked, {partition: 100}, committed=True)
    assert (partition.position, partition.committed) == (50, 60)
    state.set_positions({partition: partition.version}, {partition: 100}, committed=True)
    assert (partition.position, partition.committed) == (100, 100)


def test_cancelled_close_ends_all_that_runs():
    async def main():
        cluster = RefusingCluster(ErrorCode.CORRUPT_MESSAGE)
        engine = Engine(cluster)
        engine.kick()
        never = asyncio.Event()
        engine.background._interceptors = SimpleNamespace(close=lambda _timeout_s: never.wait())
        waiting = Query(lambda _cluster: never.wait())
        engine.state.add_task(waiting)
        engine.kick()
        closing = asyncio.create_task(engine.close())
        await yield_to_loop()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert waiting.done
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())

"""The way to the brokers, over connections that are functions."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from unittest import mock

import pytest

from barnabas.client.admin.topic_changes import create_topic
from barnabas.client.cluster import Cluster
from barnabas.client.config import ClientConfig
from barnabas.client.offset_requests import list_offsets
from barnabas.clock import SYSTEM_CLOCK, ManualClock
from barnabas.errors import ApiError, ClosedError, DisconnectedError, ErrorCode, TimedOutError
from barnabas.model import TopicPartition
from barnabas.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.list_offsets import (
    LATEST_TIMESTAMP,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


class FakeChannel:
    def __init__(self, brokers, address):
        self.brokers = brokers
        self.address = address
        self.is_open = True
        self.unsent_bytes = 0

    def version_for(self, request):
        return 9

    async def send(self, request, *, version=None, timeout_s=30.0):
        self.brokers.requests.append((self.address, type(request).__name__, version))
        return self.brokers.answer(request, self.address)

    def close(self):
        self.is_open = False


class FakeBrokers:
    """Answers Metadata and FindCoordinator; addresses in `down` cannot be reached."""

    def __init__(self, *addresses):
        self.addresses = addresses
        self.down = set()
        self.requests = []
        self.dialed = []
        self.topics = {}
        self.errors = []
        self.leader_id = 0
        """Of all partitions; it is the controller, too."""

    async def dial(self, host, port):
        self.dialed.append((host, port))
        await asyncio.sleep(0)
        if (host, port) in self.down:
            raise DisconnectedError(f"cannot connect to {host}:{port}: Connection refused", "Connection refused")
        return FakeChannel(self, (host, port))

    def answer(self, request, address):
        if self.errors:
            raise self.errors.pop(0)
        leads = address == self.addresses[self.leader_id]
        if isinstance(request, ListOffsetsRequest):
            code = ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER
            part = ListOffsetsPartitionResponse(partition_index=0, error_code=code, offset=7, timestamp=-1)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[part])])
        if isinstance(request, CreateTopicsRequest):
            code = ErrorCode.NONE if leads else ErrorCode.NOT_CONTROLLER
            return CreateTopicsResponse(topics=[CreatableTopicResult(name="new", error_code=code)])
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(node_id=0, host=self.addresses[0][0], port=self.addresses[0][1])
        assert isinstance(request, MetadataRequest)
        names = list(self.topics) if request.topics is None else [topic.name for topic in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node_id, host=host, port=port)
                for node_id, (host, port) in enumerate(self.addresses)
            ],
            controller_id=self.leader_id,
            topics=[self._topic(name, request.allow_auto_topic_creation) for name in names],
        )

    def _topic(self, name, creates):
        if name not in self.topics and creates:
            self.topics[name] = 2
            return MetadataResponseTopic(error_code=ErrorCode.LEADER_NOT_AVAILABLE, name=name, partitions=[])
        if name not in self.topics:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name, partitions=[])
        return MetadataResponseTopic(
            error_code=0,
            name=name,
            partitions=[
                MetadataResponsePartition(
                    error_code=0, partition_index=place, leader_id=self.leader_id, replica_nodes=[0], isr_nodes=[0]
                )
                for place in range(self.topics[name])
            ],
        )


def run(test, *addresses, bootstrap="a:1"):
    """Run `test(cluster, brokers)` with `addresses` as the cluster."""

    async def main():
        brokers = FakeBrokers(*(addresses or (("a", 1),)))
        config = ClientConfig(bootstrap_servers=bootstrap, retry_backoff_ms=1, retry_backoff_max_ms=2)
        cluster = Cluster(config, dial=brokers.dial, clock=SYSTEM_CLOCK, random=lambda: 0.0)
        try:
            await test(cluster, brokers)
        finally:
            cluster.close()

    asyncio.run(main())


def test_the_next_bootstrap_address_is_tried():
    async def test(cluster, brokers):
        brokers.down.add(("a", 1))
        await cluster.refresh()
        assert brokers.dialed == [("a", 1), ("b", 1)]

    run(test, ("b", 1), bootstrap="a:1,b:1")


def test_nobody_there_names_the_addresses_and_says_what_to_do(caplog):
    async def test(cluster, brokers):
        brokers.down.add(("a", 1))
        with pytest.raises(DisconnectedError, match=r"no broker at a:1: .*is it running\? \(barnabas up\)") as nobody:
            await cluster.refresh()
        assert nobody.value.reason == "Connection refused"
        with pytest.raises(TimedOutError) as late:
            await cluster.retrying(cluster.refresh, what="topics are not known", timeout_s=0.3)
        assert late.value.reason == "Connection refused"
        assert cluster.unreachable is not None
        brokers.down.clear()
        await cluster.refresh()
        assert cluster.unreachable is None
        assert cluster.will_refresh, "who was told that no broker is there hears of one with the next metadata"

    run(test)
    # Only this cluster's lines: a client that another test left behind goes on logging.
    said = [message for name, _, message in caplog.record_tuples if name == Cluster.__module__ and "at a:1" in message]
    assert len(said) == 1  # once per outage


def test_one_connection_serves_many_and_each_purpose_has_its_own():
    async def test(cluster, brokers):
        await cluster.refresh()
        first, second = await asyncio.gather(cluster.channel_to(0, "fetch"), cluster.channel_to(0, "fetch"))
        assert first is second
        assert first is not await cluster.channel_to(0)
        assert len(brokers.dialed) == 2
        first.close()
        assert (await cluster.channel_to(0, "fetch")).is_open

    run(test)


def test_a_topic_is_created_by_asking_and_waited_for():
    async def test(cluster, brokers):
        assert len((await cluster.topic("new", timeout_s=60, auto_creates=True)).partitions) == 2

    run(test)


def test_a_deleted_topic_that_nobody_waits_for_is_not_created_again():
    async def test(cluster, brokers):
        await cluster.topic("once", timeout_s=60, auto_creates=True)
        del brokers.topics["once"]
        for _ in range(3):
            view = await cluster.refresh()
        assert "once" not in brokers.topics
        assert view.partition_count("once") is None
        await cluster.topic("once", timeout_s=60, auto_creates=True)
        assert "once" in brokers.topics

    run(test)


def test_topics_without_interest_leave_the_view():
    async def test(cluster, brokers):
        brokers.topics.update({"a": 1, "b": 1, "c": 1})
        cluster.hold_topics(None)
        assert sorted((await cluster.refresh()).topics) == ["a", "b", "c"]
        cluster.hold_topics(["a"])
        await cluster.describe(["c"])
        assert sorted((await cluster.refresh()).topics) == ["a"]

    run(test)


def test_a_topic_that_does_not_come_is_reported_with_advice():
    async def test(cluster, brokers):
        with pytest.raises(TimedOutError, match="'new' does not exist; create it: barnabas topic create"):
            await cluster.topic("new", timeout_s=0.01)

    run(test)


def test_errors_that_pass_are_tried_again_and_others_are_not():
    async def test(cluster, brokers):
        brokers.errors = [DisconnectedError("x"), ApiError(ErrorCode.REQUEST_TIMED_OUT)]
        assert await cluster.retrying(cluster.refresh, what="no metadata")
        brokers.errors = [ApiError(ErrorCode.INVALID_REQUEST, "y")]
        with pytest.raises(ApiError, match="y"):
            await cluster.retrying(cluster.refresh, what="no metadata")

    run(test)


def test_an_attempt_that_hangs_ends_with_the_time():
    async def test(cluster, brokers):
        with pytest.raises(TimedOutError, match=r"no luck: no answer within 0\.01 s"):
            await cluster.retrying(lambda: asyncio.sleep(60), what="no luck", timeout_s=0.01)

    run(test)


def test_the_coordinator_is_remembered_until_its_connection_is_lost():
    async def test(cluster, brokers):
        await cluster.coordinator("g")
        await cluster.coordinator("g")
        assert [name for _, name, _ in brokers.requests] == ["FindCoordinatorRequest"]
        brokers.errors = [DisconnectedError("x")]
        with pytest.raises(DisconnectedError):
            await cluster.ask_coordinator("g", MetadataRequest(topics=[]))
        await cluster.coordinator("g")
        assert [name for _, name, _ in brokers.requests].count("FindCoordinatorRequest") == 2

    run(test)


def test_a_version_can_be_capped():
    async def test(cluster, brokers):
        channel = await cluster.any_channel()
        await cluster.ask(channel, MetadataRequest(topics=[]), version_max=3)
        await cluster.ask(channel, MetadataRequest(topics=[]))
        assert [version for *_, version in brokers.requests] == [3, 9]

    run(test)


def test_a_closed_cluster_connects_no_more():
    async def test(cluster, brokers):
        cluster.close()
        with pytest.raises(ClosedError):
            await cluster.connect(("a", 1))

    run(test)


def test_a_connection_that_is_made_when_the_client_was_closed_is_closed():
    brokers, made = FakeBrokers(("a", 1)), []

    async def dial(host, port):
        made.append(await brokers.dial(host, port))
        return made[-1]

    async def main():
        cluster = Cluster(ClientConfig(), dial=dial, clock=SYSTEM_CLOCK, random=lambda: 0.5)
        connecting = asyncio.create_task(cluster.connect(("a", 1)))
        await asyncio.sleep(0)
        assert brokers.dialed
        cluster.close()
        with pytest.raises(ClosedError):
            await connecting

    asyncio.run(main())
    assert [channel.is_open for channel in made] == [False]


def test_an_answer_that_leaves_a_partition_out_is_an_error():
    brokers = FakeBrokers(("a", 1))
    brokers.topics["t"] = 1
    answer = brokers.answer
    brokers.answer = lambda request, address: (
        ListOffsetsResponse(topics=[]) if isinstance(request, ListOffsetsRequest) else answer(request, address)
    )

    async def main():
        cluster = Cluster(
            ClientConfig(bootstrap_servers=(("a", 1),)), dial=brokers.dial, clock=SYSTEM_CLOCK, random=lambda: 0.5
        )
        with pytest.raises(ApiError, match="missing in the response"):
            await list_offsets(cluster, {TopicPartition("t", 0): LATEST_TIMESTAMP})

    asyncio.run(main())


def count_of(name, brokers):
    return sum(asked == name for _, asked, _ in brokers.requests)


@pytest.mark.parametrize("goes_down", [False, True])
def test_leader_and_controller_are_looked_up_again_also_where_nobody_keeps_the_metadata_fresh(goes_down):
    async def test(cluster, brokers):
        brokers.topics["t"] = 1
        there = TopicPartition("t", 0)
        await list_offsets(cluster, {there: LATEST_TIMESTAMP})
        brokers.leader_id = 1
        if goes_down:
            brokers.down.add(("a", 1))
            for channel in cluster._channels.values():
                channel.close()
        async with asyncio.timeout(60):
            found = await list_offsets(cluster, {there: LATEST_TIMESTAMP})
            brokers.leader_id = 2
            await create_topic(cluster, "new", partitions=1, replication_factor=1, config={}, timeout_ms=1)
        assert found[there].offset == 7
        assert count_of("MetadataRequest", brokers) < 6

    run(test, ("a", 1), ("b", 1), ("c", 1))


def test_a_leader_that_moved_while_no_broker_could_be_reached_is_looked_up_as_soon_as_one_can():
    async def test(cluster, brokers):
        brokers.topics["t"] = 1
        there = TopicPartition("t", 0)
        await list_offsets(cluster, {there: LATEST_TIMESTAMP})
        brokers.down |= {("a", 1), ("b", 1), ("c", 1)}
        for channel in cluster._channels.values():
            channel.close()

        def come_back(*_):
            brokers.leader_id = 1
            brokers.down.discard(("b", 1))

        cluster.lost.append(come_back)
        found = await list_offsets(cluster, {there: LATEST_TIMESTAMP}, timeout_s=20)
        assert found[there].offset == 7

    run(test, ("a", 1), ("b", 1), ("c", 1))


def test_metadata_that_is_wanted_again_and_again_is_asked_for_at_a_slower_and_slower_pace():
    async def test(cluster, brokers):
        attempts = asyncio.Queue()
        cluster.backoff = SimpleNamespace(delay_s=lambda attempt: attempts.put_nowait(attempt) or 0.0)
        keeping = asyncio.create_task(cluster.refresh_forever())
        async with asyncio.timeout(60):
            for attempt in (0, 1, 2):
                cluster.request_refresh()
                assert await attempts.get() == attempt
            for _ in range(10):  # turns of the loop in which nobody wants anything
                await asyncio.sleep(0)
            cluster.request_refresh()
            assert await attempts.get() == 0
        keeping.cancel()

    run(test)


def test_from_when_metadata_is_wanted_until_it_is_there_an_answer_is_to_come():
    async def test(cluster, brokers):
        answered = asyncio.Queue()
        cluster.updated.append(lambda _view: answered.put_nowait(cluster.will_refresh))
        cluster.backoff = SimpleNamespace(delay_s=lambda _attempt: 0.0)
        keeping = asyncio.create_task(cluster.refresh_forever())
        await asyncio.sleep(0)
        assert not cluster.will_refresh
        cluster.request_refresh()
        async with asyncio.timeout(60):
            while answered.empty():
                assert cluster.will_refresh
                await asyncio.sleep(0)
        assert answered.get_nowait()
        await asyncio.sleep(0)
        assert not cluster.will_refresh
        keeping.cancel()

    run(test)


def test_where_the_metadata_is_kept_fresh_nobody_else_looks_it_up():
    async def test(cluster, brokers):
        brokers.topics["t"] = 1
        there = TopicPartition("t", 0)
        await list_offsets(cluster, {there: LATEST_TIMESTAMP})
        keeping = asyncio.create_task(cluster.refresh_forever())
        await asyncio.sleep(0)
        brokers.leader_id = 1
        async with asyncio.timeout(60):
            await list_offsets(cluster, {there: LATEST_TIMESTAMP})
        keeping.cancel()
        assert count_of("MetadataRequest", brokers) == 2

    run(test, ("a", 1), ("b", 1))


class IgnorantBrokers(FakeBrokers):
    """The first has lost the cluster: it goes on to say that it leads, and that nobody coordinates."""

    def answer(self, request, address):
        leader, self.leader_id = self.leader_id, 0 if address == self.addresses[0] else self.leader_id
        try:
            if isinstance(request, FindCoordinatorRequest) and address == self.addresses[0]:
                return FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if isinstance(request, ListOffsetsRequest):
                self.leader_id = leader
            return super().answer(request, address)
        finally:
            self.leader_id = leader


@pytest.mark.parametrize("is_kept_fresh", [False, True])
@pytest.mark.parametrize("knows", [1, 2])
def test_broker_that_has_lost_the_cluster_is_not_asked_for_ever(is_kept_fresh, knows):
    async def main():
        brokers = IgnorantBrokers(("a", 1), ("b", 1), ("c", 1))
        brokers.topics["t"] = 1
        brokers.leader_id = knows
        brokers.down = {("b", 1), ("c", 1)} - {brokers.addresses[knows]}
        config = ClientConfig(bootstrap_servers="a:1", retry_backoff_ms=1, retry_backoff_max_ms=2)
        cluster = Cluster(config, dial=brokers.dial, clock=SYSTEM_CLOCK, random=lambda: 0.0)
        there = TopicPartition("t", 0)
        keeping = asyncio.create_task(cluster.refresh_forever()) if is_kept_fresh else None
        async with asyncio.timeout(60):
            assert (await list_offsets(cluster, {there: LATEST_TIMESTAMP}))[there].offset == 7
            await cluster.retrying(lambda: cluster.coordinator("g"), what="no coordinator", group="g")
        if keeping:
            keeping.cancel()
        cluster.close()

    asyncio.run(main())


def test_tries_go_on_until_shortly_before_the_end_of_the_time():
    async def main():
        clock = ManualClock()
        brokers = FakeBrokers(("a", 1))
        config = ClientConfig(bootstrap_servers="a:1", retry_backoff_ms=100, retry_backoff_max_ms=1000)
        cluster = Cluster(config, dial=brokers.dial, clock=clock, random=lambda: 0.5)
        tried_s = []

        async def fail():
            tried_s.append(clock.monotonic() - began_s)
            raise TimedOutError("nobody answers")

        async def pass_time(delay_s):
            clock.advance(delay_s)

        cluster.use_topics([])
        began_s = clock.monotonic()
        with mock.patch("barnabas.client.cluster.asyncio.sleep", pass_time), pytest.raises(TimedOutError):
            await cluster.retrying(fail, what="no luck", timeout_s=1.5)
        assert 1.4 <= tried_s[-1] < 1.5
        cluster.close()

    asyncio.run(main())


def test_missing_brokers_are_not_reported_as_a_missing_topic():
    async def main():
        brokers = FakeBrokers(("a", 1))
        brokers.down.add(("a", 1))
        config = ClientConfig(bootstrap_servers="a:1", retry_backoff_ms=1, retry_backoff_max_ms=2)
        cluster = Cluster(config, dial=brokers.dial, clock=SYSTEM_CLOCK, random=lambda: 0.0)
        with pytest.raises(TimedOutError, match="no broker at a:1") as caught:
            await cluster.topic("clicks", timeout_s=0.01)
        assert "is not there" not in str(caught.value)
        cluster.close()

    asyncio.run(main())

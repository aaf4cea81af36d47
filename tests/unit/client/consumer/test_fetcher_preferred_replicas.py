"""A partition is read from the replica that its leader names, as long as that answers and the lease lasts (KIP-392)."""

from __future__ import annotations

import pytest

from barnabas.client.cluster import ClusterView, PartitionView, TopicView
from barnabas.client.consumer.fetcher import Fetch, Fetcher, PreferredReplicas, Subscription
from barnabas.clock import ManualClock
from barnabas.errors import ErrorCode
from barnabas.model import Node, TopicPartition
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

TP = TopicPartition("t", 0)
LEASE_S = 300.0


def view_of(leader: int | None, *brokers: int) -> ClusterView:
    nodes = {each: Node(each, "a", each) for each in brokers}
    return ClusterView(brokers=nodes, topics={"t": TopicView("t", partitions=(PartitionView(0, leader),))})


VIEW = view_of(1, 1, 2)


class Reader:
    """A consumer in rack `east` of one partition, which broker 1 leads."""

    def __init__(self, rack: str = "east") -> None:
        self.clock = ManualClock()
        subscription = Subscription()
        subscription.assign_by_hand([TP])
        self.state = subscription.state(TP)
        self.state.move_to(0)
        preferred_replicas = PreferredReplicas(rack, self.clock.monotonic, LEASE_S)
        self.fetcher = Fetcher(
            subscription,
            reset_policy="earliest",
            min_bytes=1,
            max_wait_ms=500,
            max_bytes=50_000,
            partition_max_bytes=1_000,
            buffer_bytes_max=10_000,
            preferred_replicas=preferred_replicas,
        )

    def ask(self, node_id: int, view: ClusterView = VIEW) -> Fetch:
        fetch = self.fetcher.next_fetch(node_id, view)
        assert fetch is not None
        assert [self.fetcher.source(TP, view), *self.fetcher.sources(view)] == [node_id, node_id]
        return fetch

    def answer(self, fetch: Fetch, code: ErrorCode = ErrorCode.NONE, preferred: int = -1) -> bool:
        data = PartitionData(partition_index=0, error_code=code, high_watermark=9, records=b"")
        data.preferred_read_replica = preferred
        response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])
        return self.fetcher.on_response(fetch, response)

    def is_sent_to_2(self) -> Fetch:
        """The leader names broker 2; return the fetch from there."""
        assert not self.answer(self.ask(1), preferred=2)
        assert list(self.fetcher.deferred_nodes) == [2]
        assert self.fetcher.next_fetch(1, VIEW) is None
        return self.ask(2)


def test_a_leader_is_told_the_rack_and_the_replica_that_it_names_is_asked() -> None:
    reader = Reader()
    fetch = reader.is_sent_to_2()
    assert fetch.request.rack_id == "east"
    assert fetch.request.topics[0].partitions[0].fetch_offset == 0
    reader.answer(fetch)
    assert not reader.fetcher.deferred_nodes
    reader.ask(2)


def test_without_a_rack_nothing_changes() -> None:
    reader = Reader(rack="")
    fetch = reader.ask(1)
    assert fetch.request.rack_id == ""
    reader.answer(fetch, preferred=2)
    reader.ask(1)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE])
def test_the_leader_is_asked_again_when_the_replica_refuses(code: ErrorCode) -> None:
    reader = Reader()
    assert reader.answer(reader.is_sent_to_2(), code)
    assert list(reader.fetcher.deferred_nodes) == [1]
    reader.ask(1)


def test_an_offset_that_a_replica_does_not_have_is_the_leaders_to_judge() -> None:
    reader = Reader()
    assert not reader.answer(reader.is_sent_to_2(), ErrorCode.OFFSET_OUT_OF_RANGE)
    assert reader.state.fetch_offset == 0
    again = reader.ask(1)
    reader.answer(again, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert reader.state.fetch_offset is None  # now it is asked where the log begins


def test_an_error_of_a_replica_is_not_told_to_the_application() -> None:
    reader = Reader()
    assert reader.answer(reader.is_sent_to_2(), ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert reader.fetcher.take_error() is None
    reader.ask(1)


def test_the_leader_is_asked_again_when_the_replica_does_not_answer() -> None:
    reader = Reader()
    reader.fetcher.on_failure(reader.is_sent_to_2())
    reader.ask(1)


@pytest.mark.parametrize("view", [view_of(1, 1), view_of(3, 1, 2, 3)], ids=["broker is gone", "leader is another"])
def test_the_leader_is_asked_again_when_the_cluster_is_another(view: ClusterView) -> None:
    reader = Reader()
    reader.answer(reader.is_sent_to_2())
    leader = view.leader(TP)
    assert leader is not None
    reader.ask(leader, view)


def test_the_leader_is_asked_again_when_the_lease_is_over() -> None:
    reader = Reader()
    reader.answer(reader.is_sent_to_2())
    reader.clock.advance(LEASE_S - 1)
    reader.answer(reader.ask(2))
    reader.clock.advance(1)
    reader.answer(reader.ask(2))
    assert list(reader.fetcher.deferred_nodes) == [1]
    reader.ask(1)


def test_what_is_given_up_is_forgotten() -> None:
    reader = Reader()
    reader.is_sent_to_2()
    reader.fetcher._subscription.assign_by_hand([])
    reader.fetcher.drop_stale()
    assert not reader.fetcher._preferred_replicas._named

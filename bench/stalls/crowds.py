"""Scenarios with many clients, topics and groups, but only normal requests."""

from __future__ import annotations

import time

from barnabas.errors import ErrorCode
from barnabas.protocol.codec import decode_response
from barnabas.protocol.messages.create_topics import CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from bench.stalls.connection import Connection, frame, summary_of_all
from bench.stalls.produce_frames import VERSION, batch_of, produce_request
from bench.stalls.stage import TOPIC, Act, Scenario, Stage, create_topics_request

NEW_TOPICS = 1_000
TOPICS, PARTITIONS_EACH = 100, 100
LISTINGS = 5
FETCHES = 3
POLLS = 3
POLL_MS = 2_000
GROUPS = 1_000
POLLERS = 2_000
GROUPS_WITH_OFFSETS = 5_000
SESSION_MS = 60_000
PROTOCOL = "range"


def topic_names(count: int) -> list[str]:
    return [f"topic-{number}" for number in range(count)]


def _create_many(stage: Stage) -> Act:
    request = frame(create_topics_request(topic_names(NEW_TOPICS)), 4)
    connection = stage.connect()
    return lambda: connection.attack(request, CreateTopicsResponse, 4)


def _create_partitions(stage: Stage) -> None:
    for name in topic_names(TOPICS):
        stage.create_topics([name], PARTITIONS_EACH)


def _list_many(stage: Stage) -> Act:
    _create_partitions(stage)
    request = frame(MetadataRequest(topics=None), 7)
    connection = stage.connect()
    return lambda: summary_of_all([connection.attack(request, MetadataResponse, 7) for _ in range(LISTINGS)])


def fetch_of_all(topics: int, partitions: int, max_wait_ms: int = 0) -> bytes:
    """Return a Fetch request for the beginning of every partition."""
    wanted = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1024) for n in range(partitions)]
    names = [FetchTopic(topic=name, partitions=wanted) for name in topic_names(topics)]
    return frame(FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=names), 4)


def _fetch_many(stage: Stage) -> Act:
    _create_partitions(stage)
    request = fetch_of_all(TOPICS, PARTITIONS_EACH)
    connection = stage.connect()
    return lambda: summary_of_all([connection.attack(request, FetchResponse, 4) for _ in range(FETCHES)])


def _poll_many(stage: Stage) -> Act:
    """Wait for a record in any of many partitions. The first fetch ends by a timeout, and the second fetch ends when a
    record arrives."""
    _create_partitions(stage)
    connection, producer = stage.connect(), stage.connect()
    in_vain = fetch_of_all(TOPICS, PARTITIONS_EACH, max_wait_ms=500)
    request = fetch_of_all(TOPICS, PARTITIONS_EACH, max_wait_ms=POLL_MS)
    record = produce_request([(PARTITIONS_EACH - 1, batch_of(100, b"x"))], f"topic-{TOPICS - 1}")

    def poll() -> str:
        summaries = [connection.attack(in_vain, FetchResponse, 4)]
        connection.send(request)
        time.sleep(POLL_MS / 4000)
        producer.attack(record, ProduceResponse, VERSION)
        return summary_of_all([*summaries, connection.summary(FetchResponse, 4)])

    return poll


def _wake_many(stage: Stage) -> Act:
    stage.create_topics(topic_names(1))
    pollers = [stage.connect() for _ in range(POLLERS)]
    request = fetch_of_all(1, 1, max_wait_ms=60_000)
    for poller in pollers:
        poller.send(request)
    producer = stage.connect()
    record = produce_request([(0, batch_of(100, b"x"))], "topic-0")
    time.sleep(1.0)  # sleep, because no response shows that a poll has started to wait

    def wake() -> str:
        producer.attack(record, ProduceResponse, VERSION)
        return summary_of_all([poller.summary(FetchResponse, 4) for poller in pollers])

    return wake


class _Member:
    """A member of a consumer group, with its own connection, that sends each request separately."""

    def __init__(self, group: str, connection: Connection) -> None:
        self.group = group
        self.connection = connection
        self.member_id = ""
        self.answer: JoinGroupResponse

    def join(self) -> None:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=b"")],
        )
        self.connection.send(frame(request, 3))

    def joined(self) -> None:
        self.answer = self.connection.answer(JoinGroupResponse, 3)
        self.member_id = self.answer.member_id

    def sync(self) -> None:
        members = [SyncGroupRequestAssignment(member_id=m.member_id, assignment=b"x") for m in self.answer.members]
        generation = self.answer.generation_id
        request = SyncGroupRequest(
            group_id=self.group, generation_id=generation, member_id=self.member_id, assignments=members
        )
        self.connection.send(frame(request, 2))

    def synced(self) -> None:
        self.connection.answer(SyncGroupResponse, 2)

    def heartbeat(self) -> None:
        generation = self.answer.generation_id
        request = HeartbeatRequest(group_id=self.group, generation_id=generation, member_id=self.member_id)
        self.connection.send(frame(request, 0))

    def is_to_join(self) -> bool:
        """Return whether the response to the heartbeat reports a rebalance."""
        answer = decode_response(HeartbeatResponse, 0, self.connection.receive())
        return answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def _rebalance_many(stage: Stage) -> Act:
    """Let a second member join each group, so that all members rejoin and get new assignments."""
    first = [_Member(f"group-{number}", stage.connect()) for number in range(GROUPS)]
    second = [_Member(f"group-{number}", stage.connect()) for number in range(GROUPS)]
    _join_and_sync(first)

    def rebalance() -> str:
        for member in second:
            member.join()
        _wait_for_rebalance(first)
        _join_and_sync(first, also=second)
        return f"{GROUPS:,} groups of {len(first[0].answer.members) or len(second[0].answer.members)}"

    return rebalance


def _wait_for_rebalance(members: list[_Member]) -> None:
    """Send heartbeats until the response to each member requests a rejoin."""
    while members:
        for member in members:
            member.heartbeat()
        members = [member for member in members if not member.is_to_join()]


def _join_and_sync(members: list[_Member], also: list[_Member] | None = None) -> None:
    for member in members:
        member.join()
    members = members + (also or [])
    for member in members:
        member.joined()
    for member in members:
        member.sync()
    for member in members:
        member.synced()


def _delete_with_offsets(stage: Stage) -> Act:
    stage.create_topic()
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
    groups = [OffsetCommitRequest(group_id=f"group-{n}", topics=topics) for n in range(GROUPS_WITH_OFFSETS)]
    connection = stage.connect()
    connection.pipeline(b"".join(frame(each, 3) for each in groups), len(groups))
    request = frame(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=30_000), 3)
    return lambda: connection.attack(request, DeleteTopicsResponse, 3)


SCENARIOS = (
    Scenario("create-topics", "1,000 topics created by one request", _create_many),
    Scenario("list-partitions", "10,000 partitions listed, 5 times", _list_many),
    Scenario("fetch-partitions", "10,000 partitions fetched, 3 times", _fetch_many),
    Scenario("poll-partitions", "10,000 partitions long-polled, in vain and not", _poll_many),
    Scenario("rebalance-groups", "1,000 groups rebalance", _rebalance_many),
    Scenario("wake-polls", "2,000 long polls woken on one partition", _wake_many),
    Scenario("delete-with-offsets", "a topic deleted in which 5,000 groups have offsets", _delete_with_offsets),
)

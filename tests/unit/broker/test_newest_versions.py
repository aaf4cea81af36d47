"""What the newest versions of the APIs brought, and the APIs that administrators' tools ask one broker for."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from barnabas.errors import ErrorCode
from barnabas.model import FileRegion
from barnabas.protocol.codec import request_frame
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest
from barnabas.protocol.messages.describe_producers import TopicRequest as ProducersOfTopic
from barnabas.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.find_coordinator import SHARE_KEY, TRANSACTION_KEY, FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.protocol.messages.metadata import OPERATIONS_UNKNOWN, MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.in_process_broker import Caller, run_with_broker

UNKNOWN_ID = b"\1" * 16


Run = Callable[[Callable[[Caller], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return lambda scenario: run_with_broker(tmp_path / "data", scenario)


@pytest.mark.parametrize("name", [None, ""])
def test_metadata_by_id_is_decided_by_the_id_whatever_the_name(run: Run, name: str | None) -> None:
    async def scenario(caller: Caller) -> None:
        ids = (caller.id_of("clicks"), UNKNOWN_ID)
        wanted = [MetadataRequestTopic(topic_id=topic_id, name=name) for topic_id in ids]
        response = await caller.call(MetadataRequest(topics=wanted), 13)
        assert [(t.error_code, t.name, t.topic_id, len(t.partitions)) for t in response.topics] == [
            (ErrorCode.NONE, "clicks", ids[0], 3),
            (ErrorCode.UNKNOWN_TOPIC_ID, None, UNKNOWN_ID, 0),
        ]
        assert response.error_code == ErrorCode.NONE
        assert len(list(caller.broker.topics.all())) == 2  # none was made for the id that is not known

    run(scenario)


@pytest.mark.parametrize("version", [2, 3, 6])
def test_who_wants_transactions_is_told_once_and_for_all(run: Run, version: int) -> None:
    async def scenario(caller: Caller) -> None:
        request = FindCoordinatorRequest(key_type=TRANSACTION_KEY)
        if version < 4:
            request.key = "t"
            found = await caller.call(request, version)
        else:
            request.coordinator_keys = ["t"]
            (found,) = (await caller.call(request, version)).coordinators
        is_librdkafkas = version < 3
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if is_librdkafkas else ErrorCode.UNSUPPORTED_VERSION
        assert found.error_code == refused
        assert found.error_message == "this broker does not support transactions; no permission is missing"
        request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1)
        response = await caller.call(request, version)
        assert response.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    run(scenario)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_without_an_authorizer_access_control_lists_are_refused_by_name(run: Run, version: int) -> None:
    async def scenario(caller: Caller) -> None:
        described = DescribeAclsRequest(
            resource_type_filter=2,
            resource_name_filter=None,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        creation = AclCreation(
            resource_type=2, resource_name="clicks", principal="User:a", host="*", operation=3, permission_type=3
        )
        filters = [
            DeleteAclsFilter(
                resource_type_filter=2,
                resource_name_filter=name,
                principal_filter=None,
                host_filter=None,
                operation=1,
                permission_type=1,
            )
            for name in ("clicks", None)
        ]
        results = [
            await caller.call(described, version),
            *(await caller.call(CreateAclsRequest(creations=[creation] * 3), version)).results,
            *(await caller.call(DeleteAclsRequest(filters=filters), version)).filter_results,
        ]
        assert len(results) == 6
        assert {each.error_code for each in results} == {ErrorCode.SECURITY_DISABLED}
        assert all("no authorizer" in each.error_message for each in results)

    run(scenario)


def test_share_groups_have_no_coordinator(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        request = FindCoordinatorRequest(key_type=SHARE_KEY, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAA:0"])
        (found,) = (await caller.call(request)).coordinators
        assert (found.error_code, found.error_message) == (ErrorCode.INVALID_REQUEST, "share groups are not supported")

    run(scenario)


def test_fetch_of_the_newest_version_reads(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        caller.append(b"one")
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000, high_watermark=0)
        topic = FetchTopic(topic_id=caller.id_of("clicks"), partitions=[wanted])
        request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic])
        frame = b"".join(request_frame(request, 18, 1, "me"))  # type: ignore[arg-type]
        answer = caller.requests.carry_out([bytearray(frame)[4:]]).answer
        assert [type(chunk) for chunk in answer if not isinstance(chunk, bytearray)] == [FileRegion]

    run(scenario)


@pytest.mark.parametrize(("timestamp", "since", "offset"), [(-3, 7, 1), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1)], ids=str)
def test_special_timestamps_are_answered_as_without_tiered_storage(
    run: Run, timestamp: int, since: int, offset: int
) -> None:
    async def scenario(caller: Caller) -> None:
        caller.append(b"one")
        caller.append(b"two", producer_id=1, producer_epoch=0, base_sequence=0)
        wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = ListOffsetsTopic(name="clicks", partitions=[wanted])
        for version in range(1, 12):
            request = ListOffsetsRequest(replica_id=-1, topics=[topic])
            (found,) = (await caller.call(request, version)).topics[0].partitions
            if version < since:
                assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
            else:
                assert (found.error_code, found.offset) == (ErrorCode.NONE, offset if timestamp != -3 else found.offset)

    run(scenario)


def test_offsets_are_committed_and_fetched_by_topic_id(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        ids = {caller.id_of("clicks"): ErrorCode.NONE, UNKNOWN_ID: ErrorCode.UNKNOWN_TOPIC_ID}
        part = OffsetCommitRequestPartition(partition_index=1, committed_offset=7, committed_metadata="m")
        commit = OffsetCommitRequest(
            group_id="g", topics=[OffsetCommitRequestTopic(topic_id=each, partitions=[part]) for each in ids]
        )
        committed = await caller.call(commit)
        assert {t.topic_id: t.partitions[0].error_code for t in committed.topics} == ids

        wanted = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[1, 2]) for each in ids]
        named = OffsetFetchRequestGroup(group_id="g", topics=wanted)
        everything = OffsetFetchRequestGroup(group_id="g", topics=None)
        (first,) = (await caller.call(OffsetFetchRequest(groups=[named]))).groups
        (second,) = (await caller.call(OffsetFetchRequest(groups=[everything]))).groups
        assert [(t.topic_id, [(p.error_code, p.committed_offset) for p in t.partitions]) for t in first.topics] == [
            (caller.id_of("clicks"), [(0, 7), (0, -1)]),
            (UNKNOWN_ID, [(ErrorCode.UNKNOWN_TOPIC_ID, -1)] * 2),
        ]
        assert [(t.topic_id, t.partitions[0].committed_offset) for t in second.topics] == [(caller.id_of("clicks"), 7)]
        by_name = (await caller.call(OffsetFetchRequest(groups=[everything]), 9)).groups[0].topics
        assert [(t.name, t.partitions[0].committed_offset) for t in by_name] == [("clicks", 7)]

    run(scenario)


def test_groups_are_listed_by_type_and_missing_ones_told(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
        topics = [OffsetCommitRequestTopic(name="clicks", partitions=[part])]
        await caller.call(OffsetCommitRequest(group_id="g", topics=topics), 9)
        for types, expected in (([], [("g", "classic")]), (["Classic"], [("g", "classic")]), (["consumer"], [])):
            listed = await caller.call(ListGroupsRequest(types_filter=types))
            assert [(group.group_id, group.group_type) for group in listed.groups] == expected

        request = DescribeGroupsRequest(groups=["g", "nobody"])
        old = (await caller.call(request, 5)).groups
        new = (await caller.call(request, 6)).groups
        assert [(g.error_code, g.group_state) for g in old] == [(0, "Empty"), (0, "Dead")]
        assert [(g.error_code, g.error_message) for g in new] == [
            (ErrorCode.NONE, None),
            (ErrorCode.GROUP_ID_NOT_FOUND, "group 'nobody' does not exist"),
        ]

    run(scenario)


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(1, ErrorCode.NONE), (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_the_cluster_is_described_by_its_brokers_alone(run: Run, endpoint_type: int, code: ErrorCode) -> None:
    async def scenario(caller: Caller) -> None:
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=endpoint_type, include_fenced_brokers=True
        )
        response = await caller.call(request)
        assert response.error_code == code
        assert [broker.is_fenced for broker in response.brokers] == [False] * (code is ErrorCode.NONE)

    run(scenario)


def test_topics_are_described_in_pieces(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        pieces: list[list[tuple[str, list[int]]]] = []
        cursor: Cursor | None = None
        while True:
            request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2, cursor=cursor)
            response = await caller.call(request)
            pieces.append([(t.name, [p.partition_index for p in t.partitions]) for t in response.topics])
            cursor = response.next_cursor
            if cursor is None:
                break
        assert pieces == [[("clicks", [0, 1])], [("clicks", [2]), ("views", [0])], [("views", [1, 2])]]

    run(scenario)


def test_described_topics_are_told_apart_from_missing_ones(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        names = ["views", "nowhere", "a/b"]
        response = await caller.call(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=n) for n in names]))
        assert [(t.error_code, t.name, len(t.partitions)) for t in response.topics] == [
            (ErrorCode.INVALID_TOPIC_EXCEPTION, "a/b", 0),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nowhere", 0),
            (ErrorCode.NONE, "views", 3),
        ]
        assert response.topics[2].topic_id == caller.id_of("views")
        bad = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name="views")], cursor=Cursor(topic_name="views", partition_index=-1)
        )
        assert (await caller.call(bad)).topics[0].error_code == ErrorCode.INVALID_REQUEST

    run(scenario)


def test_producers_of_a_partition_are_described(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        caller.append(b"one", b"two", producer_id=5, producer_epoch=3, base_sequence=0)
        wanted = ProducersOfTopic(name="clicks", partition_indexes=[0, 1, 9])
        response = await caller.call(DescribeProducersRequest(topics=[wanted]))
        first, second, missing = response.topics[0].partitions
        (producer,) = first.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (5, 3, 1)
        assert producer.last_timestamp > 1_000
        assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
        assert (second.error_code, second.active_producers) == (ErrorCode.NONE, [])
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario)


def test_what_has_settings_is_listed(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        everything = await caller.call(ListConfigResourcesRequest())
        assert [(each.resource_type, each.resource_name) for each in everything.config_resources] == [
            (2, "clicks"),
            (2, "views"),
            (4, "0"),
            (8, "0"),
        ]
        topics = await caller.call(ListConfigResourcesRequest(resource_types=[2]))
        assert [each.resource_name for each in topics.config_resources] == ["clicks", "views"]
        assert (await caller.call(ListConfigResourcesRequest(), 0)).config_resources == []
        unknown = await caller.call(ListConfigResourcesRequest(resource_types=[3]))
        assert unknown.error_code == ErrorCode.UNSUPPORTED_VERSION

    run(scenario)


def test_features_are_told_and_do_not_change(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        told = (await caller.call(ApiVersionsRequest(), 4)).supported_features
        assert [(each.name, each.min_version, each.max_version) for each in told] == [
            ("group.version", 0, 0),
            ("transaction.version", 0, 0),
        ]
        assert (await caller.call(ApiVersionsRequest(), 3)).supported_features == []  # which cannot have level 0
        for version in range(3):
            for name, level, code, message in (
                ("group.version", 0, ErrorCode.NONE, None),
                ("group.version", 1, ErrorCode.INVALID_UPDATE_VERSION, "supports the levels 0 to 0, not 1"),
                ("metadata.version", 25, ErrorCode.INVALID_UPDATE_VERSION, "unknown feature"),
            ):
                updates = [FeatureUpdateKey(feature=name, max_version_level=level)]
                response = await caller.call(UpdateFeaturesRequest(feature_updates=updates), version)
                assert response.error_code == code
                assert (message or "") in (response.error_message or "")

    run(scenario)


def test_one_broker_leads_and_holds_every_partition(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        wanted = [TopicPartitions(topic="clicks", partitions=[0, 9])]
        (elected,) = (await caller.call(ElectLeadersRequest(topic_partitions=wanted))).replica_election_results
        assert [each.error_code for each in elected.partition_result] == [
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert (await caller.call(ElectLeadersRequest(topic_partitions=None))).replica_election_results == []
        bad = await caller.call(ElectLeadersRequest(topic_partitions=None, election_type=7))
        assert bad.error_code == ErrorCode.INVALID_REQUEST

        places = [[0], [0, 1], None]
        parts = [ReassignablePartition(partition_index=n, replicas=place) for n, place in enumerate(places)]
        parts.append(ReassignablePartition(partition_index=9, replicas=[0]))
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="clicks", partitions=parts)])
        moved = (await caller.call(request)).responses[0].partitions
        assert [each.error_code for each in moved] == [
            ErrorCode.NONE,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert (await caller.call(ListPartitionReassignmentsRequest())).topics == []

    run(scenario)


def test_who_asks_what_is_authorised_is_told_everything(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        of_topic = {3, 4, 5, 6, 7, 8, 10, 11}
        of_cluster = {5, 7, 8, 9, 10, 11, 12}
        wanted = [MetadataRequestTopic(name="clicks"), MetadataRequestTopic(name="nowhere")]
        request = MetadataRequest(topics=wanted, include_topic_authorized_operations=True)
        request.allow_auto_topic_creation = False
        known, unknown = (await caller.call(request)).topics
        assert (operations(known.topic_authorized_operations), unknown.topic_authorized_operations) == (
            of_topic,
            OPERATIONS_UNKNOWN,
        )
        old = MetadataRequest(topics=[], include_cluster_authorized_operations=True)
        assert operations((await caller.call(old, 10)).cluster_authorized_operations) == of_cluster
        cluster = await caller.call(DescribeClusterRequest(include_cluster_authorized_operations=True))
        assert operations(cluster.cluster_authorized_operations) == of_cluster
        (topic,) = (await caller.call(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="views")]))).topics
        assert operations(topic.topic_authorized_operations) == of_topic
        (group,) = (
            await caller.call(DescribeGroupsRequest(groups=["g"], include_authorized_operations=True), 5)
        ).groups
        assert operations(group.authorized_operations) == {3, 6, 8, 10, 11}
        not_asked = await caller.call(DescribeClusterRequest(include_cluster_authorized_operations=False))
        assert not_asked.cluster_authorized_operations == OPERATIONS_UNKNOWN

    run(scenario)


def operations(bits: int) -> set[int]:
    return {number for number in range(32) if bits >> number & 1}

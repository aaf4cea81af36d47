"""Eligible leader replicas, last stable offsets and versions of APIs, over a cluster that is a list of answers."""

from __future__ import annotations

import pytest

import barnabas
from barnabas.client.admin.brokers import api_versions
from barnabas.client.admin.topics import eligible_leader_replicas
from barnabas.client.offset_requests import list_offsets
from barnabas.errors import ConfigurationError
from barnabas.model import TopicPartition
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from barnabas.protocol.messages.list_offsets import (
    LATEST_TIMESTAMP,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.unit.client.test_admin_requests import ask, requests_of


def page(topic: str, eligible: list[int] | None, cursor: Cursor | None = None) -> DescribeTopicPartitionsResponse:
    part = DescribeTopicPartitionsResponsePartition(
        error_code=0,
        partition_index=0,
        leader_id=-1,
        replica_nodes=[1, 2],
        isr_nodes=[],
        eligible_leader_replicas=eligible,
    )
    found = DescribeTopicPartitionsResponseTopic(error_code=0, name=topic, partitions=[part])
    return DescribeTopicPartitionsResponse(topics=[found], next_cursor=cursor)


def test_eligible_leader_replicas_are_read_in_pages():
    sent = []
    pages = [page("a", [2], Cursor(topic_name="b", partition_index=0)), page("b", None)]
    found = ask(
        lambda cluster: eligible_leader_replicas(cluster, ["b", "a"]), {DescribeTopicPartitionsRequest: pages}, sent
    )
    assert found == {TopicPartition("a", 0): (2,)}
    asked = [each for _, each in requests_of(sent, DescribeTopicPartitionsRequest)]
    assert [[topic.name for topic in each.topics] for each in asked] == [["a", "b"], ["b"]]


def test_repeated_page_ends_the_request():
    pages = [page("a", [2], Cursor(topic_name="a", partition_index=0))]
    found = ask(lambda cluster: eligible_leader_replicas(cluster, ["a"]), {DescribeTopicPartitionsRequest: pages})
    assert found == {TopicPartition("a", 0): (2,)}


def test_last_stable_offsets_are_the_ends_of_readers_of_committed_records():
    end = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=5)
    response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[end])])
    sent = []
    ask(
        lambda cluster: list_offsets(cluster, {TopicPartition("t", 0): LATEST_TIMESTAMP}, isolation_level=1),
        {ListOffsetsRequest: [response]},
        sent,
    )
    ((_, request),) = requests_of(sent, ListOffsetsRequest)
    assert request.isolation_level == 1


def test_unknown_isolation_level_is_refused():
    with barnabas.Admin("localhost:1") as admin, pytest.raises(ConfigurationError, match="read_uncommitted, read_comm"):
        admin.end_offsets([("t", 0)], isolation_level="serializable")


def test_versions_are_those_that_both_sides_support():
    keys = [
        ApiVersion(api_key=key, min_version=first, max_version=last)
        for key, first, last in ((66, 1, 9), (77, 0, 0), (9_999, 0, 1))
    ]
    response = ApiVersionsResponse(error_code=0, api_keys=keys)
    assert ask(api_versions, {ApiVersionsRequest: [response]}) == {"ListTransactions": range(1, 3)}

"""Scenarios with requests that cost a broker far more time than their sender. The broker may reject them.

For an array of millions of entries, the sender uses a list with many references to one object. So the sender only
spends time on the encoding.
"""

from __future__ import annotations

from typing import Any

from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from bench.stalls.connection import frame
from bench.stalls.produce_frames import TIMEOUT_MS, batch_of, produce_request
from bench.stalls.produce_frames import VERSION as PRODUCE_VERSION
from bench.stalls.stage import TOPIC, Act, Scenario, Stage

EMPTY_TOPICS = 4_000_000
EMPTY_PARTITIONS = 700_000
EMPTY_PROTOCOLS = 5_000_000
SAME_RESOURCES = 5_000
ENTRY_BYTES = 1_000_000
"""The total size of the entries in a request of about one megabyte, slightly below the size limit of requests."""
TOPIC_RESOURCE = 2


def _attack(stage: Stage, message: object, response: type[Any], version: int) -> Act:
    request = frame(message, version)
    connection = stage.connect()
    return lambda: connection.attack(request, response, version)


def _produce_empty_topics(stage: Stage) -> Act:
    topic = TopicProduceData(name="", partition_data=[])
    request = ProduceRequest(acks=1, timeout_ms=TIMEOUT_MS, topic_data=[topic] * EMPTY_TOPICS)
    return _attack(stage, request, ProduceResponse, PRODUCE_VERSION)


def _produce_empty_partitions(stage: Stage) -> Act:
    data = [PartitionProduceData(index=0, records=None)] * EMPTY_PARTITIONS
    topics = [TopicProduceData(name=TOPIC, partition_data=data)]
    request = ProduceRequest(acks=1, timeout_ms=TIMEOUT_MS, topic_data=topics)
    return _attack(stage, request, ProduceResponse, PRODUCE_VERSION)


def _join_empty_protocols(stage: Stage) -> Act:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="", metadata=b"")] * EMPTY_PROTOCOLS,
    )
    return _attack(stage, request, JoinGroupResponse, 6)


def _describe_same_topic(stage: Stage) -> Act:
    stage.create_topic()
    resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource] * SAME_RESOURCES, include_documentation=True)
    return _attack(stage, request, DescribeConfigsResponse, 4)


def _with_a_record(stage: Stage) -> None:
    """Create the topic with one record. All entries of the requests refer to this record."""
    stage.create_topic()
    stage.connect().attack(produce_request([(0, batch_of(100, b"x"))]), ProduceResponse, PRODUCE_VERSION)


def _many_offset_fetches(stage: Stage) -> Act:
    _with_a_record(stage)
    topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0] * (ENTRY_BYTES // 4))]
    return _attack(stage, OffsetFetchRequest(group_id="g", topics=topics), OffsetFetchResponse, 5)


def _many_topics(stage: Stage) -> Act:
    _with_a_record(stage)
    topic = MetadataRequestTopic(name=TOPIC)
    entries = ENTRY_BYTES // (2 + len(TOPIC))
    request = MetadataRequest(topics=[topic] * entries, allow_auto_topic_creation=False)
    return _attack(stage, request, MetadataResponse, 7)


def _many_offset_lists(stage: Stage) -> Act:
    _with_a_record(stage)
    # use different partitions, because the broker rejects a repeated partition
    partitions = [ListOffsetsPartition(partition_index=n, timestamp=0) for n in range(ENTRY_BYTES // 12)]
    topics = [ListOffsetsTopic(name=TOPIC, partitions=partitions)]
    return _attack(stage, ListOffsetsRequest(replica_id=-1, topics=topics), ListOffsetsResponse, 2)


def _many_fetches(stage: Stage) -> Act:
    _with_a_record(stage)
    partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)] * (ENTRY_BYTES // 16)
    topics = [FetchTopic(topic=TOPIC, partitions=partitions)]
    return _attack(stage, FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics), FetchResponse, 4)


def _many_commits(stage: Stage) -> Act:
    _with_a_record(stage)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[partition] * (ENTRY_BYTES // 14))]
    return _attack(stage, OffsetCommitRequest(group_id="g", topics=topics), OffsetCommitResponse, 3)


SCENARIOS = (
    Scenario("produce-empty-topics", "Produce with 4 M empty topics, 12 MB", _produce_empty_topics),
    Scenario("produce-empty-partitions", "Produce with 700,000 partitions, 4.2 MB", _produce_empty_partitions),
    Scenario("join-empty-protocols", "JoinGroup with 5 M empty protocols, 15 MB", _join_empty_protocols),
    Scenario("describe-same-topic", "DescribeConfigs with one topic 5,000 times", _describe_same_topic),
    Scenario("entries-offset-fetch", "OffsetFetch, 1 MB of entries", _many_offset_fetches),
    Scenario("entries-metadata", "Metadata, 1 MB of entries", _many_topics),
    Scenario("entries-list-offsets", "ListOffsets, 1 MB of entries", _many_offset_lists),
    Scenario("entries-fetch", "Fetch, 1 MB of entries", _many_fetches),
    Scenario("entries-offset-commit", "OffsetCommit, 1 MB of entries", _many_commits),
)

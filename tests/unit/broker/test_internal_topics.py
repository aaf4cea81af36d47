"""`__consumer_offsets`: everybody can see and read it, and nobody but the brokers changes it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.internal_topics import CONSUMER_OFFSETS
from barnabas.errors import ErrorCode
from barnabas.groups.hashing import partition_of
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from barnabas.protocol.messages.find_coordinator import GROUP_KEY, FindCoordinatorRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records import BatchBuilder
from tests.support.in_process_broker import Caller, run_with_broker


def run(folder: Path, scenario: Any, **settings: Any) -> None:
    run_with_broker(folder, scenario, offsets_topic_num_partitions=3, **settings)


async def find(caller: Caller, *groups: str) -> list[ErrorCode]:
    request = FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=list(groups))
    return [ErrorCode(each.error_code) for each in (await caller.call(request)).coordinators]


def test_it_is_made_when_the_first_group_is_asked_for(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        assert caller.broker.topics.get(CONSUMER_OFFSETS) is None
        both = await asyncio.gather(find(caller, "a", "b"), find(caller, "c"))
        assert both == [[ErrorCode.NONE] * 2, [ErrorCode.NONE]]
        topic = caller.broker.topics.get(CONSUMER_OFFSETS)
        assert topic
        assert len(topic.partitions) == 3
        assert topic.settings == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        }
        shard = caller.broker.groups.find("a")
        assert shard.replica.topic_partition.partition == partition_of("a", 3)

    run(tmp_path, scenario)


def test_groups_are_not_available_where_it_cannot_be_made_and_one_line_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stray = tmp_path / f"{CONSUMER_OFFSETS}-1"
    stray.mkdir()
    (stray / "precious").write_text("somebody may need it")

    async def scenario(caller: Caller) -> None:
        for _ in range(3):
            assert await find(caller, "a") == [ErrorCode.COORDINATOR_NOT_AVAILABLE]

    run(tmp_path, scenario)
    assert len([each for each in caplog.records if f"cannot create topic {CONSUMER_OFFSETS}" in each.getMessage()]) == 1


def test_metadata_says_that_it_is_internal(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        wanted = [MetadataRequestTopic(name=name) for name in (CONSUMER_OFFSETS, "clicks")]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=True)
        found = {each.name: each for each in (await caller.call(request)).topics}
        assert {name: each.is_internal for name, each in found.items()} == {CONSUMER_OFFSETS: True, "clicks": False}
        assert len(found[CONSUMER_OFFSETS].partitions) == 3, "made as the brokers make it"
        described = await caller.call(
            DescribeTopicPartitionsRequest(topics=[TopicRequest(name=CONSUMER_OFFSETS), TopicRequest(name="clicks")])
        )
        assert {each.name: each.is_internal for each in described.topics} == {CONSUMER_OFFSETS: True, "clicks": False}

    run(tmp_path, scenario)


def test_client_that_makes_it_gets_the_brokers_settings(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        made = CreatableTopic(
            name=CONSUMER_OFFSETS, num_partitions=-1, replication_factor=-1, assignments=[], configs=[]
        )
        await caller.call(CreateTopicsRequest(topics=[made], timeout_ms=1_000))
        topic = caller.broker.topics.get(CONSUMER_OFFSETS)
        assert topic
        assert len(topic.partitions) == 3
        assert topic.settings["cleanup.policy"] == "compact"

    run(tmp_path, scenario)


def test_clients_cannot_change_it(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        await caller.broker.groups.ensure_topic()
        invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
        deleted = await caller.call(
            DeleteTopicsRequest(topics=[DeleteTopicState(name=CONSUMER_OFFSETS)], timeout_ms=1_000)
        )
        assert deleted.responses[0].error_code == invalid
        partitions = [DeleteRecordsPartition(partition_index=0, offset=-1)]
        topics = [DeleteRecordsTopic(name=CONSUMER_OFFSETS, partitions=partitions)]
        cut = await caller.call(DeleteRecordsRequest(topics=topics, timeout_ms=1_000))
        assert cut.topics[0].partitions[0].error_code == invalid
        growth = CreatePartitionsTopic(name=CONSUMER_OFFSETS, count=9, assignments=None)
        grown = await caller.call(CreatePartitionsRequest(topics=[growth], timeout_ms=1_000, validate_only=False))
        assert grown.results[0].error_code == invalid
        builder = BatchBuilder()
        builder.append(1_000, b"key", b"value")
        data = TopicProduceData(
            name=CONSUMER_OFFSETS,
            topic_id=caller.id_of(CONSUMER_OFFSETS),
            partition_data=[PartitionProduceData(index=0, records=bytes(builder.build()))],
        )
        produced = await caller.call(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[data]))
        assert produced.responses[0].partition_responses[0].error_code == invalid
        replicas = caller.broker.topics.replicas.of_topic(CONSUMER_OFFSETS)
        assert [replica.log.log_end_offset for replica in replicas.values()] == [0, 0, 0]

    run(tmp_path, scenario)

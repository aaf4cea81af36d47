"""DeleteRecords that a broker refuses: it does not lead the partition, or the topic only compacts."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.handlers.delete_records import delete_records
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.support.topics_cluster import Cluster, Run


def test_broker_that_does_not_lead_refuses_each_partition_with_its_error(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        wanted = [DeleteRecordsPartition(partition_index=number, offset=0) for number in (0, 7)]
        topics = [DeleteRecordsTopic(name="clicks", partitions=wanted)]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=1_000)
        for node in (two, three):
            call: Any = None
            response = await delete_records.function(node.topics.replicas, request, call)
            codes = [ErrorCode(each.error_code).name for each in response.topics[0].partitions]
            assert codes == ["NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION"], node.id

    run(scenario)


@pytest.mark.parametrize(
    ("policy", "expected"), [("compact", "POLICY_VIOLATION"), ("compact,delete", "NONE"), ("delete", "NONE")]
)
def test_topic_that_only_compacts_keeps_its_records(run: Run, policy: str, expected: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        await one.topic_admin.create("states", 1, {"cleanup.policy": policy}, assignment=[[1]])
        await cluster.follow()
        topics = [DeleteRecordsTopic(name="states", partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])]
        call: Any = None
        response = await delete_records.function(
            one.topics.replicas, DeleteRecordsRequest(topics=topics, timeout_ms=1_000), call
        )
        (result,) = response.topics[0].partitions
        assert ErrorCode(result.error_code).name == expected
        assert result.low_watermark == (0 if expected == "NONE" else -1)

    run(scenario)

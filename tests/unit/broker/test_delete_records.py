"""DeleteRecords at a broker that does not lead the partition."""

from __future__ import annotations

from typing import Any

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

"""ListPartitionReassignments, version 0: list the partitions under reassignment (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.topics import Topics
from barnabas.errors import ErrorCode
from barnabas.model import TopicPartition
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


@serves(ListPartitionReassignmentsRequest)
async def list_partition_reassignments(
    topics: Topics, scheduler: CooperativeScheduler, request: ListPartitionReassignmentsRequest, call: Call
) -> ListPartitionReassignmentsResponse:
    """List the partitions under reassignment among the requested partitions, or among all partitions."""
    moving: Iterable[TopicPartition] = topics.image.moving
    if request.topics is not None:
        named = (TopicPartition(each.name, number) for each in request.topics for number in each.partition_indexes)
        asked = {where async for where in scheduler.each(named)}
        moving = [each for each in moving if each in asked]
    found: dict[str, list[OngoingPartitionReassignment]] = {}
    async for where in scheduler.each(moving):
        info = topics.image.partition(where)
        if info is not None:
            found.setdefault(where.topic, []).append(
                OngoingPartitionReassignment(
                    partition_index=where.partition,
                    replicas=list(info.replicas),
                    # If a reassignment is cancelled, an added replica is in both lists. Report it only as a replica to
                    # remove.
                    adding_replicas=[each for each in info.adding if each not in info.removing],
                    removing_replicas=list(info.removing),
                )
            )
    return ListPartitionReassignmentsResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=[OngoingTopicReassignment(name=name, partitions=partitions) for name, partitions in found.items()],
    )

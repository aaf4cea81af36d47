"""AlterPartitionReassignments, versions 0 and 1: start or cancel reassignments of partitions (KIP-455).

The response is sent when a reassignment has started, not when it is complete. The exception is a reassignment that only
removes replicas. It takes little time, so the response waits for its completion, within the timeout of the request.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from barnabas.broker.error_codes import error_code, error_message
from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.topic_admin import TopicAdmin
from barnabas.broker.topics import Topics
from barnabas.clock import Clock
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)

LOOK_S = 0.02
"""The interval in seconds between checks whether reassignments that only remove replicas are complete."""

WAIT_S_MAX = 5.0
"""The maximum wait in seconds for reassignments that only remove replicas.

They take milliseconds, unless a partition has no leader.
"""


@serves(AlterPartitionReassignmentsRequest)
async def alter_partition_reassignments(
    topics: Topics,
    topic_admin: TopicAdmin,
    scheduler: CooperativeScheduler,
    clock: Clock,
    request: AlterPartitionReassignmentsRequest,
    call: Call,
) -> AlterPartitionReassignmentsResponse:
    """Start or cancel the reassignment of each partition."""
    responses, begun = [], list[TopicPartition]()
    for topic in request.topics:
        errors = await _reassign(topic_admin, topic, request.allow_replication_factor_change)
        await scheduler.pause()
        begun += [
            TopicPartition(topic.name, each.partition_index)
            async for each in scheduler.each(topic.partitions)
            if each.partition_index not in errors
        ]
        responses.append(
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=each.partition_index,
                        error_code=error_code(errors.get(each.partition_index)),
                        error_message=error_message(errors.get(each.partition_index)),
                    )
                    async for each in scheduler.each(topic.partitions)
                ],
            )
        )
    deadline_s = clock.monotonic() + min(WAIT_S_MAX, request.timeout_ms / 1000)
    while begun := [each async for each in scheduler.each(begun) if _is_about_to_end(topics, each)]:
        if clock.monotonic() >= deadline_s:
            break
        await asyncio.sleep(LOOK_S)  # The metadata image changes during this pause.
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=responses,
    )


async def _reassign(
    topic_admin: TopicAdmin, wanted: ReassignableTopic, may_change_factor: bool
) -> dict[int, BarnabasError]:
    """Start or cancel the reassignments of a topic's partitions. Return the errors by partition number."""
    times = Counter(each.partition_index for each in wanted.partitions)
    twice = {number for number, count in times.items() if count > 1}
    errors: dict[int, BarnabasError] = {
        number: ApiError(ErrorCode.INVALID_REQUEST, f"the request contains {wanted.name}-{number} twice")
        for number in twice
    }
    targets = {each.partition_index: each.replicas for each in wanted.partitions if each.partition_index not in twice}
    try:
        return errors | await topic_admin.reassign(wanted.name, targets, may_change_factor=may_change_factor)
    except BarnabasError as error:
        return errors | dict.fromkeys(targets, error)


def _is_about_to_end(topics: Topics, where: TopicPartition) -> bool:
    """Return whether the reassignment of a partition only removes replicas, so that it completes soon."""
    info = topics.image.partition(where)
    return info is not None and bool(info.removing) and set(info.adding) <= set(info.removing)

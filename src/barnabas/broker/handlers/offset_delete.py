"""OffsetDelete, version 0: delete a group's offsets for topics to which no member subscribes (KIP-496).

A group's offsets of a topic cannot be deleted while a member subscribes to the topic. This applies in each state of the
group, also during a rebalance. As in Kafka, a member that is not a consumer protects all offsets of its group, because
it may read any topic. A member whose subscription cannot be decoded also protects all offsets.
"""

from __future__ import annotations

from barnabas.broker.group_service import GroupService
from barnabas.broker.offset_store import OffsetStore
from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.topics import Topics
from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.subscriptions import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from barnabas.model import TopicPartition
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

ENTRIES_MAX = 20_000
"""The maximum number of topics and partitions in a request.

It is limited because no other request may run between the check and the deletion.
"""


@serves(OffsetDeleteRequest, entries_max=ENTRIES_MAX)
async def offset_delete(
    topics: Topics, groups: GroupService, offsets: OffsetStore, request: OffsetDeleteRequest, call: Call
) -> OffsetDeleteResponse:
    """Delete the offsets that no subscription protects. The response contains errors for all other offsets."""
    if error := groups.error_of(request.group_id):
        return OffsetDeleteResponse(error_code=error, topics=[])
    group = groups.describe(request.group_id)
    if group is None and not offsets.has_offsets(request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND, topics=[])
    if group is not None and group.members and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP, topics=[])
    read = subscribed_topics(groups.subscriptions(request.group_id))
    errors: dict[TopicPartition, ErrorCode] = {}
    for topic in request.topics:
        for each in topic.partitions:
            where = TopicPartition(topic.name, each.partition_index)
            errors[where] = _check(topics, where, is_read=read is None or topic.name in read)
    deleted = [where for where, error in errors.items() if not error]
    try:
        await offsets.delete(request.group_id, deleted)
    except ApiError as refused:
        return OffsetDeleteResponse(error_code=refused.code, topics=[])
    return _response(request, errors)


def _check(topics: Topics, where: TopicPartition, *, is_read: bool) -> ErrorCode:
    if not topics.has_partition(where):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE


def _response(request: OffsetDeleteRequest, errors: dict[TopicPartition, ErrorCode]) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        error_code=ErrorCode.NONE,
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=errors[TopicPartition(topic.name, each.partition_index)],
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )

"""OffsetFetch, versions 1 to 10: return a group's committed offsets for the requested partitions, or all.

A partition without a committed offset has the offset -1 and no error. Offsets are always stable (version 7), because
there are no transactions. Version 10 identifies topics by id. A response for all partitions then contains only
partitions of existing topics. Member id and epoch (version 9) belong to the consumer group protocol (KIP-848) and are
ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from barnabas.broker.offset_store import OffsetStore
from barnabas.broker.pipeline.call import Call, Steps, is_pause_due, serves
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.topics import Topics
from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.offsets import CommittedOffsets
from barnabas.model import NO_OFFSET, OffsetAndMetadata, TopicPartition
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

FIRST_VERSION_WITH_SEVERAL_GROUPS = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10
NOT_COMMITTED = OffsetAndMetadata(NO_OFFSET)

Wanted = dict[str, list[int]]
"""The requested partition numbers, by topic."""


Committed = Mapping[TopicPartition, OffsetAndMetadata] | CommittedOffsets
PartitionT = TypeVar("PartitionT", OffsetFetchResponsePartition, OffsetFetchResponsePartitions)
"""The class of partition results. From version 8 on, the protocol has a different struct with the same fields."""


@serves(OffsetFetchRequest, ends_with_client=True)
async def offset_fetch(
    topics: Topics, offsets: OffsetStore, scheduler: CooperativeScheduler, request: OffsetFetchRequest, call: Call
) -> OffsetFetchResponse:
    """Look up the committed offsets."""
    if call.version < FIRST_VERSION_WITH_SEVERAL_GROUPS:
        wanted = None if request.topics is None else {t.name: t.partition_indexes for t in request.topics}
        error, committed = _committed(offsets, request.group_id)
        found_topics = await scheduler.finish(_topics(OffsetFetchResponsePartition, committed, wanted, error))
        return OffsetFetchResponse(
            error_code=error,
            topics=[OffsetFetchResponseTopic(name=name, partitions=found) for name, found in found_topics],
        )
    groups = {}
    for group in request.groups:
        if group.group_id not in groups:  # If a request contains a group twice, the response contains the group once.
            if call.version >= FIRST_VERSION_WITH_TOPIC_IDS:
                groups[group.group_id] = await _by_id(topics, offsets, scheduler, group)
            else:
                groups[group.group_id] = await _by_name(offsets, scheduler, group)
    return OffsetFetchResponse(groups=list(groups.values()))


def _committed(offsets: OffsetStore, group_id: str) -> tuple[ErrorCode, Committed]:
    try:
        return ErrorCode.NONE, offsets.committed(group_id)
    except ApiError as error:
        return error.code, {}


async def _by_name(
    offsets: OffsetStore, scheduler: CooperativeScheduler, group: OffsetFetchRequestGroup
) -> OffsetFetchResponseGroup:
    wanted = None if group.topics is None else {t.name: t.partition_indexes for t in group.topics}
    return await _group_of_several(offsets, scheduler, group.group_id, wanted)


async def _by_id(
    topics: Topics, offsets: OffsetStore, scheduler: CooperativeScheduler, group: OffsetFetchRequestGroup
) -> OffsetFetchResponseGroup:
    """Look up offsets by the current names of the topics. The response contains the requested topic ids."""
    names = {each.topic_id: topic.name for each in group.topics or [] if (topic := topics.by_id(each.topic_id))}
    wanted = None
    if group.topics is not None:
        wanted = {names[t.topic_id]: t.partition_indexes for t in group.topics if t.topic_id in names}
    answer = await _group_of_several(offsets, scheduler, group.group_id, wanted)
    ids = {name: topic_id for topic_id, name in names.items()}
    if group.topics is None:
        ids = {each.name: topic.id for each in answer.topics if (topic := topics.get(each.name))}
    answer.topics = [each for each in answer.topics if each.name in ids]
    for each in answer.topics:
        each.topic_id = ids[each.name]
    for topic_id, partitions in {t.topic_id: t.partition_indexes for t in group.topics or []}.items():
        if topic_id not in names:
            answer.topics.append(await scheduler.finish(_unknown(topic_id, partitions)))
    return answer


def _unknown(topic_id: bytes, partitions: list[int]) -> Steps[OffsetFetchResponseTopics]:
    found: list[OffsetFetchResponsePartitions] = []
    for count, partition in enumerate(partitions):
        if is_pause_due(count):
            yield
        found.append(_partition(OffsetFetchResponsePartitions, partition, None, ErrorCode.UNKNOWN_TOPIC_ID))
    return OffsetFetchResponseTopics(topic_id=topic_id, partitions=found)


async def _group_of_several(
    offsets: OffsetStore, scheduler: CooperativeScheduler, group_id: str, wanted: Wanted | None
) -> OffsetFetchResponseGroup:
    error, committed = _committed(offsets, group_id)
    topics = await scheduler.finish(_topics(OffsetFetchResponsePartitions, committed, wanted, error))
    return OffsetFetchResponseGroup(
        group_id=group_id,
        error_code=error,
        topics=[OffsetFetchResponseTopics(name=name, partitions=found) for name, found in topics],
    )


def _topics(
    kind: type[PartitionT], committed: Committed, wanted: Wanted | None, error: ErrorCode
) -> Steps[list[tuple[str, list[PartitionT]]]]:
    """Return the requested offsets by topic. If there is an error, return it for each requested partition."""
    if wanted is None:
        wanted = yield from _all_of(committed)
    topics = []
    for number, (topic, partitions) in enumerate(wanted.items()):
        if is_pause_due(number):
            yield
        found: list[PartitionT] = []
        for count, partition in enumerate(partitions):
            if is_pause_due(count):
                yield
            found.append(_partition(kind, partition, committed.get(TopicPartition(topic, partition)), error))
        topics.append((topic, found))
    return topics


def _partition(
    kind: type[PartitionT], partition: int, committed: OffsetAndMetadata | None, error: ErrorCode
) -> PartitionT:
    found = committed or NOT_COMMITTED
    return kind(
        partition_index=partition,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
        error_code=error,
    )


def _all_of(committed: Committed) -> Steps[Wanted]:
    found: Wanted = {}
    for number, (topic, partition) in enumerate(list(committed)):
        if is_pause_due(number):
            yield
        found.setdefault(topic, []).append(partition)
    return {topic: sorted(found[topic]) for topic in sorted(found)}

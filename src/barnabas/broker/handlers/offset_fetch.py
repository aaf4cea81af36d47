"""OffsetFetch, versions 1 to 10: a group's committed offsets, of the partitions asked for or of all.

A partition without one is answered with offset -1 and no error. Offsets are always stable (version 7): there
are no transactions. Version 10 names topics by id; of all partitions it tells those whose topics exist. Member id and
epoch (version 9) belong to the next-generation protocol and are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from barnabas.broker.api import Context, serves
from barnabas.errors import CoordinationError, ErrorCode
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

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

FIRST_VERSION_WITH_SEVERAL_GROUPS = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10
NOT_COMMITTED = OffsetAndMetadata(NO_OFFSET)

Wanted = dict[str, list[int]]
"""Partition numbers by topic."""


Partitions = list[tuple[int, OffsetAndMetadata]]
Topics = list[tuple[str, Partitions]]
PartitionT = TypeVar("PartitionT", OffsetFetchResponsePartition, OffsetFetchResponsePartitions)
"""Two classes with the same fields: the protocol names those of version 8 and later anew."""


@serves(OffsetFetchRequest)
async def offset_fetch(broker: Broker, request: OffsetFetchRequest, context: Context) -> OffsetFetchResponse:
    """Look up the committed offsets."""
    if context.version < FIRST_VERSION_WITH_SEVERAL_GROUPS:
        wanted = None if request.topics is None else {t.name: t.partition_indexes for t in request.topics}
        return _one_group(*await _look_up(broker, request.group_id, wanted))
    look_up = _by_id if context.version >= FIRST_VERSION_WITH_TOPIC_IDS else _by_name
    return OffsetFetchResponse(groups=[await look_up(broker, group) for group in request.groups])


async def _by_name(broker: Broker, group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    wanted = None if group.topics is None else {t.name: t.partition_indexes for t in group.topics}
    return _group_of_several(group.group_id, *await _look_up(broker, group.group_id, wanted))


async def _by_id(broker: Broker, group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    """Look up by the names that the topics have now, and answer with the ids that were asked for."""
    names = {each.topic_id: topic.name for each in group.topics or [] if (topic := broker.topics.by_id(each.topic_id))}
    wanted = None
    if group.topics is not None:
        wanted = {names[t.topic_id]: t.partition_indexes for t in group.topics if t.topic_id in names}
    answer = _group_of_several(group.group_id, *await _look_up(broker, group.group_id, wanted))
    ids = {name: topic_id for topic_id, name in names.items()}
    if group.topics is None:
        ids = {each.name: topic.id for each in answer.topics if (topic := broker.topics.get(each.name))}
    answer.topics = [each for each in answer.topics if each.name in ids]
    for each in answer.topics:
        each.topic_id = ids[each.name]
    unknown = {t.topic_id: t.partition_indexes for t in group.topics or [] if t.topic_id not in names}
    answer.topics += [_unknown(topic_id, partitions) for topic_id, partitions in unknown.items()]
    return answer


def _unknown(topic_id: bytes, partitions: list[int]) -> OffsetFetchResponseTopics:
    nothing = [(each, NOT_COMMITTED) for each in partitions]
    found = _each(OffsetFetchResponsePartitions, nothing, ErrorCode.UNKNOWN_TOPIC_ID)
    return OffsetFetchResponseTopics(topic_id=topic_id, partitions=found)


async def _look_up(broker: Broker, group_id: str, wanted: Wanted | None) -> tuple[ErrorCode, Topics]:
    """Return the offsets wanted, or an error with nothing but those partitions that were asked for."""
    error, committed = ErrorCode.NONE, dict[TopicPartition, OffsetAndMetadata]()
    try:
        committed = await broker.offsets.committed(group_id)
    except CoordinationError:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    topics = _all_of(committed) if wanted is None else wanted
    return error, [(topic, _select(committed, topic, partitions)) for topic, partitions in topics.items()]


def _one_group(error: ErrorCode, topics: Topics) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=error,
        topics=[
            OffsetFetchResponseTopic(name=topic, partitions=_each(OffsetFetchResponsePartition, partitions, error))
            for topic, partitions in topics
        ],
    )


def _group_of_several(group_id: str, error: ErrorCode, topics: Topics) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(
        group_id=group_id,
        error_code=error,
        topics=[
            OffsetFetchResponseTopics(name=topic, partitions=_each(OffsetFetchResponsePartitions, partitions, error))
            for topic, partitions in topics
        ],
    )


def _each(kind: type[PartitionT], partitions: Partitions, error: ErrorCode) -> list[PartitionT]:
    return [
        kind(
            partition_index=partition,
            committed_offset=found.offset,
            committed_leader_epoch=found.leader_epoch,
            metadata=found.metadata,
            error_code=error,
        )
        for partition, found in partitions
    ]


def _all_of(committed: Mapping[TopicPartition, OffsetAndMetadata]) -> Wanted:
    wanted: Wanted = {}
    for topic, partition in sorted(committed):
        wanted.setdefault(topic, []).append(partition)
    return wanted


def _select(committed: Mapping[TopicPartition, OffsetAndMetadata], topic: str, partitions: list[int]) -> Partitions:
    return [(each, committed.get(TopicPartition(topic, each), NOT_COMMITTED)) for each in partitions]

"""OffsetFetch, versions 1 to 9: a group's committed offsets, of the partitions asked for or of all.

A partition without one is answered with offset -1 and no error. Offsets are always stable (version 7): there
are no transactions. Member id and epoch (version 9) belong to the next-generation protocol and are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.broker.api import Context, serves
from barnabas.errors import ErrorCode
from barnabas.model import NO_OFFSET, OffsetAndMetadata, TopicPartition
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
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
NOT_COMMITTED = OffsetAndMetadata(NO_OFFSET)

Wanted = dict[str, list[int]]
"""Partition numbers by topic."""


@serves(OffsetFetchRequest)
async def offset_fetch(broker: Broker, request: OffsetFetchRequest, context: Context) -> OffsetFetchResponse:
    """Look up the committed offsets."""
    if context.version < FIRST_VERSION_WITH_SEVERAL_GROUPS:
        wanted = None if request.topics is None else {t.name: t.partition_indexes for t in request.topics}
        return await _one_group(broker, request.group_id, wanted)
    groups = []
    for group in request.groups:
        wanted = None if group.topics is None else {t.name: t.partition_indexes for t in group.topics}
        groups.append(await _group_of_several(broker, group.group_id, wanted))
    return OffsetFetchResponse(groups=groups)


async def _one_group(broker: Broker, group_id: str, wanted: Wanted | None) -> OffsetFetchResponse:
    committed = await broker.offsets.committed(group_id)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition,
                        committed_offset=found.offset,
                        committed_leader_epoch=found.leader_epoch,
                        metadata=found.metadata,
                        error_code=ErrorCode.NONE,
                    )
                    for partition, found in _select(committed, topic, partitions)
                ],
            )
            for topic, partitions in (_all_of(committed) if wanted is None else wanted).items()
        ]
    )


async def _group_of_several(broker: Broker, group_id: str, wanted: Wanted | None) -> OffsetFetchResponseGroup:
    committed = await broker.offsets.committed(group_id)
    return OffsetFetchResponseGroup(
        group_id=group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=topic,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=partition,
                        committed_offset=found.offset,
                        committed_leader_epoch=found.leader_epoch,
                        metadata=found.metadata,
                        error_code=ErrorCode.NONE,
                    )
                    for partition, found in _select(committed, topic, partitions)
                ],
            )
            for topic, partitions in (_all_of(committed) if wanted is None else wanted).items()
        ],
    )


def _all_of(committed: Mapping[TopicPartition, OffsetAndMetadata]) -> Wanted:
    wanted: Wanted = {}
    for topic, partition in sorted(committed):
        wanted.setdefault(topic, []).append(partition)
    return wanted


def _select(
    committed: Mapping[TopicPartition, OffsetAndMetadata], topic: str, partitions: list[int]
) -> list[tuple[int, OffsetAndMetadata]]:
    return [(each, committed.get(TopicPartition(topic, each), NOT_COMMITTED)) for each in partitions]

"""Requests that fetch and commit the offsets of groups."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from barnabas.client.cluster import OFFSET_COMMIT_VERSION_MAX, Cluster
from barnabas.client.offset_requests import missing_in_response
from barnabas.client.permissions import Need
from barnabas.errors import ApiError, BarnabasError, UnsupportedVersionError
from barnabas.model import NO_OFFSET, OffsetAndMetadata, TopicPartition
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

OFFSET_FETCH_VERSION_MAX = 7
"""The last version of OffsetFetch with a single group in a request."""
OFFSET_FETCH_OF_GROUPS_VERSIONS = (8, 9)
"""The versions of OffsetFetch with several groups in a request, and with the names of topics."""
GROUPS_PER_REQUEST = 100
REQUESTS_AT_ONCE = 20


async def committed_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None, *, timeout_s: float | None = None
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offsets of a group by partition, without partitions that have none.

    :param partitions: the partitions to look up, or None for all partitions.
    :raises TimedOutError: the coordinator did not respond in time.
    """
    topics: dict[str, list[int]] | None = None
    wanted: set[TopicPartition] = set()
    if partitions is not None:
        topics = {}
        wanted.update(partitions)
        for tp in sorted(wanted):
            topics.setdefault(tp.topic, []).append(tp.partition)
        if not topics:
            return {}
    request = OffsetFetchRequest(
        group_id=group,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
    )

    async def attempt() -> dict[TopicPartition, OffsetAndMetadata]:
        response: OffsetFetchResponse = await cluster.ask_coordinator(
            group, request, version_max=OFFSET_FETCH_VERSION_MAX
        )
        if response.error_code:
            raise ApiError(response.error_code, subject=f"committed offsets of group {group!r}")
        found = {}
        missing = set(wanted)
        for topic in response.topics:
            for each in topic.partitions:
                tp = TopicPartition(topic.name, each.partition_index)
                missing.discard(tp)
                if each.error_code:
                    error = ApiError(each.error_code, subject=f"committed offset of {tp} in group {group!r}")
                    raise cluster.refused(error, Need("describe", "topic", tp.topic))
                if each.committed_offset != NO_OFFSET:
                    found[tp] = OffsetAndMetadata(
                        each.committed_offset, each.metadata or "", each.committed_leader_epoch
                    )
        if missing:  # without this error, the consumer would apply its reset policy to the missing partition
            raise missing_in_response(f"committed offset of {min(missing)} in group {group!r}")
        return found

    what = f"cannot fetch the committed offsets of group {group!r}"
    needs = (cluster.need_of_group(group),)
    return await cluster.retrying(attempt, what=what, timeout_s=timeout_s, group=group, needs=needs)


async def offsets_of_groups(
    cluster: Cluster, groups: Iterable[str]
) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
    """Return the committed offsets of many groups, without the groups and partitions whose offsets are not available.

    The coordinators receive one request for many groups; before Kafka 3.0, one for each group.
    """
    at_once = asyncio.Semaphore(REQUESTS_AT_ONCE)
    found: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}

    async def find(group: str) -> tuple[str, tuple[str, int] | None]:
        async with at_once:
            try:
                node = await cluster.coordinator(group)
            except BarnabasError:
                return group, None
            return group, (node.host, node.port)

    async def fetch(address: tuple[str, int], names: Sequence[str]) -> None:
        async with at_once:
            try:
                found.update(await _offsets_at(cluster, address, names))
            except UnsupportedVersionError:
                for name in names:
                    try:
                        found[name] = await committed_offsets(cluster, name, None)
                    except BarnabasError:
                        continue
            except BarnabasError:
                for name in names:
                    cluster.forget_coordinator(name)

    at_coordinator: dict[tuple[str, int], list[str]] = {}
    for group, address in await asyncio.gather(*map(find, groups)):
        if address is not None:
            at_coordinator.setdefault(address, []).append(group)
    await asyncio.gather(
        *(
            fetch(address, names[start : start + GROUPS_PER_REQUEST])
            for address, names in at_coordinator.items()
            for start in range(0, len(names), GROUPS_PER_REQUEST)
        )
    )
    return found


async def _offsets_at(
    cluster: Cluster, address: tuple[str, int], groups: Sequence[str]
) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
    """Return the offsets of groups with the same coordinator.

    :raises UnsupportedVersionError: the coordinator is older than Kafka 3.0.
    """
    channel = await cluster.connect(address, "coordinator")
    first, last = OFFSET_FETCH_OF_GROUPS_VERSIONS
    if channel.version_for(OffsetFetchRequest) < first:
        raise UnsupportedVersionError("OffsetFetch with several groups")
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups])
    response: OffsetFetchResponse = await cluster.ask(channel, request, version_max=last)
    found: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    for group in response.groups:
        if group.error_code:
            cluster.forget_coordinator(group.group_id)
            continue
        found[group.group_id] = {
            TopicPartition(topic.name, each.partition_index): OffsetAndMetadata(
                each.committed_offset, each.metadata or "", each.committed_leader_epoch
            )
            for topic in group.topics
            for each in topic.partitions
            if not each.error_code and each.committed_offset != NO_OFFSET
        }
    return found


async def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    generation: int = -1,
    member_id: str = "",
    group_instance_id: str | None = None,
    timeout_s: float | None = None,
) -> None:
    """Commit offsets for a group.

    :param generation: the generation of the member; -1 if the caller is not a member of the group.
    :raises ApiError: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS: other members may own the
        partitions; OFFSET_METADATA_TOO_LARGE and other errors.
    :raises TimedOutError: the coordinator did not respond in time.
    """
    if not offsets:
        return
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for tp, committed in offsets.items():
        part = OffsetCommitRequestPartition(
            partition_index=tp.partition,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            committed_metadata=committed.metadata,
        )
        topics.setdefault(tp.topic, []).append(part)
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=group_instance_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )

    async def attempt() -> None:
        response: OffsetCommitResponse = await cluster.ask_coordinator(
            group, request, version_max=OFFSET_COMMIT_VERSION_MAX
        )
        missing = set(offsets)
        for topic in response.topics:
            for each in topic.partitions:
                tp = TopicPartition(topic.name, each.partition_index)
                missing.discard(tp)
                if each.error_code:
                    error = ApiError(each.error_code, subject=f"commit of {tp} in {group!r}")
                    raise cluster.refused(error, Need("read", "topic", tp.topic))
        if missing:
            raise missing_in_response(f"commit of {min(missing)} in {group!r}")

    what = f"cannot commit offsets of group {group!r}"
    needs = (Need("read", "group", group),)
    await cluster.retrying(attempt, what=what, timeout_s=timeout_s, group=group, needs=needs)

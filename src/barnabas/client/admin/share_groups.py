"""Share groups (KIP-932), as coroutines of the admin clients.

The group coordinator has the members and the start offsets. A share coordinator stores the delivery state of records
above the start offset, per share-partition. The leader of a partition alone knows which records members hold; no API
returns them.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from barnabas.addresses import Address
from barnabas.client.admin.coordinators import find_coordinators
from barnabas.client.admin.groups import DEAD
from barnabas.client.cluster import Cluster
from barnabas.client.offset_requests import missing_in_response
from barnabas.client.permissions import Need
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import Node, TopicPartition
from barnabas.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ShareGroupOffsetsGroup,
    ShareGroupOffsetsRequestGroup,
)
from barnabas.protocol.messages.find_coordinator import SHARE_KEY
from barnabas.protocol.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateRequestPartition,
    ReadStateRequestTopic,
)
from barnabas.protocol.messages.share_group_describe import (
    DescribedShareGroup,
    DescribedShareGroupMember,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

SHARE = "share"
"""The type of a share group in lists of groups."""


class DeliveryState(Enum):
    """The state of a record in a share group."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4
    UNKNOWN = -1

    @classmethod
    def of(cls, number: int) -> DeliveryState:
        """Return the state with a number; UNKNOWN for a number of later versions of Kafka."""
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ShareGroupMember:
    """A member of a share group. Members share partitions, so that several members may have the same one."""

    member_id: str
    client_id: str
    host: str
    rack: str | None
    epoch: int
    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    """A share group and its members.

    `state` is Empty or Stable, as in Kafka; Dead means that the share group does not exist. `coordinator` is the broker
    that described the group.
    """

    group: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ShareGroupMember, ...]
    coordinator: Node | None = None

    @property
    def exists(self) -> bool:
        """Return whether the share group exists."""
        return self.state != DEAD


@dataclass(frozen=True, slots=True)
class ShareGroupOffset:
    """The position of a share group in a partition.

    All records below `start_offset` are acknowledged or archived; None if no member has fetched yet. `lag` is the
    number of records that are not; None if the broker does not know it. `error` is the reason why the position is
    unknown.
    """

    topic_id: bytes
    start_offset: int | None
    leader_epoch: int
    lag: int | None
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class DeliveredRange:
    """Consecutive offsets with the same stored delivery state and number of deliveries."""

    first_offset: int
    last_offset: int
    state: DeliveryState
    deliveries: int


async def describe_share_group(cluster: Cluster, group: str) -> ShareGroupDescription:
    """Return a share group's description from its coordinator. A group that does not exist has the state Dead.

    :raises ApiError: INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED and other errors.
    :raises UnsupportedVersionError: the coordinator does not serve share groups.
    """
    request = ShareGroupDescribeRequest(group_ids=[group])

    async def attempt() -> ShareGroupDescription:
        response: ShareGroupDescribeResponse = await cluster.ask_coordinator(group, request)
        found = next((each for each in response.groups if each.group_id == group), None)
        if found is None:
            raise missing_in_response(f"share group {group!r}")
        coordinator = await cluster.coordinator(group)
        if ErrorCode.of(found.error_code) is ErrorCode.GROUP_ID_NOT_FOUND:
            return ShareGroupDescription(group, DEAD, -1, -1, "", (), coordinator)
        if found.error_code:
            subject = f"share group {group!r}"
            raise ApiError(found.error_code, found.error_message or "", subject)
        return _described(found, coordinator)

    return await cluster.retrying(
        attempt, what=f"cannot describe share group {group!r}", group=group, needs=(Need("describe", "group", group),)
    )


def _described(group: DescribedShareGroup, coordinator: Node) -> ShareGroupDescription:
    return ShareGroupDescription(
        group.group_id,
        group.group_state,
        group.group_epoch,
        group.assignment_epoch,
        group.assignor_name,
        tuple(map(_member, group.members)),
        coordinator,
    )


def _member(member: DescribedShareGroupMember) -> ShareGroupMember:
    assigned = member.assignment.topic_partitions
    return ShareGroupMember(
        member.member_id,
        member.client_id,
        member.client_host.removeprefix("/"),
        member.rack_id,
        member.member_epoch,
        tuple(sorted(member.subscribed_topic_names)),
        tuple(sorted(TopicPartition(topic.topic_name, number) for topic in assigned for number in topic.partitions)),
    )


async def share_group_offsets(cluster: Cluster, group: str) -> dict[TopicPartition, ShareGroupOffset]:
    """Return the start offsets and the lag of a share group, by partition.

    :raises ApiError: GROUP_ID_NOT_FOUND, GROUP_AUTHORIZATION_FAILED and other errors.
    :raises UnsupportedVersionError: the coordinator does not serve share groups.
    """
    request = DescribeShareGroupOffsetsRequest(groups=[ShareGroupOffsetsRequestGroup(group_id=group, topics=None)])

    async def attempt() -> dict[TopicPartition, ShareGroupOffset]:
        response: DescribeShareGroupOffsetsResponse = await cluster.ask_coordinator(group, request)
        found = next((each for each in response.groups if each.group_id == group), None)
        if found is None:
            raise missing_in_response(f"offsets of share group {group!r}")
        if found.error_code:
            raise ApiError(found.error_code, found.error_message or "", f"offsets of share group {group!r}")
        return _offsets(found)

    return await cluster.retrying(
        attempt,
        what=f"cannot fetch the offsets of share group {group!r}",
        group=group,
        needs=(Need("describe", "group", group),),
    )


def _offsets(group: ShareGroupOffsetsGroup) -> dict[TopicPartition, ShareGroupOffset]:
    return {
        TopicPartition(topic.topic_name, each.partition_index): ShareGroupOffset(
            topic.topic_id,
            each.start_offset if each.start_offset >= 0 else None,
            each.leader_epoch,
            each.lag if each.lag >= 0 else None,
            ErrorCode.of(each.error_code),
        )
        for topic in group.topics
        for each in topic.partitions
    }


async def share_group_deliveries(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, ShareGroupOffset]
) -> dict[TopicPartition, list[DeliveredRange]]:
    """Return the stored delivery states of records above the start offset, by partition.

    :param offsets: the result of `share_group_offsets`. The request repeats its leader epochs, because a greater epoch
        would make the share coordinator store it.
    :raises ApiError: CLUSTER_AUTHORIZATION_FAILED: the client lacks CLUSTER_ACTION, which only brokers usually have;
        FENCED_LEADER_EPOCH: the leader has changed since `offsets`; and other errors.
    :raises UnsupportedVersionError: the brokers do not serve the request.
    """
    by_key = {
        _share_key(group, each.topic_id, tp.partition): (tp, each)
        for tp, each in offsets.items()
        if each.start_offset is not None and not each.error
    }
    if not by_key:
        return {}

    async def attempt() -> dict[TopicPartition, list[DeliveredRange]]:
        (await cluster.any_channel()).version_for(ReadShareGroupStateRequest)
        at_coordinator = await find_coordinators(cluster, list(by_key), SHARE_KEY)
        answers = await asyncio.gather(
            *(
                _read_at(cluster, address, group, dict(by_key[key] for key in keys))
                for address, keys in at_coordinator.items()
            )
        )
        return {tp: ranges for part in answers for tp, ranges in part.items()}

    return await cluster.retrying(
        attempt,
        what=f"cannot read the deliveries of share group {group!r}",
        needs=(Need("cluster-action", "cluster"),),
    )


def _share_key(group: str, topic_id: bytes, partition: int) -> str:
    """Return the key of a share coordinator.

    >>> _share_key("g", bytes(16), 0)
    'g:AAAAAAAAAAAAAAAAAAAAAA:0'
    """
    return f"{group}:{base64.urlsafe_b64encode(topic_id).decode().rstrip('=')}:{partition}"


async def _read_at(
    cluster: Cluster, address: Address, group: str, wanted: Mapping[TopicPartition, ShareGroupOffset]
) -> dict[TopicPartition, list[DeliveredRange]]:
    topics: dict[bytes, list[ReadStateRequestPartition]] = {}
    names: dict[tuple[bytes, int], TopicPartition] = {}
    for tp, each in wanted.items():
        part = ReadStateRequestPartition(partition=tp.partition, leader_epoch=each.leader_epoch)
        topics.setdefault(each.topic_id, []).append(part)
        names[each.topic_id, tp.partition] = tp
    request = ReadShareGroupStateRequest(
        group_id=group,
        topics=[ReadStateRequestTopic(topic_id=topic_id, partitions=parts) for topic_id, parts in topics.items()],
    )
    channel = await cluster.connect(address, "coordinator")
    response: ReadShareGroupStateResponse = await cluster.ask(channel, request)
    found: dict[TopicPartition, list[DeliveredRange]] = {}
    for topic in response.results:
        for result in topic.partitions:
            place = names.get((topic.topic_id, result.partition))
            if result.error_code:
                raise ApiError(result.error_code, result.error_message or "", f"deliveries of share group {group!r}")
            if place is not None:
                found[place] = sorted(
                    (
                        DeliveredRange(
                            batch.first_offset,
                            batch.last_offset,
                            DeliveryState.of(batch.delivery_state),
                            batch.delivery_count,
                        )
                        for batch in result.state_batches
                    ),
                    key=lambda each: each.first_offset,
                )
    if missing := [tp for tp in wanted if tp not in found]:
        raise missing_in_response(f"deliveries of {missing[0]} in share group {group!r}")
    return found

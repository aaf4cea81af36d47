"""Consumer groups: coroutines of the admin clients that list, describe and delete groups and their offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass

from barnabas.client.cluster import UNKNOWN_TOPIC_PATIENCE_S, Cluster
from barnabas.client.offset_requests import missing_in_response
from barnabas.client.permissions import Need
from barnabas.errors import ApiError, BarnabasError, ErrorCode, UnsupportedVersionError
from barnabas.groups.subscriptions import CONSUMER_PROTOCOL_TYPE, decode_assignment, decode_subscription
from barnabas.model import Node, TopicPartition
from barnabas.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
    DescribedConsumerGroupMember,
)
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

DEAD = "Dead"
"""The state of a group that does not exist."""

_ADVICE = {
    ErrorCode.NON_EMPTY_GROUP: " has members; stop them first",
    ErrorCode.GROUP_ID_NOT_FOUND: " does not exist",
}


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list of groups. `state` and `type` are empty if the broker is too old to return them. All groups of
    Barnabas have the type `classic`: a member assigns the partitions. In Kafka's types `consumer`, `share` and
    `streams`, a broker assigns them (KIP-848, KIP-932, KIP-1071).
    """

    group: str
    state: str
    protocol_type: str
    type: str = ""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group, as described by the coordinator.

    `topics` (the subscription) and `partitions` (the assignment) are empty during a rebalance, and for members that do
    not use the consumer protocol. `topics` has no patterns of groups of the type `consumer`.
    """

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members.

    `state` is Empty, PreparingRebalance, CompletingRebalance or Stable, as in Kafka; groups of the type `consumer` have
    Assigning and Reconciling instead of the rebalances. Dead means that the group does not exist. `assignor` is the
    assignor that the members agree on, for example `range`, or that of the broker, for example `uniform`. `coordinator`
    is the broker that described the group.
    """

    group: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[MemberDescription, ...]
    coordinator: Node | None = None
    coordination: str = "brokers"
    """`brokers` if a broker is the group's coordinator; `zookeeper` if the consumers coordinate through ZooKeeper.
    """

    @property
    def exists(self) -> bool:
        """Return whether the group exists: it has members or committed offsets."""
        return self.state != DEAD


async def list_groups(
    cluster: Cluster, states: Collection[str] = (), types: Collection[str] = (), broker: int | None = None
) -> list[GroupListing]:
    """Return the groups of all brokers by name, optionally filtered by state, type and coordinator.

    :raises UnsupportedVersionError: a broker is too old to filter by state (Kafka 2.6) or type (3.8).
    :raises TimedOutError: a broker did not respond in time.
    """
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))

    async def attempt() -> list[GroupListing]:
        await cluster.refresh()
        brokers = sorted(cluster.view.brokers) if broker is None else [broker]
        answers = await asyncio.gather(*(cluster.send(node_id, request) for node_id in brokers))
        return [listed for response in answers for listed in _listed(response)]

    return sorted(await cluster.retrying(attempt, what="cannot list groups"), key=lambda each: each.group)


def _listed(response: ListGroupsResponse) -> Iterable[GroupListing]:
    if response.error_code:
        raise ApiError(response.error_code, subject="list of groups")
    return [
        GroupListing(each.group_id, each.group_state, each.protocol_type, each.group_type.lower())
        for each in response.groups
    ]


async def describe_group(cluster: Cluster, group: str) -> GroupDescription:
    """Return a group's description from its coordinator. A group that does not exist has the state Dead.

    Kafka describes a group of the type `consumer` in an API of its own, and as Dead in that of classic groups.

    :raises ApiError: INVALID_GROUP_ID and other errors.
    :raises TimedOutError: the coordinator did not respond in time.
    """
    request = DescribeGroupsRequest(groups=[group])

    async def attempt() -> GroupDescription:
        response: DescribeGroupsResponse = await cluster.ask_coordinator(group, request)
        found = next((each for each in response.groups if each.group_id == group), None)
        if found is None:
            raise missing_in_response(f"group {group!r}")
        coordinator = await cluster.coordinator(group)
        # since DescribeGroups 6, Kafka returns an error for a missing group
        if ErrorCode.of(found.error_code) is ErrorCode.GROUP_ID_NOT_FOUND or found.group_state == DEAD:
            described = await _describe_consumer_group(cluster, group, coordinator)
            return described or GroupDescription(group, DEAD, "", "", (), coordinator)
        if found.error_code:
            raise ApiError(found.error_code, subject=f"group {group!r}")
        return _described(found, coordinator)

    return await cluster.retrying(
        attempt, what=f"cannot describe group {group!r}", group=group, needs=(Need("describe", "group", group),)
    )


def _described(group: DescribedGroup, coordinator: Node) -> GroupDescription:
    is_of_consumers = group.protocol_type == CONSUMER_PROTOCOL_TYPE
    return GroupDescription(
        group.group_id,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        tuple(_member(each, is_of_consumers) for each in group.members),
        coordinator,
    )


def _member(member: DescribedGroupMember, is_consumer: bool) -> MemberDescription:
    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    if is_consumer:
        # The member's client may use its own format for the subscription or the assignment, so decode each on its own.
        with suppress(BarnabasError):
            topics = tuple(sorted(decode_subscription(member.member_metadata).topics))
        with suppress(BarnabasError):
            partitions = tuple(sorted(decode_assignment(member.member_assignment)))
    return MemberDescription(
        member.member_id,
        member.client_id,
        member.client_host.removeprefix("/"),
        member.group_instance_id,
        topics,
        partitions,
    )


async def _describe_consumer_group(cluster: Cluster, group: str, coordinator: Node) -> GroupDescription | None:
    """Return a group of the type `consumer`; None if there is none, or the broker lacks the type."""
    try:
        response: ConsumerGroupDescribeResponse = await cluster.ask_coordinator(
            group, ConsumerGroupDescribeRequest(group_ids=[group])
        )
    except UnsupportedVersionError:
        return None
    found = next((each for each in response.groups if each.group_id == group), None)
    if found is None:
        raise missing_in_response(f"group {group!r}")
    # a broker of Kafka 3.7 or 3.8 advertises the API even if its settings exclude the type
    if ErrorCode.of(found.error_code) in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    if found.error_code:
        raise ApiError(found.error_code, found.error_message or "", f"group {group!r}")
    return _described_by_broker(found, coordinator)


def _described_by_broker(group: DescribedConsumerGroup, coordinator: Node) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        group.group_state,
        CONSUMER_PROTOCOL_TYPE,
        group.assignor_name,
        tuple(map(_member_of_broker, group.members)),
        coordinator,
    )


def _member_of_broker(member: DescribedConsumerGroupMember) -> MemberDescription:
    assigned = member.assignment.topic_partitions
    return MemberDescription(
        member.member_id,
        member.client_id,
        member.client_host.removeprefix("/"),
        member.instance_id,
        tuple(sorted(member.subscribed_topic_names)),
        tuple(sorted(TopicPartition(topic.topic_name, number) for topic in assigned for number in topic.partitions)),
    )


async def delete_group(cluster: Cluster, group: str) -> None:
    """Delete a group without members, and its offsets.

    :raises ApiError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND and other errors.
    """
    request = DeleteGroupsRequest(groups_names=[group])

    async def attempt() -> None:
        response: DeleteGroupsResponse = await cluster.ask_coordinator(group, request)
        for result in response.results:
            _check(result.error_code, group)

    await cluster.retrying(
        attempt, what=f"cannot delete group {group!r}", group=group, needs=(Need("delete", "group", group),)
    )


async def delete_group_offsets(cluster: Cluster, group: str, partitions: Iterable[TopicPartition]) -> None:
    """Delete the committed offsets of a group for topics that no member reads.

    :raises ApiError: GROUP_SUBSCRIBED_TO_TOPIC, GROUP_ID_NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION and other errors; the
        offsets of other partitions are still deleted.
    """
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(OffsetDeleteRequestPartition(partition_index=tp.partition))
    if not topics:
        return
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[OffsetDeleteRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )

    async def attempt() -> None:
        response: OffsetDeleteResponse = await cluster.ask_coordinator(group, request)
        _check(response.error_code, group)
        for topic in response.topics:
            for each in topic.partitions:
                _check_partition(cluster, each.error_code, TopicPartition(topic.name, each.partition_index), group)

    await cluster.retrying(
        attempt,
        what=f"cannot delete offsets of group {group!r}",
        group=group,
        unknown_topic_s=UNKNOWN_TOPIC_PATIENCE_S,
        needs=(Need("delete", "group", group),),
    )


def _check(error_code: int, group: str) -> None:
    if error_code:
        code = ErrorCode.of(error_code)
        raise ApiError.about(code, f"group {group!r}", _ADVICE.get(code, ""))


def _check_partition(cluster: Cluster, error_code: int, tp: TopicPartition, group: str) -> None:
    if error_code:
        code = ErrorCode.of(error_code)
        is_read = code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        advice = ": members of the group read the topic; stop them first" if is_read else ""
        error = ApiError.about(code, f"offset of {tp} in group {group!r}", advice)
        raise cluster.refused(error, Need("read", "topic", tp.topic))

"""Requests for offsets: log ends, offsets by time and by leader epoch, and the committed offsets of groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from barnabas.client.cluster import OFFSET_COMMIT_VERSION_MAX, UNKNOWN_TOPIC_PATIENCE_S, Cluster
from barnabas.errors import ApiError, DisconnectedError, ErrorCode, TimedOutError
from barnabas.model import NO_OFFSET, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from barnabas.protocol.messages.list_offsets import (
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

ResponseT = TypeVar("ResponseT")


def missing_in_response(what: str) -> ApiError:
    """Return the error for a response without an expected part: a missing part is no success.

    >>> str(missing_in_response("commit of clicks-0"))
    'UNKNOWN_SERVER_ERROR: commit of clicks-0: an answer without it'
    """
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: an answer without it")


REPLICA_ID_CONSUMER = -1


async def list_offsets(
    cluster: Cluster, timestamps_ms: Mapping[TopicPartition, int], *, timeout_s: float | None = None
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Return for each partition the first offset whose timestamp is at least the one given, or None.

    :param timestamps_ms: wall time in ms, or EARLIEST_TIMESTAMP or LATEST_TIMESTAMP.
    :raises ApiError: a partition that does not exist, and others.
    :raises TimedOutError: the leaders did not answer in time.
    """
    found: dict[TopicPartition, OffsetAndTimestamp | None] = {}

    async def attempt() -> None:
        wanted = {tp: at_ms for tp, at_ms in timestamps_ms.items() if tp not in found}
        answers = await ask_leaders(cluster, wanted, _ask_leader)
        failure: ApiError | None = None
        for response in answers:
            failure = _take(response, timestamps_ms, found) or failure
        if failure is not None:
            raise failure
        if missing := [tp for tp in wanted if tp not in found]:
            raise missing_in_response(f"offsets of {missing[0]}")

    names = ", ".join(str(tp) for tp in timestamps_ms)
    await cluster.retrying(
        attempt,
        what=f"offsets of {names} are not known",
        timeout_s=timeout_s,
        unknown_topic_s=UNKNOWN_TOPIC_PATIENCE_S,
    )
    return found


async def ask_leaders(
    cluster: Cluster,
    numbers: Mapping[TopicPartition, int],
    ask: Callable[[Cluster, int, Mapping[TopicPartition, int]], Awaitable[ResponseT]],
) -> list[ResponseT]:
    """Ask each leader once: `ask(cluster, node_id, its part of numbers)`; one try.

    :raises ApiError: a partition does not exist, or has no leader now.
    """
    cluster.use_topics({tp.topic for tp in numbers})
    if any(cluster.view.leader(tp) is None for tp in numbers):
        await cluster.refresh()
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for tp, number in numbers.items():
        by_leader.setdefault(_leader(cluster, tp), {})[tp] = number
    return await asyncio.gather(*(ask(cluster, node_id, part) for node_id, part in by_leader.items()))


def _leader(cluster: Cluster, tp: TopicPartition) -> int:
    leader = cluster.view.leader(tp)
    if leader is not None:
        return leader
    topic = cluster.view.topics.get(tp.topic)
    if topic is None or not topic.partitions:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
        missing = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise ApiError(
            code or ErrorCode.LEADER_NOT_AVAILABLE,
            f"topic {tp.topic!r} {'does not exist' if missing else 'is not ready'}",
        )
    if not 0 <= tp.partition < len(topic.partitions):
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{tp}: the topic has partitions 0 to {len(topic.partitions) - 1}"
        )
    raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp} has no leader")


async def _ask_leader(cluster: Cluster, node_id: int, part: Mapping[TopicPartition, int]) -> ListOffsetsResponse:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for tp, at_ms in part.items():
        topics.setdefault(tp.topic, []).append(ListOffsetsPartition(partition_index=tp.partition, timestamp=at_ms))
    request = ListOffsetsRequest(
        replica_id=REPLICA_ID_CONSUMER,
        topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )
    response: ListOffsetsResponse = await cluster.send(node_id, request)
    return response


async def end_offsets_for_epochs(cluster: Cluster, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return where leader epochs end in the leaders' logs; -1: the leader knows neither the epoch nor an earlier one.

    A partition with an error that is not retriable is missing; one try.

    :raises ApiError: a leader is unknown, or has changed.
    :raises DisconnectedError: a leader is gone; the metadata is refreshed before the next try.
    :raises UnsupportedVersionError: a broker does not support the request.
    """
    found: dict[TopicPartition, int] = {}
    try:
        responses = await ask_leaders(cluster, epochs, _ask_epochs)
    except (DisconnectedError, TimedOutError):
        cluster.request_refresh(is_stale=True)
        raise
    for response in responses:
        for topic in response.topics:
            for each in topic.partitions:
                tp = TopicPartition(topic.topic, each.partition)
                error = ApiError(each.error_code, subject=f"leader epoch {epochs.get(tp)} of {tp}")
                if each.error_code and error.retriable:
                    cluster.request_refresh(is_stale=True)
                    raise error
                if not each.error_code:
                    found[tp] = each.end_offset
    return found


async def _ask_epochs(
    cluster: Cluster, node_id: int, part: Mapping[TopicPartition, int]
) -> OffsetForLeaderEpochResponse:
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for tp, epoch in part.items():
        topics.setdefault(tp.topic, []).append(OffsetForLeaderPartition(partition=tp.partition, leader_epoch=epoch))
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=name, partitions=partitions) for name, partitions in topics.items()]
    )
    response: OffsetForLeaderEpochResponse = await cluster.send(node_id, request)
    return response


async def end_offsets_at_leader(
    cluster: Cluster, node_id: int, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the log end offsets at a leader; a partition with an error is missing; one try."""
    wanted = dict.fromkeys(partitions, LATEST_TIMESTAMP)
    found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
    _take(await _ask_leader(cluster, node_id, wanted), wanted, found)
    return {tp: at.offset for tp, at in found.items() if at is not None}


def _take(
    response: ListOffsetsResponse,
    wanted: Mapping[TopicPartition, int],
    found: dict[TopicPartition, OffsetAndTimestamp | None],
) -> ApiError | None:
    failure = None
    for topic in response.topics:
        for each in topic.partitions:
            tp = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                failure = ApiError(each.error_code, subject=f"offsets of {tp}")
            elif tp in wanted:
                known = each.offset != NO_OFFSET
                found[tp] = OffsetAndTimestamp(each.offset, each.timestamp) if known else None
    return failure


OFFSET_FETCH_VERSION_MAX = 7
"""Later versions ask for several groups in one request."""


async def committed_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None, *, timeout_s: float | None = None
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offsets of a group, of `partitions` or of all; partitions without one are missing.

    :raises TimedOutError: the coordinator did not answer in time.
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
                    raise ApiError(each.error_code, subject=f"committed offset of {tp} in group {group!r}")
                if each.committed_offset != NO_OFFSET:
                    found[tp] = OffsetAndMetadata(
                        each.committed_offset, each.metadata or "", each.committed_leader_epoch
                    )
        if missing:  # as a partition without a committed offset it would begin somewhere else
            raise missing_in_response(f"committed offset of {min(missing)} in group {group!r}")
        return found

    what = f"committed offsets of group {group!r} are not known"
    return await cluster.retrying(attempt, what=what, timeout_s=timeout_s, group=group)


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
    """Commit offsets for a group, with the member's generation, or without one for no member.

    :raises ApiError: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS: other members may own the
        partitions; OFFSET_METADATA_TOO_LARGE and others.
    :raises TimedOutError: the coordinator did not answer in time.
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
                    raise ApiError(each.error_code, subject=f"commit of {tp} in {group!r}")
        if missing:
            raise missing_in_response(f"commit of {min(missing)} in {group!r}")

    await cluster.retrying(
        attempt, what=f"offsets of group {group!r} were not committed", timeout_s=timeout_s, group=group
    )

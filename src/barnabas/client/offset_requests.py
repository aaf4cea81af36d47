"""Requests for log end offsets, offsets by time and offsets by leader epoch; see `committed_offsets` for groups.

The modules are separate because most calls of admin clients need no group messages, whose import takes time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from barnabas.client.cluster import UNKNOWN_TOPIC_PATIENCE_S, Cluster
from barnabas.client.permissions import Need
from barnabas.errors import ApiError, DisconnectedError, ErrorCode, TimedOutError
from barnabas.model import NO_OFFSET, OffsetAndTimestamp, TopicPartition
from barnabas.protocol.messages.list_offsets import (
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

ResponseT = TypeVar("ResponseT")


def missing_in_response(what: str) -> ApiError:
    """Return the error for a response that lacks an expected part. A client must not treat a missing part as success.

    >>> str(missing_in_response("commit of clicks-0"))
    'UNKNOWN_SERVER_ERROR: commit of clicks-0: missing in the response'
    """
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: missing in the response")


REPLICA_ID_CONSUMER = -1


async def list_offsets(
    cluster: Cluster,
    timestamps_ms: Mapping[TopicPartition, int],
    *,
    timeout_s: float | None = None,
    isolation_level: int = 0,
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Return, for each partition, the offset of the first record at or after a timestamp, or None if there is no such
    record.

    :param timestamps_ms: timestamps in ms since the epoch, EARLIEST_TIMESTAMP or LATEST_TIMESTAMP, by partition.
    :param isolation_level: with 1 (read_committed), the end of a partition is its last stable offset.
    :raises ApiError: a partition does not exist, and other errors.
    :raises TimedOutError: the leaders did not respond in time.
    """
    found: dict[TopicPartition, OffsetAndTimestamp | None] = {}

    async def attempt() -> None:
        wanted = {tp: at_ms for tp, at_ms in timestamps_ms.items() if tp not in found}
        answers = await ask_leaders(cluster, wanted, partial(_ask_leader, isolation_level=isolation_level))
        failure: ApiError | None = None
        for response in answers:
            failure = _take(cluster, response, timestamps_ms, found) or failure
        if failure is not None:
            raise failure
        if missing := [tp for tp in wanted if tp not in found]:
            raise missing_in_response(f"offsets of {missing[0]}")

    names = ", ".join(str(tp) for tp in timestamps_ms)
    await cluster.retrying(
        attempt,
        what=f"cannot fetch offsets of {names}",
        timeout_s=timeout_s,
        unknown_topic_s=UNKNOWN_TOPIC_PATIENCE_S,
    )
    return found


async def ask_leaders(
    cluster: Cluster,
    numbers: Mapping[TopicPartition, int],
    ask: Callable[[Cluster, int, Mapping[TopicPartition, int]], Awaitable[ResponseT]],
    operations: str = "",
) -> list[ResponseT]:
    """Group `numbers` by the leaders of their partitions, and call `ask(cluster, node_id, group)` for each leader. Does
    not retry.

    :param operations: the operations on the topics, for the error of a missing permission; empty for the usual ones.
    :raises ApiError: a partition does not exist, or has no leader now.
    """
    cluster.use_topics({tp.topic for tp in numbers})
    if any(cluster.view.leader(tp) is None for tp in numbers):
        await cluster.refresh()
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for tp, number in numbers.items():
        by_leader.setdefault(_leader(cluster, tp, operations), {})[tp] = number
    return await asyncio.gather(*(ask(cluster, node_id, part) for node_id, part in by_leader.items()))


def _leader(cluster: Cluster, tp: TopicPartition, operations: str) -> int:
    leader = cluster.view.leader(tp)
    if leader is not None:
        return leader
    topic = cluster.view.topics.get(tp.topic)
    if topic is None or not topic.partitions:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
        if topic is not None and not topic.error.retriable and topic.error is not ErrorCode.NONE:
            raise cluster.topic_error(tp.topic, topic.error, operations)
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


async def _ask_leader(
    cluster: Cluster, node_id: int, part: Mapping[TopicPartition, int], *, isolation_level: int = 0
) -> ListOffsetsResponse:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for tp, at_ms in part.items():
        topics.setdefault(tp.topic, []).append(ListOffsetsPartition(partition_index=tp.partition, timestamp=at_ms))
    request = ListOffsetsRequest(
        replica_id=REPLICA_ID_CONSUMER,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )
    response: ListOffsetsResponse = await cluster.send(node_id, request)
    return response


async def end_offsets_for_epochs(cluster: Cluster, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the end offsets of leader epochs in the leaders' logs. Does not retry.

    The offset is -1 if the leader has no records of the epoch or an earlier one. Partitions with an error that is not
    retriable are omitted.

    :raises ApiError: a leader is unknown, or has changed.
    :raises DisconnectedError: the connection to a leader was lost; the metadata is refreshed before the next attempt.
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
    """Return the log end offsets that a leader reports, without partitions that have an error. Does not retry."""
    wanted = dict.fromkeys(partitions, LATEST_TIMESTAMP)
    found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
    _take(cluster, await _ask_leader(cluster, node_id, wanted), wanted, found)
    return {tp: at.offset for tp, at in found.items() if at is not None}


def _take(
    cluster: Cluster,
    response: ListOffsetsResponse,
    wanted: Mapping[TopicPartition, int],
    found: dict[TopicPartition, OffsetAndTimestamp | None],
) -> ApiError | None:
    failure = None
    for topic in response.topics:
        for each in topic.partitions:
            tp = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                error = ApiError(each.error_code, subject=f"offsets of {tp}")
                failure = cluster.refused(error, Need("describe", "topic", tp.topic))
            elif tp in wanted:
                known = each.offset != NO_OFFSET
                found[tp] = OffsetAndTimestamp(each.offset, each.timestamp) if known else None
    return failure

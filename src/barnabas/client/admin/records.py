"""Deletion of the records before an offset, by requests to the leaders of the partitions (KIP-107)."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.client.cluster import UNKNOWN_TOPIC_PATIENCE_S, Cluster
from barnabas.client.offset_requests import ask_leaders
from barnabas.client.permissions import Need
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)


async def delete_records(
    cluster: Cluster, offsets: Mapping[TopicPartition, int], *, timeout_ms: int
) -> dict[TopicPartition, int]:
    """Delete the records before an offset in each partition; return the new log start offsets.

    :param offsets: the offset by partition; UP_TO_HIGH_WATERMARK (-1) deletes all records below the high watermark.
    :raises ApiError: OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION and other errors; the records of other partitions
        may have been deleted.
    """
    done: dict[TopicPartition, int] = {}

    async def ask(cluster: Cluster, node_id: int, part: Mapping[TopicPartition, int]) -> DeleteRecordsResponse:
        response: DeleteRecordsResponse = await cluster.send(node_id, _request(part, timeout_ms))
        return response

    async def attempt() -> None:
        left = {tp: offset for tp, offset in offsets.items() if tp not in done}
        failure: ApiError | None = None
        for response in await ask_leaders(cluster, left, ask, "delete"):
            failure = _take(cluster, response, offsets, done) or failure
        if failure is not None:
            raise failure

    names = ", ".join(map(str, offsets))
    await cluster.retrying(attempt, what=f"cannot delete records of {names}", unknown_topic_s=UNKNOWN_TOPIC_PATIENCE_S)
    return done


def _request(part: Mapping[TopicPartition, int], timeout_ms: int) -> DeleteRecordsRequest:
    topics: dict[str, list[DeleteRecordsPartition]] = {}
    for tp, offset in part.items():
        topics.setdefault(tp.topic, []).append(DeleteRecordsPartition(partition_index=tp.partition, offset=offset))
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=parts) for name, parts in topics.items()],
        timeout_ms=timeout_ms,
    )


def _take(
    cluster: Cluster,
    response: DeleteRecordsResponse,
    wanted: Mapping[TopicPartition, int],
    done: dict[TopicPartition, int],
) -> ApiError | None:
    failure = None
    for topic in response.topics:
        for each in topic.partitions:
            tp = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                error = ApiError.about(each.error_code, f"records of {tp}", _advice(each.error_code, wanted.get(tp)))
                failure = cluster.refused(error, Need("delete", "topic", tp.topic))
            else:
                done[tp] = each.low_watermark
    return failure


def _advice(error_code: int, offset: int | None) -> str:
    match ErrorCode.of(error_code):
        case ErrorCode.OFFSET_OUT_OF_RANGE:
            return f": offset {offset} is greater than the high watermark"
        case ErrorCode.POLICY_VIOLATION:
            return ": the cleanup.policy of the topic does not contain delete; produce tombstones, or change the policy"
        case _:
            return ""

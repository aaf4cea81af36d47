"""DeleteRecords, versions 0 to 2: delete the records before an offset (KIP-107).

After DeleteRecords, consumers no longer see the deleted records. The response is sent when the log start offset is
durable and the in-sync followers have deleted the records, too. This prevents the records from returning after a crash
or a leader change. The disk space is freed later, when whole segments are deleted. A topic whose `cleanup.policy` is
`compact` refuses the request (POLICY_VIOLATION).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from barnabas.broker.error_codes import error_code
from barnabas.broker.internal_topics import check_not_internal
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.model import NO_OFFSET
from barnabas.protocol.messages.delete_records import (
    UP_TO_HIGH_WATERMARK,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


@serves(DeleteRecordsRequest)
async def delete_records(replicas: ReplicaManager, request: DeleteRecordsRequest, call: Call) -> DeleteRecordsResponse:
    """Raise the log start offset of each partition, and make it durable."""
    deleted = [
        DeleteRecordsTopicResult(
            name=topic.name, partitions=[await _delete(replicas, topic.name, wanted) for wanted in topic.partitions]
        )
        for topic in request.topics
    ]
    try:
        await replicas.store_log_starts()
    except BarnabasError as error:
        _refuse([result for topic in deleted for result in topic.partitions], error_code(error))
    await _wait_for_followers(replicas, deleted, request.timeout_ms / 1000)
    for topic in deleted:
        offline = [result for result in topic.partitions if _is_offline(replicas, topic.name, result.partition_index)]
        _refuse(offline, ErrorCode.KAFKA_STORAGE_ERROR)
    return DeleteRecordsResponse(topics=deleted)


async def _delete(replicas: ReplicaManager, topic: str, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=NO_OFFSET, error_code=ErrorCode.NONE
    )
    try:
        check_not_internal(topic, "its records cannot be deleted")
        partition = replicas.leader(topic, wanted.partition_index)
        _check_policy(partition, topic)
        offset = partition.log.high_watermark if wanted.offset == UP_TO_HIGH_WATERMARK else wanted.offset
        result.low_watermark = await partition.delete_records_before(offset)
    except BarnabasError as error:
        result.error_code = error_code(error)
    return result


def _check_policy(partition: LeaderReplica, topic: str) -> None:
    """Check that the topic deletes old records. A topic that only compacts keeps the last record of each key.

    :raises ApiError: POLICY_VIOLATION, as from Kafka's brokers.
    """
    if not partition.config.log.deletes_old:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"the cleanup.policy of topic {topic} does not contain delete: produce tombstones, or change the policy",
        )


async def _wait_for_followers(
    replicas: ReplicaManager, deleted: list[DeleteRecordsTopicResult], timeout_s: float
) -> None:
    """Wait until the in-sync replicas have deleted the records. After the timeout, put an error into the results."""
    waiting: dict[asyncio.Future[None], DeleteRecordsPartitionResult] = {}
    for topic in deleted:
        for result in topic.partitions:
            with suppress(
                BarnabasError
            ):  # The result already has an error, or this broker no longer leads the partition.
                partition = replicas.leader(topic.name, result.partition_index)
                if not result.error_code and (waiter := partition.when_deleted(result.low_watermark)) is not None:
                    waiting[waiter] = result
    if not waiting:
        return
    done, late = await asyncio.wait(waiting, timeout=max(0.0, timeout_s))
    for waiter in done:
        if isinstance(error := waiter.exception(), BarnabasError):
            _refuse([waiting[waiter]], error_code(error))
    for waiter in late:
        waiter.cancel()
        _refuse([waiting[waiter]], ErrorCode.REQUEST_TIMED_OUT)


def _is_offline(replicas: ReplicaManager, topic: str, number: int) -> bool:
    """Return whether a log of this broker is offline, because its log start offset could not be stored."""
    try:
        return replicas.leader(topic, number).log.is_offline
    except BarnabasError:
        return False


def _refuse(results: list[DeleteRecordsPartitionResult], code: ErrorCode) -> None:
    for result in results:
        if not result.error_code:
            result.error_code, result.low_watermark = code, NO_OFFSET

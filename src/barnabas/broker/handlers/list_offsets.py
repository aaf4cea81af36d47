"""ListOffsets, versions 1 to 11: look up an offset by timestamp, or the first or last offset of a partition.

The end offset is the high watermark, or the last stable offset with isolation level READ_COMMITTED. Searches by
timestamp run on a separate thread, because they read files. Tiered storage is not supported. As in Kafka without tiered
storage, the timestamps -5 and -6 have no offset, and the timeout of version 10 has no effect.

Until the followers of a new leader have fetched, its high watermark may be lower than its predecessor's. The end offset
must never decrease for clients, so it is not available until then, and neither are higher offsets (KIP-207).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from barnabas.broker.error_codes import error_code
from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.errors import ApiError, BarnabasError, ErrorCode, StorageError
from barnabas.model import NO_OFFSET, NO_TIMESTAMP, IsolationLevel, OffsetAndTimestamp
from barnabas.protocol.messages.list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.leader_replica import LeaderReplica

FIRST_VERSION_WITH = {
    EARLIEST_TIMESTAMP: 1,
    LATEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
"""The first version that supports each special timestamp."""

FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5


@serves(ListOffsetsRequest, ends_with_client=True)
async def list_offsets(
    replicas: ReplicaManager, scheduler: CooperativeScheduler, request: ListOffsetsRequest, call: Call
) -> ListOffsetsResponse:
    """Look up one offset for each partition."""
    times = Counter((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
    committed = request.isolation_level == IsolationLevel.READ_COMMITTED
    results = []
    for topic in request.topics:
        found = []
        for wanted in topic.partitions:
            is_repeated = times[topic.name, wanted.partition_index] > 1
            looked_up = await _look_up(
                replicas, topic.name, wanted, call.version, committed=committed, is_repeated=is_repeated
            )
            found.append(looked_up)
            await scheduler.pause()
        results.append(ListOffsetsTopicResponse(name=topic.name, partitions=found))
    return ListOffsetsResponse(topics=results)


async def _look_up(
    replicas: ReplicaManager,
    topic: str,
    wanted: ListOffsetsPartition,
    version: int,
    *,
    committed: bool,
    is_repeated: bool,
) -> ListOffsetsPartitionResponse:
    try:
        if is_repeated:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the request contains {topic}-{wanted.partition_index} twice")
        partition = replicas.leader(topic, wanted.partition_index)
        partition.check_epoch(wanted.current_leader_epoch)
        found = await _offset_for(partition, wanted.timestamp, version, committed=committed)
    except BarnabasError as error:
        return ListOffsetsPartitionResponse(
            partition_index=wanted.partition_index, error_code=_code_for(error_code(error), version)
        )
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=ErrorCode.NONE,
        timestamp=found.timestamp_ms,
        offset=found.offset,
        leader_epoch=partition.leader_epoch if version >= 4 and found.offset != NO_OFFSET else -1,
    )


async def _offset_for(partition: LeaderReplica, timestamp: int, version: int, *, committed: bool) -> OffsetAndTimestamp:
    log = partition.log
    if log.is_offline:
        raise StorageError(f"the log {partition.topic_partition} is offline")
    nothing = OffsetAndTimestamp(NO_OFFSET, NO_TIMESTAMP)
    if timestamp < 0 and version < FIRST_VERSION_WITH.get(timestamp, version + 1):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"version {version} does not support the timestamp {timestamp}")
    if timestamp == LATEST_TIMESTAMP:
        partition.check_end_is_known()
        offsets = log.offsets
        return OffsetAndTimestamp(offsets.last_stable_offset if committed else offsets.high_watermark, NO_TIMESTAMP)
    if timestamp == EARLIEST_TIMESTAMP:
        return OffsetAndTimestamp(log.log_start_offset, NO_TIMESTAMP)
    if timestamp == EARLIEST_LOCAL_TIMESTAMP:
        return OffsetAndTimestamp(log.offsets.local_log_start_offset, NO_TIMESTAMP)
    if timestamp == MAX_TIMESTAMP:
        found = await partition.storage.latest_record()
    elif timestamp in {LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP}:
        found = nothing
    else:
        found = await partition.storage.first_record_at(timestamp) or nothing
    offsets = log.offsets
    if found.offset < (offsets.last_stable_offset if committed else offsets.high_watermark):
        return found
    # As in Kafka, ignore a record that consumers cannot read yet.
    partition.check_end_is_known()
    return nothing


def _code_for(code: ErrorCode, version: int) -> ErrorCode:
    """Return the error code, or an older error code if this version does not support it."""
    is_new = code is ErrorCode.OFFSET_NOT_AVAILABLE and version < FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE
    return ErrorCode.LEADER_NOT_AVAILABLE if is_new else code

"""ReadShareGroupState (key 84): return the stored delivery state of a share group's records (KIP-932).

Brokers send this request to share coordinators; it needs CLUSTER_ACTION.
"""

from __future__ import annotations

from barnabas.protocol.declare import INT8, INT16, INT32, INT64, STRING, UUID, array, field, message, nullable, struct


@struct
class ReadStateRequestPartition:
    partition: int = field(INT32)
    leader_epoch: int = field(INT32)


@struct
class ReadStateRequestTopic:
    topic_id: bytes = field(UUID)
    partitions: list[ReadStateRequestPartition] = field(array(ReadStateRequestPartition))


@message(api_key=84, versions="0", flexible="0+")
class ReadShareGroupStateRequest:
    group_id: str = field(STRING)
    topics: list[ReadStateRequestTopic] = field(array(ReadStateRequestTopic))


@struct
class StateBatch:
    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    delivery_state: int = field(INT8)
    delivery_count: int = field(INT16)


@struct
class ReadStatePartition:
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING), default=None)
    state_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    state_batches: list[StateBatch] = field(array(StateBatch))


@struct
class ReadStateTopic:
    topic_id: bytes = field(UUID)
    partitions: list[ReadStatePartition] = field(array(ReadStatePartition))


@message(api_key=84, versions="0", flexible="0+")
class ReadShareGroupStateResponse:
    results: list[ReadStateTopic] = field(array(ReadStateTopic))

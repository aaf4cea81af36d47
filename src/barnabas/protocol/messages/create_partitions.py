"""CreatePartitions (key 37): add partitions to topics (KIP-195).

Version 2 is the first flexible version; the broker may throttle version 3 (KIP-599).
"""

from __future__ import annotations

from barnabas.protocol.declare import BOOLEAN, INT16, INT32, STRING, array, field, message, nullable, struct


@struct
class CreatePartitionsAssignment:
    broker_ids: list[int] = field(array(INT32))


@struct
class CreatePartitionsTopic:
    name: str = field(STRING)
    count: int = field(INT32)
    assignments: list[CreatePartitionsAssignment] | None = field(nullable(array(CreatePartitionsAssignment)))


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = field(array(CreatePartitionsTopic))
    timeout_ms: int = field(INT32)
    validate_only: bool = field(BOOLEAN)


@struct
class CreatePartitionsTopicResult:
    name: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING), default=None)


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    results: list[CreatePartitionsTopicResult] = field(array(CreatePartitionsTopicResult))

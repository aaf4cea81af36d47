"""ConsumerGroupDescribe (key 69): return groups of the type `consumer` with their members and assignments (KIP-848).

Version 1 adds the types of members (KIP-1099).
"""

from __future__ import annotations

from barnabas.protocol.declare import (
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    array,
    field,
    message,
    nested,
    nullable,
    struct,
)
from barnabas.protocol.messages.metadata import OPERATIONS_UNKNOWN


@message(api_key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    group_ids: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOLEAN, default=False)


@struct
class ConsumerGroupTopic:
    topic_id: bytes = field(UUID)
    topic_name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


@struct
class ConsumerGroupAssignment:
    topic_partitions: list[ConsumerGroupTopic] = field(array(ConsumerGroupTopic), default_factory=list)


@struct
class DescribedConsumerGroupMember:
    member_id: str = field(STRING)
    instance_id: str | None = field(nullable(STRING), default=None)
    rack_id: str | None = field(nullable(STRING), default=None)
    member_epoch: int = field(INT32)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))
    subscribed_topic_regex: str | None = field(nullable(STRING), default=None)
    assignment: ConsumerGroupAssignment = field(
        nested(ConsumerGroupAssignment), default_factory=ConsumerGroupAssignment
    )
    target_assignment: ConsumerGroupAssignment = field(
        nested(ConsumerGroupAssignment), default_factory=ConsumerGroupAssignment
    )
    member_type: int = field(INT8, since=1, default=-1, ignorable=True)


@struct
class DescribedConsumerGroup:
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING), default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    group_epoch: int = field(INT32)
    assignment_epoch: int = field(INT32)
    assignor_name: str = field(STRING)
    members: list[DescribedConsumerGroupMember] = field(array(DescribedConsumerGroupMember))
    authorized_operations: int = field(INT32, default=OPERATIONS_UNKNOWN)


@message(api_key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int = field(INT32, default=0)
    groups: list[DescribedConsumerGroup] = field(array(DescribedConsumerGroup))

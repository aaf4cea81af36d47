"""CreateTopics (key 19): create topics.

Version 1 can validate a request without creating topics. Version 5 is the first flexible version and returns the
settings of the topic (KIP-525), version 7 its id (KIP-516). A partition count or replication factor of -1 selects the
broker's default (KIP-464).
"""

from __future__ import annotations

from barnabas.protocol.declare import (
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    ZERO_UUID,
    array,
    field,
    message,
    nullable,
    struct,
)


@struct
class CreatableReplicaAssignment:
    partition_index: int = field(INT32)
    broker_ids: list[int] = field(array(INT32))


@struct
class CreatableTopicConfig:
    name: str = field(STRING)
    value: str | None = field(nullable(STRING))


@struct
class CreatableTopic:
    name: str = field(STRING)
    num_partitions: int = field(INT32)
    replication_factor: int = field(INT16)
    assignments: list[CreatableReplicaAssignment] = field(array(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = field(array(CreatableTopicConfig))


@message(api_key=19, versions="0-7", flexible="5+")
class CreateTopicsRequest:
    topics: list[CreatableTopic] = field(array(CreatableTopic))
    timeout_ms: int = field(INT32, default=60_000)
    validate_only: bool = field(BOOLEAN, since=1, default=False)


@struct
class CreatableTopicConfigs:
    name: str = field(STRING, since=5, default="")
    value: str | None = field(nullable(STRING, since=5), since=5, default="")
    read_only: bool = field(BOOLEAN, since=5, default=False)
    config_source: int = field(INT8, since=5, default=-1, ignorable=True)
    is_sensitive: bool = field(BOOLEAN, since=5, default=False)


@struct
class CreatableTopicResult:
    name: str = field(STRING)
    topic_id: bytes = field(UUID, since=7, default=ZERO_UUID, ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING), since=1, default="", ignorable=True)
    topic_config_error_code: int = field(INT16, since=5, default=0, ignorable=True, tag=0)
    num_partitions: int = field(INT32, since=5, default=-1, ignorable=True)
    replication_factor: int = field(INT16, since=5, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field(
        nullable(array(CreatableTopicConfigs), since=5), since=5, default_factory=list, ignorable=True
    )


@message(api_key=19, versions="0-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: int = field(INT32, since=2, default=0, ignorable=True)
    topics: list[CreatableTopicResult] = field(array(CreatableTopicResult))

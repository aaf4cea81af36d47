"""DeleteTopics (key 20): delete topics.

Version 4 is the first flexible version, version 5 adds an error message, version 6 can name topics by id (KIP-516).
"""

from __future__ import annotations

from barnabas.protocol.declare import INT16, INT32, STRING, UUID, ZERO_UUID, array, field, message, nullable, struct


@struct
class DeleteTopicState:
    name: str | None = field(nullable(STRING, since=6), since=6, default=None)
    topic_id: bytes = field(UUID, since=6, default=ZERO_UUID)


@message(api_key=20, versions="0-6", flexible="4+")
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = field(array(DeleteTopicState), since=6, default_factory=list)
    topic_names: list[str] = field(array(STRING), until=5, default_factory=list, ignorable=True)
    timeout_ms: int = field(INT32)


@struct
class DeletableTopicResult:
    name: str | None = field(nullable(STRING, since=6))
    topic_id: bytes = field(UUID, since=6, default=ZERO_UUID, ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING, since=5), since=5, default=None, ignorable=True)


@message(api_key=20, versions="0-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: int = field(INT32, since=1, default=0, ignorable=True)
    responses: list[DeletableTopicResult] = field(array(DeletableTopicResult))

"""DeleteTopics, versions 0 to 6: delete topics, by name or, from version 6 on, by topic id."""

from __future__ import annotations

from barnabas.broker.error_codes import error_code, error_message
from barnabas.broker.internal_topics import check_not_internal
from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.quotas.enforcement import MutationQuotas, Mutations
from barnabas.broker.settings.dynamic import DynamicSettings
from barnabas.broker.topic_admin import TopicAdmin
from barnabas.broker.topics import Topics
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.protocol.declare import ZERO_UUID
from barnabas.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

FIRST_VERSION_WITH_DELETION_DISABLED = 3


@serves(DeleteTopicsRequest)
async def delete_topics(
    topics: Topics,
    topic_admin: TopicAdmin,
    settings: DynamicSettings,
    scheduler: CooperativeScheduler,
    mutations: MutationQuotas,
    request: DeleteTopicsRequest,
    call: Call,
) -> DeleteTopicsResponse:
    """Delete each topic. Its files are deleted later."""
    changes = mutations.of_call(call, strict_since=5)
    wanted = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    responses = []
    for each in wanted:
        responses.append(await _delete(topics, topic_admin, settings, changes, each, call.version))
        await scheduler.pause()
    response = DeleteTopicsResponse(responses=responses)
    changes.end(response)
    return response


async def _delete(
    topics: Topics,
    topic_admin: TopicAdmin,
    settings: DynamicSettings,
    changes: Mutations,
    wanted: DeleteTopicState,
    version: int,
) -> DeletableTopicResult:
    name, topic_id = wanted.name, wanted.topic_id
    try:
        if name is not None and topic_id != ZERO_UUID:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a topic must be identified either by its name or by its id")
        topic = topics.get(name) if name is not None else topics.by_id(topic_id)
        if topic is None:
            by_name = name is not None
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if by_name else ErrorCode.UNKNOWN_TOPIC_ID,
                f"topic {name!r} does not exist" if by_name else "no topic with this id exists",
            )
        name, topic_id = topic.name, topic.id
        if not settings.config.delete_topic_enable:
            has_code = version >= FIRST_VERSION_WITH_DELETION_DISABLED
            code = ErrorCode.TOPIC_DELETION_DISABLED if has_code else ErrorCode.INVALID_REQUEST
            raise ApiError(code, "delete.topic.enable is false")
        check_not_internal(name, "it cannot be deleted")
        changes.take(len(topic.partitions))
        await topic_admin.delete(topic.name, topic.id if wanted.name is None else None)
    except BarnabasError as error:
        return DeletableTopicResult(
            name=name, topic_id=topic_id, error_code=error_code(error), error_message=error_message(error)
        )
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=ErrorCode.NONE)

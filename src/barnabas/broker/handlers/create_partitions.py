"""CreatePartitions, versions 0 to 3: add partitions to topics.

New replicas are spread over brokers and racks in the same way as for a new topic. As for CreateTopics, all live brokers
have the metadata of the new partitions when the response is sent.
"""

from __future__ import annotations

from collections import Counter

from barnabas.broker.error_codes import error_code, error_message
from barnabas.broker.internal_topics import check_not_internal
from barnabas.broker.metadata_propagation import MetadataPropagation
from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.quotas.enforcement import MutationQuotas, Mutations
from barnabas.broker.topic_admin import TopicAdmin
from barnabas.broker.topics import Topics
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


@serves(CreatePartitionsRequest)
async def create_partitions(
    topics: Topics,
    topic_admin: TopicAdmin,
    propagation: MetadataPropagation,
    scheduler: CooperativeScheduler,
    mutations: MutationQuotas,
    request: CreatePartitionsRequest,
    call: Call,
) -> CreatePartitionsResponse:
    """Add partitions to each topic. With `validate_only`, only check the request."""
    changes = mutations.of_call(call, strict_since=3)
    times = Counter(topic.name for topic in request.topics)
    results, grown = [], {}
    for topic in request.topics:
        error = await _grow(topic_admin, changes, topic, times[topic.name] > 1, request.validate_only)
        if error is None and not request.validate_only and (there := topics.get(topic.name)) is not None:
            grown[there.id] = topic.count
        await scheduler.pause()
        results.append(
            CreatePartitionsTopicResult(
                name=topic.name,
                error_code=error_code(error),
                error_message=error_message(error),
            )
        )
    await propagation.until_known(grown, request.timeout_ms / 1000)
    response = CreatePartitionsResponse(results=results)
    changes.end(response)
    return response


async def _grow(
    topic_admin: TopicAdmin,
    changes: Mutations,
    wanted: CreatePartitionsTopic,
    is_repeated: bool,
    validate_only: bool,
) -> BarnabasError | None:
    """Add partitions to a topic. Return the error or None."""
    try:
        if is_repeated:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the request contains topic {wanted.name} twice")
        added = _check(topic_admin, wanted)
        if not validate_only:
            changes.take(added)
            assignment = None if wanted.assignments is None else [each.broker_ids for each in wanted.assignments]
            await topic_admin.grow(wanted.name, wanted.count, assignment)
    except BarnabasError as error:
        return error
    return None


def _check(topic_admin: TopicAdmin, wanted: CreatePartitionsTopic) -> int:
    """Check a request for more partitions; return the number of new partitions."""
    check_not_internal(
        wanted.name, "it cannot get more partitions, because existing records would be in the wrong partition"
    )
    added = topic_admin.check_growth(wanted.name, wanted.count)
    if wanted.assignments is not None and len(wanted.assignments) != added:
        message = f"the request adds {added} partitions, but contains {len(wanted.assignments)} assignments"
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return added

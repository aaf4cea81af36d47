"""CreateTopics, versions 0 to 7: create topics, or check whether they could be created.

Replicas are spread over brokers and racks, unless the request assigns brokers to each partition. The response is sent
when all live brokers have the metadata of the new topics, so that clients can use any broker. The handler waits for
other brokers within the timeout of the request, but at most two seconds.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from barnabas.broker.error_codes import error_code, error_message
from barnabas.broker.internal_topics import partition_count, replication_factor, settings_of
from barnabas.broker.metadata_propagation import MetadataPropagation
from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.quotas.enforcement import MutationQuotas, Mutations
from barnabas.broker.settings.dynamic import DynamicSettings
from barnabas.broker.topic_admin import TopicAdmin
from barnabas.broker.topics import Topics
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

USE_DEFAULT = -1
DYNAMIC_TOPIC_CONFIG = 1
"""The source of a setting that the topic itself sets, in Kafka's ConfigSource."""


@serves(CreateTopicsRequest)
async def create_topics(
    topics: Topics,
    topic_admin: TopicAdmin,
    settings: DynamicSettings,
    propagation: MetadataPropagation,
    scheduler: CooperativeScheduler,
    mutations: MutationQuotas,
    request: CreateTopicsRequest,
    call: Call,
) -> CreateTopicsResponse:
    """Create each topic. An error of one topic does not affect the other topics."""
    changes = mutations.of_call(call, strict_since=6)
    times = Counter(topic.name for topic in request.topics)
    results = []
    for topic in request.topics:
        results.append(
            await _create(topics, topic_admin, settings, changes, topic, times[topic.name] > 1, request.validate_only)
        )
        await scheduler.pause()
    if not request.validate_only:
        made = {each.topic_id: each.num_partitions for each in results if each.error_code == ErrorCode.NONE}
        await propagation.until_known(made, request.timeout_ms / 1000)
    response = CreateTopicsResponse(topics=results)
    changes.end(response)
    return response


async def _create(
    topics: Topics,
    topic_admin: TopicAdmin,
    settings: DynamicSettings,
    changes: Mutations,
    wanted: CreatableTopic,
    is_repeated: bool,
    validate_only: bool,
) -> CreatableTopicResult:
    own_settings = {**settings_of(wanted.name, settings.config), **{each.name: each.value for each in wanted.configs}}
    try:
        if is_repeated:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the request contains topic {wanted.name} twice")
        shape = _shape(topics, settings, wanted)
        if validate_only:
            topic_admin.check_new(
                wanted.name, shape.partitions, own_settings, shape.replication_factor, shape.assignment
            )
            topic_id = None
        else:
            topic_id = (
                await topic_admin.create(
                    wanted.name,
                    shape.partitions,
                    own_settings,
                    shape.replication_factor,
                    shape.assignment,
                    changes.take,
                )
            ).id
    except BarnabasError as error:
        return CreatableTopicResult(name=wanted.name, error_code=error_code(error), error_message=error_message(error))
    result = CreatableTopicResult(
        name=wanted.name,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=shape.partitions,
        replication_factor=shape.replication_factor,
        configs=[
            CreatableTopicConfigs(name=name, value=value, config_source=DYNAMIC_TOPIC_CONFIG)
            for name, value in own_settings.items()
        ],
    )
    if topic_id is not None:
        result.topic_id = topic_id
    return result


class _Shape(NamedTuple):
    """The number of partitions and the replication factor of a new topic, and the assignment in the request, if any."""

    partitions: int
    replication_factor: int
    assignment: list[list[int]] | None = None


def _shape(topics: Topics, settings: DynamicSettings, wanted: CreatableTopic) -> _Shape:
    """Return the number of partitions, the replication factor and the assignment of a new topic.

    :raises ApiError: the assignment in the request is invalid.
    """
    if wanted.assignments:
        return _assigned(wanted)
    config, brokers = settings.config, len(topics.image.brokers)
    count, factor = wanted.num_partitions, wanted.replication_factor
    return _Shape(
        partition_count(wanted.name, config) if count == USE_DEFAULT else count,
        replication_factor(wanted.name, config, brokers) if factor == USE_DEFAULT else factor,
    )


def _assigned(wanted: CreatableTopic) -> _Shape:
    if wanted.num_partitions != USE_DEFAULT or wanted.replication_factor != USE_DEFAULT:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "with an assignment, partition count and replication factor must be -1"
        )
    by_number = {assignment.partition_index: list(assignment.broker_ids) for assignment in wanted.assignments}
    if sorted(by_number) != list(range(len(wanted.assignments))):
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered 0, 1, 2 ... without a gap")
    assignment = [by_number[number] for number in range(len(by_number))]
    return _Shape(len(assignment), len(assignment[0]), assignment)

"""CreateTopics, versions 0 to 7: make topics, or tell whether they could be made.

There is one broker, so the replication factor is 1 (or -1, the default) and an explicit assignment names it alone.
"""

from __future__ import annotations

from collections import Counter

from barnabas.broker.api import Context, serves
from barnabas.broker.error_codes import error_code, error_message
from barnabas.broker.identity import Identity
from barnabas.broker.internal_topics import partition_count, settings_of
from barnabas.broker.settings.dynamic import DynamicSettings
from barnabas.broker.topics import Topics
from barnabas.broker.turns import Turns
from barnabas.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

USE_DEFAULT = -1
DYNAMIC_TOPIC_CONFIG = 1
"""Where a setting comes from: the topic's own (Kafka's ConfigSource)."""


@serves(CreateTopicsRequest)
async def create_topics(
    topics: Topics,
    settings: DynamicSettings,
    identity: Identity,
    turns: Turns,
    request: CreateTopicsRequest,
    context: Context,
) -> CreateTopicsResponse:
    """Make each topic; what is wrong with one does not keep the others from being made."""
    times = Counter(topic.name for topic in request.topics)
    results = []
    for topic in request.topics:
        results.append(await _create(topics, settings, identity, topic, times[topic.name] > 1, request.validate_only))
        await turns.pause()
    return CreateTopicsResponse(topics=results)


async def _create(
    topics: Topics,
    settings: DynamicSettings,
    identity: Identity,
    wanted: CreatableTopic,
    is_repeated: bool,
    validate_only: bool,
) -> CreatableTopicResult:
    own_settings = {**settings_of(wanted.name, settings.config), **{each.name: each.value for each in wanted.configs}}
    try:
        if is_repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {wanted.name} stands in the request twice")
        partitions = _partition_count(settings, identity, wanted)
        if validate_only:
            topics.check_new(wanted.name, partitions, own_settings)
            topic_id = None
        else:
            topic_id = (await topics.create(wanted.name, partitions, own_settings)).id
    except BarnabasError as error:
        return CreatableTopicResult(name=wanted.name, error_code=error_code(error), error_message=error_message(error))
    result = CreatableTopicResult(
        name=wanted.name,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            CreatableTopicConfigs(name=name, value=value, config_source=DYNAMIC_TOPIC_CONFIG)
            for name, value in own_settings.items()
        ],
    )
    if topic_id is not None:
        result.topic_id = topic_id
    return result


def _partition_count(settings: DynamicSettings, identity: Identity, wanted: CreatableTopic) -> int:
    """Return how many partitions the topic is to have.

    :raises KafkaError: what is asked for cannot be had from this one broker.
    """
    if wanted.assignments:
        return _assigned_count(identity, wanted)
    if wanted.replication_factor not in {1, USE_DEFAULT}:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"a replication factor of {wanted.replication_factor} needs as many brokers; there is 1",
        )
    if wanted.num_partitions == USE_DEFAULT:
        return partition_count(wanted.name, settings.config)
    return wanted.num_partitions


def _assigned_count(identity: Identity, wanted: CreatableTopic) -> int:
    if wanted.num_partitions != USE_DEFAULT or wanted.replication_factor != USE_DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "with an assignment, partition count and replication factor must be -1"
        )
    indexes = sorted(assignment.partition_index for assignment in wanted.assignments)
    if indexes != list(range(len(indexes))):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered 0, 1, 2 ... once each")
    if any(assignment.broker_ids != [identity.node_id] for assignment in wanted.assignments):
        message = f"the only broker is {identity.node_id}; every partition must be assigned to it alone"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return len(indexes)

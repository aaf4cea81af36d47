"""Metadata, versions 0 to 13: describe brokers, topics and partitions.

Unknown topics are created if auto-creation is enabled. A created topic has leaders when the response is sent, so
clients need not refresh their metadata. The handler waits at most one second until the other live brokers have the new
topic in their metadata. With ACLs, a topic is created only if the client may create it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.authorized_operations import ON_CLUSTER, ON_TOPICS
from barnabas.broker.error_codes import error_code
from barnabas.broker.identity import Identity, addresses
from barnabas.broker.internal_topics import INTERNAL_TOPICS
from barnabas.broker.metadata_propagation import MetadataPropagation
from barnabas.broker.pipeline.call import Call, LaterReply, Reply, Steps, is_pause_due, serves
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.quotas.enforcement import MutationQuotas, Mutations
from barnabas.broker.settings.dynamic import DynamicSettings
from barnabas.broker.topic_admin import TopicAdmin
from barnabas.broker.topics import Topics
from barnabas.coordination.values import NO_LEADER
from barnabas.errors import BarnabasError, ErrorCode
from barnabas.protocol.declare import ZERO_UUID
from barnabas.protocol.messages.metadata import (
    OPERATIONS_UNKNOWN,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.broker.metadata_image import MetadataImage
    from barnabas.broker.topics import Topic

FIRST_VERSION_WITHOUT_UNKNOWN_NAMES = 12
"""The first version in which the topic name is null if the topic id is unknown."""
MADE_KNOWN_S = 1.0
"""The maximum wait in seconds for other brokers to read the metadata of a created topic.

It is short, because a producer may be waiting for the response.
"""


@serves(MetadataRequest, ends_with_client=True)
def metadata(
    topics: Topics,
    topic_admin: TopicAdmin,
    settings: DynamicSettings,
    identity: Identity,
    propagation: MetadataPropagation,
    scheduler: CooperativeScheduler,
    mutations: MutationQuotas,
    request: MetadataRequest,
    call: Call,
) -> Steps[MetadataResponse | Reply]:
    """Describe the requested topics, or all topics."""
    wants_all = request.topics is None or (call.version == 0 and not request.topics)
    wanted = [] if wants_all else (yield from _each_once(request.topics or []))
    if request.allow_auto_topic_creation and settings.config.auto_create_topics_enable:
        missing = yield from _missing(topics, wanted)
        if missing:
            changes = mutations.of_call(call, strict_since=0)
            describing = _create_and_describe(
                topics, topic_admin, identity, propagation, scheduler, changes, missing, wanted, request, call
            )
            return LaterReply(describing)
    return (yield from _describe(topics, identity, wanted if not wants_all else None, {}, request, call))


@serves(MetadataRequest)
def known_topics(topics: Topics, request: MetadataRequest, call: Call) -> Steps[MetadataResponse]:
    """Describe requested topics for another broker, without creating unknown topics."""
    described = []
    for number, each in enumerate((yield from _each_once(request.topics or []))):
        if is_pause_due(number):
            yield
        described.append((yield from _wanted_topic(topics, each, {}, call)))
    return MetadataResponse(brokers=[], topics=described)


def _each_once(topics: list[MetadataRequestTopic]) -> Steps[list[MetadataRequestTopic]]:
    """Return the requested topics without duplicates."""
    found: dict[tuple[str | None, bytes], MetadataRequestTopic] = {}
    for number, each in enumerate(topics):
        if is_pause_due(number):
            yield
        found[each.name, each.topic_id] = each
    return list(found.values())


def _missing(topics: Topics, wanted: list[MetadataRequestTopic]) -> Steps[list[str]]:
    missing = []
    for number, each in enumerate(wanted):
        if is_pause_due(number):
            yield
        if not _is_by_id(each) and each.name is not None and topics.get(each.name) is None:
            missing.append(each.name)
    return missing


async def _create_and_describe(
    topics: Topics,
    topic_admin: TopicAdmin,
    identity: Identity,
    propagation: MetadataPropagation,
    scheduler: CooperativeScheduler,
    changes: Mutations,
    missing: list[str],
    wanted: list[MetadataRequestTopic],
    request: MetadataRequest,
    call: Call,
) -> MetadataResponse:
    errors: dict[str, ErrorCode] = {}
    made: dict[bytes, int] = {}
    for name in missing:
        try:
            topic = await topic_admin.create_with_defaults(name, changes.take)
            made[topic.id] = len(topic.partitions)
        except BarnabasError as error:
            code = error_code(error)
            if code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                code = ErrorCode.LEADER_NOT_AVAILABLE  # Clients retry the creation after this error.
            if code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                errors[name] = code
        await scheduler.pause()
    await propagation.until_known(made, MADE_KNOWN_S)
    response = await scheduler.finish(_describe(topics, identity, wanted, errors, request, call))
    changes.end(response)
    return response


def _describe(
    topics: Topics,
    identity: Identity,
    wanted: list[MetadataRequestTopic] | None,
    errors: dict[str, ErrorCode],
    request: MetadataRequest,
    call: Call,
) -> Steps[MetadataResponse]:
    described_topics = []
    everything: Sequence[Topic | MetadataRequestTopic] = list(topics.all()) if wanted is None else wanted
    for number, each in enumerate(everything):
        if is_pause_due(number):
            yield
        if isinstance(each, MetadataRequestTopic):
            described = yield from _wanted_topic(topics, each, errors, call)
        else:
            described = yield from _topic(topics.image, each)
        if request.include_topic_authorized_operations:
            is_there = described.error_code == ErrorCode.NONE
            described.topic_authorized_operations = ON_TOPICS if is_there else OPERATIONS_UNKNOWN
        described_topics.append(described)
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=each.id, host=each.host, port=each.port, rack=each.rack)
            for each in addresses(topics.image, identity, call.connection)
        ],
        cluster_id=identity.cluster_id,
        controller_id=topics.image.controller_id,
        topics=described_topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ON_CLUSTER
    return response


def _wanted_topic(
    topics: Topics, wanted: MetadataRequestTopic, errors: dict[str, ErrorCode], call: Call
) -> Steps[MetadataResponseTopic]:
    name = wanted.name or ""
    if _is_by_id(wanted):
        topic = topics.by_id(wanted.topic_id)
        code = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = topics.get(name)
        code = errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic is not None:
        return (yield from _topic(topics.image, topic))
    unknown = MetadataResponseTopic(error_code=code, name=name, topic_id=wanted.topic_id, partitions=[])
    if _is_by_id(wanted) and call.version >= FIRST_VERSION_WITHOUT_UNKNOWN_NAMES:
        unknown.name = None
    return unknown


def _is_by_id(wanted: MetadataRequestTopic) -> bool:
    """Return whether the request identifies the topic by id.

    The name is then empty (Java clients) or null (other clients).
    """
    return wanted.name is None or wanted.topic_id != ZERO_UUID


def _topic(image: MetadataImage, topic: Topic) -> Steps[MetadataResponseTopic]:
    partitions = []
    for number, each in enumerate(topic.partitions):
        if is_pause_due(number):
            yield
        leader = image.leader_of(each)
        partitions.append(
            MetadataResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else ErrorCode.NONE,
                partition_index=number,
                leader_id=leader,
                leader_epoch=each.state.leader_epoch,
                replica_nodes=list(each.replicas),
                isr_nodes=list(each.state.isr),
                offline_replicas=image.offline_replicas(each),
            )
        )
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
    )

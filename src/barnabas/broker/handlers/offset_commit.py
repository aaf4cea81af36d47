"""OffsetCommit, versions 2 to 10: commit offsets of a group, with metadata.

As in current Kafka versions, the retention time of versions 2 to 4 is ignored. The response is sent when the offsets
are stored. Offsets are stored by topic name, although version 10 identifies topics by id. A commit with a generation of
an unknown group gets GROUP_ID_NOT_FOUND from version 9 on, and ILLEGAL_GENERATION in older versions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from barnabas.broker.commit_templates import PARTITIONS_MAX, CommitTemplates, RepeatedCommit
from barnabas.broker.error_codes import error_code
from barnabas.broker.group_service import GroupService
from barnabas.broker.offset_store import OffsetStore
from barnabas.broker.pipeline.call import Call, LaterReply, Reply, Steps, StepsReply, is_pause_due, serves
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.settings.dynamic import DynamicSettings
from barnabas.broker.topics import Topics
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.model import OffsetAndMetadata, TopicPartition
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND = 9
FIRST_VERSION_WITH_TOPIC_IDS = 10

METADATA_BYTES_MAX = 2**15 - 1
"""The maximum size of a string in bytes in OffsetFetch before version 6, so committed metadata must not be longer."""
STORED_TOGETHER = 256
"""The maximum number of partitions whose offsets are stored in one append."""

Stored: TypeAlias = "tuple[Iterable[TopicPartition], asyncio.Future[set[TopicPartition]]]"
"""The partitions of a commit, and the future of its outcome (`OffsetStore.commit`)."""


@serves(OffsetCommitRequest)
def offset_commit(
    topics: Topics,
    groups: GroupService,
    offsets: OffsetStore,
    settings: DynamicSettings,
    scheduler: CooperativeScheduler,
    commit_templates: CommitTemplates,
    request: OffsetCommitRequest | RepeatedCommit,
    call: Call,
) -> Reply:
    """Commit the valid offsets. The response contains an error for each invalid offset."""
    if isinstance(request, RepeatedCommit):
        if (answer := request.store_at_once()) is not None:
            return Reply(answer)
        request = request.in_full()
    steps = _commit(topics, groups, offsets, settings, scheduler, commit_templates, request, call)
    if not groups.has_topic:
        return LaterReply(_prepare_and_finish(groups, scheduler, steps))
    return StepsReply(steps)


async def _prepare_and_finish(
    groups: GroupService, scheduler: CooperativeScheduler, steps: Steps[OffsetCommitResponse | Reply]
) -> OffsetCommitResponse:
    with contextlib.suppress(
        ApiError
    ):  # Ignore the error here: without the topic, each offset gets an error from the lookup of the coordinator.
        await groups.ensure_topic()
    response = await scheduler.finish(steps)
    if isinstance(response, OffsetCommitResponse):
        return response
    assert response.later is not None
    stored: OffsetCommitResponse = await response.later
    return stored


def _commit(
    topics: Topics,
    groups: GroupService,
    offsets: OffsetStore,
    settings: DynamicSettings,
    scheduler: CooperativeScheduler,
    commit_templates: CommitTemplates,
    request: OffsetCommitRequest,
    call: Call,
) -> Steps[OffsetCommitResponse | Reply]:
    refused = _refusal(groups, request, call)
    errors: dict[TopicPartition, ErrorCode] = {}
    committed: dict[TopicPartition, OffsetAndMetadata] = {}
    waiting: list[Stored] = []
    for topic in request.topics:
        if call.version >= FIRST_VERSION_WITH_TOPIC_IDS:
            found = topics.by_id(topic.topic_id)
            topic.name = found.name if found else ""
        for number, each in enumerate(topic.partitions):
            if is_pause_due(number):
                yield from _pause(topics, committed, errors)
                refused = _refuse_all(_refusal(groups, request, call), committed, errors)
            if len(committed) == STORED_TOGETHER:
                _store(offsets, request.group_id, committed, errors, waiting)
                committed = {}
            where = TopicPartition(topic.name, each.partition_index)
            errors[where] = refused or _check(topics, settings, where, each)
            if not errors[where]:
                committed[where] = OffsetAndMetadata(
                    each.committed_offset, each.committed_metadata or "", each.committed_leader_epoch
                )
        if is_pause_due(len(errors)):
            yield from _pause(topics, committed, errors)
            refused = _refuse_all(_refusal(groups, request, call), committed, errors)
    if committed:
        _store(offsets, request.group_id, committed, errors, waiting)
    responding = _respond(commit_templates, request, errors, call)
    if waiting:
        return LaterReply(_respond_later(scheduler, responding, errors, waiting))
    return (yield from responding)


def _refusal(groups: GroupService, request: OffsetCommitRequest, call: Call) -> ErrorCode:
    """Return the error if the member must not commit offsets now, or NONE."""
    generation = request.generation_id_or_member_epoch
    refused = groups.check_commit(request.group_id, request.member_id, request.group_instance_id, generation)
    if (
        refused is ErrorCode.ILLEGAL_GENERATION
        and call.version >= FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND
        and not groups.describe(request.group_id)
    ):
        return ErrorCode.GROUP_ID_NOT_FOUND
    return refused


def _pause(
    topics: Topics, committed: dict[TopicPartition, OffsetAndMetadata], errors: dict[TopicPartition, ErrorCode]
) -> Steps[None]:
    """Let other requests run. Then drop the offsets of topics that were deleted during this pause."""
    ids = {name: topic.id for name in {where.topic for where in committed} if (topic := topics.get(name))}
    yield
    gone = {name for name, topic_id in ids.items() if topics.by_id(topic_id) is None}
    for where in [where for where in committed if where.topic in gone] if gone else ():
        errors[where] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        del committed[where]


def _refuse_all(
    refused: ErrorCode,
    committed: dict[TopicPartition, OffsetAndMetadata],
    errors: dict[TopicPartition, ErrorCode],
) -> ErrorCode:
    """If the member must no longer commit, replace the offsets that are not stored yet by the error.

    Return the error or NONE.
    """
    if refused:
        errors.update(dict.fromkeys(committed, refused))
        committed.clear()
    return refused


def _store(
    offsets: OffsetStore,
    group_id: str,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    errors: dict[TopicPartition, ErrorCode],
    waiting: list[Stored],
) -> None:
    """Store offsets. Record their outcome, or add them to `waiting` if the outcome is not known yet."""
    try:
        stored = offsets.commit(group_id, committed)
    except BarnabasError as error:
        errors.update(dict.fromkeys(committed, error_code(error)))
        return
    if stored.done():
        _note(errors, committed, stored)
    else:
        waiting.append((committed, stored))


async def _respond_later(
    scheduler: CooperativeScheduler,
    responding: Steps[OffsetCommitResponse],
    errors: dict[TopicPartition, ErrorCode],
    waiting: Sequence[Stored],
) -> OffsetCommitResponse:
    await asyncio.wait([stored for _, stored in waiting])
    for committed, stored in waiting:
        _note(errors, committed, stored)
    return await scheduler.finish(responding)


def _note(
    errors: dict[TopicPartition, ErrorCode],
    committed: Iterable[TopicPartition],
    stored: asyncio.Future[set[TopicPartition]],
) -> None:
    """Record the errors of a completed commit."""
    error = stored.exception()
    if error is None:
        for where in stored.result():
            errors[where] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        assert isinstance(error, ApiError)
        errors.update(dict.fromkeys(committed, error.code))


def _check(
    topics: Topics, settings: DynamicSettings, where: TopicPartition, wanted: OffsetCommitRequestPartition
) -> ErrorCode:
    if wanted.committed_metadata and _is_too_large(
        wanted.committed_metadata, settings.config.offset_metadata_max_bytes
    ):
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    if not where.topic:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not topics.has_partition(where):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _is_too_large(metadata: str, size_max: int) -> bool:
    """Return whether commit metadata exceeds `offset.metadata.max.bytes` or the limit of old OffsetFetch versions.

    As in Kafka, the setting limits the length of a Java string, which counts UTF-16 code units, not bytes.
    """
    units_max = 2 * len(metadata)
    if units_max > size_max and len(metadata.encode("utf-16-le", "surrogatepass")) // 2 > size_max:
        return True
    return 2 * units_max > METADATA_BYTES_MAX and len(metadata.encode("utf-8", "surrogatepass")) > METADATA_BYTES_MAX


def _respond(
    commit_templates: CommitTemplates,
    request: OffsetCommitRequest,
    errors: Mapping[TopicPartition, ErrorCode],
    call: Call,
) -> Steps[OffsetCommitResponse]:
    response = yield from _response(request, errors)
    if len(errors) <= PARTITIONS_MAX and not any(errors.values()):
        commit_templates.note(request, response, call)
    return response


def _response(request: OffsetCommitRequest, errors: Mapping[TopicPartition, ErrorCode]) -> Steps[OffsetCommitResponse]:
    topics = []
    for topic in request.topics:
        partitions = []
        for number, each in enumerate(topic.partitions):
            if is_pause_due(number):
                yield
            error = errors[TopicPartition(topic.name, each.partition_index)]
            partitions.append(OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error))
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
        if is_pause_due(len(topics)):
            yield
    return OffsetCommitResponse(topics=topics)

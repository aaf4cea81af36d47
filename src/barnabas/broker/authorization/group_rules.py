"""The rules of the APIs with groups and transactional ids."""

from __future__ import annotations

import dataclasses
from typing import Any

from barnabas.broker.authorization.access import ERROR_OF, Check
from barnabas.broker.authorization.rules import (
    ForEach,
    Outcome,
    Partly,
    Refused,
    Row,
    Rule,
    message_of,
    with_results,
)
from barnabas.broker.authorization.topic_rules import named_or_by_id
from barnabas.broker.pipeline.call import Steps, is_pause_due
from barnabas.errors import ErrorCode
from barnabas.model import NO_OFFSET
from barnabas.protocol.messages import (
    describe_groups,
    find_coordinator,
    init_producer_id,
    join_group,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
)
from barnabas.security.acls import Operation, ResourceType

TOPIC = ResourceType.TOPIC
GROUP = ResourceType.GROUP
CLUSTER = ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
FIRST_OFFSET_FETCH_VERSION_WITH_ERROR = 2
FIRST_OFFSET_FETCH_VERSION_WITH_GROUPS = 8
FIRST_JOIN_VERSION_WITH_NULL = 7
FIRST_DESCRIBE_GROUPS_VERSION_WITH_MESSAGE = 6
FIRST_COORDINATOR_VERSION_WITH_KEYS = 4


def group_id(request: Any) -> str:
    group_id: str = request.group_id
    return group_id


def itself(entry: Any, _check: Check) -> str:
    return str(entry)


def refused_join(_request: Any, code: ErrorCode, version: int) -> join_group.JoinGroupResponse:
    protocol_name = None if version >= FIRST_JOIN_VERSION_WITH_NULL else ""
    return join_group.JoinGroupResponse(
        error_code=code, protocol_name=protocol_name, leader="", member_id="", members=[]
    )


def refused_commit_of_topic(entry: Any, code: ErrorCode, _version: int) -> offset_commit.OffsetCommitResponseTopic:
    return offset_commit.OffsetCommitResponseTopic(
        name=entry.name,
        topic_id=entry.topic_id,
        partitions=[
            offset_commit.OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in entry.partitions
        ],
    )


def refused_commit(request: Any, code: ErrorCode, version: int) -> offset_commit.OffsetCommitResponse:
    topics = [refused_commit_of_topic(each, code, version) for each in request.topics]
    return offset_commit.OffsetCommitResponse(topics=topics)


def refused_offset_deletion(entry: Any, code: ErrorCode, _version: int) -> offset_delete.OffsetDeleteResponseTopic:
    return offset_delete.OffsetDeleteResponseTopic(
        name=entry.name,
        partitions=[
            offset_delete.OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in entry.partitions
        ],
    )


def refused_group(entry: str, code: ErrorCode, version: int) -> describe_groups.DescribedGroup:
    message = message_of(code) if version >= FIRST_DESCRIBE_GROUPS_VERSION_WITH_MESSAGE else None
    return describe_groups.DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=entry,
        group_state="",
        protocol_type="",
        protocol_data="",
        members=[],
    )


class DescribeGroups(ForEach):
    """The groups of DescribeGroups, and the allowed operations."""

    def filter(self, check: Check, response: Any) -> Steps[Any]:
        for number, each in enumerate(response.groups):
            if is_pause_due(number):
                yield
            if each.authorized_operations != metadata.OPERATIONS_UNKNOWN:
                each.authorized_operations = check.access.operations(GROUP, each.group_id)
        return response


class ListGroups(Rule):
    """ListGroups: all groups, or those that the client may describe."""

    rows = (Row(Operation.DESCRIBE, CLUSTER, "the cluster, or DESCRIBE on each group", "the list leaves it out"),)

    def filter(self, check: Check, response: Any) -> Steps[Any]:
        if check.access.may(Operation.DESCRIBE, CLUSTER):
            return response
        groups = []
        for number, each in enumerate(response.groups):
            if is_pause_due(number):
                yield
            if check.access.may(Operation.DESCRIBE, GROUP, each.group_id):
                groups.append(each)
        response.groups = groups
        return response


class OffsetFetch(Rule):
    """OffsetFetch: the groups, and the topics of each group. A request for all topics gets those that may be seen."""

    rows = (
        Row(Operation.DESCRIBE, GROUP, "each group", "each group"),
        Row(Operation.DESCRIBE, TOPIC, "each topic", "each topic; a request for all topics leaves it out"),
    )

    def check(self, check: Check, request: Any) -> Steps[Outcome]:
        if check.version < FIRST_OFFSET_FETCH_VERSION_WITH_GROUPS:
            return (yield from self._check_one(check, request))
        groups, refused_groups = [], []
        refused_topics: dict[str, list[Any]] = {}
        for number, group in enumerate(request.groups):
            if is_pause_due(number):
                yield
            if not check.permits(Operation.DESCRIBE, GROUP, group.group_id):
                refused_groups.append(
                    offset_fetch.OffsetFetchResponseGroup(group_id=group.group_id, error_code=ERROR_OF[GROUP])
                )
                continue
            allowed, refused = yield from self._split(check, group.topics)
            if refused and group.group_id not in refused_topics:  # the response contains a repeated group once
                refused_topics[group.group_id] = [self._refused_topics(*each) for each in refused]
            groups.append(dataclasses.replace(group, topics=allowed) if refused else group)
        if not refused_groups and not refused_topics:
            return None

        def merge(response: Any) -> Any:
            for group in response.groups:
                if not group.error_code:
                    group.topics = [*group.topics, *refused_topics.get(group.group_id, ())]
            return with_results(response, "groups", refused_groups)

        return Partly(dataclasses.replace(request, groups=groups), merge)

    def _check_one(self, check: Check, request: Any) -> Steps[Outcome]:
        if not check.permits(Operation.DESCRIBE, GROUP, request.group_id):
            code = ERROR_OF[GROUP]
            topics = []
            if check.version < FIRST_OFFSET_FETCH_VERSION_WITH_ERROR:
                topics = [self._refused_topic(each, code) for each in request.topics or ()]
            return Refused(offset_fetch.OffsetFetchResponse(error_code=code, topics=topics))
        allowed, refused = yield from self._split(check, request.topics)
        if not refused:
            return None
        answers = [self._refused_topic(*each) for each in refused]
        smaller = dataclasses.replace(request, topics=allowed)
        return Partly(smaller, lambda found: with_results(found, "topics", answers))

    def _split(
        self, check: Check, topics: list[Any] | None
    ) -> Steps[tuple[list[Any] | None, list[tuple[Any, ErrorCode]]]]:
        """Return the allowed topics (None for all topics), and the refused topics with their errors."""
        if topics is None:
            return None, []
        allowed: list[Any] = []
        refused: list[tuple[Any, ErrorCode]] = []
        for number, each in enumerate(topics):
            if is_pause_due(number):
                yield
            name = named_or_by_id(each, check) if hasattr(each, "topic_id") else each.name
            if name is None:
                refused.append((each, ErrorCode.UNKNOWN_TOPIC_ID))
            elif check.permits(Operation.DESCRIBE, TOPIC, name):
                allowed.append(each)
            else:
                refused.append((each, ERROR_OF[TOPIC]))
        return allowed, refused

    def _refused_topic(self, entry: Any, code: ErrorCode) -> offset_fetch.OffsetFetchResponseTopic:
        return offset_fetch.OffsetFetchResponseTopic(
            name=entry.name,
            partitions=[
                offset_fetch.OffsetFetchResponsePartition(
                    partition_index=each, committed_offset=NO_OFFSET, error_code=code
                )
                for each in entry.partition_indexes
            ],
        )

    def _refused_topics(self, entry: Any, code: ErrorCode) -> offset_fetch.OffsetFetchResponseTopics:
        return offset_fetch.OffsetFetchResponseTopics(
            name=entry.name,
            topic_id=entry.topic_id,
            partitions=[
                offset_fetch.OffsetFetchResponsePartitions(
                    partition_index=each, committed_offset=NO_OFFSET, error_code=code
                )
                for each in entry.partition_indexes
            ],
        )

    def filter(self, check: Check, response: Any) -> Steps[Any]:
        for found in (response, *response.groups):
            topics = []
            for number, each in enumerate(found.topics):
                if is_pause_due(number):
                    yield
                if not each.name or check.access.may(Operation.DESCRIBE, TOPIC, each.name):
                    topics.append(each)
            found.topics = topics
        return response


KINDS_OF_KEYS = {find_coordinator.GROUP_KEY: GROUP, find_coordinator.TRANSACTION_KEY: TRANSACTIONAL_ID}


class FindCoordinator(Rule):
    """FindCoordinator: DESCRIBE on groups and transactional ids."""

    rows = (
        Row(Operation.DESCRIBE, GROUP, "each group", "each group"),
        Row(Operation.DESCRIBE, TRANSACTIONAL_ID, "each transactional id", "each transactional id"),
    )

    def check(self, check: Check, request: Any) -> Steps[Outcome]:
        kind = KINDS_OF_KEYS.get(request.key_type)
        if kind is None:
            return None
        code = ERROR_OF[kind]
        if check.version < FIRST_COORDINATOR_VERSION_WITH_KEYS:
            if check.permits(Operation.DESCRIBE, kind, request.key):
                return None
            return Refused(
                find_coordinator.FindCoordinatorResponse(
                    error_code=code, error_message=message_of(code), node_id=-1, host="", port=-1
                )
            )
        keys, refused = [], []
        for number, key in enumerate(request.coordinator_keys):
            if is_pause_due(number):
                yield
            if check.permits(Operation.DESCRIBE, kind, key):
                keys.append(key)
            else:
                refused.append(
                    find_coordinator.Coordinator(
                        key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message_of(code)
                    )
                )
        if not refused:
            return None
        if not keys:
            return Refused(find_coordinator.FindCoordinatorResponse(coordinators=refused))
        smaller = dataclasses.replace(request, coordinator_keys=keys)
        return Partly(smaller, lambda found: with_results(found, "coordinators", refused))


class InitProducerId(Rule):
    """InitProducerId: WRITE on the transactional id; else IDEMPOTENT_WRITE on the cluster, or WRITE on any topic."""

    rows = (
        Row(Operation.WRITE, TRANSACTIONAL_ID, "the transactional id", "the whole request"),
        Row(
            Operation.IDEMPOTENT_WRITE,
            CLUSTER,
            "the cluster, or WRITE on any topic, without a transactional id",
            "the whole request",
        ),
    )

    def check(self, check: Check, request: Any) -> Steps[Outcome]:
        if request.transactional_id is not None:
            if check.permits(Operation.WRITE, TRANSACTIONAL_ID, request.transactional_id):
                return None
            code = ERROR_OF[TRANSACTIONAL_ID]
        elif check.access.may_any(Operation.WRITE, TOPIC) or check.permits(Operation.IDEMPOTENT_WRITE, CLUSTER):
            return None
        else:
            code = ERROR_OF[CLUSTER]
        return Refused(init_producer_id.InitProducerIdResponse(error_code=code, producer_epoch=-1))
        yield

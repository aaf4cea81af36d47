"""The table of all APIs: the operations that a request needs, on which resources, and the form of a refusal.

The rules are Kafka's. They differ where Kafka would reveal the existence of a topic: DeleteTopics and Metadata by topic
id give the same response for a topic that the client may not describe as for an unknown id. A topic that the client may
not describe is left out of lists.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from barnabas.broker.authorization.access import ERROR_OF, NO_SUCH_ID, Access, Check
from barnabas.broker.authorization.rules import ForEach, InOrder, Open, Outcome, Partly, Refused, Row, Rule, Whole
from barnabas.broker.pipeline.call import Steps, is_pause_due
from barnabas.broker.settings.resources import ResourceType as ConfigType
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import FINAL_SESSION_EPOCH, NO_FETCH_SESSION, NO_OFFSET
from barnabas.protocol.apis import api_of
from barnabas.protocol.declare import ZERO_UUID
from barnabas.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_user_scram_credentials,
    elect_leaders,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    push_telemetry,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    update_features,
)
from barnabas.security.acls import Operation, ResourceType

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
FIRST_OFFSET_FETCH_VERSION_WITH_ERROR = 2
FIRST_OFFSET_FETCH_VERSION_WITH_GROUPS = 8
FIRST_METADATA_VERSION_WITHOUT_NAMES = 12
FIRST_JOIN_VERSION_WITH_NULL = 7
FIRST_DESCRIBE_GROUPS_VERSION_WITH_MESSAGE = 6
FIRST_COORDINATOR_VERSION_WITH_KEYS = 4
FIRST_ELECTION_VERSION_WITH_ERROR = 1

Refuse = Callable[[Any, ErrorCode, int], Any]


def message_of(code: ErrorCode) -> str:
    """Return the error message of a refused request, or a part of one."""
    if code is ErrorCode.UNKNOWN_TOPIC_ID:
        return NO_SUCH_ID
    return f"{code.name.removesuffix('_FAILED').replace('_', ' ').lower()} failed"


# -- topics --------------------------------------------------------------------------------------------------


def _topic_name(entry: Any, _check: Check) -> str | None:
    name: str | None = entry.name
    return name


def _topic_of_epochs(entry: Any, _check: Check) -> str | None:
    name: str | None = entry.topic
    return name


def _topic_by_either(entry: Any, check: Check) -> str | None:
    """Return the name of a topic that a request identifies by name or by id; None for an unknown id."""
    if entry.topic_id != ZERO_UUID:
        return check.topics.name_of_id(entry.topic_id)
    name: str | None = entry.name
    return name


def _fetched_topic(entry: Any, check: Check) -> str | None:
    if entry.topic_id != ZERO_UUID:
        return check.topics.name_of_id(entry.topic_id)
    name: str | None = entry.topic
    return name


def _refused_produce(entry: produce.TopicProduceData, code: ErrorCode, _version: int) -> produce.TopicProduceResponse:
    return produce.TopicProduceResponse(
        name=entry.name,
        topic_id=entry.topic_id,
        partition_responses=[
            produce.PartitionProduceResponse(
                index=each.index, error_code=code, base_offset=NO_OFFSET, error_message=message_of(code)
            )
            for each in entry.partition_data
        ],
    )


def _refused_transaction(request: produce.ProduceRequest, code: ErrorCode, version: int) -> Any:
    if not request.acks:
        return None
    return produce.ProduceResponse(responses=[_refused_produce(each, code, version) for each in request.topic_data])


class _Produce(ForEach):
    """The topics of Produce. A client that expects no response learns of a refusal by the end of its connection."""

    def outcome(self, request: Any, allowed: list[Any], refused: list[Any]) -> Outcome:
        if not refused or request.acks:
            return super().outcome(request, allowed, refused)
        if not allowed:
            return Refused(None)
        return Partly(dataclasses.replace(request, topic_data=allowed), _end_connection)


def _end_connection(_response: None) -> Any:
    raise ApiError(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "WRITE on a topic of a request with acks=0 is not allowed, or its topic id is unknown",
    )


def _refused_fetch(entry: fetch.FetchTopic, code: ErrorCode, _version: int) -> fetch.FetchableTopicResponse:
    return fetch.FetchableTopicResponse(
        topic=entry.topic,
        topic_id=entry.topic_id,
        partitions=[_refused_partition(each.partition, code) for each in entry.partitions],
    )


def _refused_partition(number: int, code: ErrorCode) -> fetch.PartitionData:
    return fetch.PartitionData(partition_index=number, error_code=code, high_watermark=NO_OFFSET, records=b"")


class _Fetch(ForEach):
    """The topics of Fetch.

    A session contains allowed partitions only. So a request with a refused partition gets no session, and each of its
    repetitions contains all partitions and gets all errors. If the ACLs change, the session ends, because its reader
    has other permissions (`Access.reader`). If they change while a fetch waits, `filter` removes the records.
    """

    filters_late = True

    def outcome(self, request: Any, allowed: list[Any], refused: list[Any]) -> Outcome:
        if not refused:
            return None
        if request.session_epoch > 0:
            # The client sends a full request next.
            return Refused(fetch.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[]))
        outcome = super().outcome(request, allowed, refused)
        if not isinstance(outcome, Partly):
            return outcome
        without_session = dataclasses.replace(
            outcome.request, session_id=NO_FETCH_SESSION, session_epoch=FINAL_SESSION_EPOCH, max_wait_ms=0
        )
        return outcome._replace(request=without_session)

    def filter(self, check: Check, response: Any) -> Steps[Any]:
        """Replace the records of topics that the client may no longer read by an error."""
        for number, each in enumerate(response.responses):
            if is_pause_due(number):
                yield
            name = self.name(each, check)
            if name is None or not check.permits(self.operation, self.kind, name):
                code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ERROR_OF[TOPIC]
                each.partitions = [_refused_partition(one.partition_index, code) for one in each.partitions]
        return response


def _refused_list_offsets(entry: Any, code: ErrorCode, _version: int) -> list_offsets.ListOffsetsTopicResponse:
    return list_offsets.ListOffsetsTopicResponse(
        name=entry.name,
        partitions=[
            list_offsets.ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=code)
            for each in entry.partitions
        ],
    )


def _refused_epochs(entry: Any, code: ErrorCode, _version: int) -> offset_for_leader_epoch.OffsetForLeaderTopicResult:
    return offset_for_leader_epoch.OffsetForLeaderTopicResult(
        topic=entry.topic,
        partitions=[
            offset_for_leader_epoch.LeaderEpochEndOffset(error_code=code, partition=each.partition)
            for each in entry.partitions
        ],
    )


def _refused_deletion_of_records(entry: Any, code: ErrorCode, _version: int) -> delete_records.DeleteRecordsTopicResult:
    return delete_records.DeleteRecordsTopicResult(
        name=entry.name,
        partitions=[
            delete_records.DeleteRecordsPartitionResult(
                partition_index=each.partition_index, low_watermark=NO_OFFSET, error_code=code
            )
            for each in entry.partitions
        ],
    )


def _refused_producers(entry: Any, code: ErrorCode, _version: int) -> describe_producers.TopicResponse:
    return describe_producers.TopicResponse(
        name=entry.name,
        partitions=[
            describe_producers.PartitionResponse(
                partition_index=each, error_code=code, error_message=message_of(code), active_producers=[]
            )
            for each in entry.partition_indexes
        ],
    )


def _refused_partitions(entry: Any, code: ErrorCode, _version: int) -> create_partitions.CreatePartitionsTopicResult:
    return create_partitions.CreatePartitionsTopicResult(
        name=entry.name, error_code=code, error_message=message_of(code)
    )


def _refused_creation(entry: Any, code: ErrorCode, _version: int) -> create_topics.CreatableTopicResult:
    return create_topics.CreatableTopicResult(name=entry.name, error_code=code, error_message=message_of(code))


class _CreateTopics(ForEach):
    """The topics of CreateTopics, and their settings in the response."""

    @property
    def rows(self) -> tuple[Row, ...]:  # type: ignore[override]
        hidden = Row(Operation.DESCRIBE_CONFIGS, TOPIC, "each topic", "the settings in the response")
        return (*super().rows, hidden)

    def filter(self, check: Check, response: Any) -> Steps[Any]:
        for number, each in enumerate(response.topics):
            if is_pause_due(number):
                yield
            if each.error_code == ErrorCode.NONE and not check.access.may(Operation.DESCRIBE_CONFIGS, TOPIC, each.name):
                each.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                each.num_partitions = each.replication_factor = -1
                each.configs = []
        return response


class _DeleteTopics(Rule):
    """The topics of DeleteTopics, in one of two lists."""

    rows = (Row(Operation.DELETE, TOPIC, "each topic", "each topic"),)

    def check(self, check: Check, request: Any) -> Steps[Outcome]:
        refused: list[Any] = []
        topics, names = [], []
        for number, entry in enumerate(request.topics):
            if is_pause_due(number):
                yield
            name = _topic_by_either(entry, check) if entry.name is None else entry.name
            if name is not None and check.permits(Operation.DELETE, TOPIC, name):
                topics.append(entry)
            else:
                refused.append(self._refused(entry.name, entry.topic_id, name, check))
        for number, name in enumerate(request.topic_names):
            if is_pause_due(number):
                yield
            if check.permits(Operation.DELETE, TOPIC, name):
                names.append(name)
            else:
                refused.append(self._refused(name, ZERO_UUID, name, check))
        if not refused:
            return None
        if not topics and not names:
            return Refused(delete_topics.DeleteTopicsResponse(responses=refused))
        return Partly(
            dataclasses.replace(request, topics=topics, topic_names=names),
            lambda found: dataclasses.replace(found, responses=[*found.responses, *refused]),
        )

    def _refused(self, asked: str | None, topic_id: bytes, name: str | None, check: Check) -> Any:
        is_hidden = asked is None and (name is None or not check.access.may(Operation.DESCRIBE, TOPIC, name))
        code = ErrorCode.UNKNOWN_TOPIC_ID if is_hidden else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return delete_topics.DeletableTopicResult(
            name=asked, topic_id=topic_id, error_code=code, error_message=message_of(code)
        )


class _Metadata(Rule):
    """Metadata: the requested topics, the topics to create, the list of all topics, and the allowed operations."""

    rows = (
        Row(Operation.DESCRIBE, TOPIC, "each topic", "each topic; a list leaves it out"),
        Row(Operation.CREATE, TOPIC, "each topic that is created, or CREATE on the cluster", "each topic"),
    )

    def check(self, check: Check, request: Any) -> Steps[Outcome]:
        allowed = []
        refused: dict[tuple[str | None, bytes], metadata.MetadataResponseTopic] = {}
        creates, creates_some = request.allow_auto_topic_creation and check.topics.creates_topics, False
        for number, entry in enumerate(request.topics or ()):
            if is_pause_due(number):
                yield
            is_by_id = entry.name is None or entry.topic_id != ZERO_UUID
            name = check.topics.name_of_id(entry.topic_id) if is_by_id else entry.name
            is_allowed = name is not None and check.permits(Operation.DESCRIBE, TOPIC, name)
            if is_allowed and creates and name is not None and not check.topics.has_topic(name):
                is_allowed = check.access.may(Operation.CREATE, CLUSTER) or check.permits(Operation.CREATE, TOPIC, name)
                creates_some |= is_allowed
            if is_allowed:
                allowed.append(entry)
            else:
                refused[entry.name, entry.topic_id] = self._refused(entry, check, is_by_id=is_by_id)
        # If another client deletes a topic now, the handler must not create the topic without a check.
        ends_creation = creates and not creates_some and bool(allowed)
        if not refused and not ends_creation:
            return None
        # Version 0 without topics requests all topics, so an unknown id stands for no topic.
        asked = allowed or [metadata.MetadataRequestTopic(name=None, topic_id=ZERO_UUID)]
        return Partly(
            dataclasses.replace(
                request, topics=asked, allow_auto_topic_creation=request.allow_auto_topic_creation and creates_some
            ),
            lambda found: dataclasses.replace(found, topics=[*(found.topics if allowed else ()), *refused.values()]),
        )

    def _refused(self, entry: Any, check: Check, *, is_by_id: bool) -> metadata.MetadataResponseTopic:
        if not is_by_id:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return metadata.MetadataResponseTopic(error_code=code, name=entry.name, partitions=[])
        return metadata.MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID,
            name=None if check.version >= FIRST_METADATA_VERSION_WITHOUT_NAMES else "",
            topic_id=entry.topic_id,
            partitions=[],
        )

    def filter(self, check: Check, response: Any) -> Steps[Any]:
        topics = []
        for number, each in enumerate(response.topics):
            if is_pause_due(number):
                yield
            if each.error_code not in WITH_METADATA:
                topics.append(each)
            elif check.access.may(Operation.DESCRIBE, TOPIC, each.name):
                if each.topic_authorized_operations != metadata.OPERATIONS_UNKNOWN:
                    each.topic_authorized_operations = check.access.operations(TOPIC, each.name)
                topics.append(each)
        response.topics = topics
        if response.cluster_authorized_operations != metadata.OPERATIONS_UNKNOWN:
            response.cluster_authorized_operations = _cluster_operations(check.access)
        return response


WITH_METADATA = frozenset({ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE})


def _cluster_operations(access: Access) -> int:
    return access.operations(CLUSTER) if access.may(Operation.DESCRIBE, CLUSTER) else 0


class _DescribeCluster(Open):
    """DescribeCluster: everyone sees the brokers, because clients need their addresses."""

    def filter(self, check: Check, response: Any) -> Steps[Any]:
        if response.cluster_authorized_operations != metadata.OPERATIONS_UNKNOWN:
            response.cluster_authorized_operations = _cluster_operations(check.access)
        return response
        yield


class _DescribeTopicPartitions(ForEach):
    """The topics of DescribeTopicPartitions. A request for all topics becomes one for the topics that may be seen."""

    def check(self, check: Check, request: Any) -> Steps[Outcome]:
        if request.topics:
            return (yield from super().check(check, request))
        seen = []
        for number, name in enumerate(list(check.topics.names())):
            if is_pause_due(number):
                yield
            if check.access.may(Operation.DESCRIBE, TOPIC, name):
                seen.append(describe_topic_partitions.TopicRequest(name=name))
        if not seen:
            return Refused(describe_topic_partitions.DescribeTopicPartitionsResponse(topics=[]))
        return Partly(dataclasses.replace(request, topics=seen), lambda response: response)

    def filter(self, check: Check, response: Any) -> Steps[Any]:
        for number, each in enumerate(response.topics):
            if is_pause_due(number):
                yield
            if each.error_code == ErrorCode.NONE:
                each.topic_authorized_operations = check.access.operations(TOPIC, each.name)
        return response


def _refused_description(entry: Any, code: ErrorCode, _version: int) -> Any:
    return describe_topic_partitions.DescribeTopicPartitionsResponseTopic(
        error_code=code, name=entry.name, partitions=[]
    )


# -- groups --------------------------------------------------------------------------------------------------


def _group_id(request: Any) -> str:
    group_id: str = request.group_id
    return group_id


def _itself(entry: Any, _check: Check) -> str:
    return str(entry)


def _refused_join(_request: Any, code: ErrorCode, version: int) -> join_group.JoinGroupResponse:
    protocol_name = None if version >= FIRST_JOIN_VERSION_WITH_NULL else ""
    return join_group.JoinGroupResponse(
        error_code=code, protocol_name=protocol_name, leader="", member_id="", members=[]
    )


def _refused_commit_of_topic(entry: Any, code: ErrorCode, _version: int) -> offset_commit.OffsetCommitResponseTopic:
    return offset_commit.OffsetCommitResponseTopic(
        name=entry.name,
        topic_id=entry.topic_id,
        partitions=[
            offset_commit.OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in entry.partitions
        ],
    )


def _refused_commit(request: Any, code: ErrorCode, version: int) -> offset_commit.OffsetCommitResponse:
    topics = [_refused_commit_of_topic(each, code, version) for each in request.topics]
    return offset_commit.OffsetCommitResponse(topics=topics)


def _refused_offset_deletion(entry: Any, code: ErrorCode, _version: int) -> offset_delete.OffsetDeleteResponseTopic:
    return offset_delete.OffsetDeleteResponseTopic(
        name=entry.name,
        partitions=[
            offset_delete.OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in entry.partitions
        ],
    )


def _refused_group(entry: str, code: ErrorCode, version: int) -> describe_groups.DescribedGroup:
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


class _DescribeGroups(ForEach):
    """The groups of DescribeGroups, and the allowed operations."""

    def filter(self, check: Check, response: Any) -> Steps[Any]:
        for number, each in enumerate(response.groups):
            if is_pause_due(number):
                yield
            if each.authorized_operations != metadata.OPERATIONS_UNKNOWN:
                each.authorized_operations = check.access.operations(GROUP, each.group_id)
        return response


class _ListGroups(Rule):
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


class _OffsetFetch(Rule):
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
            return dataclasses.replace(response, groups=[*response.groups, *refused_groups])

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
        return Partly(
            dataclasses.replace(request, topics=allowed),
            lambda found: dataclasses.replace(found, topics=[*found.topics, *answers]),
        )

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
            name = _topic_by_either(each, check) if hasattr(each, "topic_id") else each.name
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


class _FindCoordinator(Rule):
    """FindCoordinator: DESCRIBE on groups and transactional ids."""

    rows = (
        Row(Operation.DESCRIBE, GROUP, "each group", "each group"),
        Row(Operation.DESCRIBE, TRANSACTIONAL_ID, "each transactional id", "each transactional id"),
    )

    def check(self, check: Check, request: Any) -> Steps[Outcome]:
        kind = {find_coordinator.GROUP_KEY: GROUP, find_coordinator.TRANSACTION_KEY: TRANSACTIONAL_ID}.get(
            request.key_type
        )
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
        return Partly(
            dataclasses.replace(request, coordinator_keys=keys),
            lambda found: dataclasses.replace(found, coordinators=[*found.coordinators, *refused]),
        )


class _InitProducerId(Rule):
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


# -- configurations ------------------------------------------------------------------------------------------


class _Configs(Rule):
    """The resources of Describe-, Alter- and IncrementalAlterConfigs. Each has its own type.

    :param refused: creates the entry of the response, from the entry of the request, the error and the version.
    :param respond: creates a response with these entries.
    """

    def __init__(
        self, operation: Operation, results: str, refused: Refuse, respond: Callable[[list[Any]], Any]
    ) -> None:
        self._operation = operation
        self._results = results
        self._refused = refused
        self._respond = respond
        self.rows = tuple(
            Row(operation, kind, resource, "each resource")
            for kind, resource in ((TOPIC, "each topic"), (GROUP, "each group"), (CLUSTER, "the cluster, for brokers"))
        )

    def check(self, check: Check, request: Any) -> Steps[Outcome]:
        allowed, refused = [], []
        for number, entry in enumerate(request.resources):
            if is_pause_due(number):
                yield
            kind, name = self._resource(entry)
            is_allowed = (
                check.permits(self._operation, kind) if name is None else check.permits(self._operation, kind, name)
            )
            if is_allowed:
                allowed.append(entry)
            else:
                refused.append(self._refused(entry, ERROR_OF[kind], check.version))
        if not refused:
            return None
        if not allowed:
            return Refused(self._respond(refused))
        return Partly(
            dataclasses.replace(request, resources=allowed),
            lambda found: dataclasses.replace(found, **{self._results: [*getattr(found, self._results), *refused]}),
        )

    def _resource(self, entry: Any) -> tuple[ResourceType, str | None]:
        if entry.resource_type == ConfigType.TOPIC:
            return TOPIC, entry.resource_name
        if entry.resource_type == ConfigType.GROUP:
            return GROUP, entry.resource_name
        return CLUSTER, None  # brokers, their loggers, and types that the handler refuses


def _refused_config(entry: Any, code: ErrorCode, _version: int) -> describe_configs.DescribeConfigsResult:
    return describe_configs.DescribeConfigsResult(
        error_code=code,
        error_message=message_of(code),
        resource_type=entry.resource_type,
        resource_name=entry.resource_name,
        configs=[],
    )


def _refused_alteration(entry: Any, code: ErrorCode, _version: int) -> alter_configs.AlterConfigsResourceResponse:
    return alter_configs.AlterConfigsResourceResponse(
        error_code=code,
        error_message=message_of(code),
        resource_type=entry.resource_type,
        resource_name=entry.resource_name,
    )


# -- the cluster ---------------------------------------------------------------------------------------------


def _cluster(operation: Operation, refuse: Refuse) -> Whole:
    return Whole(operation, CLUSTER, refuse)


def _refused_elections(request: Any, code: ErrorCode, version: int) -> elect_leaders.ElectLeadersResponse:
    return elect_leaders.ElectLeadersResponse(
        error_code=code if version >= FIRST_ELECTION_VERSION_WITH_ERROR else ErrorCode.NONE,
        replica_election_results=[
            elect_leaders.ReplicaElectionResult(
                topic=each.topic,
                partition_result=[
                    elect_leaders.PartitionResult(partition_id=number, error_code=code, error_message=message_of(code))
                    for number in each.partitions
                ],
            )
            for each in request.topic_partitions or ()
        ],
    )


def _refused_moves(request: Any, code: ErrorCode, _version: int) -> alter_replica_log_dirs.AlterReplicaLogDirsResponse:
    return alter_replica_log_dirs.AlterReplicaLogDirsResponse(
        results=[
            alter_replica_log_dirs.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    alter_replica_log_dirs.AlterReplicaLogDirPartitionResult(partition_index=number, error_code=code)
                    for number in topic.partitions
                ],
            )
            for folder in request.dirs
            for topic in folder.topics
        ]
    )


def _refused_users(
    request: Any, code: ErrorCode, _version: int
) -> alter_user_scram_credentials.AlterUserScramCredentialsResponse:
    users = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    return alter_user_scram_credentials.AlterUserScramCredentialsResponse(
        results=[
            alter_user_scram_credentials.AlterUserScramCredentialsResult(
                user=user, error_code=code, error_message=message_of(code)
            )
            for user in users
        ]
    )


def _refused_quotas(request: Any, code: ErrorCode, _version: int) -> alter_client_quotas.AlterClientQuotasResponse:
    return alter_client_quotas.AlterClientQuotasResponse(
        entries=[
            alter_client_quotas.QuotaAlterationResult(
                error_code=code, error_message=message_of(code), entity=each.entity
            )
            for each in request.entries
        ]
    )


def _refused_acls(request: Any, code: ErrorCode, _version: int) -> create_acls.CreateAclsResponse:
    result = create_acls.AclCreationResult(error_code=code, error_message=message_of(code))
    return create_acls.CreateAclsResponse(results=[result] * len(request.creations))


def _refused_filters(request: Any, code: ErrorCode, _version: int) -> delete_acls.DeleteAclsResponse:
    result = delete_acls.DeleteAclsFilterResult(error_code=code, error_message=message_of(code), matching_acls=[])
    return delete_acls.DeleteAclsResponse(filter_results=[result] * len(request.filters))


# -- the table -----------------------------------------------------------------------------------------------

RULES: Mapping[type, Rule] = {
    produce.ProduceRequest: InOrder(
        Whole(
            Operation.WRITE,
            TRANSACTIONAL_ID,
            _refused_transaction,
            name=lambda request: request.transactional_id,
            resource="the transactional id, if there is one",
        ),
        _Produce(
            "topic_data",
            Operation.WRITE,
            TOPIC,
            _topic_by_either,
            "responses",
            _refused_produce,
            lambda: produce.ProduceResponse(responses=[]),
            refusal="each topic; with acks=0 the connection ends",
        ),
    ),
    fetch.FetchRequest: _Fetch(
        "topics",
        Operation.READ,
        TOPIC,
        _fetched_topic,
        "responses",
        _refused_fetch,
        lambda: fetch.FetchResponse(responses=[]),
    ),
    list_offsets.ListOffsetsRequest: ForEach(
        "topics",
        Operation.DESCRIBE,
        TOPIC,
        _topic_name,
        "topics",
        _refused_list_offsets,
        lambda: list_offsets.ListOffsetsResponse(topics=[]),
    ),
    metadata.MetadataRequest: _Metadata(),
    offset_commit.OffsetCommitRequest: InOrder(
        Whole(Operation.READ, GROUP, _refused_commit, name=_group_id),
        ForEach(
            "topics",
            Operation.READ,
            TOPIC,
            _topic_by_either,
            "topics",
            _refused_commit_of_topic,
            lambda: offset_commit.OffsetCommitResponse(topics=[]),
        ),
    ),
    offset_fetch.OffsetFetchRequest: _OffsetFetch(),
    find_coordinator.FindCoordinatorRequest: _FindCoordinator(),
    join_group.JoinGroupRequest: Whole(Operation.READ, GROUP, _refused_join, name=_group_id),
    heartbeat.HeartbeatRequest: Whole(
        Operation.READ, GROUP, lambda _r, code, _v: heartbeat.HeartbeatResponse(error_code=code), name=_group_id
    ),
    leave_group.LeaveGroupRequest: Whole(
        Operation.READ, GROUP, lambda _r, code, _v: leave_group.LeaveGroupResponse(error_code=code), name=_group_id
    ),
    sync_group.SyncGroupRequest: Whole(
        Operation.READ,
        GROUP,
        lambda _r, code, _v: sync_group.SyncGroupResponse(error_code=code, assignment=b""),
        name=_group_id,
    ),
    describe_groups.DescribeGroupsRequest: _DescribeGroups(
        "groups",
        Operation.DESCRIBE,
        GROUP,
        _itself,
        "groups",
        _refused_group,
        lambda: describe_groups.DescribeGroupsResponse(groups=[]),
    ),
    list_groups.ListGroupsRequest: _ListGroups(),
    sasl_handshake.SaslHandshakeRequest: Open(),
    api_versions.ApiVersionsRequest: Open(),
    create_topics.CreateTopicsRequest: _CreateTopics(
        "topics",
        Operation.CREATE,
        TOPIC,
        _topic_name,
        "topics",
        _refused_creation,
        lambda: create_topics.CreateTopicsResponse(topics=[]),
        unless=Operation.CREATE,
    ),
    delete_topics.DeleteTopicsRequest: _DeleteTopics(),
    delete_records.DeleteRecordsRequest: ForEach(
        "topics",
        Operation.DELETE,
        TOPIC,
        _topic_name,
        "topics",
        _refused_deletion_of_records,
        lambda: delete_records.DeleteRecordsResponse(topics=[]),
    ),
    init_producer_id.InitProducerIdRequest: _InitProducerId(),
    offset_for_leader_epoch.OffsetForLeaderEpochRequest: ForEach(
        "topics",
        Operation.DESCRIBE,
        TOPIC,
        _topic_of_epochs,
        "topics",
        _refused_epochs,
        lambda: offset_for_leader_epoch.OffsetForLeaderEpochResponse(topics=[]),
    ),
    describe_acls.DescribeAclsRequest: _cluster(
        Operation.DESCRIBE,
        lambda _r, code, _v: describe_acls.DescribeAclsResponse(
            error_code=code, error_message=message_of(code), resources=[]
        ),
    ),
    create_acls.CreateAclsRequest: _cluster(Operation.ALTER, _refused_acls),
    delete_acls.DeleteAclsRequest: _cluster(Operation.ALTER, _refused_filters),
    describe_configs.DescribeConfigsRequest: _Configs(
        Operation.DESCRIBE_CONFIGS,
        "results",
        _refused_config,
        lambda results: describe_configs.DescribeConfigsResponse(results=results),
    ),
    alter_configs.AlterConfigsRequest: _Configs(
        Operation.ALTER_CONFIGS,
        "responses",
        _refused_alteration,
        lambda responses: alter_configs.AlterConfigsResponse(responses=responses),
    ),
    incremental_alter_configs.IncrementalAlterConfigsRequest: _Configs(
        Operation.ALTER_CONFIGS,
        "responses",
        _refused_alteration,
        lambda responses: incremental_alter_configs.IncrementalAlterConfigsResponse(responses=responses),
    ),
    alter_replica_log_dirs.AlterReplicaLogDirsRequest: _cluster(Operation.ALTER, _refused_moves),
    describe_log_dirs.DescribeLogDirsRequest: _cluster(
        Operation.DESCRIBE,
        lambda _r, code, _v: describe_log_dirs.DescribeLogDirsResponse(error_code=code, results=[]),
    ),
    sasl_authenticate.SaslAuthenticateRequest: Open(),
    create_partitions.CreatePartitionsRequest: ForEach(
        "topics",
        Operation.ALTER,
        TOPIC,
        _topic_name,
        "results",
        _refused_partitions,
        lambda: create_partitions.CreatePartitionsResponse(results=[]),
    ),
    delete_groups.DeleteGroupsRequest: ForEach(
        "groups_names",
        Operation.DELETE,
        GROUP,
        _itself,
        "results",
        lambda entry, code, _v: delete_groups.DeletableGroupResult(group_id=entry, error_code=code),
        lambda: delete_groups.DeleteGroupsResponse(results=[]),
    ),
    elect_leaders.ElectLeadersRequest: _cluster(Operation.ALTER, _refused_elections),
    alter_partition_reassignments.AlterPartitionReassignmentsRequest: _cluster(
        Operation.ALTER,
        lambda _r, code, _v: alter_partition_reassignments.AlterPartitionReassignmentsResponse(
            error_code=code, error_message=message_of(code), responses=[]
        ),
    ),
    list_partition_reassignments.ListPartitionReassignmentsRequest: _cluster(
        Operation.DESCRIBE,
        lambda _r, code, _v: list_partition_reassignments.ListPartitionReassignmentsResponse(
            error_code=code, error_message=message_of(code), topics=[]
        ),
    ),
    offset_delete.OffsetDeleteRequest: InOrder(
        Whole(
            Operation.DELETE,
            GROUP,
            lambda _r, code, _v: offset_delete.OffsetDeleteResponse(error_code=code, topics=[]),
            name=_group_id,
        ),
        ForEach(
            "topics",
            Operation.READ,
            TOPIC,
            _topic_name,
            "topics",
            _refused_offset_deletion,
            lambda: offset_delete.OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=[]),
        ),
    ),
    describe_client_quotas.DescribeClientQuotasRequest: _cluster(
        Operation.DESCRIBE_CONFIGS,
        lambda _r, code, _v: describe_client_quotas.DescribeClientQuotasResponse(
            error_code=code, error_message=message_of(code), entries=None
        ),
    ),
    alter_client_quotas.AlterClientQuotasRequest: _cluster(Operation.ALTER_CONFIGS, _refused_quotas),
    describe_user_scram_credentials.DescribeUserScramCredentialsRequest: _cluster(
        Operation.DESCRIBE,
        lambda _r, code, _v: describe_user_scram_credentials.DescribeUserScramCredentialsResponse(
            error_code=code, error_message=message_of(code)
        ),
    ),
    alter_user_scram_credentials.AlterUserScramCredentialsRequest: _cluster(Operation.ALTER, _refused_users),
    describe_quorum.DescribeQuorumRequest: _cluster(
        Operation.DESCRIBE,
        lambda _r, code, _v: describe_quorum.DescribeQuorumResponse(error_code=code, topics=[]),
    ),
    update_features.UpdateFeaturesRequest: _cluster(
        Operation.ALTER,
        lambda _r, code, _v: update_features.UpdateFeaturesResponse(error_code=code, error_message=message_of(code)),
    ),
    describe_cluster.DescribeClusterRequest: _DescribeCluster(),
    describe_producers.DescribeProducersRequest: ForEach(
        "topics",
        Operation.READ,
        TOPIC,
        _topic_name,
        "topics",
        _refused_producers,
        lambda: describe_producers.DescribeProducersResponse(topics=[]),
    ),
    get_telemetry_subscriptions.GetTelemetrySubscriptionsRequest: Open(),
    push_telemetry.PushTelemetryRequest: Open(),
    list_config_resources.ListConfigResourcesRequest: _cluster(
        Operation.DESCRIBE_CONFIGS,
        lambda _r, code, _v: list_config_resources.ListConfigResourcesResponse(error_code=code, config_resources=[]),
    ),
    describe_topic_partitions.DescribeTopicPartitionsRequest: _DescribeTopicPartitions(
        "topics",
        Operation.DESCRIBE,
        TOPIC,
        _topic_name,
        "topics",
        _refused_description,
        lambda: describe_topic_partitions.DescribeTopicPartitionsResponse(topics=[]),
        refusal="each topic; a list leaves it out",
    ),
}
"""The rules of the APIs for clients, by request."""


BETWEEN_BROKERS = _cluster(Operation.CLUSTER_ACTION, lambda _request, _code, _version: None)
"""The rule of all APIs between brokers: a refusal ends the connection."""


def rules_by_key(rules: Mapping[type, Rule]) -> dict[int, Rule]:
    """Return rules by API key."""
    return {api_of(request).key: rule for request, rule in rules.items()}


def rules_between_brokers(served: Iterable[int]) -> dict[int, Rule]:
    """Return the rules of the APIs for brokers, by API key. An authentication needs no permission."""
    opened = {key for key, rule in rules_by_key(RULES).items() if type(rule) is Open}
    return {key: Open() if key in opened else BETWEEN_BROKERS for key in served}

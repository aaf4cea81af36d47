"""The rules of the APIs with topics."""

from __future__ import annotations

import dataclasses
from typing import Any

from barnabas.broker.authorization.access import ERROR_OF, Access, Check
from barnabas.broker.authorization.rules import (
    ForEach,
    Open,
    Outcome,
    Partly,
    Refused,
    Row,
    Rule,
    message_of,
    with_results,
)
from barnabas.broker.pipeline.call import Steps, is_pause_due
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import FINAL_SESSION_EPOCH, NO_FETCH_SESSION, NO_OFFSET
from barnabas.protocol.declare import ZERO_UUID
from barnabas.protocol.messages import (
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_producers,
    describe_topic_partitions,
    fetch,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from barnabas.security.acls import Operation, ResourceType

TOPIC = ResourceType.TOPIC
CLUSTER = ResourceType.CLUSTER
FIRST_METADATA_VERSION_WITHOUT_NAMES = 12


def named(entry: Any, _check: Check) -> str | None:
    """Return the name of the topic of an entry."""
    name: str | None = entry.name
    return name


def named_or_by_id(entry: Any, check: Check) -> str | None:
    """Return the name of a topic that a request identifies by name or by id; None for an unknown id."""
    return check.topics.name_of_id(entry.topic_id) if entry.topic_id != ZERO_UUID else named(entry, check)


def called_topic(entry: Any, _check: Check) -> str | None:
    """Return the name of the topic of an entry of Fetch or OffsetForLeaderEpoch, whose field has another name."""
    name: str | None = entry.topic
    return name


def called_topic_or_by_id(entry: Any, check: Check) -> str | None:
    """Return the name of a topic that a request of Fetch identifies by name or by id; None for an unknown id."""
    return check.topics.name_of_id(entry.topic_id) if entry.topic_id != ZERO_UUID else called_topic(entry, check)


def refused_produce(entry: produce.TopicProduceData, code: ErrorCode, _version: int) -> produce.TopicProduceResponse:
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


def refused_transaction(request: produce.ProduceRequest, code: ErrorCode, version: int) -> Any:
    if not request.acks:
        return None
    return produce.ProduceResponse(responses=[refused_produce(each, code, version) for each in request.topic_data])


class Produce(ForEach):
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


def refused_fetch(entry: fetch.FetchTopic, code: ErrorCode, _version: int) -> fetch.FetchableTopicResponse:
    return fetch.FetchableTopicResponse(
        topic=entry.topic,
        topic_id=entry.topic_id,
        partitions=[_refused_partition(each.partition, code) for each in entry.partitions],
    )


def _refused_partition(number: int, code: ErrorCode) -> fetch.PartitionData:
    return fetch.PartitionData(partition_index=number, error_code=code, high_watermark=NO_OFFSET, records=b"")


class Fetch(ForEach):
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


def refused_list_offsets(entry: Any, code: ErrorCode, _version: int) -> list_offsets.ListOffsetsTopicResponse:
    return list_offsets.ListOffsetsTopicResponse(
        name=entry.name,
        partitions=[
            list_offsets.ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=code)
            for each in entry.partitions
        ],
    )


def refused_epochs(entry: Any, code: ErrorCode, _version: int) -> offset_for_leader_epoch.OffsetForLeaderTopicResult:
    return offset_for_leader_epoch.OffsetForLeaderTopicResult(
        topic=entry.topic,
        partitions=[
            offset_for_leader_epoch.LeaderEpochEndOffset(error_code=code, partition=each.partition)
            for each in entry.partitions
        ],
    )


def refused_deletion_of_records(entry: Any, code: ErrorCode, _version: int) -> delete_records.DeleteRecordsTopicResult:
    return delete_records.DeleteRecordsTopicResult(
        name=entry.name,
        partitions=[
            delete_records.DeleteRecordsPartitionResult(
                partition_index=each.partition_index, low_watermark=NO_OFFSET, error_code=code
            )
            for each in entry.partitions
        ],
    )


def refused_producers(entry: Any, code: ErrorCode, _version: int) -> describe_producers.TopicResponse:
    return describe_producers.TopicResponse(
        name=entry.name,
        partitions=[
            describe_producers.PartitionResponse(
                partition_index=each, error_code=code, error_message=message_of(code), active_producers=[]
            )
            for each in entry.partition_indexes
        ],
    )


def refused_partitions(entry: Any, code: ErrorCode, _version: int) -> create_partitions.CreatePartitionsTopicResult:
    return create_partitions.CreatePartitionsTopicResult(
        name=entry.name, error_code=code, error_message=message_of(code)
    )


def refused_creation(entry: Any, code: ErrorCode, _version: int) -> create_topics.CreatableTopicResult:
    return create_topics.CreatableTopicResult(name=entry.name, error_code=code, error_message=message_of(code))


class CreateTopics(ForEach):
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


class DeleteTopics(Rule):
    """The topics of DeleteTopics, in one of two lists."""

    rows = (Row(Operation.DELETE, TOPIC, "each topic", "each topic"),)

    def check(self, check: Check, request: Any) -> Steps[Outcome]:
        refused: list[Any] = []
        topics, names = [], []
        for number, entry in enumerate(request.topics):
            if is_pause_due(number):
                yield
            name = named_or_by_id(entry, check) if entry.name is None else entry.name
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
        smaller = dataclasses.replace(request, topics=topics, topic_names=names)
        return Partly(smaller, lambda found: with_results(found, "responses", refused))

    def _refused(self, asked: str | None, topic_id: bytes, name: str | None, check: Check) -> Any:
        is_hidden = asked is None and (name is None or not check.access.may(Operation.DESCRIBE, TOPIC, name))
        code = ErrorCode.UNKNOWN_TOPIC_ID if is_hidden else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return delete_topics.DeletableTopicResult(
            name=asked, topic_id=topic_id, error_code=code, error_message=message_of(code)
        )


class Metadata(Rule):
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


class DescribeCluster(Open):
    """DescribeCluster: everyone sees the brokers, because clients need their addresses."""

    def filter(self, check: Check, response: Any) -> Steps[Any]:
        if response.cluster_authorized_operations != metadata.OPERATIONS_UNKNOWN:
            response.cluster_authorized_operations = _cluster_operations(check.access)
        return response
        yield


class DescribeTopicPartitions(ForEach):
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


def refused_description(entry: Any, code: ErrorCode, _version: int) -> Any:
    return describe_topic_partitions.DescribeTopicPartitionsResponseTopic(
        error_code=code, name=entry.name, partitions=[]
    )

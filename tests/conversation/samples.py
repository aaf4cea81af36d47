"""Requests to every API in every version: the usual ones, and some that are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.protocol.apis import Api, declared_apis
from barnabas.protocol.declare import fields_of
from barnabas.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest
from barnabas.protocol.messages.describe_producers import TopicRequest as ProducersTopic
from barnabas.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from barnabas.protocol.messages.describe_topic_partitions import TopicRequest as PartitionsTopic
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementallyAlterableConfig,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.records import BatchBuilder

TIME_MS = 1_700_000_000_000
"""Of the records that are sent; it is the broker's time at the start."""
UNKNOWN_ID = bytes.fromhex("0123456789abcdef0123456789abcdef")


def made(cls: type, version: int, **values: Any) -> Any:
    """Make a message or struct of those fields that the version has."""
    present = {spec.name for spec in fields_of(cls) if spec.present(version)}
    return cls(**{name: value for name, value in values.items() if name in present})


def batch(*values: bytes, producer: tuple[int, int, int] = (-1, -1, -1), time_ms: int = TIME_MS) -> bytes:
    """Return a record batch, not compressed.

    :param producer: id, epoch and first sequence number.
    """
    builder = BatchBuilder()
    for value in values:
        builder.append(time_ms, None, value)
    return bytes(builder.build(*producer))


def keyed_batch(pairs: Iterable[tuple[bytes | None, bytes | None]]) -> bytes:
    builder = BatchBuilder()
    for key, value in pairs:
        builder.append(TIME_MS, key, value, [("header", b"1")])
    return bytes(builder.build())


@dataclass
class Names:
    """What requests name: topics with their ids, members of groups, producers."""

    ids: dict[str, bytes] = field(default_factory=dict)
    member_id: str = "member-unknown"
    generation: int = 1
    producer_id: int = -1
    """Of an idempotent producer; -1 until one is known."""
    created: int = 0

    def topic_id(self, name: str) -> bytes:
        return self.ids.get(name, UNKNOWN_ID)

    def new_topic(self) -> str:
        self.created += 1
        return f"new-{self.created:04}"


# --- the APIs in which most of a broker's work is ----------------------------------------------------------


def produce(
    names: Names, version: int, parts: Sequence[tuple[str, int, bytes | None]], acks: int = 1, timeout_ms: int = 1_000
) -> ProduceRequest:
    """Return a request to append batches to partitions, each given by topic, partition and bytes."""
    topics: dict[str, list[PartitionProduceData]] = {}
    for topic, partition, records in parts:
        topics.setdefault(topic, []).append(PartitionProduceData(index=partition, records=records))
    return made(
        ProduceRequest,
        version,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            made(TopicProduceData, version, name=name, topic_id=names.topic_id(name), partition_data=data)
            for name, data in topics.items()
        ],
    )


def fetch(
    names: Names,
    version: int,
    parts: Sequence[tuple[str, int, int]],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 16,
    **values: Any,
) -> FetchRequest:
    """Return a request to read partitions, each given by topic, partition and offset."""
    topics: dict[str, list[FetchPartition]] = {}
    for topic, partition, offset in parts:
        topics.setdefault(topic, []).append(
            FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        )
    return made(
        FetchRequest,
        version,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[
            made(FetchTopic, version, topic=name, topic_id=names.topic_id(name), partitions=partitions)
            for name, partitions in topics.items()
        ],
        **values,
    )


def metadata(
    names: Names, version: int, topics: Sequence[str] | None, *, creates: bool = False, by_id: bool = False
) -> MetadataRequest:
    if topics is None:
        asked = [] if version == 0 else None
    else:
        asked = [
            made(MetadataRequestTopic, version, name=None, topic_id=names.topic_id(name))
            if by_id
            else made(MetadataRequestTopic, version, name=name)
            for name in topics
        ]
    return made(
        MetadataRequest,
        version,
        topics=asked,
        allow_auto_topic_creation=creates,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )


def commit(
    names: Names,
    version: int,
    group: str,
    parts: Sequence[tuple[str, int, int]],
    *,
    generation: int = -1,
    member_id: str = "",
    text: str | None = "",
    **values: Any,
) -> OffsetCommitRequest:
    """Return a request to commit offsets, each given by topic, partition and offset."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for topic, partition, offset in parts:
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata=text)
        )
    return made(
        OffsetCommitRequest,
        version,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[
            made(OffsetCommitRequestTopic, version, name=name, topic_id=names.topic_id(name), partitions=partitions)
            for name, partitions in topics.items()
        ],
        **values,
    )


def offset_fetch(
    names: Names, version: int, group: str, topics: Sequence[tuple[str, Sequence[int]]] | None
) -> OffsetFetchRequest:
    if version < 8:
        asked = (
            None
            if topics is None
            else [OffsetFetchRequestTopic(name=name, partition_indexes=[*indexes]) for name, indexes in topics]
        )
        if asked is None and version < 2:
            asked = []
        return made(OffsetFetchRequest, version, group_id=group, topics=asked)
    asked_by_group = (
        None
        if topics is None
        else [
            made(
                OffsetFetchRequestTopics,
                version,
                name=name,
                topic_id=names.topic_id(name),
                partition_indexes=[*indexes],
            )
            for name, indexes in topics
        ]
    )
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=asked_by_group)])


def join(
    version: int,
    group: str,
    member_id: str = "",
    *,
    instance_id: str | None = None,
    session_timeout_ms: int = 10_000,
    rebalance_timeout_ms: int = 3_000,
    protocols: Sequence[tuple[str, bytes]] = (("range", b"wants"),),
    protocol_type: str = "consumer",
) -> JoinGroupRequest:
    return made(
        JoinGroupRequest,
        version,
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
        reason="the script says so",
    )


def sync(
    version: int,
    group: str,
    generation: int,
    member_id: str,
    assignments: Sequence[tuple[str, bytes]] = (),
    *,
    instance_id: str | None = None,
) -> SyncGroupRequest:
    return made(
        SyncGroupRequest,
        version,
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=name, assignment=data) for name, data in assignments],
    )


def heartbeat(
    version: int, group: str, generation: int, member_id: str, instance_id: str | None = None
) -> HeartbeatRequest:
    return made(
        HeartbeatRequest,
        version,
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
    )


def leave(version: int, group: str, *members: tuple[str, str | None]) -> LeaveGroupRequest:
    """Return a request of members to leave, each given by id and instance id."""
    return made(
        LeaveGroupRequest,
        version,
        group_id=group,
        member_id=members[0][0],
        members=[
            made(MemberIdentity, version, member_id=member_id, group_instance_id=instance_id, reason="done")
            for member_id, instance_id in members
        ],
    )


def list_offsets(version: int, parts: Sequence[tuple[str, int, int]], isolation_level: int = 0) -> ListOffsetsRequest:
    """Return a request for offsets, each given by topic, partition and timestamp."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for topic, partition, timestamp in parts:
        topics.setdefault(topic, []).append(ListOffsetsPartition(partition_index=partition, timestamp=timestamp))
    return made(
        ListOffsetsRequest,
        version,
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        timeout_ms=1_000,
    )


def create_topics(version: int, *topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return made(CreateTopicsRequest, version, topics=[*topics], timeout_ms=5_000, validate_only=validate_only)


def new_topic(
    name: str, assignments: Sequence[Sequence[int]] = (), count: int = -1, configs: dict[str, str] | None = None
) -> CreatableTopic:
    """Return a topic to be made.

    :param assignments: the brokers of each partition; none if the broker chooses.
    """
    return CreatableTopic(
        name=name,
        num_partitions=-1 if assignments else count,
        replication_factor=-1 if assignments else 1,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=[*brokers])
            for number, brokers in enumerate(assignments)
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def delete_topics(names: Names, version: int, topics: Sequence[str], *, by_id: bool = False) -> DeleteTopicsRequest:
    states = [
        DeleteTopicState(name=None, topic_id=names.topic_id(name)) if by_id else DeleteTopicState(name=name)
        for name in topics
    ]
    return made(DeleteTopicsRequest, version, topics=states, topic_names=[*topics], timeout_ms=5_000)


def alter_broker(name: str, value: str | None) -> IncrementalAlterConfigsRequest:
    """Return a request to set a setting of the broker, or to take it back."""
    change = IncrementallyAlterableConfig(name=name, config_operation=1 if value is None else 0, value=value)
    broker = IncrementalAlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
    return IncrementalAlterConfigsRequest(resources=[broker], validate_only=False)


# --- all APIs ---------------------------------------------------------------------------------------------

PLACES = [("plain", 0), ("plain", 3), ("plain", 9), ("missing", 0), ("led-by-2", 0)]
"""Partitions that are there, and some that are not, or not here."""
Builder = Callable[[Names, int], list[Any]]


def _produce(names: Names, version: int) -> list[Any]:
    if version < 3:  # these versions are declared for old clients, whose messages have another format
        return [produce(names, version, [("plain", 0, b"\0" * 30)]), produce(names, version, [])]
    good = batch(b"one", b"two")
    bad = bytearray(good)
    bad[-1] ^= 1
    return [
        produce(names, version, [("plain", 0, good)]),
        produce(names, version, [("plain", 1, good)], acks=-1),
        produce(names, version, [("plain", 1, good)], acks=0),
        produce(names, version, [(topic, partition, good) for topic, partition in PLACES]),
        produce(names, version, [("plain", 2, bytes(bad))]),
        produce(names, version, [("plain", 2, None)]),
        produce(names, version, [("plain", 2, b"")]),
        produce(names, version, [("plain", 2, good[:40])]),
        produce(names, version, [("plain", 2, good)], acks=7),
        produce(names, version, []),
        made(
            ProduceRequest,
            version,
            transactional_id="transaction",
            acks=-1,
            timeout_ms=100,
            topic_data=produce(names, version, [("plain", 0, good)]).topic_data,
        ),
    ]


def _fetch(names: Names, version: int) -> list[Any]:
    places = [(topic, partition, 0) for topic, partition in PLACES]
    return [
        fetch(names, version, [("plain", 0, 0)]),
        fetch(names, version, places),
        fetch(names, version, [("plain", 0, 1 << 40), ("plain", 1, -5)]),
        fetch(names, version, [("plain", 0, 0)], max_bytes=10, partition_max_bytes=10),
        fetch(names, version, [("plain", 0, 0)], isolation_level=1, rack_id="rack-2"),
        fetch(names, version, [("plain", 0, 1 << 20)], session_id=0, session_epoch=0),
        fetch(names, version, [], session_id=77, session_epoch=3),
        fetch(names, version, []),
    ]


def _list_offsets(names: Names, version: int) -> list[Any]:
    return [
        list_offsets(version, [(topic, partition, -1) for topic, partition in PLACES]),
        list_offsets(version, [("plain", 0, timestamp) for timestamp in (-2, -3, -4, -5, -6, 0, TIME_MS)]),
        list_offsets(version, [("plain", 0, TIME_MS + 10**9), ("plain", 1, -9)], isolation_level=1),
    ]


def _metadata(names: Names, version: int) -> list[Any]:
    asked = [
        metadata(names, version, ["plain", "missing", "led-by-2", "bad/name", ""]),
        metadata(names, version, []),
        metadata(names, version, [f"made-by-metadata-{version}"], creates=True),
    ]
    if version >= 10:
        asked.append(metadata(names, version, ["plain", "missing"], by_id=True))
    return asked


def _offset_commit(names: Names, version: int) -> list[Any]:
    return [
        commit(names, version, "simple", [("plain", 0, 5), ("plain", 1, 6)], text="text"),
        commit(names, version, "simple", [(topic, partition, 1) for topic, partition in PLACES]),
        commit(names, version, "simple", [("plain", 0, 5)], generation=4, member_id="stranger"),
        commit(names, version, "", [("plain", 0, 5)]),
        commit(names, version, "simple", [("plain", 0, 5)], text="x" * 5_000),
        commit(names, version, "simple", []),
    ]


def _offset_fetch(names: Names, version: int) -> list[Any]:
    return [
        offset_fetch(names, version, "simple", [("plain", [0, 1, 9]), ("missing", [0])]),
        offset_fetch(names, version, "simple", None),
        offset_fetch(names, version, "nobody", [("plain", [0])]),
        offset_fetch(names, version, "", [("plain", [0])]),
    ]


def _find_coordinator(names: Names, version: int) -> list[Any]:
    del names
    if version < 4:
        return [
            made(FindCoordinatorRequest, version, key=key, key_type=kind)
            for key, kind in (("simple", 0), ("", 0), ("transaction", 1), ("share", 2))
            if version or not kind
        ]
    return [
        FindCoordinatorRequest(coordinator_keys=keys, key_type=kind)
        for keys, kind in ((["simple", "other"], 0), ([""], 0), (["transaction"], 1), (["share"], 2), ([], 0))
    ]


def _join_group(names: Names, version: int) -> list[Any]:
    del names
    return [
        join(version, f"alone-{version}", session_timeout_ms=6_000),
        join(version, ""),
        join(version, "joins", "stranger"),
        join(version, "joins", session_timeout_ms=1),
        join(version, "joins", protocols=()),
    ]


def _heartbeat(names: Names, version: int) -> list[Any]:
    return [
        heartbeat(version, "members", names.generation, names.member_id),
        heartbeat(version, "members", 99, names.member_id),
        heartbeat(version, "members", names.generation, "stranger"),
        heartbeat(version, "nobody", 1, "stranger"),
        heartbeat(version, "", 1, "stranger"),
    ]


def _leave_group(names: Names, version: int) -> list[Any]:
    del names
    return [
        leave(version, "members", ("stranger", None)),
        leave(version, "nobody", ("stranger", None), ("", "instance")),
        leave(version, "", ("stranger", None)),
    ]


def _sync_group(names: Names, version: int) -> list[Any]:
    return [
        sync(version, "members", names.generation, names.member_id),
        sync(version, "members", 99, names.member_id),
        sync(version, "members", names.generation, "stranger"),
        sync(version, "", 1, "stranger"),
    ]


def _describe_groups(names: Names, version: int) -> list[Any]:
    del names
    return [
        made(
            DescribeGroupsRequest, version, groups=["members", "simple", "nobody", ""], include_authorized_operations=x
        )
        for x in (False, True)
    ]


def _list_groups(names: Names, version: int) -> list[Any]:
    del names
    return [
        made(ListGroupsRequest, version),
        made(ListGroupsRequest, version, states_filter=["Stable"], types_filter=["classic"]),
        made(ListGroupsRequest, version, states_filter=["Nothing"], types_filter=["share"]),
    ]


def _api_versions(names: Names, version: int) -> list[Any]:
    del names
    return [
        made(ApiVersionsRequest, version, client_software_name="script", client_software_version="1.0"),
        made(ApiVersionsRequest, version, client_software_name="", client_software_version="not a version!"),
    ]


def _create_topics(names: Names, version: int) -> list[Any]:
    name = names.new_topic()
    return [
        create_topics(version, new_topic(name, [[1], [1]]), new_topic("plain", count=1)),
        create_topics(version, new_topic(f"{name}-chosen", count=2)),
        create_topics(
            version,
            new_topic("bad/name", count=1),
            new_topic("far", [[7]]),
            new_topic("none", count=0),
            new_topic("settings", [[1]], configs={"no.such.setting": "1"}),
            new_topic("values", [[1]], configs={"segment.bytes": "many"}),
            new_topic("twice", [[1]]),
            new_topic("twice", [[1]]),
        ),
        create_topics(version, new_topic(f"{name}-not", [[1]]), validate_only=version >= 1),
    ]


def _delete_topics(names: Names, version: int) -> list[Any]:
    asked = [
        delete_topics(names, version, [f"new-{names.created:04}-chosen", "missing"]),
        delete_topics(names, version, []),
    ]
    if version >= 6:
        asked.append(delete_topics(names, version, ["missing"], by_id=True))
    return asked


def _delete_records(names: Names, version: int) -> list[Any]:
    del names
    topics = [
        DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=partition, offset=1)])
        for topic, partition in [*PLACES, ("__consumer_offsets", 0)]
    ]
    return [
        made(DeleteRecordsRequest, version, topics=topics, timeout_ms=500),
        made(
            DeleteRecordsRequest,
            version,
            topics=[
                DeleteRecordsTopic(
                    name="plain",
                    partitions=[
                        DeleteRecordsPartition(partition_index=1, offset=-1),
                        DeleteRecordsPartition(partition_index=0, offset=10**9),
                        DeleteRecordsPartition(partition_index=2, offset=-4),
                    ],
                )
            ],
            timeout_ms=500,
        ),
    ]


def _init_producer_id(names: Names, version: int) -> list[Any]:
    return [
        made(InitProducerIdRequest, version, transactional_id=None, transaction_timeout_ms=1_000),
        made(
            InitProducerIdRequest,
            version,
            transactional_id=None,
            transaction_timeout_ms=1_000,
            producer_id=names.producer_id,
            producer_epoch=0 if names.producer_id >= 0 else -1,
        ),
        made(InitProducerIdRequest, version, transactional_id="transaction", transaction_timeout_ms=1_000),
        made(InitProducerIdRequest, version, transactional_id="", transaction_timeout_ms=0),
    ]


def _offset_for_leader_epoch(names: Names, version: int) -> list[Any]:
    del names
    parts = [(*place, 0) for place in PLACES] + [("plain", 1, 7), ("plain", 2, -1)]
    return [
        made(
            OffsetForLeaderEpochRequest,
            version,
            topics=[
                OffsetForLeaderTopic(
                    topic=topic,
                    partitions=[
                        OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
                    ],
                )
                for topic, partition, epoch in parts
            ],
        )
        for current in (-1, 0, 5)
    ]


def _describe_acls(names: Names, version: int) -> list[Any]:
    del names
    return [
        made(
            DescribeAclsRequest,
            version,
            resource_type_filter=1,
            resource_name_filter=None,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
    ]


def _create_acls(names: Names, version: int) -> list[Any]:
    del names
    one = made(
        AclCreation,
        version,
        resource_type=2,
        resource_name="plain",
        principal="User:anna",
        host="*",
        operation=3,
        permission_type=3,
    )
    return [made(CreateAclsRequest, version, creations=[one, one]), made(CreateAclsRequest, version, creations=[])]


def _delete_acls(names: Names, version: int) -> list[Any]:
    del names
    one = made(
        DeleteAclsFilter,
        version,
        resource_type_filter=1,
        resource_name_filter=None,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    return [made(DeleteAclsRequest, version, filters=[one]), made(DeleteAclsRequest, version, filters=[])]


def _describe_configs(names: Names, version: int) -> list[Any]:
    del names
    keys = ["retention.ms", "cleanup.policy", "no.such.setting"]
    asked = [(2, "plain", keys), (2, "missing", None), (4, "1", ["num.partitions"]), (4, "9", None), (9, "what", [])]
    return [
        made(
            DescribeConfigsRequest,
            version,
            resources=[
                DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
                for kind, name, keys in asked
            ],
            include_synonyms=x,
        )
        for x in (False, True)
    ]


def _alter_configs(names: Names, version: int) -> list[Any]:
    del names
    good = [AlterableConfig(name="retention.ms", value=f"{1_000_000 + version}")]
    bad = [AlterableConfig(name="retention.ms", value="long")]
    asked = [(2, "changed", good), (2, "missing", good), (2, "settings", bad), (4, "7", good), (9, "what", good)]
    resources = [
        AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs) for kind, name, configs in asked
    ]
    return [made(AlterConfigsRequest, version, resources=resources, validate_only=x) for x in (True, False)]


def _incremental_alter_configs(names: Names, version: int) -> list[Any]:
    del names
    asked = [(2, "changed", 0, "cleanup.policy", "compact"), (2, "changed", 2, "cleanup.policy", "delete")]
    asked += [(2, "changed", 3, "cleanup.policy", "compact"), (2, "changed", 1, "cleanup.policy", None)]
    asked += [
        (2, "changed", 9, "retention.ms", "1"),
        (2, "missing", 0, "retention.ms", "1"),
        (2, "changed", 0, "x", "y"),
    ]
    asked += [(4, "1", 0, "log.retention.ms", "100000"), (4, "", 1, "log.retention.ms", None)]
    return [
        made(
            IncrementalAlterConfigsRequest,
            version,
            resources=[
                IncrementalAlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[IncrementallyAlterableConfig(name=key, config_operation=operation, value=value)],
                )
            ],
            validate_only=False,
        )
        for kind, name, operation, key, value in asked
    ]


def _describe_log_dirs(names: Names, version: int) -> list[Any]:
    del names
    some = [DescribableLogDirTopic(topic="plain", partitions=[0, 2]), DescribableLogDirTopic(topic="x", partitions=[0])]
    return [made(DescribeLogDirsRequest, version, topics=topics) for topics in (some, [])]


def _alter_replica_log_dirs(names: Names, version: int) -> list[Any]:
    del names
    return [
        made(
            AlterReplicaLogDirsRequest,
            version,
            dirs=[
                AlterReplicaLogDir(
                    path=path,
                    topics=[
                        AlterReplicaLogDirTopic(name="plain", partitions=[0, 9]),
                        AlterReplicaLogDirTopic(name="missing", partitions=[0]),
                    ],
                )
            ],
        )
        for path in ("/data", "/elsewhere", "here")
    ]


def _create_partitions(names: Names, version: int) -> list[Any]:
    topic = f"new-{names.created:04}"
    asked: list[tuple[str, int, list[list[int]] | None]] = [
        (topic, 3, [[1]]),
        (topic, 2, None),
        (topic, 5, [[9], [1]]),
        (topic, 5, [[1]]),
        ("missing", 5, None),
        ("__consumer_offsets", 5, None),
    ]
    return [
        made(
            CreatePartitionsRequest,
            version,
            topics=[
                CreatePartitionsTopic(
                    name=name,
                    count=count,
                    assignments=assignments
                    and [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments],
                )
            ],
            timeout_ms=5_000,
            validate_only=False,
        )
        for name, count, assignments in asked
    ]


def _delete_groups(names: Names, version: int) -> list[Any]:
    del names
    return [
        made(DeleteGroupsRequest, version, groups_names=groups)
        for groups in (["nobody", "members", ""], [], [f"alone-{version}"])
    ]


def _offset_delete(names: Names, version: int) -> list[Any]:
    del names
    topics = [
        OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)])
        for topic, partition in PLACES
    ]
    return [
        made(OffsetDeleteRequest, version, group_id=group, topics=topics)
        for group in ("simple", "nobody", "", "members")
    ]


def _elect_leaders(names: Names, version: int) -> list[Any]:
    del names
    places = [TopicPartitions(topic=topic, partitions=[partition]) for topic, partition in PLACES]
    return [
        made(ElectLeadersRequest, version, election_type=kind, topic_partitions=places, timeout_ms=1_000)
        for kind in (0, 1, 9)
    ]


def _describe_cluster(names: Names, version: int) -> list[Any]:
    del names
    return [
        made(DescribeClusterRequest, version, include_cluster_authorized_operations=kind == 1, endpoint_type=kind)
        for kind in (1, 2, 9)
    ]


def _alter_partition_reassignments(names: Names, version: int) -> list[Any]:
    del names
    asked: list[tuple[str, int, list[int] | None]] = [
        ("plain", 0, None),
        ("plain", 9, [1]),
        ("missing", 0, [1]),
        ("plain", 1, [9]),
        ("plain", 1, []),
        ("plain", 1, [1, 1]),
    ]
    return [
        made(
            AlterPartitionReassignmentsRequest,
            version,
            timeout_ms=1_000,
            allow_replication_factor_change=False,
            topics=[
                ReassignableTopic(
                    name=topic, partitions=[ReassignablePartition(partition_index=partition, replicas=replicas)]
                )
                for topic, partition, replicas in asked
            ],
        )
    ]


def _list_partition_reassignments(names: Names, version: int) -> list[Any]:
    del names
    some = [ListPartitionReassignmentsTopics(name=topic, partition_indexes=[partition]) for topic, partition in PLACES]
    return [made(ListPartitionReassignmentsRequest, version, topics=topics) for topics in (None, some, [])]


def _update_features(names: Names, version: int) -> list[Any]:
    del names
    keys = [
        made(FeatureUpdateKey, version, feature=name, max_version_level=level, upgrade_type=1)
        for name, level in (("metadata.version", 7), ("no.such.feature", 1), ("", 0))
    ]
    return [made(UpdateFeaturesRequest, version, feature_updates=updates, validate_only=True) for updates in (keys, [])]


def _describe_producers(names: Names, version: int) -> list[Any]:
    del names
    topics = [ProducersTopic(name=topic, partition_indexes=[partition]) for topic, partition in PLACES]
    return [made(DescribeProducersRequest, version, topics=topics)]


def _list_config_resources(names: Names, version: int) -> list[Any]:
    del names
    return [made(ListConfigResourcesRequest, version, resource_types=kinds) for kinds in ([], [2], [4, 16], [99])]


def _describe_topic_partitions(names: Names, version: int) -> list[Any]:
    del names
    topics = [PartitionsTopic(name=name) for name in ("plain", "missing", "led-by-2")]
    return [
        made(DescribeTopicPartitionsRequest, version, topics=topics),
        made(DescribeTopicPartitionsRequest, version, topics=topics, response_partition_limit=2),
        made(
            DescribeTopicPartitionsRequest,
            version,
            topics=topics,
            response_partition_limit=2,
            cursor=Cursor(topic_name="plain", partition_index=2),
        ),
        made(DescribeTopicPartitionsRequest, version, topics=[]),
    ]


BUILDERS: dict[str, Builder] = {
    "Produce": _produce,
    "Fetch": _fetch,
    "ListOffsets": _list_offsets,
    "Metadata": _metadata,
    "OffsetCommit": _offset_commit,
    "OffsetFetch": _offset_fetch,
    "FindCoordinator": _find_coordinator,
    "JoinGroup": _join_group,
    "Heartbeat": _heartbeat,
    "LeaveGroup": _leave_group,
    "SyncGroup": _sync_group,
    "DescribeGroups": _describe_groups,
    "ListGroups": _list_groups,
    "ApiVersions": _api_versions,
    "CreateTopics": _create_topics,
    "DeleteTopics": _delete_topics,
    "DeleteRecords": _delete_records,
    "InitProducerId": _init_producer_id,
    "OffsetForLeaderEpoch": _offset_for_leader_epoch,
    "DescribeAcls": _describe_acls,
    "CreateAcls": _create_acls,
    "DeleteAcls": _delete_acls,
    "DescribeConfigs": _describe_configs,
    "AlterConfigs": _alter_configs,
    "DescribeLogDirs": _describe_log_dirs,
    "AlterReplicaLogDirs": _alter_replica_log_dirs,
    "CreatePartitions": _create_partitions,
    "DeleteGroups": _delete_groups,
    "IncrementalAlterConfigs": _incremental_alter_configs,
    "OffsetDelete": _offset_delete,
    "ElectLeaders": _elect_leaders,
    "DescribeCluster": _describe_cluster,
    "AlterPartitionReassignments": _alter_partition_reassignments,
    "ListPartitionReassignments": _list_partition_reassignments,
    "UpdateFeatures": _update_features,
    "DescribeProducers": _describe_producers,
    "ListConfigResources": _list_config_resources,
    "DescribeTopicPartitions": _describe_topic_partitions,
}


def samples(names: Names, name: str, version: int) -> list[Any]:
    """Return requests to an API in a version."""
    return BUILDERS[name](names, version)


def conversation_apis() -> list[Api]:
    """Return the APIs of the conversation, in the order in which the scenes send them.

    The broker of the conversation serves no other API, so a new API changes no recorded answer.
    """
    by_name = {api.name: api for api in declared_apis().values()}
    return [by_name[name] for name in BUILDERS]

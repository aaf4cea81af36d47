"""One valid request of each API that names given resources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
from barnabas.records import BatchBuilder


@dataclass(frozen=True)
class Names:
    """The resources that a request names."""

    topic: str
    topic_id: bytes
    group: str
    user: str = "alice"
    config_type: int = 2


def batch() -> bytes:
    builder = BatchBuilder()
    builder.append_many(1_000, [b"value"])
    return bytes(builder.build())


def produced(names: Names, version: int) -> produce.ProduceRequest:
    by_id = version >= 13
    return produce.ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[
            produce.TopicProduceData(
                name="" if by_id else names.topic,
                topic_id=names.topic_id if by_id else ZERO_UUID,
                partition_data=[produce.PartitionProduceData(index=0, records=batch())],
            )
        ],
    )


def fetched(names: Names, version: int) -> fetch.FetchRequest:
    by_id = version >= 13
    return fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[
            fetch.FetchTopic(
                topic="" if by_id else names.topic,
                topic_id=names.topic_id if by_id else ZERO_UUID,
                partitions=[fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000)],
            )
        ],
    )


def committed(names: Names, version: int) -> offset_commit.OffsetCommitRequest:
    by_id = version >= 10
    return offset_commit.OffsetCommitRequest(
        group_id=names.group,
        topics=[
            offset_commit.OffsetCommitRequestTopic(
                name="" if by_id else names.topic,
                topic_id=names.topic_id if by_id else ZERO_UUID,
                partitions=[
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=1, committed_metadata=""
                    )
                ],
            )
        ],
    )


def fetched_offsets(names: Names, version: int) -> offset_fetch.OffsetFetchRequest:
    if version < 8:
        topics = [offset_fetch.OffsetFetchRequestTopic(name=names.topic, partition_indexes=[0])]
        return offset_fetch.OffsetFetchRequest(group_id=names.group, topics=topics)
    by_id = version >= 10
    return offset_fetch.OffsetFetchRequest(
        groups=[
            offset_fetch.OffsetFetchRequestGroup(
                group_id=names.group,
                topics=[
                    offset_fetch.OffsetFetchRequestTopics(
                        name="" if by_id else names.topic,
                        topic_id=names.topic_id if by_id else ZERO_UUID,
                        partition_indexes=[0],
                    )
                ],
            )
        ]
    )


def coordinator(names: Names, version: int) -> find_coordinator.FindCoordinatorRequest:
    if version < 4:
        return find_coordinator.FindCoordinatorRequest(key=names.group)
    return find_coordinator.FindCoordinatorRequest(coordinator_keys=[names.group])


def deleted_topics(names: Names, version: int) -> delete_topics.DeleteTopicsRequest:
    if version < 6:
        return delete_topics.DeleteTopicsRequest(topic_names=[names.topic], timeout_ms=1000)
    topics = [delete_topics.DeleteTopicState(name=names.topic)]
    return delete_topics.DeleteTopicsRequest(topics=topics, timeout_ms=1000)


def acl_filter(version: int) -> dict[str, Any]:
    return {
        "resource_type_filter": 2,
        "resource_name_filter": "other",
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }


def joined(names: Names, version: int) -> join_group.JoinGroupRequest:
    return join_group.JoinGroupRequest(
        group_id=names.group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def left(names: Names, version: int) -> leave_group.LeaveGroupRequest:
    if version < 3:
        return leave_group.LeaveGroupRequest(group_id=names.group, member_id="m")
    return leave_group.LeaveGroupRequest(group_id=names.group, members=[leave_group.MemberIdentity(member_id="m")])


SAMPLES: dict[type, Callable[[Names, int], Any]] = {
    produce.ProduceRequest: produced,
    fetch.FetchRequest: fetched,
    list_offsets.ListOffsetsRequest: lambda names, version: list_offsets.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            list_offsets.ListOffsetsTopic(
                name=names.topic, partitions=[list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)]
            )
        ],
    ),
    metadata.MetadataRequest: lambda names, version: metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=names.topic)]
    ),
    offset_commit.OffsetCommitRequest: committed,
    offset_fetch.OffsetFetchRequest: fetched_offsets,
    find_coordinator.FindCoordinatorRequest: coordinator,
    join_group.JoinGroupRequest: joined,
    heartbeat.HeartbeatRequest: lambda names, version: heartbeat.HeartbeatRequest(
        group_id=names.group, generation_id=1, member_id="m"
    ),
    leave_group.LeaveGroupRequest: left,
    sync_group.SyncGroupRequest: lambda names, version: sync_group.SyncGroupRequest(
        group_id=names.group, generation_id=1, member_id="m", assignments=[]
    ),
    describe_groups.DescribeGroupsRequest: lambda names, version: describe_groups.DescribeGroupsRequest(
        groups=[names.group], include_authorized_operations=version >= 3
    ),
    list_groups.ListGroupsRequest: lambda names, version: list_groups.ListGroupsRequest(),
    sasl_handshake.SaslHandshakeRequest: lambda names, version: sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN"),
    api_versions.ApiVersionsRequest: lambda names, version: api_versions.ApiVersionsRequest(
        **({"client_software_name": "a", "client_software_version": "1"} if version >= 3 else {})
    ),
    create_topics.CreateTopicsRequest: lambda names, version: create_topics.CreateTopicsRequest(
        topics=[
            create_topics.CreatableTopic(
                name=names.topic, num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
        ]
    ),
    delete_topics.DeleteTopicsRequest: deleted_topics,
    delete_records.DeleteRecordsRequest: lambda names, version: delete_records.DeleteRecordsRequest(
        topics=[
            delete_records.DeleteRecordsTopic(
                name=names.topic, partitions=[delete_records.DeleteRecordsPartition(partition_index=0, offset=1)]
            )
        ],
        timeout_ms=1000,
    ),
    init_producer_id.InitProducerIdRequest: lambda names, version: init_producer_id.InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1000
    ),
    offset_for_leader_epoch.OffsetForLeaderEpochRequest: lambda names, version: (
        offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=[
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    topic=names.topic,
                    partitions=[offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)],
                )
            ]
        )
    ),
    describe_acls.DescribeAclsRequest: lambda names, version: describe_acls.DescribeAclsRequest(**acl_filter(version)),
    create_acls.CreateAclsRequest: lambda names, version: create_acls.CreateAclsRequest(
        creations=[
            create_acls.AclCreation(
                resource_type=2,
                resource_name="other",
                resource_pattern_type=3,
                principal="User:mallory",
                host="*",
                operation=2,
                permission_type=3,
            )
        ]
    ),
    delete_acls.DeleteAclsRequest: lambda names, version: delete_acls.DeleteAclsRequest(
        filters=[delete_acls.DeleteAclsFilter(**acl_filter(version))]
    ),
    describe_configs.DescribeConfigsRequest: lambda names, version: describe_configs.DescribeConfigsRequest(
        resources=[
            describe_configs.DescribeConfigsResource(
                resource_type=2, resource_name=names.topic, configuration_keys=["retention.ms"]
            )
        ]
    ),
    alter_configs.AlterConfigsRequest: lambda names, version: alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=2,
                resource_name=names.topic,
                configs=[alter_configs.AlterableConfig(name="retention.ms", value="77000")],
            )
        ],
        validate_only=False,
    ),
    incremental_alter_configs.IncrementalAlterConfigsRequest: lambda names, version: (
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.IncrementalAlterConfigsResource(
                    resource_type=2,
                    resource_name=names.topic,
                    configs=[
                        incremental_alter_configs.IncrementallyAlterableConfig(
                            name="retention.ms", config_operation=0, value="78000"
                        )
                    ],
                )
            ],
            validate_only=False,
        )
    ),
    alter_replica_log_dirs.AlterReplicaLogDirsRequest: lambda names, version: (
        alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            dirs=[
                alter_replica_log_dirs.AlterReplicaLogDir(
                    path="/nowhere",
                    topics=[alter_replica_log_dirs.AlterReplicaLogDirTopic(name=names.topic, partitions=[0])],
                )
            ]
        )
    ),
    describe_log_dirs.DescribeLogDirsRequest: lambda names, version: describe_log_dirs.DescribeLogDirsRequest(
        topics=[describe_log_dirs.DescribableLogDirTopic(topic=names.topic, partitions=[0])]
    ),
    sasl_authenticate.SaslAuthenticateRequest: lambda names, version: sasl_authenticate.SaslAuthenticateRequest(
        auth_bytes=b""
    ),
    create_partitions.CreatePartitionsRequest: lambda names, version: create_partitions.CreatePartitionsRequest(
        topics=[create_partitions.CreatePartitionsTopic(name=names.topic, count=9, assignments=None)],
        timeout_ms=1000,
        validate_only=False,
    ),
    delete_groups.DeleteGroupsRequest: lambda names, version: delete_groups.DeleteGroupsRequest(
        groups_names=[names.group]
    ),
    elect_leaders.ElectLeadersRequest: lambda names, version: elect_leaders.ElectLeadersRequest(
        topic_partitions=[elect_leaders.TopicPartitions(topic=names.topic, partitions=[0])]
    ),
    alter_partition_reassignments.AlterPartitionReassignmentsRequest: lambda names, version: (
        alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            topics=[
                alter_partition_reassignments.ReassignableTopic(
                    name=names.topic,
                    partitions=[alter_partition_reassignments.ReassignablePartition(partition_index=0, replicas=[7])],
                )
            ]
        )
    ),
    list_partition_reassignments.ListPartitionReassignmentsRequest: lambda names, version: (
        list_partition_reassignments.ListPartitionReassignmentsRequest()
    ),
    offset_delete.OffsetDeleteRequest: lambda names, version: offset_delete.OffsetDeleteRequest(
        group_id=names.group,
        topics=[
            offset_delete.OffsetDeleteRequestTopic(
                name=names.topic, partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=0)]
            )
        ],
    ),
    describe_client_quotas.DescribeClientQuotasRequest: lambda names, version: (
        describe_client_quotas.DescribeClientQuotasRequest(components=[], strict=False)
    ),
    alter_client_quotas.AlterClientQuotasRequest: lambda names, version: alter_client_quotas.AlterClientQuotasRequest(
        entries=[
            alter_client_quotas.QuotaAlteration(
                entity=[alter_client_quotas.AlteredQuotaEntityPart(entity_type="user", entity_name="mallory")],
                ops=[alter_client_quotas.QuotaOperation(key="producer_byte_rate", value=1e9, remove=False)],
            )
        ],
        validate_only=False,
    ),
    describe_user_scram_credentials.DescribeUserScramCredentialsRequest: lambda names, version: (
        describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=None)
    ),
    alter_user_scram_credentials.AlterUserScramCredentialsRequest: lambda names, version: (
        alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            upsertions=[
                alter_user_scram_credentials.ScramCredentialUpsertion(
                    name="mallory", mechanism=1, iterations=4096, salt=b"s" * 16, salted_password=b"p" * 32
                )
            ]
        )
    ),
    describe_quorum.DescribeQuorumRequest: lambda names, version: describe_quorum.DescribeQuorumRequest(topics=[]),
    update_features.UpdateFeaturesRequest: lambda names, version: update_features.UpdateFeaturesRequest(
        feature_updates=[update_features.FeatureUpdateKey(feature="x", max_version_level=1)]
    ),
    describe_cluster.DescribeClusterRequest: lambda names, version: describe_cluster.DescribeClusterRequest(
        include_cluster_authorized_operations=True
    ),
    describe_producers.DescribeProducersRequest: lambda names, version: describe_producers.DescribeProducersRequest(
        topics=[describe_producers.TopicRequest(name=names.topic, partition_indexes=[0])]
    ),
    get_telemetry_subscriptions.GetTelemetrySubscriptionsRequest: lambda names, version: (
        get_telemetry_subscriptions.GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID)
    ),
    push_telemetry.PushTelemetryRequest: lambda names, version: push_telemetry.PushTelemetryRequest(
        client_instance_id=ZERO_UUID, subscription_id=0, terminating=False, compression_type=0, metrics=b""
    ),
    list_config_resources.ListConfigResourcesRequest: lambda names, version: (
        list_config_resources.ListConfigResourcesRequest()
    ),
    describe_topic_partitions.DescribeTopicPartitionsRequest: lambda names, version: (
        describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name=names.topic)]
        )
    ),
}
"""Returns a request of each API in a version."""

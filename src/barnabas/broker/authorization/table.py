"""The table of all APIs: the operations that a request needs, on which resources, and the form of a refusal.

The rules are Kafka's. They differ where Kafka would reveal the existence of a topic: DeleteTopics and Metadata by topic
id give the same response for a topic that the client may not describe as for an unknown id. A topic that the client may
not describe is left out of lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.broker.authorization.cluster_rules import (
    cluster,
    configs,
    refused_acls,
    refused_alteration,
    refused_config,
    refused_elections,
    refused_filters,
    refused_moves,
    refused_quotas,
    refused_users,
)
from barnabas.broker.authorization.group_rules import (
    DescribeGroups,
    FindCoordinator,
    InitProducerId,
    ListGroups,
    OffsetFetch,
    group_id,
    itself,
    refused_commit,
    refused_commit_of_topic,
    refused_group,
    refused_join,
    refused_offset_deletion,
)
from barnabas.broker.authorization.rules import (
    ForEach,
    InOrder,
    Open,
    Rule,
    Whole,
    message_of,
)
from barnabas.broker.authorization.topic_rules import (
    CreateTopics,
    DeleteTopics,
    DescribeCluster,
    DescribeTopicPartitions,
    Fetch,
    Metadata,
    Produce,
    called_topic,
    called_topic_or_by_id,
    named,
    named_or_by_id,
    refused_creation,
    refused_deletion_of_records,
    refused_description,
    refused_epochs,
    refused_fetch,
    refused_list_offsets,
    refused_partitions,
    refused_produce,
    refused_producers,
    refused_transaction,
)
from barnabas.errors import ErrorCode
from barnabas.protocol.apis import api_of
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

TOPIC = ResourceType.TOPIC
GROUP = ResourceType.GROUP
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID


RULES: Mapping[type, Rule] = {
    produce.ProduceRequest: InOrder(
        Whole(
            Operation.WRITE,
            TRANSACTIONAL_ID,
            refused_transaction,
            name=lambda request: request.transactional_id,
            resource="the transactional id, if there is one",
        ),
        Produce(
            "topic_data",
            Operation.WRITE,
            TOPIC,
            named_or_by_id,
            "responses",
            refused_produce,
            lambda: produce.ProduceResponse(responses=[]),
            refusal="each topic; with acks=0 the connection ends",
        ),
    ),
    fetch.FetchRequest: Fetch(
        "topics",
        Operation.READ,
        TOPIC,
        called_topic_or_by_id,
        "responses",
        refused_fetch,
        lambda: fetch.FetchResponse(responses=[]),
    ),
    list_offsets.ListOffsetsRequest: ForEach(
        "topics",
        Operation.DESCRIBE,
        TOPIC,
        named,
        "topics",
        refused_list_offsets,
        lambda: list_offsets.ListOffsetsResponse(topics=[]),
    ),
    metadata.MetadataRequest: Metadata(),
    offset_commit.OffsetCommitRequest: InOrder(
        Whole(Operation.READ, GROUP, refused_commit, name=group_id),
        ForEach(
            "topics",
            Operation.READ,
            TOPIC,
            named_or_by_id,
            "topics",
            refused_commit_of_topic,
            lambda: offset_commit.OffsetCommitResponse(topics=[]),
        ),
    ),
    offset_fetch.OffsetFetchRequest: OffsetFetch(),
    find_coordinator.FindCoordinatorRequest: FindCoordinator(),
    join_group.JoinGroupRequest: Whole(Operation.READ, GROUP, refused_join, name=group_id),
    heartbeat.HeartbeatRequest: Whole(
        Operation.READ, GROUP, lambda _r, code, _v: heartbeat.HeartbeatResponse(error_code=code), name=group_id
    ),
    leave_group.LeaveGroupRequest: Whole(
        Operation.READ, GROUP, lambda _r, code, _v: leave_group.LeaveGroupResponse(error_code=code), name=group_id
    ),
    sync_group.SyncGroupRequest: Whole(
        Operation.READ,
        GROUP,
        lambda _r, code, _v: sync_group.SyncGroupResponse(error_code=code, assignment=b""),
        name=group_id,
    ),
    describe_groups.DescribeGroupsRequest: DescribeGroups(
        "groups",
        Operation.DESCRIBE,
        GROUP,
        itself,
        "groups",
        refused_group,
        lambda: describe_groups.DescribeGroupsResponse(groups=[]),
    ),
    list_groups.ListGroupsRequest: ListGroups(),
    sasl_handshake.SaslHandshakeRequest: Open(),
    api_versions.ApiVersionsRequest: Open(),
    create_topics.CreateTopicsRequest: CreateTopics(
        "topics",
        Operation.CREATE,
        TOPIC,
        named,
        "topics",
        refused_creation,
        lambda: create_topics.CreateTopicsResponse(topics=[]),
        unless=Operation.CREATE,
    ),
    delete_topics.DeleteTopicsRequest: DeleteTopics(),
    delete_records.DeleteRecordsRequest: ForEach(
        "topics",
        Operation.DELETE,
        TOPIC,
        named,
        "topics",
        refused_deletion_of_records,
        lambda: delete_records.DeleteRecordsResponse(topics=[]),
    ),
    init_producer_id.InitProducerIdRequest: InitProducerId(),
    offset_for_leader_epoch.OffsetForLeaderEpochRequest: ForEach(
        "topics",
        Operation.DESCRIBE,
        TOPIC,
        called_topic,
        "topics",
        refused_epochs,
        lambda: offset_for_leader_epoch.OffsetForLeaderEpochResponse(topics=[]),
    ),
    describe_acls.DescribeAclsRequest: cluster(
        Operation.DESCRIBE,
        lambda _r, code, _v: describe_acls.DescribeAclsResponse(
            error_code=code, error_message=message_of(code), resources=[]
        ),
    ),
    create_acls.CreateAclsRequest: cluster(Operation.ALTER, refused_acls),
    delete_acls.DeleteAclsRequest: cluster(Operation.ALTER, refused_filters),
    describe_configs.DescribeConfigsRequest: configs(
        Operation.DESCRIBE_CONFIGS,
        "results",
        refused_config,
        lambda: describe_configs.DescribeConfigsResponse(results=[]),
    ),
    alter_configs.AlterConfigsRequest: configs(
        Operation.ALTER_CONFIGS,
        "responses",
        refused_alteration,
        lambda: alter_configs.AlterConfigsResponse(responses=[]),
    ),
    incremental_alter_configs.IncrementalAlterConfigsRequest: configs(
        Operation.ALTER_CONFIGS,
        "responses",
        refused_alteration,
        lambda: incremental_alter_configs.IncrementalAlterConfigsResponse(responses=[]),
    ),
    alter_replica_log_dirs.AlterReplicaLogDirsRequest: cluster(Operation.ALTER, refused_moves),
    describe_log_dirs.DescribeLogDirsRequest: cluster(
        Operation.DESCRIBE,
        lambda _r, code, _v: describe_log_dirs.DescribeLogDirsResponse(error_code=code, results=[]),
    ),
    sasl_authenticate.SaslAuthenticateRequest: Open(),
    create_partitions.CreatePartitionsRequest: ForEach(
        "topics",
        Operation.ALTER,
        TOPIC,
        named,
        "results",
        refused_partitions,
        lambda: create_partitions.CreatePartitionsResponse(results=[]),
    ),
    delete_groups.DeleteGroupsRequest: ForEach(
        "groups_names",
        Operation.DELETE,
        GROUP,
        itself,
        "results",
        lambda entry, code, _v: delete_groups.DeletableGroupResult(group_id=entry, error_code=code),
        lambda: delete_groups.DeleteGroupsResponse(results=[]),
    ),
    elect_leaders.ElectLeadersRequest: cluster(Operation.ALTER, refused_elections),
    alter_partition_reassignments.AlterPartitionReassignmentsRequest: cluster(
        Operation.ALTER,
        lambda _r, code, _v: alter_partition_reassignments.AlterPartitionReassignmentsResponse(
            error_code=code, error_message=message_of(code), responses=[]
        ),
    ),
    list_partition_reassignments.ListPartitionReassignmentsRequest: cluster(
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
            name=group_id,
        ),
        ForEach(
            "topics",
            Operation.READ,
            TOPIC,
            named,
            "topics",
            refused_offset_deletion,
            lambda: offset_delete.OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=[]),
        ),
    ),
    describe_client_quotas.DescribeClientQuotasRequest: cluster(
        Operation.DESCRIBE_CONFIGS,
        lambda _r, code, _v: describe_client_quotas.DescribeClientQuotasResponse(
            error_code=code, error_message=message_of(code), entries=None
        ),
    ),
    alter_client_quotas.AlterClientQuotasRequest: cluster(Operation.ALTER_CONFIGS, refused_quotas),
    describe_user_scram_credentials.DescribeUserScramCredentialsRequest: cluster(
        Operation.DESCRIBE,
        lambda _r, code, _v: describe_user_scram_credentials.DescribeUserScramCredentialsResponse(
            error_code=code, error_message=message_of(code)
        ),
    ),
    alter_user_scram_credentials.AlterUserScramCredentialsRequest: cluster(Operation.ALTER, refused_users),
    describe_quorum.DescribeQuorumRequest: cluster(
        Operation.DESCRIBE,
        lambda _r, code, _v: describe_quorum.DescribeQuorumResponse(error_code=code, topics=[]),
    ),
    update_features.UpdateFeaturesRequest: cluster(
        Operation.ALTER,
        lambda _r, code, _v: update_features.UpdateFeaturesResponse(error_code=code, error_message=message_of(code)),
    ),
    describe_cluster.DescribeClusterRequest: DescribeCluster(),
    describe_producers.DescribeProducersRequest: ForEach(
        "topics",
        Operation.READ,
        TOPIC,
        named,
        "topics",
        refused_producers,
        lambda: describe_producers.DescribeProducersResponse(topics=[]),
    ),
    get_telemetry_subscriptions.GetTelemetrySubscriptionsRequest: Open(),
    push_telemetry.PushTelemetryRequest: Open(),
    list_config_resources.ListConfigResourcesRequest: cluster(
        Operation.DESCRIBE_CONFIGS,
        lambda _r, code, _v: list_config_resources.ListConfigResourcesResponse(error_code=code, config_resources=[]),
    ),
    describe_topic_partitions.DescribeTopicPartitionsRequest: DescribeTopicPartitions(
        "topics",
        Operation.DESCRIBE,
        TOPIC,
        named,
        "topics",
        refused_description,
        lambda: describe_topic_partitions.DescribeTopicPartitionsResponse(topics=[]),
        refusal="each topic; a list leaves it out",
    ),
}
"""The rules of the APIs for clients, by request."""


BETWEEN_BROKERS = cluster(Operation.CLUSTER_ACTION, lambda _request, _code, _version: None)
"""The rule of all APIs between brokers: a refusal ends the connection."""


def rules_by_key(rules: Mapping[type, Rule]) -> dict[int, Rule]:
    """Return rules by API key."""
    return {api_of(request).key: rule for request, rule in rules.items()}


def rules_between_brokers(served: Iterable[int]) -> dict[int, Rule]:
    """Return the rules of the APIs for brokers, by API key. An authentication needs no permission."""
    opened = {key for key, rule in rules_by_key(RULES).items() if type(rule) is Open}
    return {key: Open() if key in opened else BETWEEN_BROKERS for key in served}

"""The rules of the APIs with settings, users, ACLs, quotas and the whole cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.broker.authorization.access import Check
from barnabas.broker.authorization.rules import (
    ForEach,
    Refuse,
    Row,
    Whole,
    message_of,
)
from barnabas.broker.settings.resources import ResourceType as ConfigType
from barnabas.errors import ErrorCode
from barnabas.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    create_acls,
    delete_acls,
    describe_configs,
    elect_leaders,
)
from barnabas.security.acls import CLUSTER_NAME, Operation, ResourceType

TOPIC = ResourceType.TOPIC
GROUP = ResourceType.GROUP
CLUSTER = ResourceType.CLUSTER
FIRST_ELECTION_VERSION_WITH_ERROR = 1


class _Configs(ForEach):
    """The resources of Describe-, Alter- and IncrementalAlterConfigs. Each has its own type."""

    @property
    def rows(self) -> tuple[Row, ...]:  # type: ignore[override]
        resources = ((TOPIC, "each topic"), (GROUP, "each group"), (CLUSTER, "the cluster, for brokers"))
        return tuple(Row(self.operation, kind, resource, "each resource") for kind, resource in resources)

    def need(self, entry: Any, check: Check) -> tuple[ResourceType, str | None]:
        if entry.resource_type == ConfigType.TOPIC:
            return TOPIC, entry.resource_name
        if entry.resource_type == ConfigType.GROUP:
            return GROUP, entry.resource_name
        return CLUSTER, CLUSTER_NAME  # brokers, their loggers, and types that the handler refuses


def configs(operation: Operation, results: str, refused: Refuse, respond: Callable[[], Any]) -> ForEach:
    """Return the rule of an API with resources."""
    return _Configs("resources", operation, CLUSTER, lambda _entry, _check: CLUSTER_NAME, results, refused, respond)


def refused_config(entry: Any, code: ErrorCode, _version: int) -> describe_configs.DescribeConfigsResult:
    return describe_configs.DescribeConfigsResult(
        error_code=code,
        error_message=message_of(code),
        resource_type=entry.resource_type,
        resource_name=entry.resource_name,
        configs=[],
    )


def refused_alteration(entry: Any, code: ErrorCode, _version: int) -> alter_configs.AlterConfigsResourceResponse:
    return alter_configs.AlterConfigsResourceResponse(
        error_code=code,
        error_message=message_of(code),
        resource_type=entry.resource_type,
        resource_name=entry.resource_name,
    )


def cluster(operation: Operation, refuse: Refuse) -> Whole:
    return Whole(operation, CLUSTER, refuse)


def refused_elections(request: Any, code: ErrorCode, version: int) -> elect_leaders.ElectLeadersResponse:
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


def refused_moves(request: Any, code: ErrorCode, _version: int) -> alter_replica_log_dirs.AlterReplicaLogDirsResponse:
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


def refused_users(
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


def refused_quotas(request: Any, code: ErrorCode, _version: int) -> alter_client_quotas.AlterClientQuotasResponse:
    return alter_client_quotas.AlterClientQuotasResponse(
        entries=[
            alter_client_quotas.QuotaAlterationResult(
                error_code=code, error_message=message_of(code), entity=each.entity
            )
            for each in request.entries
        ]
    )


def refused_acls(request: Any, code: ErrorCode, _version: int) -> create_acls.CreateAclsResponse:
    result = create_acls.AclCreationResult(error_code=code, error_message=message_of(code))
    return create_acls.CreateAclsResponse(results=[result] * len(request.creations))


def refused_filters(request: Any, code: ErrorCode, _version: int) -> delete_acls.DeleteAclsResponse:
    result = delete_acls.DeleteAclsFilterResult(error_code=code, error_message=message_of(code), matching_acls=[])
    return delete_acls.DeleteAclsResponse(filter_results=[result] * len(request.filters))

"""The APIs that are declared here: number, name, request and response of each."""

from __future__ import annotations

from typing import Any, NamedTuple

from barnabas.protocol.declare import message_of
from barnabas.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from barnabas.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from barnabas.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse


class Api(NamedTuple):
    """One API of the protocol."""

    key: int
    name: str
    request: type[Any]
    response: type[Any]
    versions: range
    """Those that are declared."""


def _api(request: type[Any], response: type[Any]) -> Api:
    spec = message_of(request)
    assert spec.api_key is not None
    return Api(spec.api_key, request.__name__.removesuffix("Request"), request, response, spec.versions)


APIS: dict[int, Api] = {
    api.key: api
    for api in (
        _api(ProduceRequest, ProduceResponse),
        _api(FetchRequest, FetchResponse),
        _api(ListOffsetsRequest, ListOffsetsResponse),
        _api(MetadataRequest, MetadataResponse),
        _api(OffsetCommitRequest, OffsetCommitResponse),
        _api(OffsetFetchRequest, OffsetFetchResponse),
        _api(FindCoordinatorRequest, FindCoordinatorResponse),
        _api(JoinGroupRequest, JoinGroupResponse),
        _api(HeartbeatRequest, HeartbeatResponse),
        _api(LeaveGroupRequest, LeaveGroupResponse),
        _api(SyncGroupRequest, SyncGroupResponse),
        _api(DescribeGroupsRequest, DescribeGroupsResponse),
        _api(ListGroupsRequest, ListGroupsResponse),
        _api(ApiVersionsRequest, ApiVersionsResponse),
        _api(CreateTopicsRequest, CreateTopicsResponse),
        _api(DeleteTopicsRequest, DeleteTopicsResponse),
        _api(DeleteRecordsRequest, DeleteRecordsResponse),
        _api(InitProducerIdRequest, InitProducerIdResponse),
        _api(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
        _api(DescribeAclsRequest, DescribeAclsResponse),
        _api(CreateAclsRequest, CreateAclsResponse),
        _api(DeleteAclsRequest, DeleteAclsResponse),
        _api(DescribeConfigsRequest, DescribeConfigsResponse),
        _api(AlterConfigsRequest, AlterConfigsResponse),
        _api(DescribeLogDirsRequest, DescribeLogDirsResponse),
        _api(AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse),
        _api(CreatePartitionsRequest, CreatePartitionsResponse),
        _api(DeleteGroupsRequest, DeleteGroupsResponse),
        _api(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
        _api(OffsetDeleteRequest, OffsetDeleteResponse),
        _api(ElectLeadersRequest, ElectLeadersResponse),
        _api(DescribeClusterRequest, DescribeClusterResponse),
        _api(AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse),
        _api(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
        _api(UpdateFeaturesRequest, UpdateFeaturesResponse),
        _api(DescribeProducersRequest, DescribeProducersResponse),
        _api(ListConfigResourcesRequest, ListConfigResourcesResponse),
        _api(DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
    )
}
"""Every declared API by its number."""

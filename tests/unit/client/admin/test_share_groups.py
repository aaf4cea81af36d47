"""Share groups, over a cluster that is a list of answers."""

from __future__ import annotations

import pytest

from barnabas.client.admin.share_groups import (
    DeliveredRange,
    DeliveryState,
    ShareGroupOffset,
    describe_share_group,
    share_group_deliveries,
    share_group_offsets,
)
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ShareGroupOffsetsGroup,
    ShareGroupOffsetsPartition,
    ShareGroupOffsetsTopic,
)
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStatePartition,
    ReadStateTopic,
    StateBatch,
)
from barnabas.protocol.messages.share_group_describe import (
    DescribedShareGroup,
    DescribedShareGroupMember,
    ShareGroupAssignment,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupTopic,
)
from tests.unit.client.test_admin_requests import ask, requests_of

ID = bytes(range(16))
KEY = "g:AAECAwQFBgcICQoLDA0ODw:0"
HERE = TopicPartition("t", 0)
OFFSETS = {HERE: ShareGroupOffset(ID, 2, 3, 4), TopicPartition("t", 1): ShareGroupOffset(ID, None, 0, None)}


def described(code: ErrorCode = ErrorCode.NONE):
    member = DescribedShareGroupMember(
        member_id="m",
        rack_id="r",
        member_epoch=2,
        client_id="c",
        client_host="/10.0.0.1",
        subscribed_topic_names=["t"],
        assignment=ShareGroupAssignment(
            topic_partitions=[ShareGroupTopic(topic_id=ID, topic_name="t", partitions=[1, 0])]
        ),
    )
    group = DescribedShareGroup(
        error_code=code,
        error_message=None,
        group_id="g",
        group_state="Stable",
        group_epoch=4,
        assignment_epoch=4,
        assignor_name="simple",
        members=[member],
    )
    return {ShareGroupDescribeRequest: [ShareGroupDescribeResponse(groups=[group])]}


def test_members_of_a_share_group_have_partitions():
    found = ask(lambda cluster: describe_share_group(cluster, "g"), described())
    assert (found.state, found.assignor, found.coordinator.id) == ("Stable", "simple", 1)
    (member,) = found.members
    assert (member.host, member.topics, member.rack) == ("10.0.0.1", ("t",), "r")
    assert member.partitions == (TopicPartition("t", 0), TopicPartition("t", 1))


def test_share_group_that_does_not_exist_is_dead():
    assert not ask(lambda cluster: describe_share_group(cluster, "g"), described(ErrorCode.GROUP_ID_NOT_FOUND)).exists


def test_refusal_names_the_permission_on_the_group():
    with pytest.raises(ApiError, match="lacks DESCRIBE on group:g"):
        ask(lambda cluster: describe_share_group(cluster, "g"), described(ErrorCode.GROUP_AUTHORIZATION_FAILED))


def test_unknown_offsets_and_lag_are_none():
    parts = [
        ShareGroupOffsetsPartition(partition_index=0, start_offset=2, leader_epoch=3, lag=4, error_code=0),
        ShareGroupOffsetsPartition(partition_index=1, start_offset=-1, leader_epoch=0, error_code=0),
    ]
    topic = ShareGroupOffsetsTopic(topic_name="t", topic_id=ID, partitions=parts)
    group = ShareGroupOffsetsGroup(group_id="g", topics=[topic], error_code=0)
    script = {DescribeShareGroupOffsetsRequest: [DescribeShareGroupOffsetsResponse(groups=[group])]}
    assert ask(lambda cluster: share_group_offsets(cluster, "g"), script) == OFFSETS


def test_offsets_of_a_missing_group_are_an_error():
    group = ShareGroupOffsetsGroup(group_id="g", topics=[], error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    script = {DescribeShareGroupOffsetsRequest: [DescribeShareGroupOffsetsResponse(groups=[group])]}
    with pytest.raises(ApiError, match="GROUP_ID_NOT_FOUND: offsets of share group 'g'"):
        ask(lambda cluster: share_group_offsets(cluster, "g"), script)


def coordinator(code: ErrorCode = ErrorCode.NONE):
    found = Coordinator(key=KEY, node_id=0, host="b", port=1, error_code=code)
    return {FindCoordinatorRequest: [FindCoordinatorResponse(coordinators=[found])]}


def test_share_coordinator_returns_the_deliveries_of_started_partitions():
    batches = [
        StateBatch(first_offset=4, last_offset=4, delivery_state=9, delivery_count=1),
        StateBatch(first_offset=2, last_offset=3, delivery_state=2, delivery_count=2),
    ]
    part = ReadStatePartition(
        partition=0, error_code=0, error_message=None, state_epoch=1, start_offset=2, state_batches=batches
    )
    response = ReadShareGroupStateResponse(results=[ReadStateTopic(topic_id=ID, partitions=[part])])
    sent = []
    script = {**coordinator(), ReadShareGroupStateRequest: [response]}
    found = ask(lambda cluster: share_group_deliveries(cluster, "g", OFFSETS), script, sent)
    assert found == {
        HERE: [DeliveredRange(2, 3, DeliveryState.ACKNOWLEDGED, 2), DeliveredRange(4, 4, DeliveryState.UNKNOWN, 1)]
    }
    ((_, found_for),) = requests_of(sent, FindCoordinatorRequest)
    assert (found_for.key_type, found_for.coordinator_keys) == (2, [KEY])
    ((node, request),) = requests_of(sent, ReadShareGroupStateRequest)
    assert (node, request.topics[0].partitions[0].leader_epoch) == (0, 3)


def test_refusal_names_cluster_action():
    with pytest.raises(ApiError, match="lacks CLUSTER_ACTION on cluster"):
        ask(
            lambda cluster: share_group_deliveries(cluster, "g", OFFSETS),
            coordinator(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        )


def test_group_without_started_partitions_has_no_deliveries():
    offsets = {HERE: ShareGroupOffset(ID, None, 0, None)}
    assert ask(lambda cluster: share_group_deliveries(cluster, "g", offsets), {}) == {}

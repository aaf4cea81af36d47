"""What administrators ask, over a cluster that is a list of answers."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from barnabas.client.admin.brokers import alter_replica_log_dirs, describe_cluster, log_dirs
from barnabas.client.admin.configs import (
    ConfigResource,
    ConfigSource,
    ConfigType,
    alter_config,
    describe_config,
    describe_topic_configs,
)
from barnabas.client.admin.groups import describe_group, list_groups
from barnabas.client.admin.records import delete_records
from barnabas.client.admin.topic_changes import create_topic
from barnabas.client.admin.topics import describe, require
from barnabas.client.cluster import Cluster
from barnabas.client.committed_offsets import commit_offsets, committed_offsets
from barnabas.client.config import AdminConfig
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ApiError, ErrorCode, UnsupportedVersionError
from barnabas.groups.subscriptions import encode_assignment, encode_subscription
from barnabas.model import OffsetAndMetadata, TopicPartition
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from barnabas.protocol.messages.consumer_group_describe import (
    ConsumerGroupAssignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupTopic,
    DescribedConsumerGroup,
    DescribedConsumerGroupMember,
)
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from barnabas.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from barnabas.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.incremental_alter_configs import (
    DELETE,
    SET,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

TWO_BROKERS = MetadataResponse(
    brokers=[MetadataResponseBroker(node_id=node, host="b", port=node + 1) for node in (0, 1)],
    controller_id=1,
    topics=[
        MetadataResponseTopic(
            error_code=0,
            name="t",
            partitions=[
                MetadataResponsePartition(
                    error_code=0, partition_index=node, leader_id=node, replica_nodes=[node], isr_nodes=[node]
                )
                for node in (0, 1)
            ],
        )
    ],
)
COORDINATOR = FindCoordinatorResponse(node_id=1, host="b", port=2)


class ScriptedChannel:
    """A connection whose answers stand in `script`: by (broker, type of request), or by type alone; the last stays."""

    is_open = True
    unsent_bytes = 0

    def __init__(self, node_id, script, sent):
        self.node_id, self.script, self.sent = node_id, script, sent

    def version_for(self, request):
        return 99

    async def send(self, request, *, version=None, timeout_s=30.0):
        kind = type(request)
        self.sent.append((self.node_id, request))
        answers = self.script.get((self.node_id, kind)) or self.script[kind]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def close(self):
        self.is_open = False


def ask(question, script, sent=None):
    """Return what `question(cluster)` makes of the answers; `sent` gets the requests with their brokers."""
    script = {MetadataRequest: [TWO_BROKERS], FindCoordinatorRequest: [COORDINATOR], **script}
    sent = [] if sent is None else sent

    async def main():
        async def dial(_host, port):
            return ScriptedChannel(port - 1, script, sent)

        config = AdminConfig(bootstrap_servers="b:1", retry_backoff_ms=1, retry_backoff_max_ms=1)
        cluster = Cluster(config, dial=dial, clock=SYSTEM_CLOCK, random=lambda: 0.0)
        try:
            return await question(cluster)
        finally:
            cluster.close()

    return asyncio.run(main())


def requests_of(sent, kind):
    return [(node_id, request) for node_id, request in sent if isinstance(request, kind)]


def test_a_topic_that_cannot_be_described_says_nothing_of_the_others():
    (fine,) = TWO_BROKERS.topics
    ailing = [
        MetadataResponseTopic(error_code=ErrorCode.LEADER_NOT_AVAILABLE, name="u", partitions=[]),
        MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name="v", partitions=[]),
    ]
    answer = dataclasses.replace(TWO_BROKERS, topics=[fine, *ailing])

    async def question(cluster):
        return [describe(topic) for topic in await cluster.describe(None)]

    topics = ask(question, {MetadataRequest: [answer]})
    assert [(topic.name, len(topic.partitions), topic.error.name) for topic in topics] == [
        ("t", 2, "NONE"),
        ("u", 0, "LEADER_NOT_AVAILABLE"),
        ("v", 0, "TOPIC_AUTHORIZATION_FAILED"),
    ]
    assert require(topics[:1]) == topics[:1]
    told = r"^LEADER_NOT_AVAILABLE: topic 'u'; nor are there 'v' \(TOPIC_AUTHORIZATION_FAILED\)$"
    with pytest.raises(ApiError, match=told):
        require(topics)


def test_groups_of_all_brokers_are_listed():
    def listed(name):
        group = ListedGroup(group_id=name, protocol_type="consumer", group_state="Stable")
        return [ListGroupsResponse(error_code=0, groups=[group])]

    found = ask(list_groups, {(0, ListGroupsRequest): listed("z"), (1, ListGroupsRequest): listed("a")})
    assert [(each.group, each.state) for each in found] == [("a", "Stable"), ("z", "Stable")]


def test_groups_are_asked_for_by_state_and_type():
    sent = []
    group = ListedGroup(group_id="g", protocol_type="consumer", group_state="Empty", group_type="Classic")
    answers = [ListGroupsResponse(error_code=0, groups=[group]), ListGroupsResponse(error_code=0, groups=[])]
    found = ask(
        lambda cluster: list_groups(cluster, states=["Empty"], types=["classic"]), {ListGroupsRequest: answers}, sent
    )
    assert [(each.group, each.type) for each in found] == [("g", "classic")]
    asked = requests_of(sent, ListGroupsRequest)
    assert [(each.states_filter, each.types_filter) for _, each in asked] == [(["Empty"], ["classic"])] * 2


def test_broker_that_is_loading_its_groups_is_asked_again():
    loading = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, groups=[])
    ready = ListGroupsResponse(error_code=0, groups=[])
    assert ask(list_groups, {ListGroupsRequest: [ready, loading, ready]}) == []


def described(*members, state="Stable", protocol_type="consumer", error_code=0):
    group = DescribedGroup(
        error_code=error_code,
        group_id="g",
        group_state=state,
        protocol_type=protocol_type,
        protocol_data="range",
        members=list(members),
    )
    return {DescribeGroupsRequest: [DescribeGroupsResponse(groups=[group])]}


def member(metadata=b"", assignment=b""):
    return DescribedGroupMember(
        member_id="m",
        client_id="c",
        client_host="/10.0.0.1",
        member_metadata=metadata,
        member_assignment=assignment,
    )


def describe_g(cluster):
    return describe_group(cluster, "g")


def test_assignment_of_a_member_is_decoded():
    share = encode_assignment([TopicPartition("t", 1), TopicPartition("t", 0)])
    sent = []
    subscription = encode_subscription(ConsumerProtocolSubscription(topics=["t"]), 0)
    (found,) = ask(describe_g, described(member(subscription, share)), sent).members
    assert (found.host, found.topics) == ("10.0.0.1", ("t",))
    assert found.partitions == (TopicPartition("t", 0), TopicPartition("t", 1))
    assert [node_id for node_id, _ in requests_of(sent, DescribeGroupsRequest)] == [1]


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0", b"\0\1\xff\xff\xff\xff"])
def test_member_whose_bytes_cannot_be_read_is_there_all_the_same(data):
    (found,) = ask(describe_g, described(member(data, data))).members
    assert (found.member_id, found.partitions) == ("m", ())


def test_members_of_other_protocols_have_no_partitions():
    share = encode_assignment([TopicPartition("t", 0)])
    (found,) = ask(describe_g, described(member(b"", share), protocol_type="connect")).members
    assert found.partitions == ()


NOT_CLASSIC = [{"state": "Dead"}, {"error_code": ErrorCode.GROUP_ID_NOT_FOUND}]


def of_consumers(code=ErrorCode.NONE):
    topic = ConsumerGroupTopic(topic_id=bytes(16), topic_name="t", partitions=[1, 0])
    consumer = DescribedConsumerGroupMember(
        member_id="m",
        instance_id="i",
        member_epoch=2,
        client_id="c",
        client_host="/10.0.0.1",
        subscribed_topic_names=["t"],
        assignment=ConsumerGroupAssignment(topic_partitions=[topic]),
    )
    group = DescribedConsumerGroup(
        error_code=code,
        group_id="g",
        group_state="Reconciling",
        group_epoch=4,
        assignment_epoch=4,
        assignor_name="uniform",
        members=[consumer],
    )
    return {ConsumerGroupDescribeRequest: [ConsumerGroupDescribeResponse(groups=[group])]}


@pytest.mark.parametrize("answer", NOT_CLASSIC)
def test_group_of_type_consumer_has_members(answer):
    found = ask(describe_g, described(**answer) | of_consumers())
    assert (found.state, found.protocol_type, found.assignor) == ("Reconciling", "consumer", "uniform")
    assert found.coordinator.id == 1
    (consumer,) = found.members
    assert (consumer.client_id, consumer.host, consumer.instance_id) == ("c", "10.0.0.1", "i")
    assert (consumer.topics, consumer.partitions) == (("t",), (TopicPartition("t", 0), TopicPartition("t", 1)))


@pytest.mark.parametrize("answer", NOT_CLASSIC)
@pytest.mark.parametrize("code", [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION])
def test_group_that_does_not_exist_is_dead(answer, code):
    assert not ask(describe_g, described(**answer) | of_consumers(code)).exists


@pytest.mark.parametrize("answer", NOT_CLASSIC)
def test_group_is_dead_if_brokers_lack_the_type_consumer(answer, monkeypatch):
    def version_for(_channel, request):
        if request is ConsumerGroupDescribeRequest:
            raise UnsupportedVersionError("no ConsumerGroupDescribe")
        return 99

    monkeypatch.setattr(ScriptedChannel, "version_for", version_for)
    assert not ask(describe_g, described(**answer)).exists


def test_refused_group_of_type_consumer_is_an_error():
    with pytest.raises(ApiError, match="TOPIC_AUTHORIZATION_FAILED"):
        ask(describe_g, described(state="Dead") | of_consumers(ErrorCode.TOPIC_AUTHORIZATION_FAILED))


HERE = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("question", "script"),
    [
        (describe_g, {DescribeGroupsRequest: [DescribeGroupsResponse(groups=[])]}),
        (
            lambda cluster: describe_config(cluster, ConfigResource.topic("t")),
            {DescribeConfigsRequest: [DescribeConfigsResponse(results=[])]},
        ),
        (
            lambda cluster: committed_offsets(cluster, "g", [HERE]),
            {OffsetFetchRequest: [OffsetFetchResponse(topics=[])]},
        ),
        (
            lambda cluster: commit_offsets(cluster, "g", {HERE: OffsetAndMetadata(1)}),
            {OffsetCommitRequest: [OffsetCommitResponse(topics=[])]},
        ),
    ],
)
def test_an_answer_that_leaves_out_what_was_asked_is_an_error_and_no_success(question, script):
    with pytest.raises(ApiError, match="missing in the response"):
        ask(question, script)


def test_settings_of_a_broker_are_asked_of_that_broker_and_new_kinds_do_no_harm():
    setting = DescribeConfigsResourceResult(
        name="n", value=None, read_only=True, config_source=77, is_sensitive=True, config_type=77, documentation=None
    )
    result = DescribeConfigsResult(
        error_code=0, error_message=None, resource_type=4, resource_name="0", configs=[setting]
    )
    sent = []
    script = {DescribeConfigsRequest: [DescribeConfigsResponse(results=[result])]}
    found = ask(lambda cluster: describe_config(cluster, ConfigResource.broker(0)), script, sent)
    assert (found["n"].source, found["n"].type) == (ConfigSource.UNKNOWN, ConfigType.UNKNOWN)
    assert (found["n"].default, found["n"].documentation, found["n"].is_sensitive) == (None, "", True)
    assert [node_id for node_id, _ in requests_of(sent, DescribeConfigsRequest)] == [0]


def test_some_settings_of_many_topics_are_asked_for_together_and_missing_topics_left_out():
    def result(name, error_code=0):
        value = DescribeConfigsResourceResult(
            name="min.insync.replicas", value="2", read_only=False, config_source=5, is_sensitive=False
        )
        return DescribeConfigsResult(
            error_code=error_code, error_message=None, resource_type=2, resource_name=name, configs=[value]
        )

    gone = result("gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    script = {DescribeConfigsRequest: [DescribeConfigsResponse(results=[result("t"), gone])]}
    sent = []
    found = ask(lambda cluster: describe_topic_configs(cluster, ["t", "gone"], ["min.insync.replicas"]), script, sent)
    assert {topic: each["min.insync.replicas"].value for topic, each in found.items()} == {"t": "2"}
    ((_, request),) = requests_of(sent, DescribeConfigsRequest)
    assert [each.configuration_keys for each in request.resources] == [["min.insync.replicas"]] * 2


def test_settings_of_very_many_topics_are_asked_for_in_parts():
    script = {DescribeConfigsRequest: [DescribeConfigsResponse(results=[])]}
    sent = []
    names = [f"t{number}" for number in range(1_200)]
    assert ask(lambda cluster: describe_topic_configs(cluster, names, ["retention.ms"]), script, sent) == {}
    asked = [
        each.resource_name for _, request in requests_of(sent, DescribeConfigsRequest) for each in request.resources
    ]
    assert asked == names
    assert len(requests_of(sent, DescribeConfigsRequest)) == 3


def test_brokers_choose_how_many_replicas_a_topic_gets_unless_it_is_said():
    sent = []
    script = {CreateTopicsRequest: [CreateTopicsResponse(topics=[])]}

    async def create(cluster):
        for factor in (None, 2):
            await create_topic(cluster, "new", partitions=1, replication_factor=factor, config={}, timeout_ms=1)

    ask(create, script, sent)
    requests = requests_of(sent, CreateTopicsRequest)
    assert [topic.replication_factor for _, request in requests for topic in request.topics] == [-1, 2]


def test_groups_of_one_broker_are_asked_of_it_alone():
    listed = ListedGroup(group_id="g", protocol_type="consumer", group_state="Empty", group_type="classic")
    script = {ListGroupsRequest: [ListGroupsResponse(error_code=0, groups=[listed])]}
    sent = []
    found = ask(lambda cluster: list_groups(cluster, broker=1), script, sent)
    assert [each.group for each in found] == ["g"]
    assert [node_id for node_id, _ in requests_of(sent, ListGroupsRequest)] == [1]


def test_settings_are_set_and_unset_in_one_request_and_none_is_sent_for_nothing():
    sent = []
    script = {IncrementalAlterConfigsRequest: [IncrementalAlterConfigsResponse(responses=[])]}

    async def change(cluster):
        topic = ConfigResource.topic("t")
        await alter_config(cluster, topic, {}, [])
        await alter_config(cluster, topic, {"a": "1"}, ["b"])

    ask(change, script, sent)
    ((node_id, request),) = requests_of(sent, IncrementalAlterConfigsRequest)
    assert node_id == TWO_BROKERS.controller_id
    (resource,) = request.resources
    assert [(each.name, each.config_operation, each.value) for each in resource.configs] == [
        ("a", SET, "1"),
        ("b", DELETE, None),
    ]


def deleted(partition, low_watermark, error_code=0):
    result = DeleteRecordsPartitionResult(partition_index=partition, low_watermark=low_watermark, error_code=error_code)
    return DeleteRecordsResponse(topics=[DeleteRecordsTopicResult(name="t", partitions=[result])])


def delete_both(cluster):
    return delete_records(cluster, {TopicPartition("t", 0): 3, TopicPartition("t", 1): -1}, timeout_ms=1)


def test_records_are_deleted_at_each_leader_and_only_what_failed_again():
    sent = []
    moved = deleted(0, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    script = {
        (0, DeleteRecordsRequest): [moved, deleted(0, 3)],
        (1, DeleteRecordsRequest): [deleted(1, 8)],
    }
    assert ask(delete_both, script, sent) == {("t", 0): 3, ("t", 1): 8}
    assert [node_id for node_id, _ in requests_of(sent, DeleteRecordsRequest)] == [0, 1, 0]


def test_offset_that_does_not_exist_is_named():
    script = {
        (0, DeleteRecordsRequest): [deleted(0, -1, ErrorCode.OFFSET_OUT_OF_RANGE)],
        (1, DeleteRecordsRequest): [deleted(1, 8)],
    }
    with pytest.raises(ApiError, match="t-0: offset 3 is greater than the high watermark"):
        ask(delete_both, script)


def test_cluster_without_a_controller_is_described():
    brokers = [DescribeClusterBroker(broker_id=node, host="b", port=node + 1) for node in (1, 0)]
    response = DescribeClusterResponse(error_code=0, cluster_id="id", controller_id=-1, brokers=brokers)
    found = ask(describe_cluster, {DescribeClusterRequest: [response]})
    assert (found.id, found.controller, [node.id for node in found.brokers]) == ("id", None, [0, 1])


def test_disks_of_all_brokers_are_described_and_offline_ones_are_marked():
    parts = [
        DescribeLogDirsPartition(partition_index=number, partition_size=7, offset_lag=0, is_future_key=number == 1)
        for number in (0, 1)
    ]
    good = DescribeLogDirsResult(
        error_code=0, log_dir="/a", topics=[DescribeLogDirsTopic(name="t", partitions=parts)], usable_bytes=5
    )
    bad = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir="/b", topics=[])
    script = {
        (0, DescribeLogDirsRequest): [DescribeLogDirsResponse(results=[good])],
        (1, DescribeLogDirsRequest): [DescribeLogDirsResponse(results=[bad])],
    }
    first, second = ask(log_dirs, script)
    assert (first.broker, first.sizes, first.size_bytes) == (0, {("t", 0): 7}, 7)
    assert (first.total_bytes, first.usable_bytes) == (None, 5)
    assert (second.broker, second.error) == (1, ErrorCode.KAFKA_STORAGE_ERROR)


def test_logs_are_moved_by_one_request_with_a_list_for_each_folder():
    results = [
        AlterReplicaLogDirTopicResult(
            topic_name="t",
            partitions=[
                AlterReplicaLogDirPartitionResult(partition_index=0, error_code=0),
                AlterReplicaLogDirPartitionResult(partition_index=1, error_code=ErrorCode.LOG_DIR_NOT_FOUND),
            ],
        )
    ]
    script = {(1, AlterReplicaLogDirsRequest): [AlterReplicaLogDirsResponse(results=results)]}
    sent = []
    found = ask(lambda cluster: alter_replica_log_dirs(cluster, 1, {("t", 0): "/a", ("t", 1): "/b"}), script, sent)
    assert [each.path for broker, request in sent if broker == 1 for each in request.dirs] == ["/a", "/b"]
    assert found == {("t", 0): ErrorCode.NONE, ("t", 1): ErrorCode.LOG_DIR_NOT_FOUND}

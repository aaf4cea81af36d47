"""The rule: no API, no default of the broker and nothing in the metadata tree ruins an internal topic.

Each way to a topic is tried with hostile values. Afterwards groups commit, and their offsets are there after a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from barnabas.broker.handlers import SERVED
from barnabas.broker.internal_topics import CONSUMER_OFFSETS, INTERNAL_TOPICS
from barnabas.broker.settings.in_force import DYNAMIC_RULES
from barnabas.broker.settings.rules import ConfigType, Rule
from barnabas.broker.settings.topic_table import TOPIC_SETTINGS
from barnabas.coordination import configs, paths
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.errors import BarnabasError, ConfigurationError, ErrorCode
from barnabas.model import OffsetAndMetadata, TopicPartition
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
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.incremental_alter_configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementallyAlterableConfig,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records import BatchBuilder
from tests.support.in_process_broker import Caller, run_with_broker

TOPIC, BROKER = 2, 4
GROUPS = [f"g{number}" for number in range(8)]
CLICKS = TopicPartition("clicks", 0)
SETTINGS = {"offsets_topic_num_partitions": 2, "log_cleaner_enable": False}

Attack = Callable[[Caller], Awaitable[None]]


def values_of(rule: Rule) -> Iterator[str]:
    """Yield the extreme values that a setting can have, and some that it cannot have."""
    if rule.kind is ConfigType.BOOLEAN:
        yield from ("true", "false")
    elif rule.kind in {ConfigType.STRING, ConfigType.LIST}:
        yield from (*rule.choices, "", "x", "*")
    else:
        kind = float if rule.kind is ConfigType.DOUBLE else int
        yield from (str(kind(rule.least)), str(kind(rule.greatest)), "1", "9", "-9")


def fits(rule: Rule, value: str) -> bool:
    try:
        rule.check("a setting", value)
    except ConfigurationError:
        return False
    return True


HOSTILE = [(name, value) for name, each in TOPIC_SETTINGS.items() for value in values_of(each.rule)]
OF_BROKERS = {
    each.broker_setting: [value for value in values_of(each.rule) if fits(each.rule, value)]
    for each in TOPIC_SETTINGS.values()
    if each.broker_setting in DYNAMIC_RULES
}
"""The brokers' defaults of topics' settings, with extreme values that they can have."""


async def alter(caller: Caller, kind: int, name: str, changes: list[tuple[str, int, str | None]]) -> list[ErrorCode]:
    """Carry out each change by a request of its own."""
    codes = []
    for setting, operation, value in changes:
        change = IncrementallyAlterableConfig(name=setting, config_operation=operation, value=value)
        resource = IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
        (result,) = (
            await caller.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        ).responses
        codes.append(ErrorCode(result.error_code))
    return codes


async def incremental_alter_configs(caller: Caller) -> None:
    await alter(caller, TOPIC, CONSUMER_OFFSETS, [(name, SET, value) for name, value in HOSTILE])
    for operation in (DELETE, APPEND, SUBTRACT):
        changes = [
            (name, operation, value) for name in TOPIC_SETTINGS for value in ("delete", "compact", "delete,compact")
        ]
        await alter(caller, TOPIC, CONSUMER_OFFSETS, [*changes, ("cleanup.policy", SET, "delete")])


async def alter_configs(caller: Caller) -> None:
    for settings in ({}, dict(HOSTILE), *({name: value} for name, value in HOSTILE)):
        wanted = [AlterableConfig(name=name, value=value) for name, value in settings.items()]
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name=CONSUMER_OFFSETS, configs=wanted)
        await caller.call(AlterConfigsRequest(resources=[resource], validate_only=False))


async def alter_configs_of_brokers(caller: Caller) -> None:
    for number in range(5):
        await alter_broker(caller, {name: values[number % len(values)] for name, values in OF_BROKERS.items()})
    hostile = {
        "log.cleanup.policy": "delete",
        "log.flush.interval.messages": "1000000",
        "log.message.timestamp.after.max.ms": "0",
        "log.message.timestamp.before.max.ms": "0",
        "log.retention.bytes": "0",
        "log.retention.ms": "0",
        "log.roll.ms": "1",
        "log.segment.bytes": "14",
        "message.max.bytes": "1",
        "min.insync.replicas": "9",
    }
    await alter_broker(caller, hostile)


async def alter_broker(caller: Caller, settings: dict[str, str]) -> None:
    changes = [
        IncrementallyAlterableConfig(name=name, config_operation=SET, value=each) for name, each in settings.items()
    ]
    resource = IncrementalAlterConfigsResource(resource_type=BROKER, resource_name="", configs=changes)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (result,) = (await caller.call(request)).responses
    assert result.error_code == ErrorCode.NONE, result.error_message


async def create_topics(caller: Caller) -> None:
    for settings in ({}, {"cleanup.policy": None}, *({name: value} for name, value in HOSTILE)):
        wanted = [CreatableTopicConfig(name=name, value=value) for name, value in settings.items()]
        topic = CreatableTopic(
            name=CONSUMER_OFFSETS, num_partitions=3, replication_factor=1, assignments=[], configs=wanted
        )
        await caller.call(CreateTopicsRequest(topics=[topic], timeout_ms=100))


async def delete_topics(caller: Caller) -> None:
    named = [DeleteTopicState(name=CONSUMER_OFFSETS), DeleteTopicState(topic_id=caller.id_of(CONSUMER_OFFSETS))]
    for each in named:
        await caller.call(DeleteTopicsRequest(topics=[each], timeout_ms=100))
    await caller.call(DeleteTopicsRequest(topic_names=[CONSUMER_OFFSETS], timeout_ms=100), 3)


async def delete_records(caller: Caller) -> None:
    for offset in (-1, 1, 3):
        partitions = [DeleteRecordsPartition(partition_index=number, offset=offset) for number in (0, 1)]
        topic = DeleteRecordsTopic(name=CONSUMER_OFFSETS, partitions=partitions)
        await caller.call(DeleteRecordsRequest(topics=[topic], timeout_ms=100))


async def create_partitions(caller: Caller) -> None:
    growth = CreatePartitionsTopic(name=CONSUMER_OFFSETS, count=9, assignments=None)
    for validate_only in (True, False):
        await caller.call(CreatePartitionsRequest(topics=[growth], timeout_ms=100, validate_only=validate_only))


async def alter_partition_reassignments(caller: Caller) -> None:
    for replicas in ([], [0], [7], [0, 7], [0, 0], None):
        partitions = [ReassignablePartition(partition_index=number, replicas=replicas) for number in (0, 1, 2)]
        topic = ReassignableTopic(name=CONSUMER_OFFSETS, partitions=partitions)
        await caller.call(AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=100))


async def alter_replica_log_dirs(caller: Caller) -> None:
    moved = AlterReplicaLogDirTopic(name=CONSUMER_OFFSETS, partitions=[0, 1, 2])
    for path in ("", "/", "/nowhere"):
        await caller.call(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[moved])]))


async def elect_leaders(caller: Caller) -> None:
    for election_type in (0, 1):
        for wanted in (None, [TopicPartitions(topic=CONSUMER_OFFSETS, partitions=[0, 1])]):
            request = ElectLeadersRequest(election_type=election_type, topic_partitions=wanted, timeout_ms=100)
            await caller.call(request)


async def metadata(caller: Caller) -> None:
    topics = [MetadataRequestTopic(name=name) for name in sorted(INTERNAL_TOPICS)]
    await caller.call(MetadataRequest(topics=topics, allow_auto_topic_creation=True))


async def produce(caller: Caller) -> None:
    builder = BatchBuilder()
    builder.append(1_000, b"\0\1\0\2g1\0\6clicks\0\0\0\0", None)
    for version in (9, 12, 13):
        for number in (0, 1):
            data = TopicProduceData(partition_data=[PartitionProduceData(index=number, records=bytes(builder.build()))])
            if version < 13:
                data.name = CONSUMER_OFFSETS
            else:
                data.topic_id = caller.id_of(CONSUMER_OFFSETS)
            await caller.call(ProduceRequest(acks=-1, timeout_ms=100, topic_data=[data]), version)


def write_node(tree: MetadataStore, path: str, data: bytes) -> None:
    tree.set(path, data)


async def metadata_tree(caller: Caller) -> None:
    """Another broker, or a tool, writes settings of the topic into the tree."""
    topics = caller.broker.topics
    by_round = [dict(HOSTILE[first::7]) for first in range(7)] + [{"no.such.setting": "1"}]
    for settings in [*by_round, {"cleanup.policy": "delete", "retention.ms": "0", "segment.ms": "1"}]:
        await caller.in_tree(configs.change_topic_config, CONSUMER_OFFSETS, lambda _, wanted=settings: wanted)
        await topics.reread_topics([CONSUMER_OFFSETS])
    for data in (b"\xff", b"[]", b"{", b'{"version":1,"config":{"cleanup.policy":7}}', b'{"version":9,"config":[1]}'):
        await caller.in_tree(write_node, paths.topic_config(CONSUMER_OFFSETS), data)
        await topics.reread_topics([CONSUMER_OFFSETS])
        await alter(caller, TOPIC, CONSUMER_OFFSETS, [("cleanup.policy", SET, "delete"), ("segment.bytes", SET, "9")])
        await caller.in_tree(write_node, paths.topic_config(CONSUMER_OFFSETS), data)


ATTACKS: dict[str, Attack] = {
    "AlterConfigs": alter_configs,
    "AlterPartitionReassignments": alter_partition_reassignments,
    "AlterReplicaLogDirs": alter_replica_log_dirs,
    "CreatePartitions": create_partitions,
    "CreateTopics": create_topics,
    "DeleteRecords": delete_records,
    "DeleteTopics": delete_topics,
    "ElectLeaders": elect_leaders,
    "IncrementalAlterConfigs": incremental_alter_configs,
    "Metadata": metadata,
    "Produce": produce,
}
OTHER_WAYS: dict[str, Attack] = {"settings of brokers": alter_configs_of_brokers, "metadata tree": metadata_tree}

READ_ONLY = {
    "DescribeCluster", "DescribeConfigs", "DescribeGroups", "DescribeLogDirs", "DescribeProducers",
    "DescribeTopicPartitions", "Fetch", "FindCoordinator", "ListConfigResources", "ListGroups", "ListOffsets",
    "ListPartitionReassignments", "OffsetFetch", "OffsetForLeaderEpoch",
}  # fmt: skip
OF_GROUPS = {
    "DeleteGroups", "Heartbeat", "JoinGroup", "LeaveGroup", "OffsetCommit", "OffsetDelete", "SyncGroup",
}  # fmt: skip
PARTS_WITHOUT_TOPICS = {
    "client_quotas",
    "clock",
    "cluster_acls",
    "fetch_sessions",
    "identity",
    "producer_ids",
    "scheduler",
    "security_log",
    "served",
    "super_users",
    "telemetry",
    "users",
}


def test_each_api_that_reaches_topics_is_tried_or_changes_none() -> None:
    names = {served.api.name for served in SERVED.values() if not PARTS_WITHOUT_TOPICS.issuperset(served.parts)}
    assert names == {*ATTACKS, *READ_ONLY, *OF_GROUPS}


async def commit(caller: Caller, offset: int) -> None:
    await caller.broker.groups.ensure_topic()
    for group in GROUPS:
        await caller.broker.offsets.commit(group, {CLICKS: OffsetAndMetadata(offset, "m")})


def committed(caller: Caller) -> dict[str, int | None]:
    found = {group: caller.broker.offsets.committed(group).get(CLICKS) for group in GROUPS}
    return {group: None if each is None else each.offset for group, each in found.items()}


async def wait_until_loaded(caller: Caller) -> None:
    await caller.broker.groups.ensure_topic()
    while any(caller.broker.groups.error_of(group) for group in GROUPS):  # noqa: ASYNC110
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("attack", {**ATTACKS, **OTHER_WAYS}.values(), ids=[*ATTACKS, *OTHER_WAYS])
def test_offsets_survive(tmp_path: Path, attack: Attack) -> None:
    async def attacked(caller: Caller) -> None:
        await commit(caller, 5)
        await attack(caller)
        await caller.broker.topics.replicas.delete_old_records()
        assert committed(caller) == dict.fromkeys(GROUPS, 5)
        await commit(caller, 6)
        await caller.broker.topics.replicas.delete_old_records()

    async def restarted(caller: Caller) -> None:
        await wait_until_loaded(caller)
        await caller.broker.topics.replicas.delete_old_records()
        assert committed(caller) == dict.fromkeys(GROUPS, 6)
        await commit(caller, 7)
        assert committed(caller) == dict.fromkeys(GROUPS, 7)
        topic = caller.broker.topics.get(CONSUMER_OFFSETS)
        assert topic
        assert len(topic.partitions) == 2
        for replica in caller.broker.topics.replicas.of_topic(CONSUMER_OFFSETS).values():
            assert (replica.config.log.is_compacted, replica.config.log.deletes_old) == (True, False)
            assert replica.config.log.max_message_bytes >= 1_048_588
            assert replica.config.log.segment_bytes >= 1_048_576
            assert replica.config.min_insync_replicas == 1

    run_with_broker(tmp_path, attacked, **SETTINGS)
    run_with_broker(tmp_path, restarted, **SETTINGS)


def test_the_first_client_cannot_create_it_in_another_way(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        await create_topics(caller)
        await metadata(caller)
        await commit(caller, 5)
        assert caller.broker.topics.get("__transaction_state") is None
        topic = caller.broker.topics.get(CONSUMER_OFFSETS)
        assert topic
        assert topic.settings["cleanup.policy"] == "compact"
        replicas = caller.broker.topics.replicas.of_topic(CONSUMER_OFFSETS)
        assert all(replica.config.log.is_compacted for replica in replicas.values())

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_settings_of_the_allow_list_can_be_changed(tmp_path: Path) -> None:
    wanted = {
        "compression.type": "zstd",
        "segment.bytes": "2000000",
        "min.insync.replicas": "1",
        "max.message.bytes": "2000000",
        "min.cleanable.dirty.ratio": "0.1",
        "leader.replication.throttled.replicas": "*",
        "cleanup.policy": "compact",
    }

    async def scenario(caller: Caller) -> None:
        await commit(caller, 5)
        changes = [(name, SET, each) for name, each in wanted.items()]
        assert set(await alter(caller, TOPIC, CONSUMER_OFFSETS, changes)) == {ErrorCode.NONE}
        for setting, value in (("min.insync.replicas", "2"), ("max.message.bytes", "1000"), ("segment.bytes", "100")):
            assert await alter(caller, TOPIC, CONSUMER_OFFSETS, [(setting, SET, value)]) == [ErrorCode.INVALID_CONFIG]
        resource = DescribeConfigsResource(
            resource_type=TOPIC, resource_name=CONSUMER_OFFSETS, configuration_keys=[*wanted, "retention.ms"]
        )
        (result,) = (await caller.call(DescribeConfigsRequest(resources=[resource]))).results
        assert {each.name: each.value for each in result.configs} == {**wanted, "retention.ms": "-1"}
        await commit(caller, 6)

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_what_the_tree_says_in_vain_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(caller: Caller) -> None:
        await commit(caller, 5)
        await caller.in_tree(
            configs.change_topic_config,
            CONSUMER_OFFSETS,
            lambda _: {"cleanup.policy": "delete", "segment.bytes": "2000000"},
        )
        for _ in range(3):
            await caller.broker.topics.reread_topics([CONSUMER_OFFSETS])
        lines = [each for each in caplog.messages if "ignoring settings of the internal topic" in each]
        assert [line.partition("store: ")[2] for line in lines] == ["cleanup.policy=delete"]

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_refusals_name_the_settings_that_can_be_changed(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        await commit(caller, 5)

        def change(settings: object) -> dict[str, str]:
            return {"cleanup.policy": "delete"}

        with pytest.raises(
            BarnabasError, match=r"cleanup.policy of the internal topic .* changeable settings: compression.type"
        ):
            await caller.broker.topic_admin.alter(CONSUMER_OFFSETS, change)

    run_with_broker(tmp_path, scenario, **SETTINGS)

"""Settings of brokers and groups that are changed while the broker runs, and topics' settings without effect."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.settings.in_force import ConfigSource
from barnabas.broker.settings.topic_table import TOPIC_SETTINGS
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from barnabas.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from barnabas.protocol.messages.incremental_alter_configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementallyAlterableConfig,
)
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.support.in_process_broker import Caller, run_with_broker

TOPIC, BROKER, GROUP = 2, 4, 32

Scenario = Callable[[Caller], Coroutine[Any, Any, None]]
Run = Callable[..., None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return lambda scenario, **settings: run_with_broker(tmp_path / "data", scenario, **settings)


async def alter(
    caller: Caller,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
) -> tuple[ErrorCode, str | None]:
    configs = [IncrementallyAlterableConfig(name=n, config_operation=o, value=v) for n, o, v in changes]
    resource = IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = (await caller.call(request)).responses
    return ErrorCode(result.error_code), result.error_message


async def described(caller: Caller, kind: int, name: str) -> dict[str, DescribeConfigsResourceResult]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    (result,) = (await caller.call(request)).results
    assert result.error_code == ErrorCode.NONE, result.error_message
    return {each.name: each for each in result.configs}


def synonyms(setting: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in setting.synonyms]


def test_a_brokers_setting_is_in_force_at_once_for_the_topics_that_there_are(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        clicks = caller.broker.topics.replicas.leader("clicks", 0)
        assert await alter(caller, TOPIC, "views", ("max.message.bytes", SET, "7000")) == (ErrorCode.NONE, None)
        assert await alter(caller, BROKER, "", ("message.max.bytes", SET, "500")) == (ErrorCode.NONE, None)
        assert clicks.config.log.max_message_bytes == 500
        assert await alter(caller, BROKER, "0", ("message.max.bytes", SET, "600")) == (ErrorCode.NONE, None)
        assert clicks.config.log.max_message_bytes == clicks.log.config.max_message_bytes == 600
        assert caller.broker.topics.replicas.leader("views", 2).config.log.max_message_bytes == 7000
        await caller.broker.topic_admin.create("new", 1, {})
        assert caller.broker.topics.replicas.leader("new", 0).config.log.max_message_bytes == 600
        assert await alter(caller, BROKER, "0", ("message.max.bytes", DELETE, None)) == (ErrorCode.NONE, None)
        assert clicks.config.log.max_message_bytes == 500

    run(scenario)


def test_settings_are_shown_with_where_they_come_from(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        await alter(caller, BROKER, "", ("log.retention.ms", SET, "3000"))
        await alter(caller, BROKER, "0", ("log.retention.ms", SET, "4000"))
        await alter(caller, TOPIC, "clicks", ("retention.ms", SET, "5000"))
        sources = [
            ("log.retention.ms", "4000", ConfigSource.DYNAMIC_BROKER),
            ("log.retention.ms", "3000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
            ("log.retention.ms", "2000", ConfigSource.STATIC_BROKER),
            ("log.retention.ms", "604800000", ConfigSource.DEFAULT),
        ]
        own = (await described(caller, BROKER, "0"))["log.retention.ms"]
        assert (own.value, own.config_source, own.read_only) == ("4000", ConfigSource.DYNAMIC_BROKER, False)
        assert synonyms(own) == sources
        of_all = await described(caller, BROKER, "")
        assert [(name, each.value, each.config_source) for name, each in of_all.items()] == [
            ("log.retention.ms", "3000", ConfigSource.DYNAMIC_DEFAULT_BROKER)
        ]
        of_topic = (await described(caller, TOPIC, "clicks"))["retention.ms"]
        assert synonyms(of_topic) == [("retention.ms", "5000", ConfigSource.TOPIC), *sources]
        assert synonyms((await described(caller, TOPIC, "views"))["retention.ms"]) == sources

    run(scenario, log_retention_ms=2000)


def test_what_was_changed_is_read_again_at_the_next_start(run: Run, tmp_path: Path) -> None:
    async def change(caller: Caller) -> None:
        await alter(caller, BROKER, "", ("log.roll.ms", SET, "111"), ("num.io.threads", SET, "3"))
        await alter(caller, BROKER, "0", ("message.max.bytes", SET, "600"))
        await alter(caller, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))

    async def look(caller: Caller) -> None:
        config = caller.broker.topics.replicas.leader("clicks", 0).config.log
        assert (config.segment_ms, config.max_message_bytes) == (111, 600)
        assert (await described(caller, BROKER, "0"))["num.io.threads"].value == "3"
        assert (await described(caller, GROUP, "g"))["consumer.session.timeout.ms"].value == "50000"

    run(change)
    run(look)
    with closing(EmbeddedMetadataStore(tmp_path / "data" / "tree.sqlite")) as tree:
        assert tree.get("/config/brokers/<default>").data == (
            b'{"version":1,"config":{"log.roll.ms":"111","num.io.threads":"3"}}'
        )
        assert tree.get("/config/brokers/0").data == b'{"version":1,"config":{"message.max.bytes":"600"}}'


def test_what_the_tree_says_and_cannot_be_is_left_out(run: Run, tmp_path: Path, caplog: Any) -> None:
    async def nothing(_caller: Caller) -> None:
        pass

    async def look(caller: Caller) -> None:
        assert caller.broker.topics.replicas.leader("clicks", 0).config.log.segment_ms == 111
        assert caller.broker.config.num_partitions == 1

    run(nothing)
    with closing(EmbeddedMetadataStore(tmp_path / "data" / "tree.sqlite")) as tree:
        settings = b'{"version":1,"config":{"log.roll.ms":"111","log.segment.bytes":"much","num.partitions":"9"}}'
        tree.create("/config/brokers/0", settings, make_parents=True)
    run(look)
    assert "log.segment.bytes is 'much'" in caplog.text
    assert "num.partitions" in caplog.text


@pytest.mark.parametrize(
    ("name", "setting", "value", "code", "message"),
    [
        ("0", "num.partitions", "3", ErrorCode.INVALID_REQUEST, "num.partitions cannot be changed while the broker"),
        ("", "port", "3", ErrorCode.INVALID_REQUEST, "port cannot be changed while the broker runs"),
        ("", "log.segment.delete.delay.ms", "-3", ErrorCode.INVALID_CONFIG, "it must be from 0 to"),
        ("", "num.network.thread", "3", ErrorCode.INVALID_CONFIG, "did you mean num.network.threads?"),
        ("", "delete.topics.enable", "true", ErrorCode.INVALID_CONFIG, "did you mean delete.topic.enable?"),
        ("", "super.users", "User:x", ErrorCode.INVALID_REQUEST, "super.users cannot be changed while the broker"),
        ("0", "remote.log.storage.system.enable", "true", ErrorCode.INVALID_CONFIG, "tiered storage is not supported"),
        ("0", "log.segment.byte", "3", ErrorCode.INVALID_CONFIG, "did you mean log.segment.bytes?"),
        ("0", "log.segment.bytes", "3", ErrorCode.INVALID_CONFIG, "log.segment.bytes is 3; it must be from 14 to"),
        ("0", "log.cleanup.policy", "keep", ErrorCode.INVALID_CONFIG, "it must be one of delete, compact"),
        ("0", "log.cleaner.enable", "false", ErrorCode.INVALID_REQUEST, "cannot be changed while the broker runs"),
        ("0", "log.cleaner.threads", "-1", ErrorCode.INVALID_CONFIG, "it must be from 0 to"),
        ("0", "log.cleaner.threads", "129", ErrorCode.INVALID_CONFIG, "at least 1 MiB for each cleaner thread"),
        ("0", "log.cleaner.io.max.bytes.per.second", "fast", ErrorCode.INVALID_CONFIG, "it must be a number"),
        ("0", "log.message.timestamp.type", "Never", ErrorCode.INVALID_CONFIG, "CreateTime, LogAppendTime"),
        ("1", "log.segment.bytes", "3000", ErrorCode.INVALID_REQUEST, "this is broker 0, not '1'"),
    ],
)
def test_what_cannot_be_changed_is_refused_and_nothing_else_with_it_is(
    run: Run, name: str, setting: str, value: str, code: ErrorCode, message: str
) -> None:
    async def scenario(caller: Caller) -> None:
        before = caller.broker.config
        found, told = await alter(caller, BROKER, name, ("log.roll.ms", SET, "5"), (setting, SET, value))
        assert found is code
        assert told is not None
        assert message in told
        assert caller.broker.config == before

    run(scenario)


@pytest.mark.parametrize(
    ("kind", "named"), [(8, "broker loggers"), (16, "client metrics subscriptions"), (99, "unknown type 99")]
)
def test_resources_without_settings_are_named_in_words(run: Run, kind: int, named: str) -> None:
    async def scenario(caller: Caller) -> None:
        code, message = await alter(caller, kind, "0", ("log.roll.ms", SET, "5"))
        assert code is ErrorCode.INVALID_REQUEST
        assert message is not None
        assert named in message

    run(scenario)


@pytest.mark.parametrize("name", ["0", ""])
def test_settings_of_kafkas_without_meaning_here_are_kept_and_logged(
    run: Run, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    # The last one is a setting of topics: Kafka takes any name for a broker.
    foreign = ("zookeeper.max.in.flight.requests", "transaction.max.timeout.ms", "config.providers.x", "cleanup.policy")

    async def scenario(caller: Caller) -> None:
        before = caller.broker.config
        with caplog.at_level("WARNING"):
            changes = [(each, SET, "delete") for each in foreign]
            assert await alter(caller, BROKER, name, *changes) == (ErrorCode.NONE, None)
        (line,) = caplog.messages
        assert all(each in line for each in foreign)
        assert "its default is the broker setting log.cleanup.policy" in line
        assert caller.broker.config == before
        found = await described(caller, BROKER, name)
        assert {found[each].value for each in foreign} == {"delete"}
        changes = [(each, DELETE, None) for each in foreign]
        assert await alter(caller, BROKER, name, *changes) == (ErrorCode.NONE, None)
        assert found.keys() - (await described(caller, BROKER, name)).keys() == set(foreign)

    run(scenario)


def test_secrets_of_settings_without_effect_are_not_kept(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        for secret in ("config.providers.x.password", "password.encoder.secret"):
            assert await alter(caller, BROKER, "", (secret, SET, "hush")) == (ErrorCode.NONE, None)
        assert await described(caller, BROKER, "") == {}

    run(scenario)


def test_the_delay_of_deleted_files_has_kafkas_name_too(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        for of, name, value in (
            ("", "log.segment.delete.delay.ms", "7"),
            ("0", "file.delete.delay.ms", "8"),
            ("0", "log.segment.delete.delay.ms", "9"),
        ):
            assert await alter(caller, BROKER, of, (name, SET, value)) == (ErrorCode.NONE, None)
            assert caller.broker.config.file_delete_delay_ms == int(value)
            found = await described(caller, BROKER, "0")
            both = [found[each].value for each in ("log.segment.delete.delay.ms", "file.delete.delay.ms")]
            assert both == [value, value]
            if of:
                assert await alter(caller, BROKER, of, (name, DELETE, None)) == (ErrorCode.NONE, None)
        assert caller.broker.config.file_delete_delay_ms == 7

    run(scenario, file_delete_delay_ms=5)


def test_topics_cannot_be_deleted_where_the_broker_says_so(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        async def delete(version: int = 6) -> ErrorCode:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name="clicks")], timeout_ms=0)
            if version < 6:
                request = DeleteTopicsRequest(topic_names=["clicks"], timeout_ms=0)
            (response,) = (await caller.call(request, version)).responses
            return ErrorCode(response.error_code)

        assert await delete() is await delete(3) is ErrorCode.TOPIC_DELETION_DISABLED
        assert await delete(2) is ErrorCode.INVALID_REQUEST, "the older versions do not have that error"
        assert (await alter(caller, BROKER, "", ("delete.topic.enable", SET, "true")))[0] is ErrorCode.NONE
        assert await delete() is ErrorCode.NONE

    run(scenario, delete_topic_enable=False)


def test_changes_can_be_checked_without_being_made(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        before = caller.broker.config
        change = ("log.roll.ms", SET, "5")
        assert await alter(caller, BROKER, "0", change, validate_only=True) == (ErrorCode.NONE, None)
        assert caller.broker.config == before

    run(scenario)


def test_lists_can_be_empty(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        log = caller.broker.topics.replicas.leader("clicks", 0).log
        for change in (
            ("cleanup.policy", SET, ""),
            ("cleanup.policy", SET, "  "),
            ("cleanup.policy", SUBTRACT, "delete"),
            ("cleanup.policy", SUBTRACT, " delete , compact"),
            ("leader.replication.throttled.replicas", SET, ""),
            ("leader.replication.throttled.replicas", SUBTRACT, "0:1"),
        ):
            assert await alter(caller, TOPIC, "clicks", change) == (ErrorCode.NONE, None), change
            value = (await described(caller, TOPIC, "clicks"))[change[0]].value
            assert value is not None
            assert value.strip() == ""
            is_policy = change[0] == "cleanup.policy"
            assert (log.config.deletes_old or log.config.is_compacted) is not is_policy
            assert (await alter(caller, TOPIC, "clicks", (change[0], DELETE, None)))[0] is ErrorCode.NONE
            assert log.config.deletes_old
        assert (await alter(caller, BROKER, "", ("log.cleanup.policy", SUBTRACT, "delete")))[0] is ErrorCode.NONE
        assert not log.config.deletes_old
        assert await alter(caller, TOPIC, "clicks", ("cleanup.policy", APPEND, "compact")) == (ErrorCode.NONE, None)
        assert log.config.is_compacted
        await caller.broker.topic_admin.create("kept", 1, {"cleanup.policy": ""})
        assert not caller.broker.topics.replicas.leader("kept", 0).config.log.deletes_old

    run(scenario)


def test_no_names_of_settings_are_all_names(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        for kind, name in ((TOPIC, "clicks"), (BROKER, "0"), (GROUP, "g")):
            found = []
            for names in (None, []):
                resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=names)
                (result,) = (await caller.call(DescribeConfigsRequest(resources=[resource]))).results
                found.append(result.configs)
            assert found[0] == found[1] != []

    run(scenario)


def test_lists_grow_and_shrink_from_what_is_in_force(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        assert (await alter(caller, BROKER, "0", ("log.cleanup.policy", APPEND, "delete")))[0] is ErrorCode.NONE
        assert (await described(caller, BROKER, "0"))["log.cleanup.policy"].value == "delete"
        throttled = "leader.replication.throttled.replicas"
        for operation, value, expected in (
            (APPEND, "0:1", "0:1"),
            (APPEND, "1:1,2:1", "0:1,1:1,2:1"),
            (SUBTRACT, "1:1", "0:1,2:1"),
        ):
            assert await alter(caller, TOPIC, "clicks", (throttled, operation, value)) == (ErrorCode.NONE, None)
            assert (await described(caller, TOPIC, "clicks"))[throttled].value == expected
        assert (await alter(caller, BROKER, "0", ("num.io.threads", APPEND, "1")))[0] is ErrorCode.INVALID_CONFIG

    run(scenario)


def test_a_brokers_settings_are_replaced_as_a_whole(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        await alter(caller, BROKER, "0", ("log.roll.ms", SET, "5"), ("message.max.bytes", SET, "600"))
        configs = [AlterableConfig(name="log.roll.ms", value="6")]
        resource = AlterConfigsResource(resource_type=BROKER, resource_name="0", configs=configs)
        (result,) = (await caller.call(AlterConfigsRequest(resources=[resource], validate_only=False))).responses
        assert result.error_code == ErrorCode.NONE
        config = caller.broker.topics.replicas.leader("clicks", 0).config.log
        assert (config.segment_ms, config.max_message_bytes) == (6, 1_048_588)

    run(scenario)


def test_groups_have_settings_that_are_kept(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        setting = "consumer.session.timeout.ms"
        before = (await described(caller, GROUP, "g"))[setting]
        assert (before.value, before.config_source) == ("45000", ConfigSource.DEFAULT)
        assert await alter(caller, GROUP, "g", (setting, SET, "50000")) == (ErrorCode.NONE, None)
        after = (await described(caller, GROUP, "g"))[setting]
        assert (after.value, after.config_source) == ("50000", ConfigSource.GROUP)
        listed = await caller.call(ListConfigResourcesRequest(resource_types=[GROUP]))
        assert [each.resource_name for each in listed.config_resources] == ["g"]
        assert (await alter(caller, GROUP, "g", (setting, SET, "1")))[0] is ErrorCode.INVALID_CONFIG
        assert (await alter(caller, GROUP, "g", ("retention.ms", SET, "1")))[0] is ErrorCode.INVALID_CONFIG
        assert (await alter(caller, GROUP, "", (setting, SET, "50000")))[0] is ErrorCode.INVALID_REQUEST
        assert await alter(caller, GROUP, "g", (setting, DELETE, None)) == (ErrorCode.NONE, None)
        assert (await described(caller, GROUP, "g"))[setting].value == "45000"
        assert caller.broker.settings.groups == {}

    run(scenario)


def test_groups_have_all_settings_that_kafka_has(run: Run) -> None:
    """Those of Kafka 4.3, `org.apache.kafka.coordinator.group.GroupConfig`."""
    good = {
        "consumer.assignment.interval.ms": "0",
        "consumer.heartbeat.interval.ms": "6000",
        "consumer.session.timeout.ms": "60000",
        "share.assignment.interval.ms": "15000",
        "share.auto.offset.reset": "by_duration:P1DT2H",
        "share.delivery.count.limit": "10",
        "share.heartbeat.interval.ms": "15000",
        "share.isolation.level": "read_committed",
        "share.partition.max.record.locks": "100",
        "share.record.lock.duration.ms": "15000",
        "share.renew.acknowledge.enable": "false",
        "share.session.timeout.ms": "45000",
        "streams.assignment.interval.ms": "1",
        "streams.heartbeat.interval.ms": "5000",
        "streams.initial.rebalance.delay.ms": "0",
        "streams.num.standby.replicas": "2",
        "streams.session.timeout.ms": "45001",
    }
    bad = {
        "share.auto.offset.reset": ("none", "by_duration:", "by_duration:P"),
        "share.delivery.count.limit": ("1", "11"),
        "streams.num.standby.replicas": ("3", "-1"),
        "consumer.session.timeout.ms": ("5000", "60001", "x"),
    }

    async def scenario(caller: Caller) -> None:
        changes = [(name, SET, value) for name, value in good.items()]
        assert await alter(caller, GROUP, "g", *changes) == (ErrorCode.NONE, None)
        assert {name: each.value for name, each in (await described(caller, GROUP, "g")).items()} == good
        for name, values in bad.items():
            for value in values:
                assert (await alter(caller, GROUP, "g", (name, SET, value)))[0] is ErrorCode.INVALID_CONFIG, value

    run(scenario)


@pytest.mark.parametrize(
    "name",
    [
        "group.initial.rebalance.delay.ms",
        "group.max.session.timeout.ms",
        "group.max.size",
        "group.min.session.timeout.ms",
        "offsets.retention.minutes",
    ],
)
def test_the_limits_of_classic_groups_are_read_only_as_in_kafka(run: Run, name: str) -> None:
    async def scenario(caller: Caller) -> None:
        assert (await described(caller, BROKER, "0"))[name].read_only
        assert (await alter(caller, BROKER, "0", (name, SET, "7000")))[0] is ErrorCode.INVALID_REQUEST
        assert (await alter(caller, BROKER, "", (name, SET, "7000")))[0] is ErrorCode.INVALID_REQUEST

    run(scenario)


def test_a_stop_waits_for_changes_that_have_begun(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = Caller(tmp_path / "data").broker
        await broker.start()
        changes = [asyncio.ensure_future(broker.topic_admin.create(f"t{number}", 20, {})) for number in range(3)]
        changes.append(asyncio.ensure_future(broker.topic_admin.delete("t0")))
        changes.append(asyncio.ensure_future(broker.settings.alter_broker("0", lambda _: {"log.roll.ms": "5"})))
        await asyncio.sleep(0)
        await broker.stop()
        async with asyncio.timeout(60):
            await asyncio.gather(*changes)

    async def look(caller: Caller) -> None:
        assert {topic.name for topic in caller.broker.topics.all()} == {"t1", "t2", "clicks", "views"}
        assert caller.broker.config.log_roll_ms == 5

    asyncio.run(scenario())
    run_with_broker(tmp_path / "data", look)


KAFKAS = {
    "cleanup.policy": "compact,delete",
    "compression.gzip.level": "6",
    "delete.retention.ms": "900",
    "file.delete.delay.ms": "1000",
    "follower.replication.throttled.replicas": "*",
    "leader.replication.throttled.replicas": "0:1,1:2",
    "local.retention.ms": "-2",
    "message.downconversion.enable": "false",
    "message.format.version": "0.10.2",
    "message.timestamp.difference.max.ms": "9223372036854775807",
    "max.compaction.lag.ms": "3600000",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "86400000",
    "min.cleanable.dirty.ratio": "0.1",
    "min.compaction.lag.ms": "5",
    "preallocate": "true",
    "remote.log.copy.disable": "true",
    "remote.storage.enable": "false",
    "segment.jitter.ms": "100",
    "unclean.leader.election.enable": "true",
}


def test_a_topic_can_have_all_of_kafkas_settings(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in KAFKAS.items()]
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=configs)
        (created,) = (await caller.call(CreateTopicsRequest(topics=[topic]))).topics
        assert (created.error_code, created.error_message) == (ErrorCode.NONE, None)
        found = await described(caller, TOPIC, "t")
        assert {name: found[name].value for name in KAFKAS} == KAFKAS
        assert set(found) == set(TOPIC_SETTINGS)
        assert len(found) == 36 + 1  # ours: barnabas.value.schema.validation
        log = caller.broker.topics.replicas.leader("t", 0).config.log
        assert (log.is_compacted, log.deletes_old, log.delete_retention_ms) == (True, True, 900)
        assert (log.min_cleanable_dirty_ratio, log.min_compaction_lag_ms, log.roll_ms) == (0.1, 5, 3_600_000)
        assert (log.message_timestamp_after_max_ms, log.message_timestamp_before_max_ms) == (3_600_000, 86_400_000)
        assert found["preallocate"].documentation is not None
        assert "Without effect" in found["preallocate"].documentation

    run(scenario)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("cleanup.policy", ",", "it must be one of delete, compact"),
        ("cleanup.policy", "delete,", "it must be one of delete, compact"),
        ("cleanup.policy", "keep", "cleanup.policy is 'keep'; it must be one of delete, compact"),
        ("compression.gzip.level", "10", "compression.gzip.level is 10; it must be from -1 to 9"),
        ("compression.type", " gzip", "compression.type is ' gzip'"),
        ("leader.replication.throttled.replicas", "0:a", "must match"),
        ("max.compaction.lag.ms", "0", "it must be from 1"),
        ("min.cleanable.dirty.ratio", "1.5", "min.cleanable.dirty.ratio is 1.5; it must be from 0.0 to 1.0"),
        ("min.cleanable.dirty.ratio", "half", "it must be a number"),
        ("min.cleanable.dirty.ratio", "nan", "it must be from 0.0 to 1.0"),
        ("preallocate", "maybe", "it must be true or false"),
        ("remote.storage.enable", "true", "tiered storage is not supported"),
        ("segment.jitter.ms", "1_000", "it must be a whole number"),
        ("unclean.leader.election", "true", "did you mean unclean.leader.election.enable?"),
    ],
)
def test_values_that_kafka_refuses_are_refused(run: Run, name: str, value: str, message: str) -> None:
    async def scenario(caller: Caller) -> None:
        code, told = await alter(caller, TOPIC, "clicks", (name, SET, value))
        assert code is ErrorCode.INVALID_CONFIG
        assert told is not None
        assert message in told

    run(scenario)


def test_records_cannot_have_to_wait_for_compaction_longer_than_they_may(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        changes = ("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "9")
        code, told = await alter(caller, TOPIC, "clicks", *changes)
        assert (code, told) == (
            ErrorCode.INVALID_CONFIG,
            "min.compaction.lag.ms is 10; it must not be greater than max.compaction.lag.ms, which is 9",
        )

    run(scenario)


def test_the_settings_of_the_cleaner_change_while_the_broker_runs(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        changes = {
            "log.cleaner.threads": "2",
            "log.cleaner.io.max.bytes.per.second": "1048576",
            "log.cleaner.min.cleanable.ratio": "0.01",
            "log.cleanup.policy": "compact",
        }
        before = await described(caller, BROKER, "0")
        assert before["log.cleaner.io.max.bytes.per.second"].value == "1.7976931348623157E308"
        assert before["log.cleaner.enable"].read_only
        code, told = await alter(caller, BROKER, "0", *((name, SET, value) for name, value in changes.items()))
        assert (code, told) == (ErrorCode.NONE, None)
        config = caller.broker.config
        assert (config.log_cleaner_threads, config.log_cleaner_io_max_bytes_per_second) == (2, 1_048_576.0)
        log = caller.broker.topics.replicas.leader("clicks", 0).config.log
        assert (log.is_compacted, log.deletes_old, log.min_cleanable_dirty_ratio) == (True, False, 0.01)

    run(scenario)


def test_a_switch_changes_while_the_broker_runs(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        name = "unclean.leader.election.enable"
        assert await alter(caller, BROKER, "", (name, SET, "TRUE")) == (ErrorCode.NONE, None)
        assert caller.broker.topics.replicas.leader("clicks", 0).config.unclean_leader_election_enable
        assert await alter(caller, BROKER, "0", (name, SET, "false")) == (ErrorCode.NONE, None)
        assert not caller.broker.topics.replicas.leader("clicks", 0).config.unclean_leader_election_enable
        code, told = await alter(caller, BROKER, "0", (name, SET, "perhaps"))
        assert (code, told) == (ErrorCode.INVALID_CONFIG, f"{name} is 'perhaps'; it must be true or false")

    run(scenario)


def test_how_many_connections_there_may_be_changes_while_the_broker_runs(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        async def connects() -> bool:
            reader, writer = await asyncio.open_connection("127.0.0.1", caller.broker.port)
            there.append(writer)
            # Who is admitted waits for what to say; who is not meets the end of the stream.
            with contextlib.suppress(TimeoutError):
                return bool(await asyncio.wait_for(reader.read(1), 0.3))
            return True

        there: list[asyncio.StreamWriter] = []
        try:
            assert [await connects(), await connects()] == [True, True]
            for setting in ("max.connections", "max.connections.per.ip"):
                assert await alter(caller, BROKER, "", (setting, SET, "2")) == (ErrorCode.NONE, None)
                assert not await connects()
                assert await alter(caller, BROKER, "0", (setting, SET, "9")) == (ErrorCode.NONE, None)
                assert await connects()
                assert await alter(caller, BROKER, "0", (setting, DELETE, None)) == (ErrorCode.NONE, None)
                assert await alter(caller, BROKER, "", (setting, DELETE, None)) == (ErrorCode.NONE, None)
        finally:
            for writer in there:
                writer.close()

    run(scenario)


def test_limits_of_connections_are_in_force_at_the_next_start(run: Run) -> None:
    async def change(caller: Caller) -> None:
        await alter(caller, BROKER, "0", ("max.connections", SET, "7"), ("max.connections.per.ip", SET, "3"))

    async def look(caller: Caller) -> None:
        assert caller.broker._open_files.connections_max() == 7
        assert caller.broker.config.max_connections_per_ip == 3

    run(change)
    run(look)

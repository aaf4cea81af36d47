"""Settings files of Kafka's: what is translated, what is passed over, what is refused."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from barnabas.broker.settings.in_force import DYNAMIC_RULES
from barnabas.broker.settings.kafka_names import LISTENERS, OTHER_UNITS, PROMISES, WITHOUT_EFFECT
from barnabas.broker.settings.loading import load_config
from barnabas.broker.settings.static import OTHER_NAMES, BrokerConfig
from barnabas.broker.settings.unused import UNUSED_BROKER_SETTINGS
from barnabas.errors import ConfigurationError

SERVER_PROPERTIES = """
process.roles = "broker,controller"
node.id = 3
controller.quorum.bootstrap.servers = "localhost:9093"
listeners = "PLAINTEXT://:9192,CONTROLLER://:9093"
inter.broker.listener.name = "PLAINTEXT"
advertised.listeners = "PLAINTEXT://broker-3.example:9192,CONTROLLER://localhost:9093"
controller.listener.names = "CONTROLLER"
listener.security.protocol.map = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL"
num.network.threads = 3
num.io.threads = 8
socket.send.buffer.bytes = 102400
socket.receive.buffer.bytes = 102400
socket.request.max.bytes = 104857600
log.dirs = "/tmp/kraft-combined-logs"
num.partitions = 2
num.recovery.threads.per.data.dir = 1
offsets.topic.replication.factor = 1
transaction.state.log.replication.factor = 1
transaction.state.log.min.isr = 1
log.retention.hours = 100
log.segment.bytes = 1073741824
log.segment.delete.delay.ms = 1000
delete.topic.enable = false
log.retention.check.interval.ms = 300000
zookeeper.set.acl = true
authorizer.class.name = ""
"""


def test_the_settings_file_of_a_kafka_release_is_understood(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "server.toml"
    file.write_text(SERVER_PROPERTIES)
    assert load_config(file) == BrokerConfig(
        broker_id=3,
        host="0.0.0.0",
        port=9192,
        advertised_host="broker-3.example",
        advertised_port=9192,
        inter_broker_listener_name="PLAINTEXT",
        listener_security_protocol_map="CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        log_dirs="/tmp/kraft-combined-logs",
        num_partitions=2,
        offsets_topic_replication_factor=1,
        log_retention_ms=360_000_000,
        file_delete_delay_ms=1000,
        delete_topic_enable=False,
        zookeeper_set_acl="true",
    )
    note, line = caplog.messages
    assert "these settings are for KRaft" in note
    assert "process.roles" in note
    assert "process.roles" not in line
    assert "num.network.threads" in line
    assert "num.partitions" not in line


def test_all_names_of_kafkas_without_meaning_here_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    values = dict.fromkeys(WITHOUT_EFFECT | {"config.providers.a.class"}, "7")
    values |= {name: each.default for name, each in UNUSED_BROKER_SETTINGS.items()}
    values |= {name: kept[0] for name, (kept, _) in PROMISES.items()}
    assert load_config(overrides={**values, "num.partitions": 4}) == BrokerConfig(num_partitions=4)
    variables = {"BARNABAS_" + name.replace(".", "_").upper(): value for name, value in values.items()}
    assert load_config(environment=variables) == BrokerConfig()
    half = len(caplog.messages) // 2
    for lines in (caplog.messages[:half], caplog.messages[half:]):
        assert all(
            sum(re.search(rf"(?:^|[ ,]){re.escape(name)}(?:[,:]|$)", line) is not None for line in lines) == 1
            for name in values
        )


def test_each_name_has_one_meaning() -> None:
    ours = {field.name.replace("_", ".") for field in dataclasses.fields(BrokerConfig)}
    assert not WITHOUT_EFFECT & {*ours, *OTHER_NAMES, *OTHER_UNITS, *LISTENERS}
    assert set(PROMISES) <= WITHOUT_EFFECT
    assert set(OTHER_NAMES.values()) <= ours
    assert set(DYNAMIC_RULES) >= WITHOUT_EFFECT


OF_KRAFT = """
# The settings of a combined node, as in a release of Kafka 4.
process.roles = broker, controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CTRL://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CTRL://localhost:9093
controller.listener.names=CTRL
listener.security.protocol.map=CTRL:PLAINTEXT,\\
    PLAINTEXT:PLAINTEXT
num.network.threads=3
log.dirs=/tmp/kraft-combined-logs
share.coordinator.state.topic.min.isr=1
log.retention.hours=168
"""
OF_ZOOKEEPER = """
# The settings of a broker of Kafka 3.
broker.id=1
listeners=PLAINTEXT://localhost:9092
socket.send.buffer.bytes=102400
log.dirs=/tmp/kafka-logs
zookeeper.connect=z1:2181,z2:2181/kafka
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
inter.broker.protocol.version=3.9
"""


def test_file_of_a_kraft_node_starts_a_broker_and_explains_what_is_left_out(tmp_path: Path, caplog) -> None:
    file = tmp_path / "server.properties"
    file.write_text(OF_KRAFT)
    config = load_config(file)
    assert (config.broker_id, config.host, config.port) == (1, "0.0.0.0", 9092)
    assert (config.advertised_host, config.advertised_port, config.listeners) == ("localhost", 9092, "")
    note, line = caplog.messages
    assert note.startswith("controller.listener.names, controller.quorum.bootstrap.servers, process.roles: ")
    assert "need the same zookeeper.connect" in note
    assert "share.coordinator.state.topic.min.isr" in line
    assert "controller" not in line


def test_file_of_a_broker_with_zookeeper_is_taken_as_it_is(tmp_path: Path, caplog) -> None:
    file = tmp_path / "server.properties"
    file.write_text(OF_ZOOKEEPER)
    config = load_config(file)
    assert (config.broker_id, config.host, config.log_dirs) == (1, "localhost", "/tmp/kafka-logs")
    assert (config.zookeeper_connect, config.zookeeper_connection_timeout_ms) == ("z1:2181,z2:2181/kafka", 18_000)
    (line,) = caplog.messages
    assert line.endswith(": inter.broker.protocol.version, socket.send.buffer.bytes")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num.partition=3\n", "unknown setting num.partition; did you mean num.partitions"),
        ("process.roles=controller\n", "process.roles is 'controller'; Barnabas has no controllers"),
        ("rack=\\u12\n", r"server.properties: line 1: .u needs four hexadecimal digits"),
    ],
)
def test_wrong_setting_in_a_properties_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        load_config(file)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"log.retention.minutes": 2, "log.retention.hours": 1}, {"log_retention_ms": 120_000}),
        ({"log.retention.ms": 5, "log.retention.minutes": 2}, {"log_retention_ms": 5}),
        ({"log.retention.hours": "-1"}, {"log_retention_ms": -1}),
        ({"log.roll.hours": 2}, {"log_roll_ms": 7_200_000}),
        ({"log.dir": "a", "log.dirs": "b,c"}, {"log_dirs": "b,c"}),
        ({"log.dir": "a"}, {"log_dirs": "a"}),
        ({"broker.rack": "r", "host.name": "h"}, {"rack": "r", "host": "h"}),
        ({"file.delete.delay.ms": 4, "log.segment.delete.delay.ms": 4}, {"file_delete_delay_ms": 4}),
        ({"listeners": "PLAINTEXT://[::1]:1"}, {"host": "::1", "port": 1}),
        ({"listeners": "PLAINTEXT://h:1", "port": 2}, {"host": "h", "port": 2}),
        ({"listeners": "PLAINTEXT://h:0"}, {"host": "h", "port": 0}),
        ({"advertised.listeners": "EXTERNAL://:5"}, {"advertised_port": 5}),
    ],
)
def test_kafkas_names_are_translated(given: dict[str, object], expected: dict[str, object]) -> None:
    assert load_config(overrides=given) == dataclasses.replace(BrokerConfig(), **expected)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num.network.thread": 3}, "unknown setting num.network.thread; did you mean num.network.threads"),
        ({"log.segment.delete.delay": 3}, "did you mean log.segment.delete.delay.ms"),
        ({"file.delete.delay.ms": 4, "log.segment.delete.delay.ms": 5}, "the same setting"),
        ({"num.io.threads": 0}, "num.io.threads is 0; it must be from 1"),
        ({"log.retention.hours": "many"}, "log.retention.hours is 'many'; it must be a whole number"),
        ({"listeners": "A://:1,B://:2"}, "listener A has no security protocol; add A:PROTOCOL"),
        ({"listeners": "9092"}, "listeners contains '9092'; it must be NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://h:99999"}, "it must be NAME://HOST:PORT"),
        ({"authorizer.class.name": "org.example.Authorizer"}, "it must be one of"),
        ({"remote.log.storage.system.enable": True}, "tiered storage is not supported"),
        ({"sasl.jaas.config": "org.example.Login required;"}, "use sasl.inter.broker.username"),
        ({"ssl.engine.factory.class": "org.example.Factory"}, "Java classes are not supported"),
    ],
)
def test_what_this_broker_cannot_do_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_config(overrides=given)

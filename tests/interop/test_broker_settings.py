"""Settings of brokers that are changed while they run (KIP-226): of one of three, and of all of them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from barnabas import Admin, ConfigSource, Consumer, Producer, TopicPartition
from tests.interop.java import maven
from tests.interop.java.tools import Said, Tools, kafka_tools
from tests.support.cluster_command import barnabas
from tests.support.process_cluster import Cluster
from tests.support.reading import wait_until
from tests.support.xdist_groups import CLUSTERS

pytestmark = [pytest.mark.xdist_group(CLUSTERS), pytest.mark.timeout(maven.TEST_TIMEOUT_S)]

SETTINGS = {"log_retention_ms": "1000000"}
NAME = "log.retention.ms"
CONFIG_COMMAND = "kafka.admin.ConfigCommand"

Found = tuple[str | None, ConfigSource]


def found(cluster: Cluster, setting: str = NAME) -> dict[int, Found]:
    """What each broker says of a setting of its own, asked at each."""
    told = {}
    for number, broker in cluster.brokers.items():
        with Admin(broker.bootstrap) as admin:
            each = admin.describe_config(broker=number)[setting]
        told[number] = each.value, each.source
    return told


def wait_until_found(cluster: Cluster, wanted: dict[int, Found]) -> None:
    wait_until(lambda: found(cluster) == wanted, f"the brokers say {wanted}")


OF_FILE = ("1000000", ConfigSource.STATIC_BROKER)


@pytest.fixture(params=["3.9.1", "4.3.0"])
def tools(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tools]:
    with kafka_tools(request.param, tmp_path / "java.log") as tools:
        yield tools


def test_kafka_configs_changes_one_broker_and_all(cluster: Cluster, tools: Tools) -> None:
    def configs(*options: str) -> Said:
        return tools.run(CONFIG_COMMAND, "--bootstrap-server", cluster.bootstrap, "--entity-type", "brokers", *options)

    said = configs("--entity-default", "--alter", "--add-config", f"{NAME}=2000000")
    assert said.code == 0, said.text
    of_all = ("2000000", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    wait_until_found(cluster, {1: of_all, 2: of_all, 3: of_all})
    said = configs("--entity-name", "2", "--alter", "--add-config", f"{NAME}=3000000")
    assert said.code == 0, said.text
    own = ("3000000", ConfigSource.DYNAMIC_BROKER)
    wait_until_found(cluster, {1: of_all, 2: own, 3: of_all})

    assert f"{NAME}=2000000" in configs("--entity-default", "--describe").text
    described = configs("--entity-name", "2", "--describe").text
    sources = (
        f"DYNAMIC_BROKER_CONFIG:{NAME}=3000000, DYNAMIC_DEFAULT_BROKER_CONFIG:{NAME}=2000000,"
        f" STATIC_BROKER_CONFIG:{NAME}=1000000, DEFAULT_CONFIG:{NAME}=604800000"
    )
    assert sources in described

    said = configs("--entity-name", "2", "--alter", "--add-config", "num.partitions=2")
    assert said.code == 1
    assert "num.partitions cannot be changed while the broker runs" in said.text

    cluster.brokers[2].kill()
    cluster.brokers[2].restart()
    wait_until_found(cluster, {1: of_all, 2: own, 3: of_all})
    assert configs("--entity-name", "2", "--alter", "--delete-config", NAME).code == 0
    assert configs("--entity-default", "--alter", "--delete-config", NAME).code == 0
    wait_until_found(cluster, dict.fromkeys((1, 2, 3), OF_FILE))


def test_librdkafka_and_our_command_change_one_broker_and_all(cluster: Cluster) -> None:
    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return barnabas("config", *arguments, "-b", cluster.bootstrap)

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    entry = ConfigEntry(NAME, "4000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "3", incremental_configs=[entry])
    (altered,) = admin.incremental_alter_configs([resource]).values()
    altered.result(60)
    assert command("set", "broker", "all", f"{NAME}=5000000").stdout == f"broker all: {NAME} = 5000000\n"
    of_all, own = ("5000000", ConfigSource.DYNAMIC_DEFAULT_BROKER), ("4000000", ConfigSource.DYNAMIC_BROKER)
    wait_until_found(cluster, {1: of_all, 2: of_all, 3: own})
    assert "dynamic default broker" in command("show", "broker", "all").stdout

    refused = command("set", "broker", "all", "port=1")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "port cannot be changed while the broker runs" in refused.stderr
    unknown = command("set", "broker", "all", "log.retention.mss=1")
    assert "did you mean log.retention.ms?" in unknown.stderr

    assert command("unset", "broker", "all", NAME).stdout == f"broker all: {NAME} is unset\n"
    assert command("unset", "broker", "3", NAME).stdout == f"broker 3: {NAME} = 1000000 (static broker)\n"
    wait_until_found(cluster, dict.fromkeys((1, 2, 3), OF_FILE))
    assert "no setting is changed for all brokers" in command("show", "broker", "all").stderr


def test_without_replica_selector_class_consumers_read_from_leaders(cluster: Cluster) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic("far", 1, 3)
    cluster.wait_until_in_sync("far", 3)
    follower = cluster.others(cluster.leader_of("far"))[0]
    with Producer(cluster.bootstrap, acks="all") as producer:
        for number in range(100):
            producer.send("far", b"%d" % number)
    rack, far = f"rack-{follower}", TopicPartition("far", 0)
    values: list[int] = []
    with Consumer(cluster.bootstrap, client_rack=rack, auto_offset_reset="earliest") as consumer:
        consumer.assign([far])
        fetcher, state = consumer._core.state.fetcher, consumer._core.state

        def has_read_all() -> bool:
            values.extend(int(each.value or b"") for each in consumer.poll(timeout_s=0.2))
            return len(values) >= 100

        wait_until(has_read_all, "all is read")
        with state.guard.lock:
            assert fetcher.source(far, state.view) not in {None, follower}
    assert values == list(range(100))

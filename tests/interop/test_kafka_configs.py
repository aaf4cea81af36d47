"""Kafka's own `kafka-configs` for quotas of users, client ids and addresses, and for users next to their quotas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas as client
from tests.interop.java import maven
from tests.interop.java.tools import Said, Tools, kafka_tools
from tests.support.broker_process import BrokerProcess
from tests.support.xdist_groups import JAVA

pytestmark = [pytest.mark.xdist_group(JAVA), pytest.mark.timeout(maven.TEST_TIMEOUT_S)]

CONFIG_COMMAND = "kafka.admin.ConfigCommand"
ENTITIES: list[tuple[list[str], dict[str, str | None], str]] = [
    (["--entity-type", "users", "--entity-name", "alice"], {"user": "alice"}, "producer_byte_rate=1024"),
    (["--entity-type", "users", "--entity-default"], {"user": None}, "request_percentage=12.5"),
    (
        ["--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-name", "app"],
        {"user": "alice", "client-id": "app"},
        "consumer_byte_rate=2048",
    ),
    (
        ["--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-default"],
        {"user": None, "client-id": None},
        "controller_mutation_rate=0.5",
    ),
    (["--entity-type", "clients", "--entity-name", "app"], {"client-id": "app"}, "producer_byte_rate=4096"),
    (["--entity-type", "clients", "--entity-default"], {"client-id": None}, "producer_byte_rate=8192"),
    (["--entity-type", "ips", "--entity-name", "10.0.0.7"], {"ip": "10.0.0.7"}, "connection_creation_rate=20"),
    (["--entity-type", "ips", "--entity-default"], {"ip": None}, "connection_creation_rate=30"),
]
"""The options that name an entity, the entity, and a quota for it."""


@pytest.fixture(params=["3.9.1", "4.3.0"])
def tools(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tools]:
    with kafka_tools(request.param, tmp_path / "java.log") as tools:
        yield tools


def test_kafka_configs_alters_and_describes_quotas(broker: BrokerProcess, tools: Tools) -> None:
    def configs(*options: str) -> Said:
        said = tools.run(CONFIG_COMMAND, "--bootstrap-server", broker.bootstrap, *options)
        assert said.code == 0, said.text
        return said

    with client.Admin(broker.bootstrap) as admin:
        for options, entity, quota in ENTITIES:
            configs("--alter", *options, "--add-config", quota)
            [found] = admin.describe_client_quotas(entity, strict=True)
            key, value = quota.split("=")
            assert found.quotas == {key: float(value)}
            assert f"{key}={float(value)}" in configs("--describe", *options).text
        users = ("--entity-type", "users", "--entity-name", "alice")
        configs("--alter", *users, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]")
        described = configs("--describe", *users).text
        assert "producer_byte_rate=1024.0" in described
        assert "SCRAM-SHA-256=iterations=8192" in described
        for options, entity, quota in ENTITIES:
            configs("--alter", *options, "--delete-config", quota.split("=")[0])
            assert admin.describe_client_quotas(entity, strict=True) == []
        assert [each.name for each in admin.describe_users()] == ["alice"]
        refused = tools.run(
            CONFIG_COMMAND,
            "--bootstrap-server",
            broker.bootstrap,
            "--alter",
            *users,
            "--add-config",
            "producer_byte_rate=0",
        )
        assert refused.code == 1
        assert "above 0" in refused.text

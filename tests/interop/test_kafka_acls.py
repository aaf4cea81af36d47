"""Kafka's own `kafka-acls` and `kafka-configs` for users, with brokers that enforce ACLs.

`make suites SUITE=authorization` runs the tests with three brokers of Barnabas, and with Apache Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.java import maven
from tests.interop.java.tools import Said, Tools, kafka_tools
from tests.support.reading import wait_until
from tests.support.secured_clients import consume, produce
from tests.support.secured_clusters import Access, properties, secured  # noqa: F401 - a fixture
from tests.support.xdist_groups import JAVA

pytestmark = [pytest.mark.xdist_group(JAVA), pytest.mark.timeout(maven.TEST_TIMEOUT_S)]

VERSION = "4.3.0"
ACLS, CONFIGS = "org.apache.kafka.tools.AclCommand", "kafka.admin.ConfigCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
RESOURCE = re.compile(r"ResourcePattern\(resourceType=(\S+), name=(\S+), patternType=(\S+)\)")
ENTRY = re.compile(r"\(principal=(\S+), host=(\S+), operation=(\S+), permissionType=(\S+)\)")

Command = Callable[..., Said]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    with kafka_tools(VERSION, tmp_path_factory.mktemp("kafka-tools") / "java.log") as tools:
        yield tools


@pytest.fixture
def command(tools: Tools, secured: Access, tmp_path: Path) -> Command:  # noqa: F811
    """Kafka's tools, run by the administrator."""
    return admin_command(tools, secured, tmp_path)


def admin_command(tools: Tools, access: Access, folder: Path) -> Command:
    """Return a function that runs a tool as the user of `access`, and returns the output."""
    file = folder / "admin.properties"
    file.write_text(properties(access.java()))

    def run(tool: str, *arguments: str, code: int = 0) -> Said:
        said = tools.run(tool, "--bootstrap-server", access.bootstrap, "--command-config", file, *arguments)
        assert said.code == code, said.text
        return said

    return run


def entries(said: Said) -> set[tuple[str, ...]]:
    """Return the ACLs of a list: type, name and pattern of the resource, principal, host, operation, permission."""
    found, resource = set(), ("", "", "")
    for line in said.text.splitlines():
        if match := RESOURCE.search(line):
            resource = match.groups()
        if match := ENTRY.search(line):
            found.add((*resource, *match.groups()))
    return found


def add_user(command: Command, name: str) -> str:
    """Create a user; return the password."""
    password = f"{name}-secret"
    command(CONFIGS, "--alter", "--entity-type", "users", "--entity-name", name, "--add-config", scram(password))
    return password


def scram(password: str) -> str:
    return f"SCRAM-SHA-512=[iterations=4096,password={password}]"


def test_kafka_acls_grants_and_revokes(command: Command, secured: Access) -> None:  # noqa: F811
    alice = secured.of("alice", add_user(command, "alice"))
    of_init = entries(command(ACLS, "--list"))
    command(TOPICS, "--create", "--topic", "clicks")
    assert produce(alice, "clicks") == "TOPIC_AUTHORIZATION_FAILED"

    command(ACLS, "--add", "--allow-principal", "User:alice", "--producer", "--topic", "clicks")
    wait_until(lambda: produce(alice, "clicks") == "", "alice may write")
    assert consume(alice, "clicks", "readers") == "GROUP_AUTHORIZATION_FAILED"
    command(ACLS, "--add", "--allow-principal", "User:alice", "--consumer", "--topic", "cli", "--group", "readers")
    command(ACLS, "--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "cli",
            "--resource-pattern-type", "prefixed")  # fmt: skip
    wait_until(lambda: consume(alice, "clicks", "readers") == "", "alice may read")

    of_alice = {
        *(("TOPIC", "clicks", "LITERAL", "User:alice", "*", each, "ALLOW") for each in ("WRITE", "CREATE", "DESCRIBE")),
        *(("TOPIC", "cli", "LITERAL", "User:alice", "*", each, "ALLOW") for each in ("READ", "DESCRIBE")),
        ("TOPIC", "cli", "PREFIXED", "User:alice", "*", "READ", "ALLOW"),
        ("GROUP", "readers", "LITERAL", "User:alice", "*", "READ", "ALLOW"),
    }
    assert entries(command(ACLS, "--list")) == of_init | of_alice
    of_topic = {each for each in of_alice if each[1] == "clicks"}
    assert entries(command(ACLS, "--list", "--topic", "clicks")) == of_topic
    match = command(ACLS, "--list", "--topic", "clicks", "--resource-pattern-type", "match")
    assert entries(match) == of_topic | {each for each in of_alice if each[2] == "PREFIXED"}
    assert entries(command(ACLS, "--list", "--principal", "User:bob")) == set()

    denial = ["--deny-principal", "User:alice", "--deny-host", "*", "--operation", "Write", "--topic", "*"]
    command(ACLS, "--add", *denial)
    wait_until(lambda: produce(alice, "clicks") == "TOPIC_AUTHORIZATION_FAILED", "alice may no longer write")
    command(ACLS, "--remove", "--force", *denial)
    wait_until(lambda: produce(alice, "clicks") == "", "alice may write again")

    command(ACLS, "--remove", "--force", "--topic", "cli", "--resource-pattern-type", "any")
    wait_until(lambda: consume(alice, "clicks", "readers") == "TOPIC_AUTHORIZATION_FAILED", "alice may no longer read")
    command(ACLS, "--remove", "--force", "--topic", "*", "--resource-pattern-type", "any")
    command(ACLS, "--remove", "--force", "--group", "readers")
    assert entries(command(ACLS, "--list")) == of_init | {each for each in of_alice if each[1] == "clicks"}
    command(ACLS, "--remove", "--force", "--topic", "clicks")
    assert entries(command(ACLS, "--list")) == of_init

"""`barnabas acl`, over an administrator that keeps the rules in memory."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from barnabas.cli import acl as command
from barnabas.cli.acl_words import parse_operations, parse_resource, parse_selection, resource_text
from barnabas.cli.commands import run
from barnabas.errors import ConfigurationError
from barnabas.model import Node
from barnabas.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    ResourcePattern,
    ResourceType,
)


class FakeAdmin:
    def __init__(self) -> None:
        self.acls: set[AclBinding] = set()
        self.settings = {"super.users": "User:root", "allow.everyone.if.no.acl.found": "false"}

    def __enter__(self) -> FakeAdmin:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def describe_acls(self, acl_filter: AclFilter) -> list[AclBinding]:
        return [
            each
            for each in self.acls
            if acl_filter.matches(each)
            and (each.pattern.type is not ResourceType.SUBJECT or acl_filter.type is ResourceType.SUBJECT)
        ]

    def create_acls(self, bindings) -> None:
        self.acls |= set(bindings)

    def delete_acls(self, filters):
        found = {each: self.describe_acls(each) for each in filters}
        self.acls -= {binding for each in found.values() for binding in each}
        return found

    def brokers(self) -> list[Node]:
        return [Node(7, "localhost", 9092)]

    def describe_config(self, *, broker: int):
        assert broker == 7
        return {name: SimpleNamespace(value=value) for name, value in self.settings.items()}

    @property
    def rules(self) -> list[str]:
        return sorted(map(str, self.acls))


@pytest.fixture
def admin(monkeypatch) -> FakeAdmin:
    made = FakeAdmin()
    monkeypatch.setattr(command, "connect", lambda _connection: made)
    return made


@pytest.mark.parametrize(
    ("arguments", "rules"),
    [
        (["read", "topic:clicks"], ["allow User:alice read topic:clicks"]),
        (
            ["read", "topic:clicks", "group:ctr"],
            ["allow User:alice read group:ctr", "allow User:alice read topic:clicks"],
        ),
        (
            ["write,Describe", "topic:logs-*", "--host", "10.0.0.0/8"],
            [
                "allow User:alice describe topic:logs-* from 10.0.0.0/8",
                "allow User:alice write topic:logs-* from 10.0.0.0/8",
            ],
        ),
        (
            ["topic:clicks", "--producer"],
            [f"allow User:alice {each} topic:clicks" for each in ("create", "describe", "write")],
        ),
        (
            ["topic:clicks", "--consumer", "ctr-*"],
            [
                "allow User:alice describe topic:clicks",
                "allow User:alice read group:ctr-*",
                "allow User:alice read topic:clicks",
            ],
        ),
        (["alter_configs", "cluster"], ["allow User:alice alter_configs cluster:kafka-cluster"]),
        (["all", "subject:*"], ["allow User:alice all subject:*"]),
        (["write", "transactional-id:t:1"], ["allow User:alice write transactional_id:t:1"]),
    ],
)
def test_operations_are_allowed(admin, arguments, rules) -> None:
    assert run(["acl", "allow", "User:alice", *arguments]) == 0
    assert admin.rules == rules


def test_rules_are_denied_listed_and_removed(admin, capsys) -> None:
    assert run(["acl", "allow", "User:alice", "read", "topic:clicks", "topic:log*", "subject:clicks-value"]) == 0
    assert run(["acl", "deny", "User:*", "all", "topic:clicks", "--host", "10.1.0.1"]) == 0
    assert "User:* may not all topic:clicks from 10.1.0.1" in capsys.readouterr().out.splitlines()

    def listed(*words: str) -> list[list[str]]:
        assert run(["acl", "list", *words]) == 0
        return [line.split() for line in capsys.readouterr().out.splitlines()[1:]]

    assert len(listed()) == 4
    assert len(listed("User:alice")) == 3
    assert listed("topic:logins") == [["User:alice", "allow", "read", "topic:log*", "*"]]
    assert listed("subject") == [["User:alice", "allow", "read", "subject:clicks-value", "*"]]
    assert listed("--permission", "deny", "--host", "10.1.0.1") == [
        ["User:*", "deny", "all", "topic:clicks", "10.1.0.1"]
    ]
    assert run(["acl", "list", "write", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert run(["acl", "list", "read", "topic:clicks", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {
            "principal": "User:alice",
            "host": "*",
            "operation": "read",
            "permission": "allow",
            "resource_type": "topic",
            "resource_name": "clicks",
            "pattern_type": "literal",
        }
    ]
    assert run(["acl", "remove", "topic:logins", "-y"]) == 1
    assert "no such rules" in capsys.readouterr().err
    assert run(["acl", "remove", "User:alice", "topic:log*"]) == 2
    assert "confirm with -y" in capsys.readouterr().err
    assert run(["acl", "remove", "User:alice", "topic:log*", "-y"]) == 0
    assert "removed 1 rule\n" in capsys.readouterr().err
    assert run(["acl", "remove", "User:alice", "-y"]) == 0
    assert admin.rules == ["deny User:* all topic:clicks from 10.1.0.1"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["allow", "alice", "read", "topic:clicks"], "did you mean User:alice?"),
        (["allow", "User:", "read", "topic:clicks"], "User:NAME"),
        (["allow", "User:alice", "read"], "name an operation and a resource"),
        (["allow", "User:alice", "topic:clicks"], "name an operation and a resource"),
        (["allow", "User:alice", "raed", "topic:clicks"], "did you mean read"),
        (["allow", "User:alice", "read", "tpoic:clicks"], "did you mean topic?"),
        (["allow", "User:alice", "read", "topic:"], "topic:'*' for all"),
        (["allow", "User:alice", "write", "group:ctr"], "no operation write on a group"),
        (["allow", "User:alice", "describe", "cluster:mine"], "a cluster has no name"),
        (["allow", "User:alice", "read", "topic:a", "--host", "a.example"], "do not look up host names"),
        (["allow", "User:alice", "group:ctr", "--producer"], "need a topic"),
        (["deny", "User:alice", "all"], "name an operation and a resource"),
        (["list", "User:alice", "User:bob"], "give one principal"),
        (["remove"], "missing argument"),
        (["why", "User:alice", "read", "topic:logs-*"], "one resource"),
        (["why", "User:alice", "read,write", "topic:logs"], "one operation"),
        (["why", "User:alice", "read", "topic:logs", "--host", "10.0.0.0/8"], "is a network"),
    ],
)
def test_wrong_usage_is_explained(admin, capsys, arguments, reason) -> None:
    assert run(["acl", *arguments]) == 2
    assert reason in capsys.readouterr().err
    assert admin.acls == set()


def why(capsys, *arguments: str) -> str:
    assert run(["acl", "why", *arguments]) == 0
    captured = capsys.readouterr()
    return (captured.out + captured.err).strip()


def test_why_names_the_deciding_rule(admin, capsys) -> None:
    assert why(capsys, "User:alice", "read", "topic:clicks") == (
        "denied: no ACL concerns the resource; allow it with: barnabas acl allow User:alice read topic:clicks"
    )
    assert run(["acl", "allow", "User:alice", "read", "topic:cl*"]) == 0
    assert run(["acl", "deny", "User:*", "read", "topic:clicks", "--host", "10.0.0.0/8"]) == 0
    capsys.readouterr()
    assert why(capsys, "User:alice", "describe", "topic:clicks") == "allowed: rule: User:alice may read topic:cl*"
    assert why(capsys, "User:alice", "read", "topic:clicks", "--host", "11.0.0.1").startswith("allowed: rule:")
    denied = why(capsys, "User:alice", "read", "topic:clicks", "--host", "10.0.0.1")
    assert denied == "denied: rule: User:* may not read topic:clicks from 10.0.0.0/8"
    without_address = why(capsys, "User:alice", "read", "topic:clicks")
    assert without_address.startswith("allowed: rule: User:alice may read topic:cl*")
    assert without_address.endswith("User:* may not read topic:clicks from 10.0.0.0/8")
    assert "allow it with: barnabas acl allow User:bob write topic:clicks" in why(
        capsys, "User:bob", "write", "topic:clicks"
    )
    assert why(capsys, "User:root", "alter", "cluster") == "allowed: User:root is in super.users"


def test_why_considers_the_settings_of_brokers_except_for_subjects(admin, capsys) -> None:
    admin.settings["allow.everyone.if.no.acl.found"] = "true"
    assert why(capsys, "User:bob", "write", "topic:new").startswith("allowed: no ACL concerns the resource")
    assert why(capsys, "User:root", "write", "subject:new").startswith("denied: no ACL concerns the resource")
    assert run(["acl", "why", "User:bob", "write", "topic:new", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["allowed"], found["rule"], found["rules_for_addresses"]) == (True, None, [])


@pytest.mark.parametrize(
    "text", ["topic:clicks", "topic:logs-*", "topic:*", "group:a:b", "cluster", "transactional-id:t", "subject:s"]
)
def test_resources_are_shown_as_they_are_read(text: str) -> None:
    assert resource_text(parse_resource(text)) == text


def test_words_of_a_selection_stand_in_any_order() -> None:
    found = parse_selection(["topic", "read,write", "User:a:b", "cluster"])
    assert found.principal == "User:a:b"
    assert found.operations == (Operation.READ, Operation.WRITE)
    cluster = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)
    assert found.resources == ((ResourceType.TOPIC, None), (ResourceType.CLUSTER, cluster))


def test_unknown_operations_name_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="there are all, read, write, create"):
        parse_operations("sing")

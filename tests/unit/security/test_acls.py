"""Tests of the ACLs and their filters."""

from __future__ import annotations

import pytest

from barnabas.errors import ConfigurationError
from barnabas.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    checked_binding,
)

CLICKS = ResourcePattern(ResourceType.TOPIC, "clicks")
LOGS = ResourcePattern(ResourceType.TOPIC, "logs-", PatternType.PREFIXED)
ALL_TOPICS = ResourcePattern(ResourceType.TOPIC, "*")
READ = AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW)


def binding(pattern: ResourcePattern = CLICKS, **changes: object) -> AclBinding:
    return AclBinding(pattern, READ._replace(**changes))


def test_a_number_without_meaning_is_unknown() -> None:
    assert ResourceType(99) is ResourceType.UNKNOWN
    assert Operation(-3) is Operation.UNKNOWN


@pytest.mark.parametrize(
    "wrong",
    [
        binding(CLICKS._replace(type=ResourceType.ANY)),
        binding(CLICKS._replace(pattern_type=PatternType.MATCH)),
        binding(CLICKS._replace(name="")),
        binding(CLICKS._replace(name="a\nb")),
        binding(CLICKS._replace(name="\ud800")),
        binding(CLICKS._replace(name="x" * 2000)),
        binding(ResourcePattern(ResourceType.CLUSTER, "other"), operation=Operation.ALTER),
        binding(operation=Operation.ANY),
        binding(operation=Operation.UNKNOWN),
        binding(permission=Permission.ANY),
        binding(principal="alice"),
        binding(principal="User:"),
        binding(principal="User:a\nb"),
        binding(host=""),
        binding(host="one\nexample"),
    ],
    ids=lambda each: "",
)
def test_an_incomplete_binding_is_refused(wrong: AclBinding) -> None:
    with pytest.raises(ConfigurationError):
        checked_binding(wrong)


def test_complete_bindings_are_accepted() -> None:
    cluster = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")
    for right in (
        binding(),
        binding(LOGS, principal="User:*", host="10.0.0.0/8"),
        binding(ALL_TOPICS, operation=Operation.ALL, permission=Permission.DENY),
        binding(cluster, operation=Operation.CLUSTER_ACTION),
    ):
        assert checked_binding(right) == right


def test_filters_match_by_name_and_pattern_type() -> None:
    everything = [binding(CLICKS), binding(LOGS), binding(ALL_TOPICS)]

    def found(acl_filter: AclFilter) -> list[str]:
        return [str(each.pattern) for each in everything if acl_filter.matches(each)]

    assert found(AclFilter()) == ["topic:clicks", "topic:logs-*", "topic:*"]
    assert found(AclFilter(name="clicks")) == ["topic:clicks"]
    assert found(AclFilter(name="clicks", pattern_type=PatternType.MATCH)) == ["topic:clicks", "topic:*"]
    assert found(AclFilter(name="logs-1", pattern_type=PatternType.MATCH)) == ["topic:logs-*", "topic:*"]
    assert found(AclFilter(name="logs-", pattern_type=PatternType.PREFIXED)) == ["topic:logs-*"]
    assert found(AclFilter(name="*", pattern_type=PatternType.LITERAL)) == ["topic:*"]
    assert found(AclFilter(pattern_type=PatternType.PREFIXED)) == ["topic:logs-*"]
    assert found(AclFilter(ResourceType.GROUP)) == []


def test_filters_match_the_entry() -> None:
    assert AclFilter(principal="User:alice", host="*", operation=Operation.READ).matches(binding())
    assert not AclFilter(principal="User:bob").matches(binding())
    assert not AclFilter(host="10.0.0.1").matches(binding())
    assert not AclFilter(operation=Operation.WRITE).matches(binding())
    assert not AclFilter(permission=Permission.DENY).matches(binding())
    assert AclFilter(operation=Operation(77)).has_unknown

"""Tests of the decisions, also against a plain reading of the rules."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.security.acls import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.authorizer import DECISIONS_KEPT_MAX, Acls, Authorizer
from barnabas.security.principal import Principal
from tests.support.searches import examples

ALICE, BOB, ROOT = Principal("User", "alice"), Principal("User", "bob"), Principal("User", "root")
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
HERE = "10.0.0.7"


def allow(
    name: str, operation: Operation, who: str = "User:alice", host: str = "*", *, prefix: bool = False
) -> AclBinding:
    pattern = ResourcePattern(TOPIC, name, PatternType.PREFIXED if prefix else PatternType.LITERAL)
    return AclBinding(pattern, AclEntry(who, host, operation, Permission.ALLOW))


def deny(
    name: str, operation: Operation, who: str = "User:alice", host: str = "*", *, prefix: bool = False
) -> AclBinding:
    pattern, entry = allow(name, operation, who, host, prefix=prefix)
    return AclBinding(pattern, entry._replace(permission=Permission.DENY))


def authorizer(*bindings: AclBinding, everyone: bool = False) -> Authorizer:
    return Authorizer(Acls(bindings), lambda principal: principal == ROOT, allow_everyone_if_no_acl=everyone)


def test_super_users_may_do_everything() -> None:
    found = authorizer(deny("*", Operation.ALL, "User:*"))
    assert found.allows(ROOT, HERE, Operation.DELETE, TOPIC, "clicks")
    assert found.allows_any(ROOT, HERE, Operation.WRITE, TOPIC)
    assert not found.allows(ALICE, HERE, Operation.DELETE, TOPIC, "clicks")


def test_nothing_is_allowed_without_acls() -> None:
    assert not authorizer().allows(ALICE, HERE, Operation.DESCRIBE, TOPIC, "clicks")
    assert not authorizer().allows_any(ALICE, HERE, Operation.WRITE, TOPIC)


def test_everyone_is_allowed_without_acls_of_the_resource() -> None:
    found = authorizer(allow("clicks", Operation.READ), everyone=True)
    assert found.allows(BOB, HERE, Operation.WRITE, TOPIC, "views")
    assert not found.allows(BOB, HERE, Operation.READ, TOPIC, "clicks")
    assert found.allows_any(BOB, HERE, Operation.WRITE, TOPIC)


def test_literal_prefixed_and_wildcard_names() -> None:
    for binding in (
        allow("logs-eu", Operation.READ),
        allow("logs-", Operation.READ, prefix=True),
        allow("*", Operation.READ),
    ):
        found = authorizer(binding)
        assert found.allows(ALICE, HERE, Operation.READ, TOPIC, "logs-eu")
        assert not found.allows(BOB, HERE, Operation.READ, TOPIC, "logs-eu")
        assert not found.allows(ALICE, HERE, Operation.READ, GROUP, "logs-eu")
    assert not authorizer(allow("logs-", Operation.READ, prefix=True)).allows(
        ALICE, HERE, Operation.READ, TOPIC, "logs"
    )


def test_deny_wins_whatever_its_pattern() -> None:
    for binding in (deny("clicks", Operation.READ), deny("c", Operation.ALL, prefix=True), deny("*", Operation.READ)):
        found = authorizer(allow("clicks", Operation.ALL), binding)
        assert not found.allows(ALICE, HERE, Operation.READ, TOPIC, "clicks")


def test_operations_imply_describe_when_they_allow_only() -> None:
    for operation in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL):
        assert authorizer(allow("clicks", operation)).allows(ALICE, HERE, Operation.DESCRIBE, TOPIC, "clicks")
    assert not authorizer(allow("clicks", Operation.CREATE)).allows(ALICE, HERE, Operation.DESCRIBE, TOPIC, "clicks")
    both = authorizer(allow("clicks", Operation.DESCRIBE), deny("clicks", Operation.READ))
    assert both.allows(ALICE, HERE, Operation.DESCRIBE, TOPIC, "clicks")
    configs = authorizer(allow("clicks", Operation.ALTER_CONFIGS))
    assert configs.allows(ALICE, HERE, Operation.DESCRIBE_CONFIGS, TOPIC, "clicks")
    assert not configs.allows(ALICE, HERE, Operation.DESCRIBE, TOPIC, "clicks")


def test_hosts_are_addresses_or_networks() -> None:
    for host in ("10.0.0.7", "10.0.0.0/8", "*"):
        found = authorizer(allow("clicks", Operation.READ, host=host))
        assert found.allows(ALICE, "10.0.0.7", Operation.READ, TOPIC, "clicks")
        assert found.allows(ALICE, "192.168.0.1", Operation.READ, TOPIC, "clicks") is (host == "*")
    mapped = authorizer(allow("clicks", Operation.READ, host="10.0.0.0/8"))
    assert mapped.allows(ALICE, "::ffff:10.0.0.7", Operation.READ, TOPIC, "clicks")
    assert not mapped.allows(ALICE, "no address", Operation.READ, TOPIC, "clicks")


def test_any_topic_counts_unless_a_denial_covers_it() -> None:
    def any_topic(*bindings: AclBinding) -> bool:
        return authorizer(*bindings).allows_any(ALICE, HERE, Operation.WRITE, TOPIC)

    assert any_topic(allow("clicks", Operation.WRITE))
    assert any_topic(allow("c", Operation.ALL, prefix=True), deny("clicks", Operation.WRITE))
    assert not any_topic(allow("clicks", Operation.WRITE), deny("clicks", Operation.ALL))
    assert not any_topic(allow("clicks", Operation.WRITE), deny("cl", Operation.WRITE, prefix=True))
    assert not any_topic(allow("cl", Operation.WRITE, prefix=True), deny("c", Operation.WRITE, prefix=True))
    assert any_topic(allow("c", Operation.WRITE, prefix=True), deny("cl", Operation.WRITE, prefix=True))
    assert not any_topic(allow("*", Operation.WRITE), deny("*", Operation.WRITE))
    assert not any_topic(allow("clicks", Operation.READ))


def test_decisions_name_their_rule() -> None:
    found = authorizer(allow("clicks", Operation.READ), deny("clicks", Operation.WRITE, "User:*", "10.0.0.0/8"))
    assert found.decide(ALICE, HERE, Operation.READ, TOPIC, "clicks").rule == allow("clicks", Operation.READ)
    denied = found.decide(ALICE, HERE, Operation.WRITE, TOPIC, "clicks")
    assert denied.reason == "an ACL denies it: deny User:* write topic:clicks from 10.0.0.0/8"
    assert found.decide(BOB, HERE, Operation.READ, TOPIC, "clicks").reason == "no ACL of the resource allows it"


def test_new_acls_replace_decisions() -> None:
    found = authorizer(allow("clicks", Operation.WRITE))
    assert found.allows(ALICE, HERE, Operation.WRITE, TOPIC, "clicks")
    assert found.allows_any(ALICE, HERE, Operation.WRITE, TOPIC)
    before = found.version
    found.acls = Acls()
    assert not found.allows(ALICE, HERE, Operation.WRITE, TOPIC, "clicks")
    assert not found.allows_any(ALICE, HERE, Operation.WRITE, TOPIC)
    assert found.version != before


def test_strangers_cannot_fill_the_memory_with_names() -> None:
    found = authorizer()
    for number in range(DECISIONS_KEPT_MAX + 10):
        found.allows(ALICE, HERE, Operation.READ, TOPIC, f"t{number}")
    found.allows(ALICE, HERE, Operation.READ, TOPIC, "x" * 30_000)
    assert len(found._decided) < DECISIONS_KEPT_MAX
    assert all(len(key[4]) < 300 for key in found._decided)


NAMES = st.text("ab", max_size=3)
PATTERNS = st.builds(
    ResourcePattern,
    st.just(TOPIC),
    NAMES.filter(bool) | st.just("*"),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)
ENTRIES = st.builds(
    AclEntry,
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from(["*", HERE, "10.0.0.8"]),
    st.sampled_from([Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL, Operation.ALTER_CONFIGS]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)


@settings(max_examples=examples(200))
@given(st.lists(st.builds(AclBinding, PATTERNS, ENTRIES), max_size=6), NAMES, st.booleans())
def test_decisions_are_those_of_the_plain_rules(bindings: list[AclBinding], name: str, everyone: bool) -> None:
    found = authorizer(*bindings, everyone=everyone)
    for operation in (Operation.READ, Operation.DESCRIBE, Operation.WRITE, Operation.DESCRIBE_CONFIGS):
        assert found.allows(ALICE, HERE, operation, TOPIC, name) is plainly(bindings, operation, name, everyone)


def plainly(bindings: list[AclBinding], operation: Operation, name: str, everyone: bool) -> bool:
    """Decide by reading all ACLs."""
    concerning = [each.entry for each in bindings if each.pattern.matches(name)]
    if not concerning:
        return everyone
    own = [each for each in concerning if each.principal != "User:bob" and each.host != "10.0.0.8"]
    if any(each.permission is Permission.DENY and each.operation in (operation, Operation.ALL) for each in own):
        return False
    implied = {
        Operation.DESCRIBE: {Operation.READ, Operation.WRITE},
        Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
    }.get(operation, set())
    return any(
        each.permission is Permission.ALLOW and each.operation in {operation, Operation.ALL, *implied} for each in own
    )

"""Tests of the decisions, also against a plain reading of the rules."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.authorizer import DECISIONS_KEPT_MAX, Acls, Authorizer, authorizer_of_broker
from barnabas.security.principal import Principal
from tests.support.searches import examples

ALICE, BOB, ROOT = Principal("User", "alice"), Principal("User", "bob"), Principal("User", "root")
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
HERE = "10.0.0.7"
LOGS = ResourcePattern(TOPIC, "logs-", PatternType.PREFIXED)


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


def test_ipv4_addresses_in_ipv6_form_are_the_same_addresses() -> None:
    for host in ("10.0.0.7", "::ffff:10.0.0.7", "::FFFF:0A00:0007", "::ffff:10.0.0.0/104"):
        found = authorizer(allow("clicks", Operation.ALL), deny("clicks", Operation.READ, host=host))
        for client in ("10.0.0.7", "::ffff:10.0.0.7"):
            assert not found.allows(ALICE, client, Operation.READ, TOPIC, "clicks")
        assert found.allows(ALICE, "11.0.0.7", Operation.READ, TOPIC, "clicks")
        assert found.allows(ALICE, "::1", Operation.READ, TOPIC, "clicks")


def test_zone_of_an_address_counts_if_the_acl_names_one() -> None:
    with_zone = authorizer(allow("clicks", Operation.READ, host="FE80::1%eth0"))
    without = authorizer(allow("clicks", Operation.READ, host="fe80::1"))
    for zone, is_allowed in (("eth0", True), ("eth1", False)):
        assert with_zone.allows(ALICE, f"fe80::1%{zone}", Operation.READ, TOPIC, "clicks") is is_allowed
        assert without.allows(ALICE, f"fe80::1%{zone}", Operation.READ, TOPIC, "clicks")
    assert not with_zone.allows(ALICE, "fe80::1", Operation.READ, TOPIC, "clicks")


def test_host_that_is_no_address_is_compared_as_text() -> None:
    found = authorizer(allow("clicks", Operation.READ, host="db.example"))
    assert found.allows(ALICE, "db.example", Operation.READ, TOPIC, "clicks")
    assert not found.allows(ALICE, HERE, Operation.READ, TOPIC, "clicks")


def test_everyone_is_allowed_any_topic_only_if_no_acl_concerns_all_topics() -> None:
    assert authorizer(allow("clicks", Operation.WRITE, "User:bob"), everyone=True).allows_any(
        ALICE, HERE, Operation.WRITE, TOPIC
    )
    found = authorizer(allow("*", Operation.WRITE, "User:bob"), everyone=True)
    assert not found.allows_any(ALICE, HERE, Operation.WRITE, TOPIC)
    assert found.allows_any(BOB, HERE, Operation.WRITE, TOPIC)


def lines_run_by(function: Callable[[], object]) -> int:
    """Return the number of lines of Python that a function runs."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


MANY = 2_000


def of_other_principals() -> list[AclBinding]:
    return [allow("*", Operation.READ, f"User:u{number}") for number in range(MANY)]


def of_other_networks() -> list[AclBinding]:
    return [deny("*", Operation.READ, "User:*", f"10.{number // 256}.{number % 256}.0/25") for number in range(MANY)]


def of_other_addresses() -> list[AclBinding]:
    return [deny("*", Operation.READ, host=f"10.{number // 256}.{number % 256}.1") for number in range(MANY)]


def of_other_prefixes() -> list[AclBinding]:
    return [deny(f"{number:04}-{'x' * (number % 20)}", Operation.READ, prefix=True) for number in range(MANY)]


@pytest.mark.parametrize("others", [of_other_principals, of_other_networks, of_other_addresses, of_other_prefixes])
def test_decision_takes_few_steps_whatever_other_acls_there_are(others: Callable[[], list[AclBinding]]) -> None:
    found = authorizer(*others(), allow("clicks", Operation.READ))
    name = "clicks" + "y" * 100
    assert lines_run_by(lambda: found.allows(ALICE, "10.200.0.9", Operation.READ, TOPIC, name)) < 200
    assert lines_run_by(lambda: found.allows(ALICE, "10.200.0.9", Operation.READ, TOPIC, "clicks")) < 200


def test_changed_acls_share_what_is_unchanged() -> None:
    before = Acls([*of_other_principals(), *of_other_prefixes()])
    (pattern, entry), clicks = allow("clicks", Operation.READ), allow("clicks", Operation.WRITE)
    both = (entry, clicks.entry)
    assert lines_run_by(lambda: before.with_patterns({pattern: both})) < 200
    after = before.with_patterns({pattern: both})
    assert set(after) == {*before, AclBinding(pattern, entry), clicks}
    assert after != before
    assert after.with_patterns({pattern: both}) is after
    again = after.with_patterns({pattern: (), LOGS: ()})
    assert (again, len(again)) == (before, len(before))
    assert again.entries(pattern) == ()


def test_candidates_of_a_filter_contain_all_matches() -> None:
    found = Acls(
        [
            allow("logs-eu", Operation.READ),
            allow("logs-", Operation.READ, prefix=True),
            allow("*", Operation.READ),
            allow("views", Operation.READ),
        ]
    )
    for acl_filter, names in (
        (AclFilter(), ["*", "logs-", "logs-eu", "views"]),
        (AclFilter(name="logs-eu"), ["logs-eu"]),
        (AclFilter(TOPIC, "logs-", PatternType.PREFIXED), ["logs-"]),
        (AclFilter(name="logs-eu", pattern_type=PatternType.MATCH), ["*", "logs-", "logs-eu"]),
        (AclFilter(GROUP, "logs-eu", pattern_type=PatternType.MATCH), []),
        (AclFilter(GROUP, "logs-eu"), []),
    ):
        candidates = list(found.candidates(acl_filter))
        assert sorted(each.name for each in candidates) == names
        assert {each for each in found if acl_filter.matches(each)} <= {each for each in found if each[0] in candidates}


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
OWN_NETWORKS = ["10.0.0.0/24", "::ffff:10.0.0.7", "0.0.0.0/0"]
ENTRIES = st.builds(
    AclEntry,
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from(["*", HERE, "10.0.0.8", *OWN_NETWORKS]),
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


@settings(max_examples=examples(100))
@given(st.lists(st.builds(AclBinding, PATTERNS, ENTRIES), max_size=6), st.booleans())
def test_any_resource_is_allowed_if_one_is(bindings: list[AclBinding], everyone: bool) -> None:
    found = authorizer(*bindings, everyone=everyone)
    # No pattern contains a "c", so these names are instances of all others.
    names = ["".join(each) for length in range(1, 5) for each in itertools.product("abc*", repeat=length)]
    for operation in (Operation.READ, Operation.DESCRIBE):
        is_one = any(found.allows(ALICE, HERE, operation, TOPIC, name) for name in names)
        assert found.allows_any(ALICE, HERE, operation, TOPIC) is is_one


def test_settings_of_a_broker_decide_about_all_resources_but_subjects() -> None:
    settings = {"super.users": "User:root", "allow.everyone.if.no.acl.found": "true"}
    of_topics = authorizer_of_broker(Acls(), TOPIC, settings)
    assert of_topics.decide(ROOT, HERE, Operation.READ, TOPIC, "clicks").reason == "User:root is in super.users"
    assert of_topics.allows(ALICE, HERE, Operation.READ, TOPIC, "clicks")
    subject = ResourceType.SUBJECT
    assert not authorizer_of_broker(Acls(), subject, settings).allows(
        ROOT, HERE, Operation.READ, subject, "clicks-value"
    )
    assert not authorizer_of_broker(Acls(), TOPIC, {}).allows(ROOT, HERE, Operation.READ, TOPIC, "clicks")

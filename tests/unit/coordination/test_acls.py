"""Tests of the ACLs in the metadata store."""

from __future__ import annotations

import json
import logging
import threading

import pytest

from barnabas.coordination import acls, paths
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.coordination.subtrees import ensure_paths
from barnabas.security.acls import (
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tests.support.reading import TIMEOUT_S

CLICKS = ResourcePattern(ResourceType.TOPIC, "clicks")
LOGS = ResourcePattern(ResourceType.TOPIC, "logs-", PatternType.PREFIXED)
READ = AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW)
WRITE = AclEntry("User:bob", "10.0.0.1", Operation.WRITE, Permission.DENY)
DENIED = AclEntry("User:*", "*", Operation.ALL, Permission.DENY)


def put(tree: MetadataStore, path: str, data: bytes) -> None:
    ensure_paths(tree, [path.rpartition("/")[0]])
    tree.create(path, data)


def test_acls_are_stored_as_kafka_stores_them(tree: MetadataStore) -> None:
    acls.add(tree, CLICKS, [READ])
    acls.add(tree, CLICKS, [WRITE, READ])
    acls.add(tree, LOGS, [READ])
    acls.add(tree, CLICKS._replace(name="*"), [READ])
    data = json.loads(tree.get("/kafka-acl/Topic/clicks").data)
    assert data == {
        "version": 1,
        "acls": [
            {"principal": "User:alice", "permissionType": "Allow", "operation": "Read", "host": "*"},
            {"principal": "User:bob", "permissionType": "Deny", "operation": "Write", "host": "10.0.0.1"},
        ],
    }
    assert sorted(tree.children("/kafka-acl/Topic")) == ["*", "clicks"]
    assert tree.children("/kafka-acl-extended/prefixed/Topic") == ["logs-"]
    assert acls.read_acls(tree) == {CLICKS: (READ, WRITE), LOGS: (READ,), CLICKS._replace(name="*"): (READ,)}


def test_reader_of_changes_finds_those_since_its_last_read(tree: MetadataStore) -> None:
    fired = threading.Event()
    before = acls.read_changes(tree, lambda _event: fired.set())
    assert before.since(before) == []
    acls.add(tree, LOGS, [READ])
    acls.add(tree, LOGS, [READ])  # no change
    acls.add(tree, CLICKS, [READ])
    acls.remove(tree, LOGS, lambda entry: entry == READ)
    assert fired.wait(TIMEOUT_S)
    after = acls.read_changes(tree)
    assert after.number == before.number + 3
    assert after.since(before) == [LOGS, CLICKS]
    assert after.since(after) == []
    assert acls.read_pattern(tree, LOGS) == ()
    assert tree.exists(paths.acl(LOGS)) is None


def test_reader_of_changes_that_has_missed_some_reads_everything(tree: MetadataStore) -> None:
    before = acls.read_changes(tree)
    for number in range(acls.CHANGED_MAX + 1):
        acls.add(tree, LOGS._replace(name=f"logs-{number}"), [READ])
    after = acls.read_changes(tree)
    assert len(after.patterns) == acls.CHANGED_MAX
    assert after.since(before) is None
    tree.delete(paths.ACL_CHANGES)
    acls.add(tree, CLICKS, [READ])
    again = acls.read_changes(tree)
    assert again.since(after) is None
    assert after.since(again) is None
    tree.set(paths.ACL_CHANGES, b"[" * 100_000)
    assert acls.read_changes(tree).since(again) is None
    damaged = acls.read_changes(tree)
    acls.add(tree, CLICKS, [WRITE])
    assert acls.read_changes(tree).since(damaged) == [CLICKS]


def test_foreign_values_among_the_changes_do_not_stay(tree: MetadataStore) -> None:
    acls.add(tree, CLICKS, [READ])
    before = acls.read_changes(tree)
    tree.set(paths.ACL_CHANGES, json.dumps(["x" * 9_000, 7, ["y"]] * 30).encode())
    acls.add(tree, LOGS, [READ])
    changes = acls.read_changes(tree)
    assert changes.since(before) is None
    assert changes.since(changes._replace(number=changes.number - 1)) == [LOGS]
    assert len(tree.get(paths.ACL_CHANGES).data) < 1_000


def test_removal_returns_what_is_left_and_what_is_gone(tree: MetadataStore) -> None:
    acls.add(tree, CLICKS, [READ, WRITE])
    assert acls.remove(tree, CLICKS, lambda entry: entry.permission is Permission.DENY) == ((READ,), (WRITE,))
    assert acls.remove(tree, LOGS, lambda entry: True) == ((), ())


def test_names_survive_as_nodes(tree: MetadataStore) -> None:
    names = ["a/b", "..", "my group", "é", "%", "a%2Fb", "*x", "x" * 200]
    for name in names:
        acls.add(tree, ResourcePattern(ResourceType.GROUP, name), [READ])
    assert sorted(pattern.name for pattern in acls.read_acls(tree)) == sorted(names)


def test_node_that_kafka_wrote_with_a_plain_name_is_read(tree: MetadataStore) -> None:
    put(tree, "/kafka-acl/Group/my group", acls.encode_acls([WRITE]))
    acls.add(tree, ResourcePattern(ResourceType.GROUP, "my group"), [READ])
    (entries,) = acls.read_acls(tree).values()
    assert set(entries) == {READ, WRITE}


def test_concurrent_changes_of_a_pattern_are_all_kept(tree: MetadataStore) -> None:
    acls.add(tree, CLICKS, [READ])

    def change_meanwhile(entry: AclEntry) -> bool:
        acls.add(tree, CLICKS, [WRITE])  # another broker
        return entry == READ

    assert acls.remove(tree, CLICKS, change_meanwhile) == ((WRITE,), (READ,))

    def delete_meanwhile(entry: AclEntry) -> bool:
        acls.remove(tree, CLICKS, lambda _each: True)
        return entry == WRITE

    assert acls.remove(tree, CLICKS, delete_meanwhile) == ((), ())
    assert acls.read_acls(tree) == {}


def test_node_of_kafka_counts_after_each_change(tree: MetadataStore) -> None:
    group, kafkas = ResourcePattern(ResourceType.GROUP, "my group"), "/kafka-acl/Group/my group"
    put(tree, kafkas, acls.encode_acls([WRITE]))
    assert acls.read_pattern(tree, group) == (WRITE,)
    assert set(acls.add(tree, group, [READ])) == {READ, WRITE}
    assert tree.exists(kafkas) is None
    assert acls.read_acls(tree) == {group: acls.read_pattern(tree, group)}
    put(tree, kafkas, acls.encode_acls([DENIED]))
    assert acls.remove(tree, group, lambda entry: entry.permission is Permission.ALLOW)[1] == (READ,)
    assert set(acls.read_pattern(tree, group)) == {WRITE, DENIED}
    put(tree, kafkas, acls.encode_acls([WRITE]))
    assert acls.remove(tree, group, lambda entry: True)[0] == ()
    assert tree.children("/kafka-acl/Group") == []


def test_second_node_of_the_name_of_all_resources_counts(tree: MetadataStore) -> None:
    everything = CLICKS._replace(name="*")
    put(tree, "/kafka-acl/Topic/%2A", acls.encode_acls([WRITE]))
    assert acls.read_pattern(tree, everything) == (WRITE,)
    assert set(acls.add(tree, everything, [READ])) == set(acls.read_acls(tree)[everything]) == {READ, WRITE}
    assert tree.children("/kafka-acl/Topic") == ["*"]


@pytest.mark.parametrize("name", ["", "\0", "\ud800", "/", "..", "a/b", "%", "x" * 30_000], ids=range(8))
def test_removal_from_a_name_without_acls_changes_nothing(tree: MetadataStore, name: str) -> None:
    assert acls.remove(tree, ResourcePattern(ResourceType.GROUP, name), lambda entry: True) == ((), ())
    assert tree.exists("/kafka-acl") is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"version":1}',
        b'{"acls":{}}',
        b'{"acls":[7]}',
        b'{"acls":[{"principal":"User:a","host":"*","operation":"Read"}]}',
        b'{"acls":[{"principal":"User:a","host":"*","operation":"Any","permissionType":"Deny"}]}',
        b'{"acls":[{"principal":"a","host":"*","operation":"Read","permissionType":"Allow"}]}',
        b'{"acls":[{"principal":"User:a","host":7,"operation":"Read","permissionType":"Allow"}]}',
        b"[" * 100_000,
    ],
    ids=range(11),
)
def test_damaged_node_denies_everything(tree: MetadataStore, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    put(tree, "/kafka-acl/Topic/clicks", data)
    acls.add(tree, LOGS, [READ])
    caplog.set_level(logging.WARNING)
    assert acls.read_acls(tree) == {CLICKS: (DENIED,), LOGS: (READ,)}
    assert "denying everything to everybody except super users by /kafka-acl/Topic/clicks" in caplog.text
    assert acls.add(tree, CLICKS, [READ]) == (DENIED, READ)


def test_unknown_type_of_resources_is_ignored(tree: MetadataStore, caplog: pytest.LogCaptureFixture) -> None:
    put(tree, "/kafka-acl/Planet/earth", acls.encode_acls([READ]))
    assert acls.read_acls(tree) == {}
    assert "/kafka-acl/Planet" in caplog.text
    assert acls.pattern_of("/kafka-acl/Planet/earth") is None
    assert acls.pattern_of("/config/users/alice") is None


def test_acls_beyond_the_size_of_a_node_are_refused(tree: MetadataStore) -> None:
    entries = [READ._replace(principal=f"User:{number:0200}") for number in range(3_000)]
    with pytest.raises(acls.TooManyAclsError):
        acls.add(tree, CLICKS, entries)
    assert acls.read_acls(tree) == {}

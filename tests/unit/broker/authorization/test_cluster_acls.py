"""Changes and searches of thousands of ACLs: they neither lose anything nor hold up other requests."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.authorization import cluster_acls
from barnabas.broker.metadata_image import MetadataDelta
from barnabas.coordination import acls
from barnabas.coordination.metadata_store import MetadataStore, MetadataStoreUnavailableError
from barnabas.coordination.subtrees import ensure_paths
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest
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
from barnabas.security.authorizer import Acls
from barnabas.security.principal import Principal
from tests.support.in_process_broker import Caller, run_with_broker
from tests.support.steps import at_once, counted

SETTINGS = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:root",
}
READ = AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW)
DENY = AclEntry("User:alice", "*", Operation.READ, Permission.DENY)
GROUP = ResourcePattern(ResourceType.GROUP, "my group")
MANY = 2_000


def topic(number: int) -> ResourcePattern:
    return ResourcePattern(ResourceType.TOPIC, f"t{number}")


def know_many(caller: Caller) -> None:
    """Give the broker many ACLs, without the time that their creation takes."""
    metadata = caller.broker.topics.metadata
    known = metadata.image.acls.with_patterns({topic(number): (READ,) for number in range(MANY)})
    metadata.put_acls(known)
    caller.broker.acls._known = known


def as_root(caller: Caller) -> None:
    caller.requests.state.principal = Principal("User", "root")


async def turns_during(work: Coroutine[Any, Any, Any]) -> tuple[Any, int]:
    """Return the result of some work, and the number of turns of other work during it."""
    task = asyncio.ensure_future(work)
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return await task, turns


def any_acl(name: str | None = None, pattern_type: int = 1, principal: str | None = None) -> dict[str, Any]:
    return {
        "resource_type_filter": 1,
        "resource_name_filter": name,
        "pattern_type_filter": pattern_type,
        "principal_filter": principal,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }


def test_search_pauses_and_looks_at_named_patterns_only(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        know_many(caller)
        found, pauses = counted(caller.broker.acls.find(AclFilter()))
        assert len(found) == MANY
        assert pauses >= MANY // 100
        for acl_filter in (AclFilter(name="t7"), AclFilter(name="t7", pattern_type=PatternType.MATCH)):
            found, pauses = counted(caller.broker.acls.find(acl_filter))
            assert (found, pauses) == ([AclBinding(topic(7), READ)], 0)

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_many_filters_and_creations_let_other_requests_run(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        know_many(caller)
        as_root(caller)
        described, turns = await turns_during(caller.call(DescribeAclsRequest(**any_acl())))
        assert (len(described.resources), turns > 2) == (MANY, True)
        filters = [DeleteAclsFilter(**any_acl(principal=f"User:u{number}")) for number in range(20)]
        deleted, turns = await turns_during(caller.call(DeleteAclsRequest(filters=filters)))
        assert ([each.error_code for each in deleted.filter_results], turns > 5) == ([0] * 20, True)
        wrong = AclCreation(
            resource_type=2,
            resource_name="",
            resource_pattern_type=3,
            principal="User:a",
            host="*",
            operation=3,
            permission_type=3,
        )
        created, turns = await turns_during(caller.call(CreateAclsRequest(creations=[wrong] * 2_000)))
        assert {each.error_code for each in created.results} == {ErrorCode.INVALID_REQUEST}
        assert turns > 5

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_change_shares_the_unchanged_acls_and_is_no_change_if_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(caller: Caller) -> None:
        know_many(caller)
        monkeypatch.setattr(Acls, "__eq__", None)  # a comparison of all ACLs would take long
        version = caller.broker.authorizer.version
        await caller.broker.acls.create([AclBinding(GROUP, READ)])
        assert caller.broker.authorizer.version == version + 1
        await caller.broker.acls.create([AclBinding(GROUP, READ)])
        await caller.broker.acls.read_changes()
        assert caller.broker.authorizer.version == version + 1
        await caller.broker.acls.load()  # the many ACLs are not in the metadata store
        assert list(caller.broker.authorizer.acls) == [AclBinding(GROUP, READ)]
        version = caller.broker.authorizer.version
        await caller.broker.acls.load()
        assert caller.broker.authorizer.version == version

    run_with_broker(tmp_path, scenario, **SETTINGS)


def deny_in_a_node_of_kafka(tree: MetadataStore) -> None:
    ensure_paths(tree, ["/kafka-acl/Group"])
    tree.create("/kafka-acl/Group/my group", acls.encode_acls([DENY]))


def test_denial_in_a_node_of_kafka_survives_changes(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        await caller.in_tree(deny_in_a_node_of_kafka)
        await caller.broker.acls.load()
        assert caller.broker.authorizer.acls.entries(GROUP) == (DENY,)
        await caller.broker.acls.create([AclBinding(GROUP, READ)])
        await caller.broker.acls.read_changes()
        assert set(caller.broker.authorizer.acls.entries(GROUP)) == {DENY, READ}

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_change_without_the_metadata_store_reports_an_error_and_keeps_the_acls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(caller: Caller) -> None:
        as_root(caller)
        await caller.broker.acls.create([AclBinding(topic(0), READ)])
        add = acls.add

        def add_once(tree: MetadataStore, pattern: ResourcePattern, entries: Any) -> Any:
            if pattern == topic(1):
                return add(tree, pattern, entries)
            raise MetadataStoreUnavailableError("no server is reachable")

        def remove(*_arguments: Any) -> Any:
            raise MetadataStoreUnavailableError("no server is reachable")

        monkeypatch.setattr(acls, "add", add_once)
        monkeypatch.setattr(acls, "remove", remove)
        creations = [
            AclCreation(
                resource_type=2,
                resource_name=f"t{number}",
                resource_pattern_type=3,
                principal="User:alice",
                host="*",
                operation=3,
                permission_type=3,
            )
            for number in (1, 2)
        ]
        created = await caller.call(CreateAclsRequest(creations=creations))
        assert all(each.error_code for each in created.results)
        deleted = await caller.call(DeleteAclsRequest(filters=[DeleteAclsFilter(**any_acl())]))
        assert deleted.filter_results[0].error_code
        known = {each.pattern for each in at_once(caller.broker.acls.find(AclFilter()))}
        assert topic(0) in known
        while topic(1) not in known:  # the watch fires
            await asyncio.sleep(0)
            known = {each.pattern for each in at_once(caller.broker.acls.find(AclFilter()))}

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_unforeseen_error_does_not_end_the_reading_of_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(caller: Caller) -> None:
        await caller.broker.acls.create([AclBinding(topic(0), READ)])
        read_pattern, failures = acls.read_pattern, []

        def fail_once(tree: MetadataStore, pattern: ResourcePattern) -> Any:
            if not failures:
                failures.append(pattern)
                raise RuntimeError
            return read_pattern(tree, pattern)

        monkeypatch.setattr(acls, "read_pattern", fail_once)
        monkeypatch.setattr(cluster_acls, "AGAIN_S", 0)
        await caller.in_tree(acls.remove, topic(0), lambda _entry: True)  # as another broker does
        async with asyncio.timeout(30):
            while len(caller.broker.authorizer.acls):  # noqa: ASYNC110 - the broker sets no event
                await asyncio.sleep(0)
        assert failures

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_failing_listener_does_not_keep_revoked_acls_in_force(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        binding = AclBinding(topic(0), READ)
        await caller.broker.acls.create([binding])

        def fail(_delta: MetadataDelta) -> None:
            raise RuntimeError

        subscribers = caller.broker._events._subscribers[MetadataDelta]
        subscribers.insert(0, fail)
        await caller.broker.acls.delete(AclFilter(*binding.pattern, *binding.entry))
        subscribers.remove(fail)
        assert len(caller.broker.authorizer.acls) == 0

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_deletion_finds_what_another_broker_has_just_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(caller: Caller) -> None:
        caller.broker.acls._is_due = asyncio.Event()  # the watch schedules no read
        await caller.in_tree(acls.add, topic(0), [READ])
        assert await caller.broker.acls.delete(AclFilter(principal="User:alice")) == [AclBinding(topic(0), READ)]

        def fail(*_arguments: Any) -> Any:
            raise MetadataStoreUnavailableError("no server is reachable")

        monkeypatch.setattr(acls, "read_changes", fail)
        with pytest.raises(MetadataStoreUnavailableError):
            await caller.broker.acls.delete(AclFilter(principal="User:alice"))

    run_with_broker(tmp_path, scenario, **SETTINGS)

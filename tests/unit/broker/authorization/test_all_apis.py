"""Each API in each version, with a principal that has no permission, all but one, or all.

A refused request has the right error and no effect, and its response is the same for a resource that exists and for one
that does not.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barnabas.broker.authorization.access import ERROR_OF
from barnabas.broker.authorization.rules import Rule
from barnabas.broker.authorization.table import RULES
from barnabas.broker.handlers import SERVED
from barnabas.coordination import configs
from barnabas.protocol.apis import api_of
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest
from barnabas.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.principal import Principal
from tests.support.in_process_broker import Caller, run_with_broker
from tests.support.sample_requests import SAMPLES, Names
from tests.support.steps import at_once

SETTINGS = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:root",
    "auto_create_topics_enable": True,
    "group_initial_rebalance_delay_ms": 0,
}
ALICE, ROOT = Principal("User", "alice"), Principal("User", "root")
ALL_TYPES = [ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID]
REFUSALS = set(ERROR_OF.values())
APIS = sorted(SERVED.values(), key=lambda served: served.key)


def act_as(caller: Caller, principal: Principal) -> None:
    caller.reconnect()
    caller.requests.state.principal = principal


def allow(kind: ResourceType, operation: Operation, permission: Permission = Permission.ALLOW) -> AclBinding:
    name = "kafka-cluster" if kind is ResourceType.CLUSTER else "*"
    return AclBinding(ResourcePattern(kind, name), AclEntry(str(ALICE), "*", operation, permission))


async def set_acls(caller: Caller, *bindings: AclBinding) -> None:
    """Replace all ACLs."""
    for each in at_once(caller.broker.acls.find(AclFilter())):
        await caller.broker.acls.delete(AclFilter(*each.pattern, *each.entry))
    assert await caller.broker.acls.create(bindings) == [None] * len(bindings)


def error_codes(found: Any) -> Iterator[int]:
    """Yield all error codes of a response."""
    if dataclasses.is_dataclass(found):
        for field in dataclasses.fields(found):
            value = getattr(found, field.name)
            if field.name == "error_code":
                yield value
            else:
                yield from error_codes(value)
    elif isinstance(found, list | tuple):
        for each in found:
            yield from error_codes(each)


def existing(caller: Caller) -> Names:
    return Names("clicks", caller.id_of("clicks"), "known")


def absent() -> Names:
    return Names("absent", bytes(range(16)), "unheard")


def anonymised(response: Any) -> str:
    """Return a response as text, without the names of its resources."""
    text = re.sub("0x[0-9a-f]+", "ADDRESS", repr(response))
    for name in ("clicks", "absent", "known", "unheard"):
        text = text.replace(repr(name), "NAME")
    return text


async def state_of(caller: Caller) -> Any:
    """Return all that a request could change."""
    broker = caller.broker
    log = broker.topics.replicas.leader("clicks", 0).storage.log
    return (
        {topic.name: len(topic.partitions) for topic in broker.topics.all()},
        await caller.in_tree(configs.read_topic_config, "clicks"),
        (log.log_start_offset, log.log_end_offset),
        sorted(broker.groups.group_ids()),
        dict(broker.offsets.committed("known")) if broker.groups.has_topic else None,
        at_once(broker.acls.find(AclFilter())),
        sorted(broker.users.users()),
    )


WITHOUT_CODES = {ListGroupsRequest, DescribeClusterRequest}
"""Requests that are answered with an empty list, or with what everyone may see."""


def has_codes(request: type, version: int) -> bool:
    return request not in WITHOUT_CODES and not (request is DescribeLogDirsRequest and version < 3)


def test_each_api_has_a_rule_and_a_sample() -> None:
    assert {api_of(request).key for request in RULES} == set(SERVED)
    assert {api_of(request).key for request in SAMPLES} == set(SERVED)


def rule_of(request: type) -> Rule:
    return RULES[request]


def test_nobody_may_do_anything(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        act_as(caller, ROOT)
        assert set(error_codes(await caller.call(SAMPLES[OffsetCommitRequest](existing(caller), 9), 9))) == {0}
        act_as(caller, ALICE)
        for served in APIS:
            request = served.api.request
            rule = rule_of(request)
            for version in served.versions:
                if not rule.rows and request is not DescribeClusterRequest:
                    continue
                before = await state_of(caller)
                response = await caller.call(SAMPLES[request](existing(caller), version), version)
                where = f"{served.api.name} {version}: {response}"
                codes = set(error_codes(response)) - {0}
                if has_codes(request, version):
                    assert codes, where
                assert codes <= {ERROR_OF[row.kind] for row in rule.rows}, where
                assert await state_of(caller) == before, where
                if uses_ids(request, version):
                    continue
                other = await caller.call(SAMPLES[request](absent(), version), version)
                assert anonymised(other) == anonymised(response), where
                assert await state_of(caller) == before, where

    run_with_broker(tmp_path, scenario, **SETTINGS)


def uses_ids(request: type, version: int) -> bool:
    """Return whether a sample names a topic by its id. An unknown id has its own error, as in Kafka."""
    firsts = {"ProduceRequest": 13, "FetchRequest": 13, "OffsetCommitRequest": 10, "OffsetFetchRequest": 10}
    return version >= firsts.get(request.__name__, 99)


def needs_of(rule: Rule) -> list[tuple[Operation, ResourceType]]:
    return [(row.operation, row.kind) for row in rule.rows]


def test_one_missing_permission_is_enough_for_a_refusal(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        everything = [allow(kind, Operation.ALL) for kind in ALL_TYPES]
        for served in APIS:
            request = served.api.request
            for operation, kind in needs_of(rule_of(request)):
                if not is_needed(request, operation, kind):
                    continue
                act_as(caller, ROOT)
                await set_acls(caller, *everything, allow(kind, operation, Permission.DENY), *alternatives(request))
                act_as(caller, ALICE)
                for version in served.versions:
                    before = await state_of(caller)
                    response = await caller.call(SAMPLES[request](existing(caller), version), version)
                    where = f"{served.api.name} {version} without {operation.name} {kind.name}: {response}"
                    codes = set(error_codes(response)) - {0}
                    if has_codes(request, version):
                        assert codes == {ERROR_OF[kind]}, where
                    assert await state_of(caller) == before, where

    run_with_broker(tmp_path, scenario, **SETTINGS)


def is_needed(request: type, operation: Operation, kind: ResourceType) -> bool:
    """Return whether the sample needs an operation."""
    if kind is ResourceType.TRANSACTIONAL_ID or request in WITHOUT_CODES:
        return False
    if request.__name__ == "MetadataRequest":
        return operation is Operation.DESCRIBE
    if request.__name__ == "CreateTopicsRequest":
        return operation is Operation.CREATE
    return not (request.__name__.endswith("ConfigsRequest") and kind is not ResourceType.TOPIC)


def alternatives(request: type) -> list[AclBinding]:
    """Return what denies the other permission that would be enough, too."""
    name = request.__name__
    if name == "CreateTopicsRequest":
        return [allow(ResourceType.CLUSTER, Operation.CREATE, Permission.DENY)]
    if name == "InitProducerIdRequest":
        return [allow(ResourceType.TOPIC, Operation.WRITE, Permission.DENY)]
    return []


def test_all_permissions_are_enough(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        await set_acls(caller, *(allow(kind, Operation.ALL) for kind in ALL_TYPES))
        act_as(caller, ALICE)
        for served in APIS:
            for version in served.versions:
                if served.api.request is PushTelemetryRequest:
                    continue
                if caller.broker.topics.get("clicks") is None:
                    await caller.broker.topic_admin.create("clicks", 3, {})
                names = dataclasses.replace(existing(caller), group=f"group-{served.key}-{version}")
                response = await caller.call(SAMPLES[served.api.request](names, version), version)
                assert not set(error_codes(response)) & REFUSALS, f"{served.api.name} {version}: {response}"

    run_with_broker(tmp_path, scenario, **SETTINGS)

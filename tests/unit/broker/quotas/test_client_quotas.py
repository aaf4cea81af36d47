"""The quotas of clients in the metadata store: changes, their validation, and their effect on other brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.handlers.alter_client_quotas import alter_client_quotas
from barnabas.broker.handlers.describe_client_quotas import describe_client_quotas
from barnabas.broker.quotas.client_quotas import Alteration, ClientQuotas
from barnabas.broker.quotas.entities import EntityFilter, entity
from barnabas.broker.quotas.limits import QuotaLimits
from barnabas.broker.security_log import RequestSource, SecurityLog
from barnabas.broker.super_users import SuperUsers
from barnabas.broker.user_credentials import Upsertion, UserCredentials
from barnabas.coordination import paths, topic_metadata_store
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.subtrees import ensure_paths
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.net.server_connection import Endpoints
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlteredQuotaEntityPart,
    QuotaAlteration,
    QuotaOperation,
)
from barnabas.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, QuotaFilterComponent
from barnabas.security.principal import ANONYMOUS

ALL = EntityFilter([], strict=False)
ALICE = (("user", "alice"),)
KEY = "producer_byte_rate"


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[EmbeddedMetadataStore]:
    made = EmbeddedMetadataStore(tmp_path / "tree.sqlite")
    topic_metadata_store.prepare(made, "cluster-1")
    yield made
    made.close()


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(coroutine)


async def here(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


class Quotas(ClientQuotas):
    """The quotas of one broker, and the limits that they have put into force."""

    def __init__(self, tree: EmbeddedMetadataStore) -> None:
        self.in_force: list[QuotaLimits] = []
        super().__init__(tree, here, self.in_force.append)  # type: ignore[arg-type]

    def set(self, *parts: tuple[str, str | None], validate_only: bool = False, **values: float | None) -> Any:
        results = run(self.alter([Alteration(parts, list(values.items()))], validate_only=validate_only))
        return results[parts]

    def all(self) -> dict[Any, Any]:
        return dict(self.describe(ALL))


def code(error: BarnabasError | None) -> ErrorCode | None:
    return error.code if isinstance(error, ApiError) else None


def test_quota_is_in_force_here_and_at_other_brokers(tree: EmbeddedMetadataStore) -> None:
    quotas, other = Quotas(tree), Quotas(tree)
    assert quotas.set(*ALICE, producer_byte_rate=1024.0) is None
    assert quotas.in_force[-1].of_client(KEY, "alice", "app") is not None
    assert other.in_force == []
    run(other.reread())
    assert other.all() == quotas.all() == {entity("alice"): {KEY: 1024.0}}
    assert len(other.in_force) == 1


def test_unchanged_quotas_are_not_put_into_force_again(tree: EmbeddedMetadataStore) -> None:
    quotas = Quotas(tree)
    quotas.set(*ALICE, producer_byte_rate=1024.0)
    run(quotas.reread())
    quotas.set(*ALICE, producer_byte_rate=1024.0)
    assert len(quotas.in_force) == 1


def test_change_leaves_other_quotas_of_the_entity(tree: EmbeddedMetadataStore) -> None:
    quotas = Quotas(tree)
    quotas.set(*ALICE, producer_byte_rate=1024.0, request_percentage=50.0)
    quotas.set(*ALICE, producer_byte_rate=None, consumer_byte_rate=2.0)
    assert quotas.all() == {entity("alice"): {"consumer_byte_rate": 2.0, "request_percentage": 50.0}}
    quotas.set(*ALICE, consumer_byte_rate=None, request_percentage=None, controller_mutation_rate=None)
    assert quotas.all() == {}


def test_validation_changes_nothing(tree: EmbeddedMetadataStore) -> None:
    quotas = Quotas(tree)
    assert quotas.set(*ALICE, producer_byte_rate=1024.0, validate_only=True) is None
    assert code(quotas.set(*ALICE, producer_byte_rate=-1.0, validate_only=True)) is ErrorCode.INVALID_REQUEST
    run(quotas.reread())
    assert quotas.all() == {}


def test_invalid_quota_changes_nothing_of_its_entity(tree: EmbeddedMetadataStore) -> None:
    quotas = Quotas(tree)
    assert code(quotas.set(*ALICE, producer_byte_rate=1024.0, unknown=1.0)) is ErrorCode.INVALID_REQUEST
    assert quotas.all() == {}


def test_removal_of_a_quota_that_does_not_exist_is_no_error(tree: EmbeddedMetadataStore) -> None:
    assert Quotas(tree).set(*ALICE, producer_byte_rate=None, unknown=None) is None


def test_entities_and_keys_that_are_named_twice_are_refused(tree: EmbeddedMetadataStore) -> None:
    quotas = Quotas(tree)
    both = (("user", "alice"), ("client-id", "app"))
    alterations = [
        Alteration(both, [(KEY, 1.0)]),
        Alteration(both[::-1], [(KEY, 2.0)]),
        Alteration((("user", "bob"),), [(KEY, 1.0), (KEY, None)]),
        Alteration((("user", "carol"),), [(KEY, 1.0)]),
    ]
    results = run(quotas.alter(alterations))
    assert [code(each) for each in results.values()] == [ErrorCode.INVALID_REQUEST] * 3 + [None]
    assert quotas.all() == {entity("carol"): {KEY: 1.0}}


def test_credentials_and_quotas_of_a_user_do_not_disturb_each_other(tree: EmbeddedMetadataStore) -> None:
    quotas, users = Quotas(tree), UserCredentials(tree, here, bytes)  # type: ignore[arg-type]
    run(users.load(None))
    created = Upsertion("alice", 1, 4_096, b"salt of 16 bytes", bytes(32))
    quotas.set(*ALICE, producer_byte_rate=1.0)
    quotas.set(("user", "alice"), ("client-id", "app"), producer_byte_rate=2.0)
    quotas.set(("user", None), producer_byte_rate=3.0)
    assert users.users() == {}
    run(users.alter([created]))
    assert list(users.users()) == ["alice"]
    quotas.set(*ALICE, producer_byte_rate=None)
    run(users.reread())
    assert list(users.users()) == ["alice"]
    run(users.alter([Upsertion("alice", 1)]))
    assert users.users() == {}
    run(quotas.reread())
    assert quotas.all() == {entity("alice", "app"): {KEY: 2.0}, entity(None): {KEY: 3.0}}


def test_damaged_quotas_are_logged_and_ignored(tree: EmbeddedMetadataStore, caplog: pytest.LogCaptureFixture) -> None:
    for path, data in (
        ("/config/clients/app", b'{"version":1,"config":{"producer_byte_rate":"many","consumer_byte_rate":"5"}}'),
        ("/config/ips/example.com", b'{"version":1,"config":{"connection_creation_rate":"5"}}'),
        ("/config/users/alice", b"[]"),
    ):
        ensure_paths(tree, [path])
        tree.set(path, data)
    assert Quotas(tree).all() == {entity(client_id="app"): {"consumer_byte_rate": 5.0}}
    assert len(caplog.messages) == 3


def test_change_notification_names_the_node(tree: EmbeddedMetadataStore) -> None:
    Quotas(tree).set(*ALICE, producer_byte_rate=1.0)
    [name] = tree.children(paths.CHANGES)
    assert b"/config/users/alice" in tree.get(f"{paths.CHANGES}/{name}").data


def test_handlers_alter_and_describe(tree: EmbeddedMetadataStore, caplog: pytest.LogCaptureFixture) -> None:
    quotas = Quotas(tree)
    request = AlterClientQuotasRequest(
        entries=[
            QuotaAlteration(
                entity=[AlteredQuotaEntityPart(entity_type="user", entity_name=None)],
                ops=[QuotaOperation(key=KEY, value=5.0, remove=False), QuotaOperation(key="x", value=0, remove=True)],
            ),
            QuotaAlteration(entity=[], ops=[]),
        ],
        validate_only=False,
    )
    source = RequestSource(ANONYMOUS, Endpoints("10.0.0.1", 1, "10.0.0.9"), "PLAINTEXT", "c", "AlterClientQuotas")
    call = SimpleNamespace(source=source, connection=SimpleNamespace(principal=ANONYMOUS))
    security_log, open_to_all = SecurityLog(lambda: 0.0), SuperUsers("", restricts_users=False)
    with caplog.at_level(logging.INFO):
        refused = run(alter_client_quotas.function(quotas, security_log, SuperUsers("User:root"), request, call))
        assert {each.error_code for each in refused.entries} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
        assert quotas.all() == {}
        caplog.clear()
        altered = run(alter_client_quotas.function(quotas, security_log, open_to_all, request, call))
    logged = [each.__dict__["fields"] for each in caplog.records if each.name == "barnabas.security.audit"]
    assert [(each.get("resource", ""), each.get("change", ""), each["result"]) for each in logged] == [
        ("user:(default)", f"{KEY}=5.0,x=(removed)", "done"),
        ("", "", "INVALID_REQUEST"),
    ]
    assert [each.error_code for each in altered.entries] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert altered.entries[0].entity[0].entity_name is None
    wanted = DescribeClientQuotasRequest(
        components=[QuotaFilterComponent(entity_type="user", match_type=1, match=None)], strict=True
    )
    described = describe_client_quotas.function(quotas, wanted, None)
    [entry] = described.entries
    assert [(each.entity_type, each.entity_name) for each in entry.entity] == [("user", None)]
    assert [(each.key, each.value) for each in entry.values] == [(KEY, 5.0)]
    wanted.components[0].match = "alice"
    refused = describe_client_quotas.function(quotas, wanted, None)
    assert (refused.error_code, refused.entries) == (ErrorCode.INVALID_REQUEST, None)


def test_responses_have_the_order_of_kafka(tree: EmbeddedMetadataStore) -> None:
    quotas = Quotas(tree)
    parts = [AlteredQuotaEntityPart(entity_type=kind, entity_name=None) for kind in ("user", "client-id")]
    keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
    ops = [QuotaOperation(key=each, value=1.0, remove=False) for each in keys]
    request = AlterClientQuotasRequest(entries=[QuotaAlteration(entity=parts, ops=ops)], validate_only=False)
    source = RequestSource(ANONYMOUS, Endpoints("10.0.0.1", 1, "10.0.0.9"), "PLAINTEXT", "c", "AlterClientQuotas")
    call = SimpleNamespace(source=source, connection=SimpleNamespace(principal=ANONYMOUS))
    security_log, open_to_all = SecurityLog(lambda: 0.0), SuperUsers("", restricts_users=False)
    [altered] = run(alter_client_quotas.function(quotas, security_log, open_to_all, request, call)).entries
    assert [each.entity_type for each in altered.entity] == ["client-id", "user"]
    [described] = describe_client_quotas.function(
        quotas, DescribeClientQuotasRequest(components=[], strict=False), None
    ).entries
    assert [each.entity_type for each in described.entity] == ["client-id", "user"]
    assert [each.key for each in described.values] == [
        "consumer_byte_rate",
        "controller_mutation_rate",
        "request_percentage",
        "producer_byte_rate",
    ]

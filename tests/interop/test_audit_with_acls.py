"""Reports to the audit at a broker with ACLs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas import Admin
from barnabas.client.admin.operations import cluster_of
from barnabas.client.audit.event_log import ReportedTopics, read_events
from barnabas.client.audit.event_sender import AUDIT_TOPIC, EventSender
from barnabas.client.config import AdminConfig, make_config
from barnabas.errors import ApiError
from barnabas.security.acls import AclBinding, AclEntry, Operation, Permission, ResourcePattern, ResourceType
from tests.support.acl_grants import AUTHORIZER
from tests.support.secured_broker import PASSWORD, secured_broker


def test_write_is_enough_for_an_existing_topic(tmp_path: Path) -> None:
    with secured_broker(tmp_path, **{"authorizer.class.name": AUTHORIZER}) as broker:
        writing = AclBinding(
            ResourcePattern(ResourceType.TOPIC, AUDIT_TOPIC),
            AclEntry("User:bob", "*", Operation.WRITE, Permission.ALLOW),
        )
        with Admin(**broker.client()) as admin:
            admin.set_user_password("bob", PASSWORD)
            admin.create_topic(AUDIT_TOPIC)
            admin.create_acls([writing])

        async def ensure() -> bool:
            settings = broker.client(sasl_username="bob")
            cluster = cluster_of(make_config(AdminConfig, settings.pop("bootstrap"), settings))
            try:
                return await EventSender(cluster, 10_000).ensure_topic()
            finally:
                await cluster.finish()

        assert asyncio.run(ensure()) is False


def test_audit_names_the_permission_that_its_user_lacks(tmp_path: Path) -> None:
    with secured_broker(tmp_path, **{"authorizer.class.name": AUTHORIZER}) as broker:
        reading = AclBinding(
            ResourcePattern(ResourceType.TOPIC, "clicks"),
            AclEntry("User:bob", "*", Operation.READ, Permission.ALLOW),
        )
        with Admin(**broker.client()) as admin:
            admin.set_user_password("bob", PASSWORD)
            admin.create_topic("clicks")
            admin.create_acls([reading])
            assert read_events(broker.client(), admin, "clicks") == []
        bob = broker.client(sasl_username="bob")
        with Admin(**bob) as admin, pytest.raises(ApiError, match="User:bob lacks DESCRIBE on topic:_audit"):
            read_events(bob, admin, "clicks")
        with Admin(**bob) as admin, pytest.raises(ApiError, match="User:bob lacks DESCRIBE on topic:_audit"):
            ReportedTopics(bob).read(admin)

"""Changes that other brokers make while a broker starts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas.broker.broker import Broker
from barnabas.coordination import acls, configs
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.security.acls import AclEntry, Operation, Permission, ResourcePattern, ResourceType
from barnabas.security.scram import ScramMechanism, credential_from_password
from tests.support.in_process_broker import Caller, run_with_broker

SETTINGS = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:root",
}
MECHANISM = ScramMechanism.SHA_256
CLICKS = ResourcePattern(ResourceType.TOPIC, "clicks")
ALLOW = AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW)


def grant(tree: MetadataStore) -> None:
    credential = credential_from_password(MECHANISM, "secret", b"0123456789abcdef", 4096).text()
    configs.change_user_config(tree, "alice", lambda _before: {MECHANISM.value: credential})
    acls.add(tree, CLICKS, [ALLOW])


def revoke(tree: MetadataStore) -> None:
    configs.change_user_config(tree, "alice", lambda _before: {"consumer_byte_rate": "1000"})
    configs.change_broker_config(tree, "", lambda _before: {"max.connections.per.ip": "77"})
    acls.remove(tree, CLICKS, lambda _entry: True)


def test_changes_before_the_first_notification_is_read_are_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def first(caller: Caller) -> None:
        await caller.in_tree(grant)

    load_topics = Broker._load_topics

    async def revoke_first(self: Broker) -> None:
        assert self.users.find(MECHANISM, "alice") is not None
        await self._in_metadata_thread(revoke, self._tree)
        await load_topics(self)

    async def second(caller: Caller) -> None:
        broker = caller.broker
        async with asyncio.timeout(30):
            while not broker.client_quotas._known:  # noqa: ASYNC110 - the quotas are read last
                await asyncio.sleep(0)
        assert broker.users.find(MECHANISM, "alice") is None
        assert broker.config.max_connections_per_ip == 77
        assert len(broker.authorizer.acls) == 0

    run_with_broker(tmp_path, first, **SETTINGS)
    monkeypatch.setattr(Broker, "_load_topics", revoke_first)
    run_with_broker(tmp_path, second, **SETTINGS)

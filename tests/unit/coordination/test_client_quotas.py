"""The nodes with client quotas: their paths and content are Kafka's, and SCRAM credentials stay apart."""

from __future__ import annotations

import json
import logging

import pytest

from barnabas.coordination import configs, paths, topic_metadata_store
from barnabas.coordination.client_quotas import (
    QuotaNode,
    change_quota_config,
    is_quota_path,
    quota_path,
    read_quota_configs,
)
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.coordination.subtrees import ensure_paths

QUOTA = {"producer_byte_rate": "1024"}
ALICE: QuotaNode = (("user", "alice"),)
APP_OF_ALICE: QuotaNode = (("user", "alice"), ("client-id", "app"))
NODES: dict[QuotaNode, str] = {
    ALICE: "/config/users/alice",
    APP_OF_ALICE: "/config/users/alice/clients/app",
    (("user", "CN=broker 1"), ("client-id", None)): "/config/users/CN%3Dbroker%201/clients/<default>",
    (("user", None),): "/config/users/<default>",
    (("user", None), ("client-id", "app")): "/config/users/<default>/clients/app",
    (("user", None), ("client-id", None)): "/config/users/<default>/clients/<default>",
    (("client-id", "a/b"),): "/config/clients/a%2Fb",
    (("client-id", None),): "/config/clients/<default>",
    (("ip", "10.0.0.1"),): "/config/ips/10.0.0.1",
    (("ip", None),): "/config/ips/<default>",
}


@pytest.fixture(autouse=True)
def _prepared(tree: MetadataStore) -> None:
    topic_metadata_store.prepare(tree, "cluster-1")


@pytest.mark.parametrize(("node", "path"), NODES.items(), ids=NODES.values())
def test_quotas_are_at_kafkas_path(tree: MetadataStore, node: QuotaNode, path: str) -> None:
    before = len(tree.children(paths.CHANGES))
    change_quota_config(tree, node, lambda _: QUOTA)
    assert quota_path(node) == path
    assert json.loads(tree.get(path).data) == {"version": 1, "config": QUOTA}
    assert read_quota_configs(tree) == {node: QUOTA}
    assert len(tree.children(paths.CHANGES)) == before + 1
    assert is_quota_path(path)
    assert paths.is_secret(path) == path.startswith("/config/users")


def test_removed_quotas_leave_no_node(tree: MetadataStore) -> None:
    for node in NODES:
        change_quota_config(tree, node, lambda _: QUOTA)
    for node in NODES:
        change_quota_config(tree, node, lambda _: {})
    assert read_quota_configs(tree) == {}
    assert [tree.children(each) for each in (paths.USER_CONFIGS, paths.CLIENT_CONFIGS, paths.IP_CONFIGS)] == [[]] * 3


def test_user_without_settings_keeps_the_quotas_of_its_client_ids(tree: MetadataStore) -> None:
    configs.change_user_config(tree, "alice", lambda _: {"SCRAM-SHA-256": "credential"})
    change_quota_config(tree, APP_OF_ALICE, lambda _: QUOTA)
    configs.change_user_config(tree, "alice", lambda _: {})
    assert read_quota_configs(tree) == {APP_OF_ALICE: QUOTA}


def test_quotas_of_a_client_id_leave_the_credentials_of_its_user(tree: MetadataStore) -> None:
    configs.change_user_config(tree, "alice", lambda _: {"SCRAM-SHA-256": "credential"})
    change_quota_config(tree, APP_OF_ALICE, lambda _: QUOTA)
    change_quota_config(tree, APP_OF_ALICE, lambda _: {})
    assert configs.read_user_configs(tree) == {"alice": {"SCRAM-SHA-256": "credential"}}


def test_default_is_no_user(tree: MetadataStore, caplog: pytest.LogCaptureFixture) -> None:
    change_quota_config(tree, (("user", None),), lambda _: QUOTA)
    change_quota_config(tree, (("user", "<default>"),), lambda _: {"producer_byte_rate": "7"})
    assert configs.read_user_configs(tree) == {"<default>": {"producer_byte_rate": "7"}}
    assert read_quota_configs(tree)[(("user", None),)] == QUOTA
    assert caplog.messages == []


def test_damaged_nodes_are_logged_without_their_content_and_left_out(
    tree: MetadataStore, caplog: pytest.LogCaptureFixture
) -> None:
    for path in ("/config/users/alice/clients/app", "/config/clients/%zz", "/config/ips/10.0.0.1"):
        ensure_paths(tree, [path])
        tree.set(path, b"secret")
    change_quota_config(tree, ALICE, lambda _: QUOTA)
    with caplog.at_level(logging.WARNING):
        assert read_quota_configs(tree) == {ALICE: QUOTA}
    assert len(caplog.messages) == 3
    assert "secret" not in next(each for each in caplog.messages if "alice" in each)

"""Settings of brokers and groups that a stranger damaged in the tree: the bad ones are ignored, the others apply."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.settings.dynamic import DynamicSettings
from barnabas.broker.settings.rules import whole
from barnabas.broker.settings.static import BrokerConfig
from barnabas.coordination import paths, topic_metadata_store
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.errors import ConfigurationError

ALL = paths.broker_config("")
OWN = paths.broker_config("0")
DAMAGED = [b"nonsense", b"[" * 100_000, b"null", b'{"config":7}', b'{"config":{"log.retention.ms":"x"}}']
DAMAGED += [b'{"config":{"log.retention.ms":"%s"}}' % (b"9" * 10_000), b'{"config":{"log.retention.bytes":[]}}']


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[EmbeddedMetadataStore]:
    tree = EmbeddedMetadataStore(tmp_path / "tree.sqlite")
    topic_metadata_store.prepare(tree, "castle")
    yield tree
    tree.close()


async def put_into_force(_config: BrokerConfig) -> None:
    """Where nothing listens."""


async def in_metadata_thread(function: Any, *arguments: Any) -> Any:
    return function(*arguments)


def settings_of(tree: EmbeddedMetadataStore) -> DynamicSettings:
    return DynamicSettings(BrokerConfig(), tree, in_metadata_thread, put_into_force)  # type: ignore[arg-type]


def put(tree: EmbeddedMetadataStore, path: str, value: object) -> None:
    data = value if isinstance(value, bytes) else json.dumps({"version": 1, "config": value}).encode()
    if tree.exists(path) is None:
        tree.create(path, data, make_parents=True)
    else:
        tree.set(path, data)


@pytest.mark.parametrize("path", [ALL, OWN])
@pytest.mark.parametrize("data", DAMAGED)
def test_broker_starts_and_keeps_all_records(tree: EmbeddedMetadataStore, path: str, data: bytes) -> None:
    put(tree, path, data)
    config = settings_of(tree).config
    assert (config.log_retention_ms, config.log_retention_bytes, config.log_cleanup_policy) == (-1, -1, "delete")


@pytest.mark.parametrize("data", [b"", b"{}", b'{"config":{}}'])
def test_node_without_settings_changes_nothing(tree: EmbeddedMetadataStore, data: bytes) -> None:
    put(tree, ALL, data)
    assert settings_of(tree).config == BrokerConfig()


def test_bad_settings_are_ignored_and_the_others_apply(
    tree: EmbeddedMetadataStore, caplog: pytest.LogCaptureFixture
) -> None:
    put(tree, ALL, {"max.connections": "7", "log.segment.bytes": "x", "nobody.knows": "1", "log.flush.interval.ms": -3})
    put(tree, OWN, {"max.connections.per.ip": "5", "num.partitions": "9"})
    for _ in range(2):
        config = settings_of(tree).config
        assert (config.max_connections, config.max_connections_per_ip) == (7, 5)
        assert config.log_retention_ms == BrokerConfig().log_retention_ms
    lines = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(lines) == 2
    assert "log.segment.bytes" in lines[0]


def test_groups_settings_that_cannot_be_read_are_ignored(tree: EmbeddedMetadataStore) -> None:
    put(tree, paths.group_config("g"), b"nonsense")
    put(tree, paths.group_config("h"), {"consumer.session.timeout.ms": "x", "nobody.knows": "1"})
    put(tree, f"{paths.GROUP_CONFIGS}/%FF", {})
    assert settings_of(tree).groups == {"h": {}}


@pytest.mark.parametrize("value", ["9" * 10_000, "-" + "9" * 5_000, "1e9999999", "nan", "٣"])
def test_number_of_any_length_is_checked(value: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        whole().check("retention.ms", value)
    assert len(str(caught.value)) < 300

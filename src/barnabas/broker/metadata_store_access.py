"""Opens the broker's session with the metadata store, and defines how to call the metadata store's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.broker.settings.rules import items_of
from barnabas.broker.settings.static import BrokerConfig
from barnabas.clock import Clock
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.errors import ConfigurationError
from barnabas.security.secret_sources import read_secret
from barnabas.security.secrets import Secret
from barnabas.security.tls_settings import TlsSettings

if TYPE_CHECKING:
    from barnabas.coordination.zookeeper.config import ZooKeeperConfig
    from barnabas.net.tls import BlockingTls

InMetadataThread = Callable[..., "asyncio.Future[Any]"]
"""Calls a function with its arguments on the metadata store's thread, which may block on a disk or a server."""


def open_metadata_store(config: BrokerConfig, own_file: Path, clock: Clock) -> MetadataStore:
    """Open a session with the configured metadata store: ZooKeeper, or a file of this broker.

    :param own_file: the metadata file of a standalone broker.
    :raises ConfigurationError: the address of ZooKeeper, or a setting for its security, is invalid.
    :raises CoordinationError: ZooKeeper does not respond.
    :raises DataFolderError: the file cannot be used.
    """
    check_zookeeper_security(config)
    if not config.zookeeper_connect:
        return EmbeddedMetadataStore(own_file, clock, keeps_sessions=bool(config.zookeeper_listener))
    # Import kazoo only here: a standalone broker does not need it, and the import is slow.
    from barnabas.coordination.zookeeper.metadata_store import ZooKeeperMetadataStore  # noqa: PLC0415

    return ZooKeeperMetadataStore(zookeeper_config(config))


def zookeeper_config(config: BrokerConfig) -> ZooKeeperConfig:
    """Return the settings of a broker's session with ZooKeeper.

    :raises ConfigurationError: the address of ZooKeeper, or a setting for its security, is invalid.
    """
    from barnabas.coordination.zookeeper.config import ZooKeeperConfig  # noqa: PLC0415

    check_zookeeper_security(config)
    return ZooKeeperConfig(
        config.zookeeper_connect,
        session_timeout_s=config.zookeeper_session_timeout_ms / 1000,
        connection_timeout_s=config.zookeeper_connection_timeout_ms / 1000,
        auth=read_secret("zookeeper.auth", Secret(config.zookeeper_auth)) or None,
        set_acl=_sets_acl(config),
        secure=_tls(config),
        has_certificate=bool(config.zookeeper_ssl_client_enable and config.zookeeper_ssl_keystore_location),
    )


def check_zookeeper_security(config: BrokerConfig) -> None:
    """Check that no setting for the security of ZooKeeper is without effect.

    :raises ConfigurationError: a setting requires another setting.
    """
    for name, value in (
        ("zookeeper.ssl.truststore.location", config.zookeeper_ssl_truststore_location),
        ("zookeeper.ssl.keystore.location", config.zookeeper_ssl_keystore_location),
    ):
        if value and not config.zookeeper_ssl_client_enable:
            raise ConfigurationError(f"{name} is set, but zookeeper.ssl.client.enable is false; set it to true")


def _sets_acl(config: BrokerConfig) -> bool:
    return config.zookeeper_set_acl == "true" or bool(not config.zookeeper_set_acl and config.zookeeper_auth)


def _tls(config: BrokerConfig) -> BlockingTls | None:
    """Return the function that secures connections to ZooKeeper; None without TLS.

    :raises ConfigurationError: a file cannot be read, or a certificate or key is not valid.
    """
    if not config.zookeeper_ssl_client_enable:
        return None
    from barnabas.net.tls import BlockingTls  # noqa: PLC0415

    password = Secret(config.zookeeper_ssl_keystore_password)
    return BlockingTls(
        TlsSettings(
            key_store=config.zookeeper_ssl_keystore_location or None,
            key_password=Secret(read_secret("zookeeper.ssl.keystore.password", password)) if password else None,
            trust_store=config.zookeeper_ssl_truststore_location or None,
            protocols=tuple(items_of(config.zookeeper_ssl_enabled_protocols)),
            verifies_host=config.zookeeper_ssl_endpoint_identification_algorithm.lower() == "https",
        )
    )

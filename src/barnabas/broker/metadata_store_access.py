"""Opens the broker's session with the metadata store, and defines how to call the metadata store's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from barnabas.broker.settings.static import BrokerConfig
from barnabas.clock import Clock
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.errors import ConfigurationError
from barnabas.net.tls import check_pem

InMetadataThread = Callable[..., "asyncio.Future[Any]"]
"""Calls a function with its arguments on the metadata store's thread, which may block on a disk or a server."""


def open_metadata_store(config: BrokerConfig, own_file: Path, clock: Clock) -> MetadataStore:
    """Open a session with the configured metadata store: ZooKeeper, or a file of this broker.

    :param own_file: the metadata file of a standalone broker.
    :raises ConfigurationError: the address of ZooKeeper or a certificate file is invalid.
    :raises CoordinationError: ZooKeeper does not respond.
    :raises DataFolderError: the file cannot be used.
    """
    if not config.zookeeper_connect:
        return EmbeddedMetadataStore(own_file, clock, keeps_sessions=bool(config.zookeeper_listener))
    # Import kazoo only here: a standalone broker does not need it, and the import is slow.
    from barnabas.coordination.zookeeper.config import ZooKeeperConfig, ZooKeeperTls  # noqa: PLC0415
    from barnabas.coordination.zookeeper.metadata_store import ZooKeeperMetadataStore  # noqa: PLC0415

    tls = None
    if config.zookeeper_ssl_client_enable:
        tls = ZooKeeperTls(
            trust_store=config.zookeeper_ssl_truststore_location or None,
            key_store=config.zookeeper_ssl_keystore_location or None,
            key_password=config.zookeeper_ssl_keystore_password or None,
            verifies_host=config.zookeeper_ssl_endpoint_identification_algorithm.lower() != "",
        )
        for file in filter(None, (tls.trust_store, tls.key_store)):
            check_pem(file)
    elif config.zookeeper_ssl_truststore_location or config.zookeeper_ssl_keystore_location:
        raise ConfigurationError(
            "zookeeper.ssl.truststore.location and zookeeper.ssl.keystore.location need"
            " zookeeper.ssl.client.enable=true"
        )
    return ZooKeeperMetadataStore(
        ZooKeeperConfig(
            config.zookeeper_connect,
            session_timeout_s=config.zookeeper_session_timeout_ms / 1000,
            connection_timeout_s=config.zookeeper_connection_timeout_ms / 1000,
            auth=config.zookeeper_auth or None,
            set_acl=bool(config.zookeeper_auth),
            tls=tls,
        )
    )

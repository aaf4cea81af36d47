"""The broker's access to the metadata store: the opening of a session, and the thread that uses the session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from barnabas.broker.settings.static import BrokerConfig
from barnabas.clock import Clock
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.metadata_store import MetadataStore

InMetadataThread = Callable[..., "asyncio.Future[Any]"]
"""Calls a function with its arguments on the thread of the metadata store, which may wait for a disk or a server."""


def open_metadata_store(config: BrokerConfig, own_file: Path, clock: Clock) -> MetadataStore:
    """Open a session with the metadata store in the settings: ZooKeeper, or a file of this broker.

    :param own_file: the file of a standalone broker.
    :raises ConfigurationError: the address of ZooKeeper is invalid.
    :raises CoordinationError: ZooKeeper does not respond.
    :raises DataFolderError: the file cannot be used.
    """
    if not config.zookeeper_connect:
        return EmbeddedMetadataStore(own_file, clock, keeps_sessions=bool(config.zookeeper_listener))
    # A standalone broker does not need kazoo, which takes long to import.
    from barnabas.coordination.zookeeper.config import ZooKeeperConfig  # noqa: PLC0415
    from barnabas.coordination.zookeeper.metadata_store import ZooKeeperMetadataStore  # noqa: PLC0415

    return ZooKeeperMetadataStore(
        ZooKeeperConfig(
            config.zookeeper_connect,
            session_timeout_s=config.zookeeper_session_timeout_ms / 1000,
            connection_timeout_s=config.zookeeper_connection_timeout_ms / 1000,
            auth=config.zookeeper_auth or None,
            set_acl=bool(config.zookeeper_auth),
        )
    )

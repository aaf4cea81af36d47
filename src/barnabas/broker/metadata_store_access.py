"""Opens the tree that the settings name: ZooKeeper's, or one of the broker's own."""

from __future__ import annotations

from pathlib import Path

from barnabas.broker.settings.static import BrokerConfig
from barnabas.clock import Clock
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.metadata_store import MetadataStore


def open_tree(config: BrokerConfig, own_file: Path, clock: Clock) -> MetadataStore:
    """Open a session.

    :param own_file: where a broker that is a cluster of its own keeps its tree.
    :raises ConfigurationError: ZooKeeper's address cannot be understood.
    :raises CoordinationError: ZooKeeper is out of reach.
    :raises DataFolderError: the file cannot be used.
    """
    if not config.zookeeper_connect:
        return EmbeddedMetadataStore(own_file, clock, keeps_sessions=bool(config.zookeeper_listener))
    # Not needed by a broker alone, and it takes a while to load.
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

"""ZooKeeper servers for tests, and trees in them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from barnabas.coordination.zookeeper.config import ZooKeeperConfig
from barnabas.coordination.zookeeper.metadata_store import ZooKeeperMetadataStore
from barnabas.coordination.zookeeper.servers import ZooKeeperServers
from tests.interop.java.maven import java
from tests.support.ports import free_port

CONNECTION_TIMEOUT_S = 60.0
"""For the first connection of a session on a busy machine, however short the session is."""

_numbers = itertools.count(1)


def start_servers(folder: Path, count: int = 1) -> ZooKeeperServers:
    """Start servers; where there is no Java at all, the test is skipped, as others that need it."""
    java()
    ports = [free_port() for _ in range(count)]
    peer_ports = [free_port() for _ in range(2 * count)]
    servers = ZooKeeperServers(folder, count, ports=ports, peer_ports=peer_ports)
    servers.start()
    return servers


def new_chroot() -> str:
    """Return the path of a node that no other test uses."""
    return f"/tests-{next(_numbers)}"


class Sessions:
    """Trees that are closed when a test has ended."""

    def __init__(self, connect: str) -> None:
        self.connect = connect
        self._opened: list[ZooKeeperMetadataStore] = []

    def open(self, **options: object) -> ZooKeeperMetadataStore:
        """Open a session; options are those of `ZooKeeperConfig`."""
        values: dict[str, object] = {
            "connect": self.connect,
            "session_timeout_s": 30.0,
            "connection_timeout_s": CONNECTION_TIMEOUT_S,
            **options,
        }
        tree = ZooKeeperMetadataStore(ZooKeeperConfig(**values))  # type: ignore[arg-type]
        self._opened.append(tree)
        return tree


@contextmanager
def sessions(connect: str) -> Iterator[Sessions]:
    """Open sessions, and close them at the end."""
    made = Sessions(connect)
    try:
        yield made
    finally:
        for tree in made._opened:
            tree.close()

"""A cluster for tests whose brokers reach ZooKeeper, and each other, by links that can be cut."""

from __future__ import annotations

from pathlib import Path

from barnabas.coordination.zookeeper.servers import ZooKeeperServers
from tests.support.links import Link
from tests.support.ports import free_port
from tests.support.process_cluster import Cluster


class LinkedCluster(Cluster):
    """Brokers that others are told other addresses of than those at which they listen: there are the links.

    A broker registers one host for clients and for other brokers, so there is a link for its clients as well. Who
    goes by `bootstrap` alone, and not by metadata, asks it directly.
    """

    def __init__(
        self,
        folder: Path,
        servers: ZooKeeperServers,
        chroot: str,
        count: int = 3,
        settings: dict[str, str] | None = None,
    ) -> None:
        super().__init__(folder, servers, chroot, count, settings)
        self.to_zookeeper: dict[int, Link] = {}
        """By broker: its way to ZooKeeper."""
        self.to_listener: dict[int, Link] = {}
        """By broker: the way of all other brokers to the listener at which they fetch from it."""
        self._for_clients: list[Link] = []
        for number, broker in self.brokers.items():
            host, replication_port = f"127.0.0.{10 + number}", free_port()
            zookeeper = self.to_zookeeper[number] = Link(servers.ports[0])
            self.to_listener[number] = Link(replication_port, host, replication_port)
            self._for_clients.append(Link(broker.port, host, broker.port))
            broker.settings |= {
                "zookeeper_connect": f"127.0.0.1:{zookeeper.port}{chroot}",
                "advertised_host": host,
                "inter_broker_port": str(replication_port),
            }

    @property
    def _links(self) -> list[Link]:
        return [*self.to_zookeeper.values(), *self.to_listener.values(), *self._for_clients]

    def heal(self) -> None:
        """Mend all links; let all brokers run, and know each other."""
        for link in self._links:
            link.mend()
        super().heal()

    def close(self) -> None:
        """End all brokers, however they stand, and then the links."""
        super().close()
        for link in self._links:
            link.close()

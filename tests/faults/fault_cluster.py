"""Brokers whose files and clocks can fail, and that reach ZooKeeper and each other by links, one for each pair."""

from __future__ import annotations

import contextlib
from pathlib import Path

from barnabas.coordination import paths
from barnabas.coordination.metadata_store import NoNodeError
from barnabas.coordination.zookeeper.config import ZooKeeperConfig
from barnabas.coordination.zookeeper.metadata_store import ZooKeeperMetadataStore
from barnabas.coordination.zookeeper.servers import ZooKeeperServers
from barnabas.model import TopicPartition
from barnabas.storage.checkpoints import decode_offsets
from barnabas.storage.file_names import LOG_START_CHECKPOINT
from tests.faults.faulty_cluster import FaultyBrokers
from tests.faults.links import AnswerLosingLink, Crossing, Links, ShakyLink
from tests.support.ports import free_port

SESSION_TIMEOUT_MS = 3_000
SETTINGS = {
    "zookeeper_session_timeout_ms": str(SESSION_TIMEOUT_MS),
    "replica_lag_time_max_ms": "2000",
    # Who leads is what faults decide.
    "auto_leader_rebalance_enable": "false",
    "log_retention_check_interval_ms": "300",
}


class FaultCluster(FaultyBrokers):
    """Brokers that tell clients and each other the addresses of links. `bootstrap` asks them directly.

    :param loses_answers: whether the brokers' ways to ZooKeeper lose the answer of each write once.
    """

    def __init__(
        self,
        folder: Path,
        servers: ZooKeeperServers,
        chroot: str,
        settings: dict[str, str],
        *,
        loses_answers: bool = False,
    ) -> None:
        super().__init__(folder, servers, chroot, settings={**SETTINGS, **settings})
        self.to_zookeeper: dict[int, Links] = {}
        """By broker: its ways to all ZooKeeper servers."""
        self.to_listener: dict[int, Crossing] = {}
        """By broker: the ways of all other brokers to the listener at which they fetch from it."""
        self.for_clients: dict[int, ShakyLink] = {}
        """By broker: the way of its clients."""
        kind = AnswerLosingLink if loses_answers else ShakyLink
        for number, broker in self.brokers.items():
            host, replication_port = f"127.0.0.{10 + number}", free_port()
            zookeeper = self.to_zookeeper[number] = Links(kind(port) for port in servers.ports)
            self.to_listener[number] = Crossing(replication_port, host, replication_port, self.others(number))
            self.for_clients[number] = ShakyLink(broker.port, host, broker.port)
            addresses = ",".join(f"127.0.0.1:{link.port}" for link in zookeeper.all)
            broker.settings |= {
                "zookeeper_connect": addresses + chroot,
                "advertised_host": host,
                "inter_broker_port": str(replication_port),
            }

    def way(self, source: int, target: int) -> ShakyLink:
        """Return the link by which one broker fetches from another."""
        return self.to_listener[target].ways[source]

    def mend_links(self) -> None:
        """Mend all links."""
        for links in (self.to_zookeeper, self.to_listener, self.for_clients):
            for each in links.values():
                each.mend()

    def heal(self) -> None:
        """Mend all links; let all files and clocks work, and all brokers run and know each other."""
        self.mend_links()
        super().heal()

    def tree(self) -> ZooKeeperMetadataStore:
        """Open a session of the test's own with ZooKeeper. The caller closes it."""
        return ZooKeeperMetadataStore(ZooKeeperConfig(self.zookeeper, session_timeout_s=60.0))

    def forget(self, number: int) -> None:
        """Delete a broker's registration, as a stranger might: its session lives, and it is not asked."""
        tree = self.tree()
        try:
            with contextlib.suppress(NoNodeError):  # it may be about to register again
                tree.delete(paths.broker(number))
        finally:
            tree.close()

    def stored_log_start(self, number: int, topic: str, partition: int) -> int:
        """Return where a broker's replica begins, as it has stored it."""
        content = (self.brokers[number].data / LOG_START_CHECKPOINT).read_bytes()
        return decode_offsets(content).get(TopicPartition(topic, partition), 0)

    def segment_starts(self, number: int, topic: str, partition: int) -> list[int]:
        """Return where the segments of a broker's replica begin, in order."""
        return sorted(int(path.stem) for path in (self.brokers[number].data / f"{topic}-{partition}").glob("*.log"))

    def kill_all(self) -> None:
        """Kill all brokers, and have them forgotten at once, as when their sessions have ended."""
        for broker in self.brokers.values():
            broker.kill()
        tree = self.tree()
        try:
            for number in tree.children(paths.BROKER_IDS):
                with contextlib.suppress(NoNodeError):  # its session has ended meanwhile
                    tree.delete(f"{paths.BROKER_IDS}/{number}")
        finally:
            tree.close()

    def close(self) -> None:
        """End all brokers, however they stand, and then the links."""
        super().close()
        for links in (self.to_zookeeper, self.to_listener, self.for_clients):
            for each in links.values():
                each.close()

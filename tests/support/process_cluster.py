"""A cluster for tests: brokers in processes of their own, coordinated by a real ZooKeeper."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from barnabas import Admin
from barnabas.client.admin.topics import PartitionDescription
from barnabas.coordination.zookeeper.servers import ZooKeeperServers
from barnabas.errors import ApiError, ErrorCode
from tests.support.broker_process import BrokerProcess
from tests.support.reading import wait_until
from tests.support.zookeeper_servers import new_chroot, start_servers

SESSION_TIMEOUT_MS = 6_000
"""Long enough for a machine that is busy with other tests."""


class Cluster:
    """Brokers 1, 2, 3, below one node of the servers' tree.

    :param settings: of all brokers.
    """

    make_broker: Callable[[Path, dict[str, str]], BrokerProcess] = BrokerProcess

    def __init__(
        self,
        folder: Path,
        servers: ZooKeeperServers,
        chroot: str,
        count: int = 3,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.servers = servers
        self.zookeeper = servers.address + chroot
        common = {
            "zookeeper_connect": self.zookeeper,
            "zookeeper_session_timeout_ms": str(SESSION_TIMEOUT_MS),
            "zookeeper_connection_timeout_ms": "60000",
            "default_replication_factor": str(min(3, count)),
            "offsets_topic_replication_factor": str(min(3, count)),
            "group_min_session_timeout_ms": "500",
            "offsets_topic_num_partitions": "5",
            **(settings or {}),
        }
        self.brokers = {
            number: self.make_broker(
                folder / f"broker-{number}", {**common, "broker_id": str(number), "rack": f"rack-{number}"}
            )
            for number in range(1, count + 1)
        }

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self) -> None:
        """Start all brokers, and wait until they know each other."""
        for broker in self.brokers.values():
            broker.begin()
        for broker in self.brokers.values():
            broker.wait_until_ready()
        wait_until(self.is_complete, "all brokers know all brokers")

    def is_complete(self) -> bool:
        """Whether each broker says that all brokers live."""
        for broker in self.brokers.values():
            with Admin(broker.bootstrap) as admin:
                if {node.id for node in admin.brokers()} != set(self.brokers):
                    return False
        return True

    def leader_of(self, topic: str, partition: int = 0, asked: int | None = None) -> int:
        """Return who leads a partition, as one of the brokers says, or -1."""
        return self._partitions(topic, self._address(asked))[partition].leader

    def in_sync(self, topic: str, partition: int = 0, asked: int | None = None) -> set[int]:
        """Return which replicas are in sync, as one of the brokers says."""
        return set(self._partitions(topic, self._address(asked))[partition].isr)

    def _address(self, asked: int | None) -> str:
        return self.bootstrap if asked is None else self.brokers[asked].bootstrap

    def _partitions(self, topic: str, bootstrap: str) -> Sequence[PartitionDescription]:
        """Describe a topic that has been made, of which a broker may hear later than the one that was asked before."""
        found: Sequence[PartitionDescription] = ()

        def is_known() -> bool:
            nonlocal found
            try:
                with Admin(bootstrap) as admin:
                    found = admin.describe_topics([topic])[0].partitions
            except ApiError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
            return bool(found)

        wait_until(is_known, f"a broker at {bootstrap} knows {topic}")
        return found

    def wait_until_in_sync(self, topic: str, count: int) -> None:
        """Wait until each partition of a topic has a leader, and so many replicas in sync."""

        def are_in_sync() -> bool:
            partitions = self._partitions(topic, self.bootstrap)
            # Where nobody leads, those in sync are the ones that were so when a leader died.
            return all(len(each.isr) >= count and each.leader in each.isr for each in partitions)

        wait_until(are_in_sync, f"{count} replicas of {topic} are in sync")

    def pause(self, number: int) -> None:
        """Stop a broker's process where it stands (SIGSTOP)."""
        process = self.brokers[number].process
        assert process
        process.send_signal(signal.SIGSTOP)

    def go_on(self, number: int) -> None:
        """Let a paused process go on (SIGCONT)."""
        process = self.brokers[number].process
        assert process
        process.send_signal(signal.SIGCONT)

    def heal(self) -> None:
        """Let all brokers run, and know each other."""
        for number, broker in self.brokers.items():
            if broker.process is None or broker.process.poll() is not None:
                broker.start()
            self.go_on(number)
        wait_until(self.is_complete, "all brokers know all brokers")

    def others(self, *numbers: int) -> list[int]:
        """Return the ids of all other brokers."""
        return [each for each in self.brokers if each not in numbers]

    def bootstrap_of(self, *numbers: int) -> str:
        """The addresses of some brokers."""
        return ",".join(self.brokers[number].bootstrap for number in numbers)

    def content(self, number: int, topic: str, partition: int = 0) -> bytes:
        """Return what a broker's replica of a partition has in its segments."""
        folder = self.brokers[number].data / f"{topic}-{partition}"
        while True:
            try:
                return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
            except FileNotFoundError:
                continue  # a segment was compacted meanwhile

    def wait_until_same(self, topic: str, partitions: int = 1) -> None:
        """Wait until all replicas of a topic that is written no more are in sync, and the same byte for byte."""
        self.wait_until_in_sync(topic, len(self.brokers))

        def are_same() -> bool:
            return all(
                len({self.content(number, topic, partition) for number in self.brokers}) == 1
                for partition in range(partitions)
            )

        wait_until(are_same, f"the replicas of {topic} are the same")

    def wait_for_another_leader(self, topic: str, *before: int) -> int:
        """Wait until a partition is led, and by none of these brokers; return who leads."""
        asked = self.bootstrap_of(*self.others(*before))
        found = -1

        def is_led() -> bool:
            nonlocal found
            found = self._partitions(topic, asked)[0].leader
            return found not in {-1, *before}

        wait_until(is_led, f"{topic} is led by another broker than {before}")
        return found

    def close(self) -> None:
        """End all brokers, however they stand."""
        for number, broker in self.brokers.items():
            if broker.process is not None:
                self.go_on(number)
            broker.close()


AnyCluster = TypeVar("AnyCluster", bound=Cluster)


@contextmanager
def running_cluster(
    folder: Path, settings: dict[str, str], kind: type[AnyCluster] = Cluster, count: int = 3
) -> Iterator[AnyCluster]:
    """Brokers, and a ZooKeeper server of their own, until the end."""
    servers = start_servers(folder / "zookeeper")
    try:
        made = kind(folder, servers, new_chroot(), count, settings)
        try:
            made.start()
            yield made
        finally:
            made.close()
    finally:
        servers.stop()


@pytest.fixture(scope="module")
def brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers with the `SETTINGS` of the test's module, for all its tests."""
    with running_cluster(tmp_path_factory.mktemp("cluster"), request.module.SETTINGS) as made:
        yield made


@pytest.fixture
def cluster(brokers: Cluster) -> Cluster:
    """All three brokers, at work."""
    brokers.heal()
    return brokers

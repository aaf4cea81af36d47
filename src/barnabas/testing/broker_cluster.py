"""Several brokers and a ZooKeeper server as child processes, with faults on request."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from barnabas.client.admin import Admin
from barnabas.client.admin.topics import TopicDescription
from barnabas.clock import SYSTEM_CLOCK
from barnabas.coordination.zookeeper.servers import ZooKeeperServers
from barnabas.errors import BarnabasError
from barnabas.net.free_port import lasting_ports
from barnabas.testing.broker_process import HOST, START_TIMEOUT_S, BrokerProcess, BrokerProcessError
from barnabas.testing.child_group import ChildGroup

BROKERS = 3
PORTS_OF_ZOOKEEPER = 3
WAIT_TIMEOUT_S = 60.0
"""The default of the maximum time in seconds that a cluster needs to reach a state."""
PAUSE_S = 0.02

CLUSTER_SETTINGS = {
    "zookeeper.session.timeout.ms": "6000",
    "zookeeper.connection.timeout.ms": "60000",
    "replica.lag.time.max.ms": "2000",
    "offsets.topic.num.partitions": "5",
}
"""The settings that differ from the defaults, so that the cluster reacts to faults within seconds."""


class BrokerCluster:
    """Brokers 1, 2, 3 and so on, with a ZooKeeper server. All processes end with this process, also if it is killed.

    ZooKeeper needs a Java runtime, and the jars of PySpark or of Debian's package `libzookeeper-java`.

        with BrokerCluster() as cluster:
            producer = barnabas.Producer(cluster.bootstrap)
            cluster.broker(2).kill()

    :param brokers: the number of brokers.
    :param settings: settings of all brokers by Kafka's names. By default, topics have a replica on each of up to three
        brokers.
    :param start_timeout_s: the maximum time in seconds until all brokers are ready.
    """

    def __init__(
        self,
        brokers: int = BROKERS,
        settings: Mapping[str, object] | None = None,
        *,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"brokers is {brokers}; a cluster has at least one broker")
        self._count = brokers
        self._settings = dict(settings or {})
        self._start_timeout_s = start_timeout_s
        self._folder: Path | None = None
        self._group: ChildGroup | None = None
        self._zookeeper: ZooKeeperServers | None = None
        self._brokers: dict[int, BrokerProcess] = {}
        self._ports: dict[int, int] = {}
        """The port of each broker's listener for other brokers."""
        self._cuts: set[frozenset[int]] = set()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start ZooKeeper and all brokers, and wait until all brokers know each other.

        :raises CoordinationError: Java or the jars of ZooKeeper are missing; the message contains the remedy.
        :raises BrokerProcessError: a broker did not start; the message contains its log.
        """
        if self._folder is not None:
            return self
        self._folder = Path(tempfile.mkdtemp(prefix="barnabas-test-"))
        try:
            group = self._group = ChildGroup(self._folder)
            self._zookeeper = self._start_zookeeper(group, self._folder)
            self._brokers = self._make_brokers(group, self._folder, self._zookeeper.address)
            for each in self._brokers.values():
                each.launch()
            for each in self._brokers.values():
                each.wait_until_ready()
            self.wait_until(self._is_complete, "all brokers know each other", timeout_s=self._start_timeout_s)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all processes, and remove all data. The brokers end without a controlled shutdown."""
        try:
            for each in self._brokers.values():
                with suppress(BrokerProcessError):
                    each.kill()
                each.stop()
            if self._zookeeper is not None:
                self._zookeeper.stop()
        finally:
            if self._group is not None:
                self._group.close()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = self._group = self._zookeeper = None
            self._brokers, self._cuts = {}, set()

    @property
    def bootstrap(self) -> str:
        """The addresses HOST:PORT of all brokers for clients, separated by commas."""
        return ",".join(each.bootstrap for each in self._brokers.values())

    @property
    def brokers(self) -> Mapping[int, BrokerProcess]:
        """The brokers by their ids, which begin with 1. Empty before the start."""
        return self._brokers

    @property
    def zookeeper(self) -> ZooKeeperServers:
        """The ZooKeeper server, which has number 0: `cluster.zookeeper.suspend(0)` and `resume(0)`, `kill(0)` and
        `restart(0)`.

        :raises BrokerProcessError: the cluster does not run.
        """
        if self._zookeeper is None:
            raise BrokerProcessError("the cluster does not run; start it first")
        return self._zookeeper

    @property
    def is_disturbed(self) -> bool:
        """True after a fault, until `heal`."""
        return bool(self._cuts) or any(each.is_disturbed for each in self._brokers.values())

    @property
    def log(self) -> str:
        """The log lines of all brokers, one broker after the other."""
        return "".join(f"--- broker {number}\n{each.log}" for number, each in self._brokers.items())

    def broker(self, number: int) -> BrokerProcess:
        """Return a broker by its id.

        :raises ValueError: the cluster has no such broker.
        """
        if number not in self._brokers:
            raise ValueError(f"there is no broker {number}; the brokers are {sorted(self._brokers)}")
        return self._brokers[number]

    # -- topics ----------------------------------------------------------------------------------------------

    def create_topic(
        self, name: str | None = None, partitions: int = 1, settings: Mapping[str, object] | None = None
    ) -> str:
        """Create a topic, wait until all its replicas are in sync, and return its name.

        :param name: the name; None for a name that no other topic has.
        :param partitions: the number of partitions.
        :param settings: topic settings by Kafka's names.
        :raises ApiError: the cluster refuses the topic.
        :raises BrokerProcessError: no broker responds, or the replicas are not in sync in time.
        """
        name = self._any_running().create_topic(name, partitions, settings)
        self.wait_until_in_sync(name)
        return name

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the id of a partition's leader, or -1 if no replica leads.

        :raises ApiError: the topic does not exist.
        :raises BrokerProcessError: no broker responds.
        """
        return self._describe(topic).partitions[partition].leader

    def in_sync(self, topic: str, partition: int = 0) -> set[int]:
        """Return the ids of the brokers with in-sync replicas of a partition.

        A replica that lacks no record stays in sync, also behind a cut.

        :raises ApiError: the topic does not exist.
        :raises BrokerProcessError: no broker responds.
        """
        return set(self._describe(topic).partitions[partition].isr)

    def wait_for_leader(self, topic: str, partition: int = 0, *, other_than: int = -1) -> int:
        """Wait until a partition has a leader, and return its id.

        :param other_than: the id of a broker whose leadership is not enough.
        :raises BrokerProcessError: there is no such leader in time; the message contains the logs.
        """
        found = -1

        def is_led() -> bool:
            nonlocal found
            found = self.leader(topic, partition)
            return found not in {-1, other_than}

        self.wait_until(is_led, f"{topic}-{partition} has a leader")
        return found

    def wait_until_in_sync(self, topic: str) -> None:
        """Wait until each partition of a topic has a leader, and all its replicas are in sync.

        :raises BrokerProcessError: the replicas are not in sync in time; the message contains the logs.
        """

        def are_in_sync() -> bool:
            found = self._describe(topic).partitions
            return bool(found) and all(set(each.isr) == set(each.replicas) and each.leader != -1 for each in found)

        self.wait_until(are_in_sync, f"all replicas of {topic} are in sync")

    def wait_until(self, condition: Callable[[], bool], what: str, *, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Wait for a condition. An error of Barnabas counts as false.

        :param condition: called again and again, until it returns true.
        :param what: the description of the condition, for the error.
        :param timeout_s: the maximum time in seconds.
        :raises BrokerProcessError: the condition is false for too long; the message contains the logs.
        """
        deadline_s = SYSTEM_CLOCK.monotonic() + timeout_s
        error = ""
        while True:
            try:
                if condition():
                    return
            except BarnabasError as failed:
                error = f" The last error: {failed}."
            if SYSTEM_CLOCK.monotonic() > deadline_s:
                raise BrokerProcessError(f"not within {timeout_s:g} s: {what}.{error} The logs:\n{self.log}")
            SYSTEM_CLOCK.sleep(PAUSE_S)

    # -- faults ----------------------------------------------------------------------------------------------

    def cut(self, first: int, second: int) -> None:
        """Cut the network between two brokers in both directions, until `mend`. `BrokerProcess.cut` cuts off clients.

        Connections between the two brokers end, and new ones are refused. Both still reach ZooKeeper and clients.

        :raises ValueError: there is no such broker, or both are the same one.
        :raises BrokerProcessError: one of them is paused.
        """
        if self.broker(first) is self.broker(second):
            raise ValueError(f"broker {first} cannot be cut from itself")
        self._cuts.add(frozenset((first, second)))
        self._apply_cuts(first, second)

    def isolate(self, number: int) -> None:
        """Cut the network between a broker and all other brokers, until `mend`.

        :raises ValueError: there is no such broker.
        :raises BrokerProcessError: a broker is paused.
        """
        for other in self._brokers:
            if other != number:
                self.cut(number, other)

    def mend(self) -> None:
        """Let all brokers reach each other again.

        :raises BrokerProcessError: a broker is paused.
        """
        self._cuts.clear()
        self._apply_cuts(*self._brokers)

    def heal(self) -> None:
        """End all faults, and wait until all brokers run and know each other.

        :raises BrokerProcessError: a broker did not start; the message contains its log.
        """
        self._cuts.clear()
        for number, pid in enumerate(self.zookeeper.pids):
            if pid is None:
                self.zookeeper.restart(number)
            else:
                self.zookeeper.resume(number)
        for each in self._brokers.values():
            each.heal()
        self.wait_until(self._is_complete, "all brokers know each other")

    # -- internals -------------------------------------------------------------------------------------------

    def _start_zookeeper(self, group: ChildGroup, folder: Path) -> ZooKeeperServers:
        port, *peer_ports = lasting_ports(HOST, PORTS_OF_ZOOKEEPER)
        servers = ZooKeeperServers(
            folder / "zookeeper", ports=[port], peer_ports=peer_ports, process_group=lambda: group.id
        )
        servers.start()
        return servers

    def _make_brokers(self, group: ChildGroup, folder: Path, zookeeper: str) -> dict[int, BrokerProcess]:
        replicas = str(min(BROKERS, self._count))
        ports = lasting_ports(HOST, 2 * self._count)
        self._ports = dict(enumerate(ports[self._count :], 1))
        common: dict[str, Any] = {
            **CLUSTER_SETTINGS,
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            **self._settings,
            "zookeeper.connect": zookeeper,
        }
        return {
            number: BrokerProcess(
                {**common, "broker.id": number, "rack": f"rack-{number}", "inter.broker.port": self._ports[number]},
                port=port,
                start_timeout_s=self._start_timeout_s,
                data=folder / f"broker-{number}",
                group=group,
            )
            for number, port in enumerate(ports[: self._count], 1)
        }

    def _apply_cuts(self, *numbers: int) -> None:
        for number in numbers:
            others = {other for pair in self._cuts if number in pair for other in pair - {number}}
            self._brokers[number].cut_ports({self._ports[other] for other in others})

    def _any_running(self) -> BrokerProcess:
        for each in self._brokers.values():
            if each.is_responsive:
                return each
        raise BrokerProcessError(f"no broker of the cluster responds; the brokers are {sorted(self._brokers)}")

    def _describe(self, topic: str) -> TopicDescription:
        return self._any_running().describe_topic(topic)

    def _is_complete(self) -> bool:
        for each in self._brokers.values():
            with Admin(each.bootstrap) as admin:
                if {node.id for node in admin.brokers()} != set(self._brokers):
                    return False
        return True

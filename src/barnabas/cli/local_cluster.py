"""A cluster on this machine: brokers, and ZooKeeper servers unless existing ones are used, each as a process.

All data are in one directory: `broker-1/`, `broker-2/` ..., `zookeeper/`, and `cluster.json` with the ports for the
next start. A lock on `cluster.lock` keeps a second cluster out of the directory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

from barnabas.broker.settings.listeners import check_protection, listeners_of
from barnabas.broker.settings.loading import given_settings
from barnabas.broker.settings.static import BrokerConfig
from barnabas.cli.cluster_file import ClusterFile
from barnabas.cli.ends_with_parent import ending_with_this_process
from barnabas.cli.restart_request import LOCK_NAME, take_request, withdraw_request
from barnabas.cli.supervision import OnLine, Restarts, Say, Supervised, Supervisor
from barnabas.cli.zookeeper_watch import ZooKeeperWatch
from barnabas.clock import Clock
from barnabas.coordination.zookeeper.servers import HOST as ZOOKEEPER_HOST
from barnabas.coordination.zookeeper.servers import ZooKeeperServers
from barnabas.errors import ConfigurationError, DataFolderError
from barnabas.log_lines import LogFormat
from barnabas.net.free_port import is_free, lasting_ports
from barnabas.portable import try_lock

REPLICAS = 3
REPLICATION_FACTORS = "default_replication_factor", "offsets_topic_replication_factor"
"""The replication factor settings. A new cluster sets each of them to REPLICAS, or to the number of brokers if that is
smaller, unless the user sets it."""
USUAL_BROKERS = 3
USUAL_ZOOKEEPER_SERVERS = 1
USUAL_PORT = 9092


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """The description of a cluster; None in a field means the value of the last start, or the default at the first
    start.

    :param zookeeper: the address of existing ZooKeeper servers.
    :param first_port: the port of the first broker; the other brokers get the following ports. 0 means free ports.
    """

    data: Path
    brokers: int | None = None
    zookeeper_servers: int | None = None
    zookeeper: str | None = None
    host: str | None = None
    first_port: int | None = None
    config: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    restart: bool = False
    log_format: LogFormat = "plain"


class LocalCluster:
    """Starts the processes on entry to the context, and stops them on exit.

    :param say: called with a message for the user.
    :param on_line: called on threads with the broker id and each log line of a broker.
    :raises BarnabasError: the cluster cannot start; all started processes are stopped.
    """

    def __init__(
        self, wanted: ClusterSpec, environ: Mapping[str, str], *, clock: Clock, say: Say, on_line: OnLine
    ) -> None:
        self._wanted = wanted
        self._given = given_settings(wanted.config, wanted.properties, environ)
        config = BrokerConfig(**{**self._given, **({"host": wanted.host} if wanted.host else {})})
        check_protection(config, listeners_of(config))
        self._host = config.host
        self._environ = environ
        self._clock = clock
        self._say = say
        self._on_line = on_line
        self._ending = ExitStack()
        self._zookeeper_ports: tuple[int, ...] = ()
        self._supervisor: Supervisor | None = None
        self._look_at_zookeeper: Callable[[], None] = _nothing

    @property
    def addresses(self) -> list[str]:
        """The addresses of the running brokers."""
        return [each.address for each in self._brokers if each.address is not None]

    def __enter__(self) -> Self:
        folder = self._wanted.data
        with ExitStack() as ending:
            ending.enter_context(_only_cluster_in(folder))
            before = ClusterFile.read(folder)
            withdraw_request(folder)  # discard a restart request from before this start
            servers = None if self._wanted.zookeeper else self._zookeeper_servers(before)
            if servers is not None:
                ending.enter_context(servers)
            self._supervisor = self._make_supervisor(before, servers)
            ending.callback(self._supervisor.stop)
            self._supervisor.start()
            self._ending = ending.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def keep(self) -> None:
        """Supervise the processes until no broker is running."""
        assert self._supervisor is not None, "call this inside the context"
        self._supervisor.keep()

    @property
    def _brokers(self) -> Sequence[Supervised]:
        return self._supervisor.brokers if self._supervisor is not None else ()

    def _zookeeper_servers(self, before: ClusterFile) -> ZooKeeperServers:
        had = len(before.zookeeper_ports)
        count = self._wanted.zookeeper_servers or had or USUAL_ZOOKEEPER_SERVERS
        if had and count != had:
            raise ConfigurationError(
                f"the cluster in {self._wanted.data} has {had} ZooKeeper server{'s' if had > 1 else ''}, and the number"
                " cannot change: servers without data could outvote those with data"
            )
        # Do not use ephemeral ports. The system may assign such a port to a connection while the server restarts.
        fresh = lasting_ports(ZOOKEEPER_HOST, 3 * count)
        ports, peer_ports = before.zookeeper_ports, fresh[count:]
        if not ports or not all(is_free(ZOOKEEPER_HOST, port) for port in ports):
            ports = tuple(fresh[:count])
        folder = self._wanted.data.absolute() / "zookeeper"  # absolute: ZooKeeper warns about a relative path
        servers = ZooKeeperServers(folder, count, ports=ports, peer_ports=peer_ports, wrap=ending_with_this_process)
        self._zookeeper_ports = servers.ports
        return servers

    def _make_supervisor(self, before: ClusterFile, servers: ZooKeeperServers | None) -> Supervisor:
        restart, now_s = self._wanted.restart, self._clock.monotonic
        count = self._wanted.brokers or len(before.broker_ports) or USUAL_BROKERS
        connect = self._wanted.zookeeper or (servers.address if servers else "")
        ports = choose_ports(count, self._wanted.first_port, before.broker_ports, partial(is_free, self._host))
        brokers = [
            Supervised(broker, port, partial(self._command, broker, connect), Restarts(now_s))
            for broker, port in ports.items()
        ]
        watch = ZooKeeperWatch(servers, restart=restart, now_s=now_s, say=self._say) if servers else None
        self._look_at_zookeeper = watch.check if watch else _nothing
        return Supervisor(
            brokers,
            environment=environment_of(count, self._given, self._environ),
            clock=self._clock,
            restart=restart,
            say=self._say,
            on_line=self._on_line,
            on_change=self._note,
            look=self._look_around,
        )

    def _look_around(self) -> None:
        self._look_at_zookeeper()
        wanted = take_request(self._wanted.data)
        if wanted is not None and self._supervisor is not None:
            self._supervisor.restart(wanted)

    def _command(self, broker: int, connect: str, port: int) -> list[str]:
        flags = {
            "--id": broker,
            "--zookeeper": connect,
            "--host": self._host,
            "--port": port,
            "--data": self._wanted.data / f"broker-{broker}",
            "--config": self._wanted.config,
            "--log-format": self._wanted.log_format,
        }
        given = [str(part) for flag, value in flags.items() if value is not None for part in (flag, value)]
        given += [part for name, value in self._wanted.properties.items() for part in ("-X", f"{name}={value}")]
        # -P prevents imports from the current directory.
        return [sys.executable, "-P", "-m", "barnabas.cli.main", "up", *given]

    def _note(self) -> None:
        """Write the current ports and process ids to the cluster file."""
        ClusterFile(
            {each.id: each.port for each in self._brokers if each.port},
            {each.id: each.child.pid for each in self._brokers if each.child is not None},
            self._zookeeper_ports,
            self._host,
        ).write(self._wanted.data)


def choose_ports(
    count: int, first: int | None, before: Mapping[int, int], is_free: Callable[[int], bool]
) -> dict[int, int]:
    """Return the port of each broker, by broker id. With port 0, the broker chooses a free port.

    :param first: the first port that the user requires. 0 means free ports. None means the ports of the last start or
    the default ports, if they are free.

    >>> choose_ports(3, None, {1: 9092, 2: 9093}, lambda port: port != 9093)
    {1: 9092, 2: 0, 3: 9094}
    >>> choose_ports(2, 7000, {1: 9092, 2: 9093}, lambda port: True)
    {1: 7000, 2: 7001}
    """
    ids = range(1, count + 1)
    if first:
        return {broker: first + broker - 1 for broker in ids}
    usual = {} if first == 0 else {broker: USUAL_PORT + broker - 1 for broker in ids}
    liked = {**usual, **before}
    taken = [liked[broker] for broker in ids if broker in liked]
    return {
        broker: liked[broker] if taken.count(liked.get(broker, 0)) == 1 and is_free(liked[broker]) else 0
        for broker in ids
    }


def environment_of(brokers: int, given: Mapping[str, object], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the brokers: the current one, with the replication factors unless they are set.

    >>> environment_of(2, {"default_replication_factor": 1}, {"HOME": "/nowhere"})
    {'BARNABAS_OFFSETS_TOPIC_REPLICATION_FACTOR': '2', 'HOME': '/nowhere'}
    """
    factors = {name: str(min(REPLICAS, brokers)) for name in REPLICATION_FACTORS if name not in given}
    return {**{f"BARNABAS_{name.upper()}": value for name, value in factors.items()}, **environ}


def _nothing() -> None:
    """Do nothing: this cluster does not manage its ZooKeeper servers."""


@contextmanager
def _only_cluster_in(folder: Path) -> Iterator[None]:
    """Hold the directory's lock inside the context. The kernel releases the lock when the process ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK_NAME).open("w")
    except OSError as error:
        raise DataFolderError(f"cannot use {folder} as data directory: {error.strerror}") from None
    with lock:
        if not try_lock(lock.fileno()):
            raise DataFolderError(f"another cluster runs in {folder}; stop it, or choose another with --data")
        yield

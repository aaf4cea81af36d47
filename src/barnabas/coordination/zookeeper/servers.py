"""Runs ZooKeeper servers on this machine, each in a Java process.

They are used for clusters on one machine and for tests.

The jars come with PySpark or from Debian (`libzookeeper-java`), so nothing is downloaded. The environment variable
ZOOKEEPER_JARS names another directory with the jars of a ZooKeeper server. Each server has its own directory with its
configuration, data and log, so its data survives a restart. The creator of the object must stop it: `start` and `stop`,
or a `with` block. Not thread-safe.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Self

from barnabas.clock import SYSTEM_CLOCK
from barnabas.coordination.metadata_store import MetadataStoreUnavailableError
from barnabas.coordination.zookeeper.config import ZooKeeperConfig
from barnabas.coordination.zookeeper.session import Session
from barnabas.errors import CoordinationError
from barnabas.java import java_homes, java_version

OLDEST_JAVA = 11
DEBIAN_JARS = Path("/usr/share/java")
JARS_VARIABLE = "ZOOKEEPER_JARS"
HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
ASK_S = 4.0
"""The timeout of the session that checks whether a server is ready."""
LOG_TAIL_CHARS = 2_000
TICK_MS = 250
"""ZooKeeper's tick time.

Sessions expire at a multiple of the tick time, so a dead broker is detected earlier with a shorter tick time.
"""

_JARS = re.compile(
    r"(zookeeper|zookeeper-jute|slf4j-api|slf4j-simple|log4j-api|log4j-core|log4j-slf4j2?-impl|metrics-core|snappy-java"
    r"|netty-(all|common|buffer|codec|codec-base|handler|resolver|transport|transport-native-unix-common"
    r"|transport-classes-epoll))(-\d[\w.]*)?\.jar"
)
_JAVA_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true")
_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class ZooKeeperServers:
    """A ZooKeeper server, or an ensemble of several, on the loopback address.

    >>> servers = ZooKeeperServers(Path("/tmp/zookeeper"), ports=[2181])
    >>> servers.address
    '127.0.0.1:2181'

    :param folder: the parent directory of the servers' directories; created if missing.
    :param count: the number of servers, which must be odd.
    :param ports: the client ports; by default, free ports.
    :param peer_ports: the ports for the connections between servers, two per server; by default, free ports. While a
        server is down, the system may assign these free ports to other connections.
    :param heap_mb: the maximum heap of each server in megabytes.
    :param settings: further lines of each server's configuration file.
    :param wrap: a function that changes the command line of a server, for example so that the server ends when this
        process ends.
    :param process_group: returns the process group of the servers; by default, each server has its own session.
    """

    def __init__(
        self,
        folder: Path,
        count: int = 1,
        *,
        ports: Sequence[int] = (),
        peer_ports: Sequence[int] = (),
        heap_mb: int = 192,
        settings: Sequence[str] = (),
        wrap: Callable[[Sequence[str]], Sequence[str]] = lambda command: command,
        process_group: Callable[[], int] | None = None,
    ) -> None:
        if count % 2 == 0 or count < 1 or len(ports) not in (0, count):
            raise CoordinationError(
                f"{count} servers with {len(ports)} ports: use an odd number of servers and one port for each"
            )
        if len(peer_ports) not in (0, 2 * count):
            raise CoordinationError(f"{count} servers with {len(peer_ports)} peer ports: use two peer ports for each")
        self._folder = folder
        self._heap_mb = heap_mb
        self._settings = settings
        self._wrap = wrap
        self._process_group = process_group
        free = [*_free_ports(3 * count - len(ports) - len(peer_ports)), *peer_ports]
        self.ports = (*ports, *free)[:count]
        """The client ports of the servers."""
        self._peer_ports = free[-2 * count :]
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * count

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """All servers, in the format of `zookeeper.connect`."""
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    @property
    def pids(self) -> list[int | None]:
        """The process ids of the servers; None for a server that is not running."""
        return [each.pid if each is not None and each.poll() is None else None for each in self._processes]

    @property
    def exit_codes(self) -> list[int | None]:
        """The exit codes of the servers: None for a running server, negative if a signal ended the process."""
        return [None if each is None else each.poll() for each in self._processes]

    def start(self) -> None:
        """Start the servers that are not running, and wait until all servers are ready.

        :raises CoordinationError: Java or the jars are missing, or a server did not start. All servers are stopped in
            this case.
        """
        try:
            for number, pid in enumerate(self.pids):
                if pid is None:
                    self._launch(number)
            for number in range(len(self.ports)):
                self._wait_until_it_serves(number)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all servers and wait until their processes have ended."""
        for process in self._processes:
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for number, process in enumerate(self._processes):
            if process is not None:
                try:
                    process.wait(STOP_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    self.kill(number)

    def kill(self, number: int) -> None:
        """Kill a server as `kill -9` does."""
        process = self._process(number)
        process.kill()
        process.wait(STOP_TIMEOUT_S)

    def restart(self, number: int) -> None:
        """Start a killed server again with the same data and port, and wait until it is ready."""
        self._launch(number)
        self._wait_until_it_serves(number)

    def suspend(self, number: int) -> None:
        """Suspend a server: its connections stay open, but it does not respond."""
        self._process(number).send_signal(signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """Resume a suspended server."""
        self._process(number).send_signal(signal.SIGCONT)

    def _process(self, number: int) -> subprocess.Popen[bytes]:
        process = self._processes[number]
        if process is None:
            raise CoordinationError(f"ZooKeeper server {number} was not started")
        return process

    def _launch(self, number: int) -> None:
        folder = self._server_folder(number)
        (folder / "data").mkdir(parents=True, exist_ok=True)
        (folder / "data" / "myid").write_text(f"{number + 1}\n")
        (folder / "zoo.cfg").write_text(self._configuration(number))
        (folder / "log4j2.properties").write_text(_LOGGING)
        command = [
            str(_find_java()),
            f"-Xmx{self._heap_mb}m",
            *_JAVA_OPTIONS,
            f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
            "-cp",
            ":".join(map(str, _find_jars())),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(folder / "zoo.cfg"),
        ]
        with (folder / "server.log").open("ab") as log:
            # Each server runs in another process group than this process, so Ctrl-C in a terminal does not stop it.
            self._processes[number] = subprocess.Popen(
                self._wrap(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=self._process_group is None,
                process_group=self._process_group() if self._process_group else None,
            )

    def _configuration(self, number: int) -> str:
        lines = [
            f"tickTime={TICK_MS}",
            "initLimit=40",
            "syncLimit=20",
            "minSessionTimeout=1000",
            "maxSessionTimeout=120000",
            "maxClientCnxns=0",
            f"dataDir={self._server_folder(number) / 'data'}",
            f"clientPort={self.ports[number]}",
            f"clientPortAddress={HOST}",
            "admin.enableServer=false",
            "4lw.commands.whitelist=ruok,srvr,stat,mntr",
            "autopurge.purgeInterval=1",
            *self._settings,
        ]
        if len(self.ports) > 1:
            pairs = zip(self._peer_ports[::2], self._peer_ports[1::2], strict=True)
            lines += [f"server.{index}={HOST}:{quorum}:{election}" for index, (quorum, election) in enumerate(pairs, 1)]
        return "\n".join(lines) + "\n"

    def _wait_until_it_serves(self, number: int) -> None:
        """Wait until a server grants a session. In an ensemble, this requires a majority of the servers."""
        deadline = SYSTEM_CLOCK.monotonic() + START_TIMEOUT_S
        # A starting server may never respond to an early client. With a short session timeout, the next attempt begins
        # soon.
        config = ZooKeeperConfig(f"{HOST}:{self.ports[number]}", session_timeout_s=ASK_S, connection_timeout_s=ASK_S)
        while True:
            if self._process(number).poll() is not None:
                raise CoordinationError(f"ZooKeeper server {number} ended: {self._last_words(number)}")
            try:
                Session(config).close()
            except MetadataStoreUnavailableError:
                if SYSTEM_CLOCK.monotonic() > deadline:
                    raise CoordinationError(
                        f"ZooKeeper server {number} did not serve within {START_TIMEOUT_S:.0f} s:"
                        f" {self._last_words(number)}"
                    ) from None
            else:
                return

    def _server_folder(self, number: int) -> Path:
        return self._folder / f"server-{number}"

    def _last_words(self, number: int) -> str:
        log = self._server_folder(number) / "server.log"
        return f"{log}: ...{log.read_text(errors='replace')[-LOG_TAIL_CHARS:]}"


def _find_java() -> Path:
    for home in java_homes(os.environ):
        if (java_version(home) or 0) >= OLDEST_JAVA:
            return home / "bin/java"
    raise CoordinationError(
        f"a ZooKeeper server needs a Java runtime, version {OLDEST_JAVA} or later: install one"
        " (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME; or use existing ZooKeeper servers"
    )


def _find_jars(environment: Mapping[str, str] = os.environ) -> list[Path]:
    for folder in _folders_of_jars(environment):
        found = sorted(each for each in folder.glob("*.jar") if _JARS.fullmatch(each.name))
        if any(each.name.startswith("zookeeper-jute") for each in found):
            return found
    if named := environment.get(JARS_VARIABLE):
        raise CoordinationError(f"found no jars of a ZooKeeper server in {JARS_VARIABLE}={named}")
    raise CoordinationError(
        "found no jars of a ZooKeeper server; install PySpark (pip install 'barnabas[spark]') or Debian's"
        " libzookeeper-java; or use existing ZooKeeper servers"
    )


def _folders_of_jars(environment: Mapping[str, str]) -> list[Path]:
    if named := environment.get(JARS_VARIABLE):
        return [Path(named)]
    spark = importlib.util.find_spec("pyspark")
    return [*(Path(each) / "jars" for each in (spark and spark.submodule_search_locations) or ()), DEBIAN_JARS]


def _free_ports(count: int) -> list[int]:
    """Return distinct free ports that the system has chosen."""
    with contextlib.ExitStack() as opened:
        # All listeners are open at the same time. Otherwise, the system could return the same port twice.
        listeners = [opened.enter_context(Listener((HOST, 0))) for _ in range(count)]
        return [port for _, port in (listener.address for listener in listeners)]

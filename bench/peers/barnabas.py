"""Barnabas as `barnabas up` or `barnabas cluster up` (three brokers) starts it: only port and directory are set."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from barnabas.coordination.zookeeper.servers import ZooKeeperServers
from barnabas.errors import BarnabasError
from bench.downloads import NotStartedError
from bench.peers.server import KafkaServer, free_ports
from bench.processes import ServerProcess, ending_with_us

COMMAND = [sys.executable, "-m", "barnabas.cli.main"]
BROKERS_HERE = 2


class Barnabas(KafkaServer):
    name = "barnabas"
    title = "Barnabas"
    settings = "`barnabas up`, defaults"

    def launch(self) -> ServerProcess:
        command = [*COMMAND, "up", "--port", str(self.port), "--data", str(self._data)]
        return ServerProcess(command, self.folder / "log", self.environment())

    def environment(self) -> Mapping[str, str]:
        """Return the environment of the broker."""
        return environment_without_settings()

    def version(self) -> str:
        return f"{own_version()}, Python {platform.python_version()}"

    def data_folders(self, topic: str) -> list[Path]:
        return list(self._data.glob(f"{topic}-*"))

    @property
    def _data(self) -> Path:
        return self.folder / "data"


class BarnabasCluster(KafkaServer):
    """`barnabas cluster up` with three brokers. The figures include the ZooKeeper server of the cluster."""

    name = "barnabas-cluster"
    title = "Barnabas, 3 brokers"
    settings = "`barnabas cluster up --brokers 3`, defaults; CPU time and memory with those of its ZooKeeper server"
    replication_factor = 3
    _address = ""

    @property
    def address(self) -> str:
        return self._address

    def launch(self) -> ServerProcess:
        command = [*COMMAND, "cluster", "up", "--brokers", "3", "--port", "0", "--data", str(self._data)]
        return ServerProcess(command, self.folder / "log", environment_without_settings())

    def serves(self) -> bool:
        self._address = ready_addresses(self.process.log.read_text(errors="replace"))
        return bool(self._address)

    def version(self) -> str:
        return f"{own_version()}, Python {platform.python_version()}"

    def data_folders(self, topic: str) -> list[Path]:
        return list(self._data.glob(f"broker-*/{topic}-*"))

    @property
    def _data(self) -> Path:
        return self.folder / "data"


class TwoBarnabas(Barnabas):
    """`barnabas up --brokers-here 2`: two brokers on one machine, coordinated by a ZooKeeper server."""

    name = "barnabas-two"
    title = "Barnabas, 2 brokers, 1 machine"
    settings = "`barnabas up --brokers-here 2`, defaults; CPU time and memory with those of its ZooKeeper server"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = free_ports(BROKERS_HERE)
        self._zookeeper = ZooKeeperServers(folder / "zookeeper", wrap=lambda command: [*ending_with_us(), *command])

    @property
    def address(self) -> str:
        return ",".join(f"127.0.0.1:{self.port + number}" for number in range(BROKERS_HERE))

    @property
    def pids(self) -> list[int]:
        return [*super().pids, *(pid for pid in self._zookeeper.pids if pid is not None)]

    def launch(self) -> ServerProcess:
        try:
            self._zookeeper.start()
        except BarnabasError as error:
            raise NotStartedError(str(error)) from error
        command = [*COMMAND, "up", "--brokers-here", str(BROKERS_HERE), "--zookeeper", self._zookeeper.address]
        command += ["--id", "1", "--port", str(self.port), "--data", str(self._data)]
        return ServerProcess(command, self.folder / "log", self.environment())

    def serves(self) -> bool:
        return bool(ready_addresses(self.process.log.read_text(errors="replace")))

    def stop(self) -> None:
        super().stop()
        self._zookeeper.stop()

    def data_folders(self, topic: str) -> list[Path]:
        return list(self._data.glob(f"broker-*/{topic}-*"))


def ready_addresses(output: str) -> str:
    """Return the addresses of the brokers; "" until they are ready.

    >>> ready_addresses("starting\\nready 127.0.0.1:9092,127.0.0.1:9093\\n")
    '127.0.0.1:9092,127.0.0.1:9093'
    """
    lines = (line for line in output.splitlines(keepends=True) if line.startswith("ready ") and line.endswith("\n"))
    return next(lines, "").removeprefix("ready ").strip()


def environment_without_settings() -> dict[str, str]:
    """Return this process's environment without variables that change broker settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("BARNABAS_")}


def own_version() -> str:
    """Return the release and the codec in use, as `barnabas --version` prints them."""
    result = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, timeout=60, check=False)
    return result.stdout.strip().removeprefix("barnabas ")

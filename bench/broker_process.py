"""A broker process under measurement: started, timed, looked at from outside, stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class MeasuredBroker:
    """A broker on a free port.

    :param data: its data folder.
    :param settings: broker settings by field name.
    """

    def __init__(self, data: Path, **settings: str) -> None:
        self.data = data
        self._environment = {**os.environ, **{f"BARNABAS_{name.upper()}": value for name, value in settings.items()}}
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.ready_s = 0.0
        """From the start of the process to the line `ready`."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "barnabas.cli.main", "up", "--port", str(self.port), "--data", str(self.data)]
        begun = time.perf_counter()
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=self._environment
        )
        assert self._process.stdout
        line = self._process.stdout.readline().decode()
        self.ready_s = time.perf_counter() - begun
        if not line.startswith("ready "):
            raise RuntimeError(f"the broker did not start: {line!r}")
        self.port = int(line.rsplit(":", 1)[1])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)

    def kill(self) -> None:
        """Kill it as `kill -9` does."""
        self.process.kill()
        self.process.wait(60)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process
        return self._process

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def memory_mib(self) -> float:
        """What it holds now (resident)."""
        return self._status_kib("VmRSS") / 1024

    @property
    def memory_mib_max(self) -> float:
        """The most that it has held."""
        return self._status_kib("VmHWM") / 1024

    @property
    def cpu_s(self) -> float:
        """The CPU time that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def _status_kib(self, name: str) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1])
        raise RuntimeError(f"/proc tells no {name}")

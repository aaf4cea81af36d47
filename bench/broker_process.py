"""A broker process under measurement: started, timed, observed and stopped."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.processes import ending_with_us

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
STOP_LIMIT_S = 60.0
BARNABAS = ("-m", "barnabas.cli.main")


class MeasuredBroker:
    """A broker on a free port in its own session: Ctrl-C only reaches the benchmark program, which then stops the
    broker.

    :param data: the first log directory of the broker.
    :param program: the arguments of Python that start another program instead of `barnabas`.
    :param environment: variables in addition to the environment of this process.
    :param settings: broker settings by field name.
    """

    def __init__(
        self,
        data: Path,
        program: Sequence[str] = BARNABAS,
        *,
        environment: Mapping[str, str] | None = None,
        **settings: str,
    ) -> None:
        self.data = data
        self.more_data: Sequence[Path] = ()
        """Further log directories; set before the start."""
        self.more_arguments: Sequence[str] = ()
        """Further options of `barnabas up`; set before the start."""
        self._program = program
        named = {f"BARNABAS_{name.upper()}": value for name, value in settings.items()}
        self._environment = {**os.environ, **(environment or {}), **named}
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.ready_s = 0.0
        """The time in seconds from the start of the process to the line `ready`."""

    def __enter__(self) -> Self:
        up = ["up", "--port", str(self.port)]
        for folder in (self.data, *self.more_data):
            up += ["--data", str(folder)]
        up += self.more_arguments
        begun = time.perf_counter()
        self._process = subprocess.Popen(
            [*ending_with_us(), sys.executable, *self._program, *up],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
            start_new_session=True,
        )
        assert self._process.stdout
        try:
            line = self._process.stdout.readline().decode()
        except BaseException:
            self.kill()
            raise
        self.ready_s = time.perf_counter() - begun
        if not line.startswith("ready "):
            self.kill()
            raise RuntimeError(f"the broker did not start: {line!r}")
        self.port = int(line.rsplit(":", 1)[1])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:  # after an error or Ctrl-C, a clean shutdown is not necessary
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.stop()
        finally:
            self.kill()

    def stop(self, limit_s: float = STOP_LIMIT_S) -> float:
        """Stop the broker with SIGTERM. Return the duration of the shutdown in seconds; 0 if the broker had already
        ended.

        :raises subprocess.TimeoutExpired: if the broker is still running after the time limit.
        """
        if self.process.poll() is not None:
            return 0.0
        begun = time.perf_counter()
        self.process.terminate()
        self.process.wait(limit_s)
        return time.perf_counter() - begun

    def kill(self) -> None:
        """Kill the broker with SIGKILL."""
        self.process.kill()
        self.process.wait(STOP_LIMIT_S)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process
        return self._process

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def memory_mib(self) -> float:
        """The current resident memory."""
        return self._status_kib("VmRSS") / 1024

    @property
    def memory_mib_max(self) -> float:
        """The peak of the broker's resident memory."""
        return self._status_kib("VmHWM") / 1024

    @property
    def cpu_s(self) -> float:
        """The CPU time that the broker has used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def _status_kib(self, name: str) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1])
        raise RuntimeError(f"/proc/{self.process.pid}/status has no {name}")

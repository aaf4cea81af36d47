"""Java programs as processes: started, killed, stopped, and their output kept for whoever looks into a failure."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.reading import wait_until

STOP_TIMEOUT_S = 60
OPTIONS = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
"""Small and quick to start: two cores run a broker and several of these."""
LOGGING = [
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
]


class Program:
    """A Java program; what it prints goes to a file."""

    def __init__(self, output: Path, command: list[str], environment: Mapping[str, str]) -> None:
        self.output = output
        with output.open("wb") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=environment
            )

    def said(self) -> str:
        """Return what it has printed so far."""
        return self.output.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until it has printed what matches, and return the match."""
        self.wait_until(lambda: re.search(pattern, self.said(), re.MULTILINE), f"it prints {pattern!r}")
        found = re.search(pattern, self.said(), re.MULTILINE)
        assert found
        return found

    def wait_until(self, condition: Callable[[], object], what: str | Callable[[], str]) -> None:
        """Wait until something is true while it runs; fail with its last words when it ends before."""

        def holds() -> bool:
            ended = self._process.poll() is not None
            held = bool(condition())
            assert held or not ended, f"it ended with {self._process.returncode}:\n{self.said()[-3000:]}"
            return held

        wait_until(holds, lambda: f"{what if isinstance(what, str) else what()}; it printed:\n{self.said()[-3000:]}")

    def wait(self) -> int:
        """Wait until it ends, and return its exit code."""
        return self._process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """Kill it as `kill -9` does."""
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)

    def stop(self) -> int:
        """Ask it to end, and return its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self.wait()


Run = Callable[..., Program]
"""How tests start one: `run_java(["-cp", "...", "Main", "argument"], VARIABLE="value")`."""

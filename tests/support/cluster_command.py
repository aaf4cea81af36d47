"""`barnabas cluster up` as a process, for tests."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.interop.java.maven import java

BARNABAS = [sys.executable, "-m", "barnabas.cli.main"]
TIMEOUT_S = 240


def barnabas(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    command = [*BARNABAS, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


class ClusterCommand:
    """One run of it; where there is no Java at all, the test is skipped, as others that need it."""

    def __init__(self, data: Path, *arguments: object) -> None:
        java()
        self.data = data
        self.log = data.with_suffix(".log")
        command = [*BARNABAS, "cluster", "up", "--data", data, *arguments]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(each) for each in command], stdout=subprocess.PIPE, stderr=log, text=True
            )

    def wait_until_ready(self) -> list[str]:
        """Return where the brokers serve."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready "), f"it did not start: {line!r}\n{self.said()}"
        return line.removeprefix("ready ").strip().split(",")

    def said(self, start: str = "") -> list[str]:
        """The lines on standard error that begin so."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if line.startswith(start)]

    def file(self) -> dict[str, Any]:
        """What `cluster.json` says."""
        content: dict[str, Any] = json.loads((self.data / "cluster.json").read_text())
        return content

    def pid_of(self, broker: int) -> int:
        """The process of a broker."""
        return int(self.file()["brokers"][str(broker)]["process"])

    def zookeeper_ports(self) -> set[int]:
        """All ports of its ZooKeeper servers, also those for each other."""
        told = [path.read_text() for path in (self.data / "zookeeper").glob("*/zoo.cfg")]
        ports = [re.findall(r"^(?:clientPort=|server\.\d=.*?:)(\d+):?(\d+)?$", each, re.MULTILINE) for each in told]
        return {int(port) for pairs in ports for pair in pairs for port in pair if port}

    def stop(self, sign: int = signal.SIGTERM) -> int:
        """Stop all, and return the exit code."""
        self.process.send_signal(sign)
        return self.process.wait(TIMEOUT_S)

    def close(self) -> None:
        """End it, however it stands: what it started ends with it."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def runs(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has asked for its exit code does not."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def processes_below(pid: int) -> set[int]:
    """The processes that a process started, and those that they started."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _parent(int(entry.name)) == pid:
            found |= {int(entry.name), *processes_below(int(entry.name))}
    return found


def _parent(pid: int) -> int:
    try:
        return int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return -1

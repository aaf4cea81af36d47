"""The tutorial: each command runs as it stands, but for the ports, and says what the page says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.quick_java import java_home_or_skip
from tests.support.xdist_groups import SPARK_PROGRAMS

pytestmark = pytest.mark.xdist_group(SPARK_PROGRAMS)

pytest.importorskip("duckdb")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
BLOCKS = re.findall(r"```(console|python|sh)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
INSTALLS = ("python3 -m venv", "pip install")
GOES_ON = ("barnabas up", "cluster up", "--watch", "--every")
"""What a reader starts in a terminal of its own."""
TIMEOUT_S = 400
RECORDS = 20_001
PORTS = ("9092", "9192", "9193", "9194")
"""Those of the page: of the broker, and of the cluster's three."""
PROGRAMS = {
    "import random": "log.py",
    "dashboard.png": "dashboard.py",
    "readStream": "stream.py",
    "by_status.round": "orders.py",
    "set -eu": "job.sh",
}
"""What is in each program of the page, and the file that it is in."""


@dataclass
class Step:
    """A command and what the page shows of its output."""

    command: str
    shown: list[str] = field(default_factory=list)


def steps(block: str) -> list[Step]:
    found: list[Step] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(Step(line[2:]))
        else:
            found[-1].shown.append(line)
    return found


def alike(line: str) -> str:
    """Return a line without what differs each time: numbers and blanks."""
    return re.sub(r"\s+", " ", re.sub(r"\d[\d,]*", "N", line)).strip()


def ports_in_a_row(count: int) -> list[int]:
    """Return free ports of which each is the one after the last."""
    found: list[int] = []
    while len(found) < count:
        port = free_port()
        found = [*found, port] if found and port == found[-1] + 1 else [port]
    return found


class Folder:
    """The folder of a reader, and what runs in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ports = dict(zip(PORTS, map(str, (free_port(), *ports_in_a_row(len(PORTS) - 1))), strict=True))
        self.running: list[subprocess.Popen[str]] = []
        programs = path / ".venv"
        programs.mkdir()
        for name, arguments in (("barnabas", "-m barnabas.cli.main"), ("python", "")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
            program.chmod(0o755)
        own = {name: value for name, value in os.environ.items() if not name.startswith("BARNABAS_")}
        self.environment = {
            **own,
            "PATH": f"{programs}:{own['PATH']}",
            "XDG_STATE_HOME": str(path / "state"),
            "BARNABAS_BOOTSTRAP": f"127.0.0.1:{self.ports['9092']}",
        }

    def with_ports(self, text: str) -> str:
        """Return a command or a program with ports that are free here."""
        if text == "barnabas up --data ./log":
            return f"{text} --port {self.ports['9092']}"
        return re.sub("|".join(PORTS), lambda port: self.ports[port[0]], text)

    def write(self, name: str, program: str) -> None:
        """Write a program of the page."""
        (self.path / name).write_text(self.with_ports(program))

    def run(self, command: str) -> str:
        """Run a command to its end and return what it printed."""
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {self.with_ports(command)}"],
            cwd=self.path,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def start(self, step: Step) -> None:
        """Start a command that goes on, and wait for what the page shows of it, or for anything."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {self.with_ports(step.command)}"],
            cwd=self.path,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.running.append(process)
        assert process.stdout
        wanted = alike(step.shown[0]) if step.shown else ""
        watchdog = threading.Timer(TIMEOUT_S, process.kill)
        watchdog.start()
        came = any(wanted in alike(line) for line in process.stdout)
        watchdog.cancel()
        assert came, step
        threading.Thread(target=process.stdout.read, daemon=True).start()

    def close(self) -> None:
        """End all that goes on, what was started last first."""
        for process in reversed(self.running):
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    java_home_or_skip()
    made = Folder(tmp_path)
    yield made
    made.close()


@pytest.mark.timeout(1200)
def test_each_command_of_the_tutorial_says_what_the_page_says(folder: Folder) -> None:
    said, rows = "", ""
    for kind, block in BLOCKS:
        if kind != "console":
            (name,) = [file for text, file in PROGRAMS.items() if text in block]
            folder.write(name, block)
            if name == "log.py":
                folder.run(f"python {name}")
            continue
        for step in steps(block):
            if step.command.startswith(INSTALLS):
                continue
            if any(word in step.command for word in GOES_ON):
                folder.start(step)
                continue
            said = folder.run(step.command)
            lines = [alike(line) for line in said.splitlines()]
            assert [line for line in step.shown if alike(line) not in lines] == [], f"{step.command}\n{said}"
            if "dashboard.py" in step.command:
                assert f"{RECORDS:,} requests" in said
            elif step.command.startswith("barnabas simulate orders"):
                rows = re.findall(r"the table has ([\d,]+) rows", said)[0]
            elif step.command.startswith("sh job.sh") and "||" not in step.command:
                assert f"{rows} orders after 2,141 records" in said
                assert len((folder.path / "orders.jsonl").read_text().splitlines()) == int(rows)
            elif step.command.startswith("barnabas audit why"):
                assert "missing offsets 17" in said
            elif step.command.startswith("barnabas sql 'select count(*)"):
                assert said.split()[-1] == str(RECORDS)
    assert (folder.path / "dashboard.png").stat().st_size > 10_000

"""Processes under measurement: servers that are started, looked at from outside and stopped; clients that are run.

What a process tree has used is read from /proc (Linux). A tree counts as one: the children of a server belong to it.
Servers get sessions of their own, so that Ctrl-C reaches the bench alone, which then stops them; where `setpriv` is
installed, they also end when the bench is killed.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
STOP_TIMEOUT_S = 30.0
CPUCLOCK_SCHED = 2
"""The kernel's number for a process's clock of the time that the scheduler gave it."""
RESET_PEAK = "5"
"""Written to clear_refs, it makes VmHWM start anew (proc(5))."""


class ClientError(Exception):
    """A client program failed, or took too long."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A client program that has ended well."""

    output: str
    errors: str
    seconds: float
    cpu_s: float


def tree(pid: int) -> list[int]:
    """Return the process and all that descend from it, as far as they live."""
    parents = dict(_parents())
    found = [pid]
    for each in found:  # grows while it is walked: children of children
        found.extend(child for child, parent in parents.items() if parent == each)
    return found


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process tree, with that of its children that have ended."""
    return sum(_own_cpu_s(each) + sum(map(int, _stat(each)[13:15])) / TICKS_PER_S for each in tree(pid))


def _own_cpu_s(pid: int) -> float:
    """Return the CPU time of one process with its ended threads: in ns by its CPU clock, else in ticks of 10 ms."""
    try:
        return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)  # clock_getcpuclockid(3)
    except OSError:
        return sum(map(int, _stat(pid)[11:13])) / TICKS_PER_S


def memory_mib_max(pid: int) -> float:
    """Return the most memory that each process of the tree has held, added up."""
    return sum(_peak_kib(each) for each in tree(pid)) / 1024


def reset_memory_peak(pid: int) -> None:
    """Forget the peaks of a process tree; where that is not allowed they stand since its start."""
    for each in tree(pid):
        with contextlib.suppress(OSError):
            Path(f"/proc/{each}/clear_refs").write_text(RESET_PEAK)


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))):
            yield int(entry.name), int(stat[1])


def _stat(pid: int) -> list[str]:
    """Return the fields behind the name: state, parent, ...; zeros for a process that has just ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return ["X", *["0"] * 20]


def _peak_kib(pid: int) -> int:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1])
    return 0


class ServerProcess:
    """A server in a process of its own.

    :param command: the program and its arguments.
    :param log: the file that its output goes to.
    :param environment: all that it sees, or None for what the bench sees.
    """

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*ending_with_us(), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=log.parent,
                start_new_session=True,
            )
        self.pid = self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Ask it to end, and kill what is left of it."""
        if self.is_running:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """Kill it, and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def last_lines(self, count: int = 3) -> str:
        """Return the end of its output, for an error."""
        return " / ".join(self.log.read_text(errors="replace").strip().splitlines()[-count:])[-500:]


def ending_with_us() -> list[str]:
    """Return what stands before a command so that its process ends when this one does, if it can be had."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []


def allow_open_files() -> None:
    """Allow this process as many open files as the system lets it have: thousands of connections need them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class RunningClient:
    """A client program that runs; `finish` waits for its end."""

    def __init__(self, command: Sequence[str], on_line: Callable[[str], None] | None = None) -> None:
        self._command = command
        self._on_line = on_line
        self._begun_s = time.perf_counter()
        self._cpu_before_s = children_cpu_s()
        self._lines: list[str] = []
        self._errors: list[str] = []
        self._process = subprocess.Popen(
            [*ending_with_us(), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self.pid = self._process.pid
        assert self._process.stdout
        assert self._process.stderr
        self._readers = [
            threading.Thread(target=self._read, args=(self._process.stdout, self._lines), daemon=True),
            threading.Thread(target=self._read, args=(self._process.stderr, self._errors), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, pipe: IO[str], into: list[str]) -> None:
        for line in pipe:
            into.append(line)
            if self._on_line:
                self._on_line(line.rstrip())

    def finish(self, limit_s: float) -> Finished:
        """Wait until it ends.

        :raises ClientError: it failed, or did not end in time and was killed.
        """
        try:
            code = self._process.wait(max(0.1, limit_s))
        except subprocess.TimeoutExpired:
            raise ClientError(f"took longer than {limit_s:.0f} s") from None
        finally:
            self.kill()
        seconds = time.perf_counter() - self._begun_s
        for reader in self._readers:
            reader.join(STOP_TIMEOUT_S)
        output, errors = "".join(self._lines), "".join(self._errors)
        if code:
            raise ClientError(f"exit code {code}: {_last_line(errors) or _last_line(output)}")
        return Finished(output, errors, seconds, children_cpu_s() - self._cpu_before_s)

    def kill(self) -> None:
        """End it and all that it has started, however it stands."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def run_client(command: Sequence[str], limit_s: float, on_line: Callable[[str], None] | None = None) -> Finished:
    """Run a program to its end.

    :param on_line: is called with each line of its output and of its errors, from other threads.
    :raises ClientError: it failed, or did not end in time and was killed.
    """
    return RunningClient(command, on_line).finish(limit_s)


def children_cpu_s() -> float:
    """Return the CPU time of all clients that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1][:300] if text.strip() else ""

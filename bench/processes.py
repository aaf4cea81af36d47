"""Runs measured processes: servers that are started, observed and stopped, and clients that run until they end.

CPU time and memory of a process tree are read from /proc (Linux). The children of a server are measured together with
it. Servers have their own sessions, so that Ctrl-C only reaches the benchmark, which then stops the servers. If
`setpriv` is installed, the servers also end when the benchmark is killed.
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
"""The kernel's number for the CPU clock of a process. This clock counts the time that the scheduler gave to the
process."""
RESET_PEAK = "5"
"""The value for clear_refs that resets VmHWM (proc(5))."""


class ClientError(Exception):
    """A client program failed, or took too long."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a client program that ended with exit code 0."""

    output: str
    errors: str
    seconds: float
    cpu_s: float


def tree(pid: int) -> list[int]:
    """Return the ids of a process and its running descendants."""
    parents = dict(_parents())
    found = [pid]
    for each in found:  # the list grows during the loop, so the loop visits descendants of all depths
        found.extend(child for child, parent in parents.items() if parent == each)
    return found


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process tree, including children that have ended."""
    return sum(_own_cpu_s(each) + sum(map(int, _stat(each)[13:15])) / TICKS_PER_S for each in tree(pid))


def _own_cpu_s(pid: int) -> float:
    """Return the CPU time of one process, including ended threads: from its CPU clock (in ns) if possible, or else from
    /proc (in ticks of 10 ms)."""
    try:
        return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)  # clock_getcpuclockid(3)
    except OSError:
        return sum(map(int, _stat(pid)[11:13])) / TICKS_PER_S


def memory_mib_max(pid: int) -> float:
    """Return the sum of the memory peaks of the tree's processes."""
    return sum(_peak_kib(each) for each in tree(pid)) / 1024


def reset_memory_peak(pid: int) -> None:
    """Reset the memory peaks of a process tree. Without the permission for this, the peaks cover the time since the
    start of the processes."""
    for each in tree(pid):
        with contextlib.suppress(OSError):
            Path(f"/proc/{each}/clear_refs").write_text(RESET_PEAK)


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))):
            yield int(entry.name), int(stat[1])


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name: state, parent, ... Return zeros if the process has just
    ended."""
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
    """A server in a separate process.

    :param command: the program and its arguments.
    :param log: the file for its output.
    :param environment: its complete environment; None for the environment of the benchmark.
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
        """True if the process has not ended."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Stop the server with SIGTERM, and kill its remaining processes."""
        if self.is_running:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """Kill the server and all its descendants."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def last_lines(self, count: int = 3) -> str:
        """Return the last lines of the server's output, for an error message."""
        return " / ".join(self.log.read_text(errors="replace").strip().splitlines()[-count:])[-500:]


def ending_with_us() -> list[str]:
    """Return a command prefix that ends a process together with this process; empty if `setpriv` is not installed."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []


def allow_open_files() -> None:
    """Raise the limit of open files to the hard limit, because thousands of connections need open files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class RunningClient:
    """A running client program. `finish` waits for its end."""

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
        """Wait until the program ends.

        :raises ClientError: if it fails, or exceeds the limit and is killed.
        """
        try:
            code = self._process.wait(max(0.1, limit_s))
        except subprocess.TimeoutExpired:
            raise ClientError(f"the program took longer than {limit_s:.0f} s") from None
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
        """Kill the program and all its descendants."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def run_client(command: Sequence[str], limit_s: float, on_line: Callable[[str], None] | None = None) -> Finished:
    """Run a program to its end.

    :param on_line: called from other threads with each line of standard output and standard error.
    :raises ClientError: if it fails, or exceeds the limit and is killed.
    """
    return RunningClient(command, on_line).finish(limit_s)


def children_cpu_s() -> float:
    """Return the CPU time of all ended clients."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1][:300] if text.strip() else ""

"""Observes a running cleaner: reads its CPU time and memory repeatedly from /proc."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bench.processes import TICKS_PER_S

OUR_CLEANER = "barnabas.storage.cleaner"
KAFKAS_CLEANER = "kafka-log-clean"
"""The name of Kafka's cleaner thread. Linux truncates thread names to 15 characters."""


class Watch:
    """The cleaner of a broker: a child process or a thread.

    The caller calls `look` often, because /proc has no memory figures after a process has ended.

    :param pid: the process id of the broker.
    """

    def __init__(self, pid: int) -> None:
        self._process = Path(f"/proc/{pid}")
        self._before_s = {path: cpu_s(path) for path in self._cleaners()}
        self._now_s: dict[Path, float] = {}
        self.peak_mib = 0.0
        """The memory peak of the cleaner's process; 0 if it is a thread."""

    def look(self) -> None:
        """Read the figures once."""
        for cleaner in {*self._cleaners(), *self._now_s}:
            self._now_s[cleaner] = max(self._now_s.get(cleaner, 0.0), cpu_s(cleaner))
            if cleaner.parent == Path("/proc"):
                self.peak_mib = max(self.peak_mib, peak_mib(cleaner))

    @property
    def cpu_s(self) -> float:
        """The CPU time of the cleaner since the start of the watch."""
        return sum(now_s - self._before_s.get(path, 0.0) for path, now_s in self._now_s.items())

    @property
    def has_ended(self) -> bool:
        """True if no process of the cleaner is running any more."""
        return not any(peak_mib(path) for path in self._now_s if path.parent == Path("/proc"))

    def _cleaners(self) -> Iterator[Path]:
        """Yield the folders in /proc of the cleaner's processes and threads."""
        for task in _entries(self._process / "task"):
            if _text(task / "comm").strip() == KAFKAS_CLEANER:
                yield task
            for child in _text(task / "children").split():
                if OUR_CLEANER in _text(Path(f"/proc/{child}/cmdline")).split("\0"):
                    yield Path(f"/proc/{child}")


def cpu_s(folder: Path) -> float:
    """Return the CPU time of a process or thread by its directory in /proc; 0 if it has ended."""
    fields = _text(folder / "stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S if fields else 0.0


def peak_mib(folder: Path) -> float:
    """Return the memory peak of a process; 0 if it has ended."""
    for line in _text(folder / "status").splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def _text(path: Path) -> str:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return path.read_text(errors="replace")
    return ""


def _entries(folder: Path) -> list[Path]:
    with contextlib.suppress(FileNotFoundError):
        return list(folder.iterdir())
    return []

"""The command `barnabas` with files and a clock that fail as they are told: `python -m tests.faults.faulty_broker`.

    python -m tests.faults.faulty_broker CONTROL up --port 9092 --data data

CONTROL is a file of `Faults` (`tests.faults.control`). The rest is for `barnabas`, which runs as it is: its broker
takes time and files from its `Environment`, and here these are the machine's with faults in between. A library
that stands between a process and the system (libfaketime) could shift the clock from outside; this needs none, leaves
the interpreter's own timers alone, and fails at the very operation that a test has named.

With `PLANTED_BUG` in its environment the broker has the bug of that name (`tests.support.planted_bugs`).

What is not told of faults: the embedded tree, which is a file of SQLite, and the processes of the log cleaner.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from barnabas.broker.environment import Environment
from barnabas.cli.commands import run
from barnabas.clock import SYSTEM_CLOCK
from barnabas.storage.filesystem import FilePath
from barnabas.testing.file_faults import FaultyFileSystem, FileFault, FileFaults
from tests.faults.control import Orders, struck_file

PLANTED_BUG = "PLANTED_BUG"
"""In the environment: which bug the broker has."""


class Told:
    """What the file says at this moment. Safe to use from several threads.

    :param path: the file of a `Faults`.
    :param sleep: waits so many seconds: so a slow disk is slow.
    """

    def __init__(self, path: Path, sleep: Callable[[float], object] = SYSTEM_CLOCK.sleep) -> None:
        self._path = path
        self._struck = os.open(struck_file(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._seen_at_ns = -1
        self._orders = Orders()
        self.files = FaultyFileSystem(FileFaults(lambda: self.orders().rules, sleep, self._write_down))
        """The real files, but for the faults that are told."""

    def orders(self) -> Orders:
        """Return all that holds now."""
        if self._path.stat().st_mtime_ns != self._seen_at_ns:
            with self._lock, self._path.open() as file:
                self._orders = Orders.parse(file.read())
                self._seen_at_ns = os.fstat(file.fileno()).st_mtime_ns
        return self._orders

    def _write_down(self, fault: FileFault, operation: str, path: FilePath) -> None:
        os.write(self._struck, f"{fault.number} {operation} {path}\n".encode())


class ToldClock:
    """The machine's clock, but for the jumps that are told. Monotonic time is the machine's."""

    monotonic = staticmethod(SYSTEM_CLOCK.monotonic)
    since_boot = staticmethod(SYSTEM_CLOCK.since_boot)

    def __init__(self, told: Told) -> None:
        self._told = told

    def time_ms(self) -> int:
        return SYSTEM_CLOCK.time_ms() + self._told.orders().clock_ahead_ms

    def time_s(self) -> float:
        return SYSTEM_CLOCK.time_s() + self._told.orders().clock_ahead_ms / 1000

    def expiry_ms(self) -> int | None:
        return self.time_ms()

    def stored_ms(self) -> int:
        return self.time_ms()


def plant(name: str) -> None:
    """Give this process the bug of a name, for good."""
    import pytest  # noqa: PLC0415 - brokers without a bug start without it

    from tests.support.planted_bugs import BUGS  # noqa: PLC0415

    BUGS[name](pytest.MonkeyPatch())


def main(arguments: Sequence[str]) -> int:
    """Run the command `barnabas`; the first argument is the file that tells of faults."""
    if bug := os.environ.get(PLANTED_BUG):
        plant(bug)
    told = Told(Path(arguments[0]))
    return run(list(arguments[1:]), Environment(clock=ToldClock(told), filesystem=told.files))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

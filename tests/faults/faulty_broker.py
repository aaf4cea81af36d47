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

import errno
import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from barnabas.broker.environment import Environment
from barnabas.cli.commands import run
from barnabas.clock import SYSTEM_CLOCK
from barnabas.storage import OsFileSystem
from barnabas.storage.filesystem import Chunk, DataFile, FilePath
from tests.faults.control import Orders, Rule, struck_file

DISK_FULL = "ENOSPC"
PLANTED_BUG = "PLANTED_BUG"
"""In the environment: which bug the broker has."""


class Told:
    """What the file says at this moment. Safe to use from several threads.

    :param path: the file of a `Faults`.
    :param sleep: waits so many seconds: so a slow disk is slow.
    """

    def __init__(self, path: Path, sleep: Callable[[float], object] = SYSTEM_CLOCK.sleep) -> None:
        self._path = path
        self._sleep = sleep
        self._struck = os.open(struck_file(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._seen_at_ns = -1
        self._orders = Orders()
        self._counts: Counter[int] = Counter()
        self._random = random.Random(0)

    def orders(self) -> Orders:
        """Return all that holds now."""
        if self._path.stat().st_mtime_ns != self._seen_at_ns:
            with self._lock, self._path.open() as file:
                self._orders = Orders.parse(file.read())
                self._seen_at_ns = os.fstat(file.fileno()).st_mtime_ns
        return self._orders

    def befall(self, operation: str, path: FilePath) -> None:
        """Let an operation take longer, or raise the OSError that is told for it."""
        for rule in self.orders().rules:
            if operation in rule.operations and fnmatchcase(str(path), rule.paths) and self._is_due(rule):
                if rule.slow_ms:
                    self._sleep(rule.slow_ms / 1000)
                if rule.error:
                    os.write(self._struck, f"{rule.number} {operation} {path}\n".encode())
                    number = getattr(errno, rule.error)
                    raise OSError(number, os.strerror(number), str(path))

    def is_full(self, folder: Path) -> bool:
        """Whether the disk of a folder is told to be full."""
        return any(
            rule.error == DISK_FULL
            and rule.nth is None
            and "writev" in rule.operations
            and fnmatchcase(str(folder / "any"), rule.paths)
            for rule in self.orders().rules
        )

    def _is_due(self, rule: Rule) -> bool:
        with self._lock:
            self._counts[rule.number] += 1
            is_drawn = rule.share >= 1 or self._random.random() < rule.share
            return is_drawn and rule.nth in {None, self._counts[rule.number]}


class ToldFileSystem(OsFileSystem):
    """The real files, but for the faults that are told."""

    def __init__(self, told: Told) -> None:
        self._told = told

    def open(self, path: FilePath, *, create: bool = False, writable: bool = True) -> DataFile:
        if create and not Path(path).exists():
            self._told.befall("create", path)
        return super().open(path, create=create, writable=writable)

    def writev(self, file: DataFile, chunks: Sequence[Chunk]) -> int:
        try:
            self._told.befall("writev", file.path)
        except OSError:
            data = b"".join(chunks)
            super().writev(file, [data[: len(data) // 2]])
            raise
        return super().writev(file, chunks)

    def allocate(self, file: DataFile, size: int) -> None:
        self._told.befall("allocate", file.path)
        super().allocate(file, size)

    def pread(self, file: DataFile, size: int, position: int) -> bytes:
        self._told.befall("read", file.path)
        return super().pread(file, size, position)

    def read_all(self, file: DataFile) -> bytes:
        self._told.befall("read", file.path)
        return super().pread(file, self.size_of(file), 0)

    def fsync(self, file: DataFile) -> None:
        self._told.befall("fsync", file.path)
        super().fsync(file)

    def truncate(self, file: DataFile, size: int) -> None:
        self._told.befall("truncate", file.path)
        super().truncate(file, size)

    def replace(self, source: Path, target: Path) -> None:
        self._told.befall("replace", target)
        super().replace(source, target)

    def unlink(self, path: Path) -> None:
        self._told.befall("unlink", path)
        super().unlink(path)

    def make_folder(self, path: Path) -> None:
        self._told.befall("make_folder", path)
        super().make_folder(path)

    def remove_folder(self, path: Path) -> None:
        self._told.befall("remove_folder", path)
        super().remove_folder(path)

    def fsync_folder(self, path: Path) -> None:
        self._told.befall("fsync_folder", path)
        super().fsync_folder(path)

    def free_bytes(self, path: Path) -> int:
        return 0 if self._told.is_full(path) else super().free_bytes(path)


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
    return run(list(arguments[1:]), Environment(clock=ToldClock(told), filesystem=ToldFileSystem(told)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

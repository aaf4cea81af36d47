"""The SQLite file of a history, and its writer."""

from __future__ import annotations

import enum
import sqlite3
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.errors import ClosedError

Value = int | str | bytes
"""What a record is known by; sent once in a history."""

WRITTEN_AT_ONCE = 10_000
"""Rows that are kept in memory before they go to the file."""

TABLES = """
CREATE TABLE places (place INTEGER PRIMARY KEY, topic TEXT, partition INTEGER, UNIQUE (topic, partition));
CREATE TABLE processes (process INTEGER PRIMARY KEY, name TEXT UNIQUE);
CREATE TABLE sends (
    number INTEGER PRIMARY KEY, process INTEGER, place INTEGER, value, started REAL, ended REAL, outcome TEXT,
    position INTEGER, reason TEXT
);
CREATE TABLE polls (poll INTEGER PRIMARY KEY, process INTEGER, started REAL, ended REAL, final INTEGER);
CREATE TABLE seen (row INTEGER PRIMARY KEY, poll INTEGER, run INTEGER, place INTEGER, position INTEGER, value);
CREATE TABLE deleted (place INTEGER, before INTEGER);
CREATE TABLE read_whole (place INTEGER);
CREATE TABLE events (at REAL, place INTEGER, what TEXT);
"""
"""`position` is the offset. `run` is the same for what one process reads of a place without being moved in between."""


class Outcome(enum.StrEnum):
    """How a send ended."""

    OK = "ok"
    """It was acknowledged."""
    FAIL = "fail"
    """It was refused before it came to the log: nobody may ever see it."""
    INFO = "info"
    """Nobody knows: it may be in the log now, later, or never."""


class Send:
    """A send that has begun. One of its methods is called when it ends; if none is, nobody knows how it ended."""

    __slots__ = ("_history", "_row")

    def __init__(self, history: History, row: list[Any]) -> None:
        self._history = history
        self._row = row

    def ok(self, offset: int | None = None) -> None:
        """It was acknowledged, with this offset where the broker told one."""
        self._history._end_send(self._row, Outcome.OK, offset, None)

    def ended(self, outcome: Outcome, reason: str) -> None:
        """It failed, for sure or perhaps."""
        self._history._end_send(self._row, outcome, None, reason)


class History:
    """What clients did and saw, written into a file. Safe to use from several threads.

    Args:
        path: The file; it must not exist yet.
        clock: Tells when something happened, by its monotonic time.

    Raises:
        FileExistsError: There is such a file.
    """

    def __init__(self, path: str | Path, clock: Clock = SYSTEM_CLOCK) -> None:
        if Path(path).exists():
            raise FileExistsError(f"{path} exists; a history begins with a file of its own")
        self._lock = threading.Lock()
        self._clock = clock
        self._began = clock.monotonic()
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        # A history that did not come to its end proves nothing: there is nothing to keep through a crash.
        # So it is one transaction from its beginning to its end, which asks the file system for the least.
        self._database.executescript(f"PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; BEGIN; {TABLES}")
        self._places: dict[tuple[str, int], int] = {}
        self._processes: dict[str, int] = {}
        self._runs: dict[tuple[int, int], int] = {}
        self._rows: dict[str, list[tuple[Any, ...]]] = {"sends": [], "polls": [], "seen": []}
        self._open_sends: dict[int, list[Any]] = {}
        self._highest: dict[int, int] = {}
        self._sends = self._polls = self._run = 0
        self._closed = False

    def now(self) -> float:
        """Return the seconds since the history began."""
        return self._clock.monotonic() - self._began

    def send(self, process: str, place: tuple[str, int], value: Value) -> Send:
        """Write down that a process begins to send a value.

        Args:
            process: Who sends; what one process sends to a place is expected there in this order.
            place: Topic and partition.
            value: What is sent; never before in this history.
        """
        with self._lock:
            self._check_open()
            self._sends += 1
            row = [self._sends, self._process(process), self._place(place), value, self.now(), None, Outcome.INFO, None]
            self._open_sends[self._sends] = row
            return Send(self, row)

    def poll(
        self,
        process: str,
        started: float,
        records: Iterable[tuple[tuple[str, int], int, Value]],
        *,
        final: bool = False,
    ) -> None:
        """Write down what a process was given by one poll.

        Args:
            process: Who polled.
            started: When it began to, as `now` told.
            records: Place, offset and value of each, in the order in which they came.
            final: Whether this belongs to the reading of everything after all faults have ended.
        """
        with self._lock:
            self._check_open()
            self._polls += 1
            reader = self._process(process)
            self._add("polls", (self._polls, reader, started, self.now(), int(final)))
            for place, offset, value in records:
                where = self._place(place)
                self._highest[where] = max(offset, self._highest.get(where, -1))
                self._add("seen", (None, self._polls, self._run_of(reader, where), where, offset, value))

    def highest(self, place: tuple[str, int]) -> int:
        """Return the highest offset of a place that was acknowledged or read so far, -1 if there is none."""
        with self._lock:
            return self._highest.get(self._places.get((place[0], place[1]), 0), -1)

    def moved(self, process: str) -> None:
        """Write down that a process was given other partitions, or sought: it may go on anywhere."""
        with self._lock:
            self._check_open()
            reader = self._process(process)
            for key in [key for key in self._runs if key[0] == reader]:
                del self._runs[key]

    def deleted(self, place: tuple[str, int], before: int) -> None:
        """Write down that what is below an offset was deleted because somebody wished so: it need not be read."""
        self._write("INSERT INTO deleted VALUES (?, ?)", lambda: (self._place(place), before))

    def read_whole(self, place: tuple[str, int]) -> None:
        """Write down that final polls have come to the end of a place, past the highest offset that anybody knows."""
        self._write("INSERT INTO read_whole VALUES (?)", lambda: (self._place(place),))

    def event(self, what: str, place: tuple[str, int] | None = None) -> None:
        """Write down something that explains what comes after it: a broker killed, a leader changed."""
        self._write(
            "INSERT INTO events VALUES (?, ?, ?)",
            lambda: (self.now(), None if place is None else self._place(place), what),
        )

    def close(self) -> None:
        """Write the rest; sends that have not ended are those of which nobody knows."""
        with self._lock:
            if self._closed:
                return
            for row in self._open_sends.values():
                self._add("sends", (*row, "no answer came"))
            for table in self._rows:
                self._flush(table)
            self._closed = True
            self._database.execute("COMMIT")
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end_send(self, row: list[Any], outcome: Outcome, offset: int | None, reason: str | None) -> None:
        with self._lock:
            self._check_open()
            if self._open_sends.pop(row[0], None) is None:
                raise ValueError(f"the send of {row[3]!r} has ended twice")
            if offset is not None:
                self._highest[row[2]] = max(offset, self._highest.get(row[2], -1))
            self._add("sends", (*row[:5], self.now(), outcome, offset, reason))

    def _write(self, statement: str, row: Callable[[], tuple[Any, ...]]) -> None:
        with self._lock:
            self._check_open()
            self._database.execute(statement, row())

    def _add(self, table: str, row: tuple[Any, ...]) -> None:
        rows = self._rows[table]
        rows.append(row)
        if len(rows) >= WRITTEN_AT_ONCE:
            self._flush(table)

    def _flush(self, table: str) -> None:
        rows = self._rows[table]
        if rows:
            self._database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
            rows.clear()

    def _place(self, place: tuple[str, int]) -> int:
        return self._number(self._places, (place[0], place[1]), "INSERT INTO places VALUES (?, ?, ?)", place)

    def _process(self, name: str) -> int:
        return self._number(self._processes, name, "INSERT INTO processes VALUES (?, ?)", (name,))

    def _number(self, known: dict[Any, int], key: Any, statement: str, row: tuple[Any, ...]) -> int:
        number = known.get(key)
        if number is None:
            number = known[key] = len(known) + 1
            self._database.execute(statement, (number, *row))
        return number

    def _run_of(self, process: int, place: int) -> int:
        run = self._runs.get((process, place))
        if run is None:
            self._run += 1
            run = self._runs[process, place] = self._run
        return run

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this history is closed")

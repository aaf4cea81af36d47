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
"""The type of values. A history contains each value only once, so the value identifies its record."""

WRITTEN_AT_ONCE = 10_000
"""The number of rows that the writer buffers before it writes them to the file."""

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
"""`position` is an offset. `run` is a counter for each process and partition. It increases after a seek or a
reassignment, so the reads with one value have no interruption."""


class Outcome(enum.StrEnum):
    """The outcome of a send."""

    OK = "ok"
    """The broker acknowledged the send."""
    FAIL = "fail"
    """The broker rejected the send before it appended anything: no consumer may ever read the value."""
    INFO = "info"
    """The outcome is unknown: the value may be in the log now, later, or never."""


class Send:
    """A send in progress. The caller calls `ok` or `ended` at the end of the send. Without this call, the outcome is
    unknown."""

    __slots__ = ("_history", "_row")

    def __init__(self, history: History, row: list[Any]) -> None:
        self._history = history
        self._row = row

    def ok(self, offset: int | None = None) -> None:
        """Record that the send was acknowledged, with the offset if the broker returned one."""
        self._history._end_send(self._row, Outcome.OK, offset, None)

    def ended(self, outcome: Outcome, reason: str) -> None:
        """Record that the send failed, or that its outcome is unknown."""
        self._history._end_send(self._row, outcome, None, reason)


class History:
    """Writes a history: the operations of clients and their results. Thread-safe.

    Args:
        path: The file, which must not exist.
        clock: The monotonic clock for the times of operations.

    Raises:
        FileExistsError: If the file exists.
    """

    def __init__(self, path: str | Path, clock: Clock = SYSTEM_CLOCK) -> None:
        if Path(path).exists():
            raise FileExistsError(f"{path} exists; pass the path of a new file")
        self._lock = threading.Lock()
        self._clock = clock
        self._began = clock.monotonic()
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        # An incomplete history is useless, so no data need to survive a crash. The whole history is one transaction,
        # because this needs the fewest disk writes.
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
        """Return the seconds since the start of the history."""
        return self._clock.monotonic() - self._began

    def send(self, process: str, place: tuple[str, int], value: Value) -> Send:
        """Record that a process starts to send a value.

        Args:
            process: The sender. The log must keep the order of this sender's values in each partition.
            place: Topic and partition.
            value: The value, which no other send in this history has.
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
        """Record the result of a poll.

        Args:
            process: The reader.
            started: The start of the poll, as `now` returned it.
            records: Topic and partition, offset and value of each record, in the order of the poll.
            final: True for a poll of the final read, after all faults have ended.
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
        """Return the highest offset of a partition that was acknowledged or read so far; -1 if there is none."""
        with self._lock:
            return self._highest.get(self._places.get((place[0], place[1]), 0), -1)

    def moved(self, process: str) -> None:
        """Record that a process got other partitions or called seek. Its next read may return any offset."""
        with self._lock:
            self._check_open()
            reader = self._process(process)
            for key in [key for key in self._runs if key[0] == reader]:
                del self._runs[key]

    def deleted(self, place: tuple[str, int], before: int) -> None:
        """Record that records below an offset were deleted on request. The check does not report these records as
        lost."""
        self._write("INSERT INTO deleted VALUES (?, ?)", lambda: (self._place(place), before))

    def read_whole(self, place: tuple[str, int]) -> None:
        """Record that the final read reached the end of a partition, beyond the highest known offset."""
        self._write("INSERT INTO read_whole VALUES (?)", lambda: (self._place(place),))

    def event(self, what: str, place: tuple[str, int] | None = None) -> None:
        """Record an event that may help to explain an anomaly, such as a killed broker or a new leader."""
        self._write(
            "INSERT INTO events VALUES (?, ?, ?)",
            lambda: (self.now(), None if place is None else self._place(place), what),
        )

    def close(self) -> None:
        """Write all buffered rows. Sends that have not ended get the outcome INFO."""
        with self._lock:
            if self._closed:
                return
            for row in self._open_sends.values():
                self._add("sends", (*row, "no response"))
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

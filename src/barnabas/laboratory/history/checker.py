"""Checks a history for anomalies, which the history of a correct log never has.

The check collects all known values in one table, by partition and offset. A query on this table finds each kind of
anomaly. SQLite runs the queries with temporary tables on disk, so the memory is bounded for histories of any length.
"""

from __future__ import annotations

import enum
import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barnabas.laboratory.history.history_file import Outcome, Value

CACHE_KIB = 64 * 1024
CANDIDATES = 1000
"""The maximum number of cases of an anomaly that the check compares to choose the shortest example."""
OPERATIONS = 15
"""The maximum number of sends, and also of reads, in the timeline of an example."""
EVENTS_BEFORE = 10
"""The maximum number of events in the timeline of an example. The timeline keeps the last events before its end."""

READ_BY_NOBODY, READ, READ_AT_THE_END = 0, 1, 2


class Anomaly(enum.StrEnum):
    """The kinds of anomalies, which a correct log never has."""

    INCONSISTENT_OFFSET = "inconsistent offset"
    """Two different values have the same offset."""
    DUPLICATE = "duplicate"
    """The same value has two offsets."""
    ABORTED_READ = "aborted read"
    """A value was read although its send had failed."""
    LOST_WRITE = "lost write"
    """No reader got an acknowledged value, although a reader got a later value of the partition."""
    POLL_SKIP = "poll skip"
    """A consumer skipped a value between two polls without a seek."""
    NON_MONOTONIC_POLL = "non-monotonic poll"
    """A consumer got an offset lower than in its previous poll, without a seek."""
    NON_MONOTONIC_SEND = "non-monotonic send"
    """The log contains two values of one producer in the reverse order of their sends. A producer that is not
    idempotent and has several requests in flight may cause this.
    """
    UNSEEN = "unseen"
    """The final read of the whole log did not return a value that was acknowledged or read earlier."""


@dataclass(frozen=True)
class Moment:
    """A line of a timeline: an operation of a process, or an event such as a broker failure. An event has no end and no
    process.

    Attributes:
        started, ended: Seconds since the start of the history.
        process: The process of the operation; empty for events.
        what: The operation and its result, or the event.
    """

    started: float
    ended: float | None
    process: str
    what: str


@dataclass(frozen=True)
class Finding:
    """An anomaly that the check found.

    Attributes:
        anomaly: The kind of anomaly.
        count: The number of cases.
        example: The case with the fewest operations, as a sentence.
        timeline: The operations and events of the example, by time.
    """

    anomaly: Anomaly
    count: int
    example: str
    timeline: tuple[Moment, ...]


@dataclass(frozen=True)
class Report:
    """The result of a check.

    Attributes:
        sends: The number of sends by outcome. polls: The number of polls. records: The number of records that the polls
        returned. findings: The anomalies that the check found; empty for a correct log. unread: The partitions with
        acknowledged values that were never read to their end. For these partitions, the check cannot detect lost
        records.
    """

    sends: dict[Outcome, int]
    polls: int
    records: int
    findings: tuple[Finding, ...]
    unread: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Return whether the check found no anomaly and covered all partitions."""
        return not self.findings and not self.unread


@dataclass
class _Case:
    """One occurrence of an anomaly, with the offsets and values that select its operations."""

    sentence: str
    place: int
    positions: tuple[int, ...] = ()
    values: tuple[Value, ...] = ()


def check(path: str | Path) -> Report:
    """Check a history for anomalies.

    Args:
        path: The file of a closed history.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is not a history.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"the history {path} does not exist")
    database = sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        return _Check(database).report()
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path} is not a history: {error}") from error
    finally:
        database.close()


class _Check:
    """The state of a running check: the open history and its temporary tables."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._ask = database.execute
        for statement in (*PREPARATIONS.split(";"), *TABLES):
            self._ask(statement)
        self._places = {place: f"{topic}-{number}" for place, topic, number in self._ask("SELECT * FROM places")}
        self._processes = dict(self._ask("SELECT process, name FROM processes"))

    def report(self) -> Report:
        sends = dict.fromkeys(Outcome, 0)
        sends.update(
            {Outcome(each): count for each, count in self._ask("SELECT outcome, count(*) FROM sends GROUP BY 1")}
        )
        ((polls,),) = self._ask("SELECT count(*) FROM polls")
        ((records,),) = self._ask("SELECT count(*) FROM seen")
        unread = tuple(sorted(self._places[place] for (place,) in self._ask(UNREAD)))
        looks = {
            Anomaly.INCONSISTENT_OFFSET: self._inconsistent_offsets(),
            Anomaly.DUPLICATE: self._duplicates(),
            Anomaly.ABORTED_READ: self._aborted_reads(),
            Anomaly.LOST_WRITE: self._lost_writes(),
            Anomaly.POLL_SKIP: self._poll_skips(),
            Anomaly.NON_MONOTONIC_POLL: self._non_monotonic_polls(),
            Anomaly.NON_MONOTONIC_SEND: self._non_monotonic_sends(),
            Anomaly.UNSEEN: self._unseen(),
        }
        findings = [finding for anomaly, cases in looks.items() if (finding := self._finding(anomaly, cases))]
        return Report(sends, polls, records, tuple(findings), unread)

    def _inconsistent_offsets(self) -> Iterator[_Case]:
        for place, position, first, last in self._ask(INCONSISTENT_OFFSETS):
            sentence = f"{self._places[place]} has both {first!r} and {last!r} at offset {position}"
            yield _Case(sentence, place, (position,), (first, last))

    def _duplicates(self) -> Iterator[_Case]:
        for value, count, place, position, other_place, other in self._ask(DUPLICATES):
            where = f"{self._places[place]} at offset {position} and in {self._places[other_place]} at {other}"
            sentence = f"{value!r} is there {count} times, in {where}"
            yield _Case(sentence, place, (position, other) if place == other_place else (position,), (value,))

    def _aborted_reads(self) -> Iterator[_Case]:
        for place, position, value, reason in self._ask(ABORTED_READS):
            sentence = (
                f"the send of {value!r} failed ({reason}), but it is in {self._places[place]} at offset {position}"
            )
            yield _Case(sentence, place, (position,), (value,))

    def _lost_writes(self) -> Iterator[_Case]:
        for place, position, value, top in self._ask(LOST_WRITES):
            where = f"{self._places[place]} at offset {position}"
            sentence = f"{value!r} was acknowledged in {where}, and nobody read it, though offset {top} was read"
            yield _Case(sentence, place, (position,), (value,))

    def _poll_skips(self) -> Iterator[_Case]:
        for place, process, before, position, missed, value in self._ask(POLL_SKIPS):
            step = f"from offset {before} to {position} of {self._places[place]}"
            sentence = f"{self._processes[process]} went {step} and missed {value!r} at {missed}"
            yield _Case(sentence, place, (before, missed, position), (value,))

    def _non_monotonic_polls(self) -> Iterator[_Case]:
        for place, process, before, position in self._ask(NON_MONOTONIC_POLLS):
            sentence = f"{self._processes[process]} read offset {position} of {self._places[place]} after {before}"
            yield _Case(sentence, place, (position, before))

    def _non_monotonic_sends(self) -> Iterator[_Case]:
        for place, process, before, first, position, value in self._ask(NON_MONOTONIC_SENDS):
            order = f"{value!r} (offset {position}) after {first!r} (offset {before})"
            sentence = f"{self._processes[process]} sent {order} to {self._places[place]}"
            yield _Case(sentence, place, (position, before), (first, value))

    def _unseen(self) -> Iterator[_Case]:
        for place, position, value, acknowledged in self._ask(UNSEEN):
            where = self._places[place] if position is None else f"{self._places[place]} at offset {position}"
            how = "acknowledged" if acknowledged else "read"
            sentence = f"{value!r} was {how} in {where}, and was not there when all was read at the end"
            yield _Case(sentence, place, () if position is None else (position,), (value,))

    def _finding(self, anomaly: Anomaly, cases: Iterator[_Case]) -> Finding | None:
        candidates = list(itertools.islice(cases, CANDIDATES))
        if not candidates:
            return None
        count = len(candidates) + sum(1 for _ in cases)
        shortest = candidates[self._shortest(candidates)]
        return Finding(anomaly, count, shortest.sentence, self._timeline(shortest))

    def _shortest(self, cases: Sequence[_Case]) -> int:
        """Return the index of the case with the fewest operations. Among equal cases, choose the one with the shortest
        duration."""
        self._want(cases)
        operations: dict[int, list[tuple[float, float]]] = {index: [] for index in range(len(cases))}
        for index, count, first, last in self._ask(LENGTHS):
            operations[index] += [(first, last)] * count
        return min(
            operations,
            key=lambda index: (
                len(operations[index]),
                max((last for _, last in operations[index]), default=0)
                - min((first for first, _ in operations[index]), default=0),
            ),
        )

    def _timeline(self, case: _Case) -> tuple[Moment, ...]:
        self._want([case])
        moments = [self._send_moment(*row) for row in self._ask(WANTED_SENDS, (OPERATIONS,))]
        moments += [self._poll_moment(*row) for row in self._ask(WANTED_POLLS, (OPERATIONS,))]
        end = max((moment.ended or 0 for moment in moments), default=0)
        for at, place, what in self._ask(EVENTS, (case.place, end, EVENTS_BEFORE)):
            moments.append(Moment(at, None, "", what if place is None else f"{self._places[place]}: {what}"))
        return tuple(sorted(moments, key=lambda moment: moment.started))

    def _want(self, cases: Sequence[_Case]) -> None:
        self._ask("DELETE FROM wanted_values")
        self._ask("DELETE FROM wanted_positions")
        for index, case in enumerate(cases):
            for value in case.values:
                self._ask("INSERT OR IGNORE INTO wanted_values VALUES (?, ?)", (value, index))
            for position in case.positions:
                self._ask("INSERT OR IGNORE INTO wanted_positions VALUES (?, ?, ?)", (case.place, position, index))

    def _send_moment(self, process: int, started: float, ended: float | None, *rest: Any) -> Moment:
        place, value, outcome, position, reason = rest
        how = {
            Outcome.OK: "ok" if position is None else f"ok, offset {position}",
            Outcome.FAIL: f"failed: {reason}",
            Outcome.INFO: f"nobody knows: {reason}",
        }[Outcome(outcome)]
        return Moment(started, ended, self._processes[process], f"sends {value!r} to {self._places[place]}: {how}")

    def _poll_moment(self, process: int, started: float, ended: float, *rest: Any) -> Moment:
        place, position, value, final = rest
        when = " at the end" if final else ""
        what = f"reads {value!r}{when} from {self._places[place]} at offset {position}"
        return Moment(started, ended, self._processes[process], what)


PREPARATIONS = f"""
PRAGMA temp_store=FILE;
PRAGMA cache_size=-{CACHE_KIB};
CREATE TEMP TABLE known (
    place INTEGER, position INTEGER, value, read INTEGER, PRIMARY KEY (place, position, value)
) WITHOUT ROWID;
CREATE TEMP TABLE wanted_values (value, case_number INTEGER, PRIMARY KEY (value, case_number)) WITHOUT ROWID;
CREATE TEMP TABLE wanted_positions (
    place INTEGER, position INTEGER, case_number INTEGER, PRIMARY KEY (place, position, case_number)
) WITHOUT ROWID
"""
"""`known` contains the values by offset. Each row also shows whether a reader got a value at this offset."""

_SEEN = "SELECT place, position, value, {read} FROM seen JOIN polls USING (poll) WHERE final = {final} ORDER BY 1, 2, 3"
TABLES = (
    # INSERT OR IGNORE keeps the first row of each key. The input is sorted, so that SQLite appends to the table.
    "INSERT OR IGNORE INTO known " + _SEEN.format(read=READ_AT_THE_END, final=1),
    "INSERT OR IGNORE INTO known " + _SEEN.format(read=READ, final=0),
    f"""INSERT OR IGNORE INTO known SELECT place, position, value, {READ_BY_NOBODY} FROM sends
        WHERE outcome = 'ok' AND position IS NOT NULL ORDER BY 1, 2, 3""",
    "CREATE INDEX known_by_value ON known (value)",
    """CREATE TEMP TABLE bounds AS
        SELECT place, (SELECT ifnull(max(before), 0) FROM deleted WHERE deleted.place = places.place) AS start,
            (SELECT max(position) FROM known WHERE known.place = places.place AND read > 0) AS top,
            EXISTS (SELECT 1 FROM read_whole WHERE read_whole.place = places.place) AS whole
        FROM places""",
    # The pairs of consecutive reads of a process whose second offset does not follow the first one directly.
    """CREATE TEMP TABLE leaps AS SELECT place, process, before, position FROM (
        SELECT place, process, position, lag(position) OVER (PARTITION BY run ORDER BY row) AS before
        FROM seen JOIN polls USING (poll)
    ) WHERE position <> before + 1""",
)

UNREAD = """
SELECT DISTINCT place FROM bounds WHERE NOT whole
    AND EXISTS (SELECT 1 FROM sends WHERE sends.place = bounds.place AND outcome = 'ok')
"""

INCONSISTENT_OFFSETS = """
SELECT place, position, min(value), max(value) FROM known GROUP BY place, position HAVING count(*) > 1
"""

# In a SQLite query with min() or max(), the other columns come from the row with the extreme value. So each extreme
# needs its own subquery.
DUPLICATES = """
SELECT firsts.value, lasts.count, firsts.place, firsts.position, lasts.place, lasts.position
FROM (SELECT value, count(*) AS count, max(place * (1 << 48) + position), place, position
      FROM known GROUP BY value HAVING count(*) > 1) AS lasts
JOIN (SELECT value, min(place * (1 << 48) + position), place, position
      FROM known GROUP BY value HAVING count(*) > 1) AS firsts USING (value)
"""

ABORTED_READS = """
SELECT known.place, known.position, known.value, sends.reason FROM sends JOIN known USING (value)
WHERE sends.outcome = 'fail'
"""

LOST_WRITES = f"""
SELECT place, position, value, top FROM known JOIN bounds USING (place)
WHERE read = {READ_BY_NOBODY} AND position < top AND position >= start
    AND NOT EXISTS (SELECT 1 FROM known AS also WHERE also.value = known.value AND also.read > 0)
"""

POLL_SKIPS = """
WITH gaps AS (
    SELECT leaps.*, (SELECT min(known.position) FROM known WHERE known.place = leaps.place
        AND known.position > max(leaps.before, bounds.start - 1) AND known.position < leaps.position) AS missed
    FROM leaps JOIN bounds USING (place) WHERE leaps.position > leaps.before
)
SELECT place, process, before, gaps.position, missed, (
    SELECT value FROM known WHERE known.place = gaps.place AND known.position = missed
) FROM gaps WHERE missed IS NOT NULL
"""

NON_MONOTONIC_POLLS = "SELECT place, process, before, position FROM leaps WHERE position <= before"

NON_MONOTONIC_SENDS = """
SELECT place, process, before, first, position, value FROM (
    SELECT place, process, position, value,
        lag(position) OVER sent AS before, lag(value) OVER sent AS first
    FROM sends WHERE outcome = 'ok' AND position IS NOT NULL
    WINDOW sent AS (PARTITION BY place, process ORDER BY number)
) WHERE position < before
"""

# A value that was acknowledged without an offset may be among deleted records, so report it only if no records were
# deleted.
UNSEEN = f"""
SELECT place, position, value, acknowledged FROM (
    SELECT place, position, value, 1 AS acknowledged FROM sends WHERE outcome = 'ok'
    UNION ALL
    SELECT place, position, value, 0 FROM known WHERE read = {READ}
        AND NOT EXISTS (SELECT 1 FROM known AS also JOIN sends USING (value) WHERE also.value = known.value
            AND sends.outcome = 'ok' AND also.place = known.place)
) AS gone JOIN bounds USING (place)
WHERE whole AND ifnull(position >= start, start = 0) AND NOT EXISTS (
    SELECT 1 FROM known WHERE known.value = gone.value AND known.place = gone.place AND known.read = {READ_AT_THE_END}
)
"""

LENGTHS = """
SELECT case_number, count(*), min(started), max(ifnull(ended, started))
FROM sends JOIN wanted_values USING (value) GROUP BY case_number
UNION ALL
SELECT case_number, count(*), min(started), max(ended)
FROM seen JOIN wanted_positions USING (place, position) JOIN polls USING (poll) GROUP BY case_number
"""

WANTED_SENDS = """
SELECT process, started, ended, place, value, outcome, position, reason
FROM sends JOIN wanted_values USING (value) ORDER BY started LIMIT ?
"""

WANTED_POLLS = """
SELECT process, started, ended, place, position, seen.value, final
FROM seen JOIN wanted_positions USING (place, position) JOIN polls USING (poll) ORDER BY started LIMIT ?
"""

EVENTS = "SELECT at, place, what FROM events WHERE (place IS NULL OR place = ?) AND at <= ? ORDER BY at DESC LIMIT ?"

"""What `barnabas.spark.streams` is to return, told in plain Python, row by row; with and without a watermark.

A stream comes in batches. After each of them the watermark is the latest time seen so far, less `late`. In a batch,
what ended by the watermark of the batch before it is too late and left out; at its end comes out, and is forgotten,
what has ended by the watermark that the batch began with. A table is one batch that nothing is too late for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

NEVER = 1 << 60


class Row(NamedTuple):
    """An event; times are seconds."""

    case: int
    item: str
    id: int
    at: int


Batch = Sequence[Row]
Window = tuple[int, int]


class Step(NamedTuple):
    """A batch, what is too late for it, and what has ended with it."""

    rows: Batch
    too_late: int
    ended: int


def steps(batches: Sequence[Batch], late: int | None) -> Iterator[Step]:
    """Yield the batches with their watermarks, then one without rows; without `late` all rows at once."""
    if late is None:
        yield Step([row for batch in batches for row in batch], -NEVER, NEVER)
        return
    before = now = 0
    for batch in [*batches, []]:
        yield Step(batch, before, now)
        before, now = now, max([now, *(row.at - late for row in batch)])


def windows_of(at: int, size: int, slide: int) -> Iterator[Window]:
    """Yield the windows that a time is in."""
    start = at // slide * slide
    while start + size > at:
        yield start, start + size
        start -= slide


def window_counts(
    batches: Sequence[Batch], size: int, slide: int, late: int | None
) -> Counter[tuple[int, str, Window]]:
    """Count by case, item and window."""
    state: Counter[tuple[int, str, Window]] = Counter()
    complete: Counter[tuple[int, str, Window]] = Counter()
    for step in steps(batches, late):
        for row in step.rows:
            state.update((row.case, row.item, w) for w in windows_of(row.at, size, slide) if w[1] > step.too_late)
        for key in [key for key in state if key[2][1] <= step.ended]:
            complete[key] += state.pop(key)
    return complete


def tops(counts: Counter[tuple[int, str, Window]], k: int) -> set[tuple[int, Window, int, str, int]]:
    """Return case, window, rank, item and count of the most frequent."""
    by_window: defaultdict[tuple[int, Window], list[tuple[int, str]]] = defaultdict(list)
    for (case, item, window), count in counts.items():
        by_window[case, window].append((-count, item))
    return {
        (case, window, rank, item, -less)
        for (case, window), found in by_window.items()
        for rank, (less, item) in enumerate(sorted(found)[:k], 1)
    }


class Session(NamedTuple):
    """Events that are near to each other."""

    start: int
    end: int
    items: tuple[str, ...]


def sessions(batches: Sequence[Batch], gap: int, late: int | None) -> set[tuple[int, Session]]:
    """Return the sessions of each case; `items` are those of its events, sorted."""
    state: defaultdict[int, list[Session]] = defaultdict(list)
    complete: set[tuple[int, Session]] = set()
    for step in steps(batches, late):
        for row in step.rows:
            if row.at + gap > step.too_late:
                state[row.case].append(Session(row.at, row.at + gap, (row.item,)))
        for case, found in state.items():
            merged = _merged(found)
            state[case] = [session for session in merged if session.end > step.ended]
            complete.update((case, session) for session in merged if session.end <= step.ended)
    return complete


def _merged(found: list[Session]) -> list[Session]:
    merged: list[Session] = []
    for session in sorted(found):
        if merged and session.start <= merged[-1].end:
            last = merged.pop()
            items = tuple(sorted(last.items + session.items))
            session = Session(last.start, max(last.end, session.end), items)  # noqa: PLW2901
        merged.append(session)
    return merged


def first_of_ids(batches: Sequence[Batch], late: int | None) -> set[Row]:
    """Return one row of each case and id: the earliest of a table, the first that came in a stream."""
    remembered: dict[tuple[int, int], int] = {}
    kept: set[Row] = set()
    for step in steps(batches, late):
        for row in sorted(step.rows, key=lambda row: row.at):
            if row.at > step.too_late and (row.case, row.id) not in remembered:
                remembered[row.case, row.id] = row.at + (late or 0)
                kept.add(row)
        remembered = {key: until for key, until in remembered.items() if until > step.ended or late is None}
    return kept


def pairs_within(
    left: Sequence[Batch], right: Sequence[Batch], before: int, within: int, late: int | None
) -> set[tuple[Row, Row | None]]:
    """Return each row of the left with those of the right of its case and item that are near, or with None."""
    # The watermark of two streams is the smaller of theirs.
    marks = [
        min(ones.too_late, others.too_late) for ones, others in zip(steps(left, late), steps(right, late), strict=True)
    ]
    if late is None:
        marks = [-NEVER] * len(left)
    lefts, rights = list(_in_time(left, marks)), list(_in_time(right, marks))
    found: set[tuple[Row, Row | None]] = set()
    for row in lefts:
        matches = [
            other
            for other in rights
            if (other.case, other.item) == (row.case, row.item) and row.at - before <= other.at <= row.at + within
        ]
        found.update((row, match) for match in matches or [None])
    return found


def _in_time(batches: Sequence[Batch], too_late: Sequence[int]) -> Iterator[Row]:
    for batch, mark in zip(batches, too_late, strict=False):
        yield from (row for row in batch if row.at > mark)

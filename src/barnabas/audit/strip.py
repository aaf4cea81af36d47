"""The strip of an audited topic: one row of cells per tier, and one cell per range of event time.

A strip has a limited number of cells. A cell of a long topic covers several windows, and has the state of its worst
window. Ranges without any window have no cell, so a record with a wrong timestamp does not hide the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from barnabas.audit.balance import Balance, WindowBalance
from barnabas.audit.events import LOADED, MIRRORED, PRODUCED
from barnabas.audit.findings import STORED, WRONG, Finding, Kind
from barnabas.audit.windows import DAY_MS, NO_WINDOW_MS

CELLS_MAX = 60

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
SPANS_MS = (
    MINUTE_MS, 5 * MINUTE_MS, 15 * MINUTE_MS, HOUR_MS, 3 * HOUR_MS, 6 * HOUR_MS, 12 * HOUR_MS, DAY_MS, 7 * DAY_MS,
    28 * DAY_MS, 364 * DAY_MS, 3640 * DAY_MS,
)  # fmt: skip
"""The spans of a cell, in ms. A strip uses the shortest one that needs no more than the allowed number of cells."""


class CellState(StrEnum):
    """The state of the records of a tier in a range of event time."""

    COMPLETE = "complete"
    NOT_AUDITED = "not audited"
    EXPIRED = "expired"
    OPEN = "open"
    WRONG = "wrong"


_BADNESS = {state: place for place, state in enumerate(CellState)}


@dataclass(frozen=True, slots=True)
class Cell:
    """The records of a tier in a range of event time.

    :param begin_ms: the begin of the range in ms; `NO_WINDOW_MS` for records without a timestamp.
    :param wrong: the number of records with problems, by kind.
    """

    tier: str
    begin_ms: int
    end_ms: int
    records: int
    state: CellState
    wrong: Mapping[Kind, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TierRow:
    """A tier of a topic.

    :param complete_until_ms: the end of the last complete window of this tier before the first incomplete one, in ms.
    """

    tier: str
    cells: Sequence[Cell]
    complete_until_ms: int | None

    @property
    def records(self) -> int:
        return sum(cell.records for cell in self.cells)

    def count_of(self, state: str) -> int:
        """Return the number of cells with a state, given as a `CellState` or its value."""
        return sum(cell.state == state for cell in self.cells)


@dataclass(frozen=True, slots=True)
class Strip:
    """The cells of a topic. All rows have cells for the same ranges of event time.

    :param span_ms: the length of the ranges.
    """

    rows: Sequence[TierRow]
    span_ms: int

    @property
    def worst(self) -> CellState | None:
        """The state of the worst cell; None without cells."""
        states = [cell.state for row in self.rows for cell in row.cells]
        return max(states, key=_BADNESS.__getitem__, default=None)

    @property
    def columns(self) -> list[tuple[Cell, ...]]:
        """The cells by range of event time, in order; each column has one cell per tier."""
        return list(zip(*(row.cells for row in self.rows), strict=True))


def strip_of(
    found: Balance,
    *,
    has_table: bool,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    cells_max: int = CELLS_MAX,
) -> Strip:
    """Return the strip of an audited topic.

    :param has_table: True if the audit compared the log with a table.
    :param begin_ms: leave out earlier windows. Windows without a timestamp are before all times.
    :param end_ms: leave out windows that begin at this time or later.
    """
    windows = [each for each in found.windows if is_within(each.window_ms, begin_ms, end_ms)]
    is_mirrored = any(each.mirrored for each in found.windows)
    # Producers of a mirrored topic report in the source cluster, with which this audit may not have compared it.
    is_produced = not is_mirrored or any(each.produced for each in found.windows)
    given = ((PRODUCED, is_produced), (MIRRORED, is_mirrored), (STORED, True), (LOADED, has_table))
    tiers = [tier for tier, is_given in given if is_given]
    span_ms = _span_of(windows, found.width_ms, cells_max)
    wrong = _by_tier_and_window(found.findings)
    rows = [TierRow(tier, _cells(tier, windows, wrong, span_ms), _complete_until(tier, found, wrong)) for tier in tiers]
    return Strip(rows, span_ms)


def is_within(window_ms: int, begin_ms: int | None, end_ms: int | None) -> bool:
    """Return whether a window begins in a range of event time."""
    return (begin_ms is None or window_ms >= begin_ms) and (end_ms is None or window_ms < end_ms)


_Wrong = Mapping[tuple[str, int], Mapping[Kind, int]]


def _by_tier_and_window(findings: Iterable[Finding]) -> _Wrong:
    wrong: dict[tuple[str, int], dict[Kind, int]] = {}
    for each in findings:
        kinds = wrong.setdefault((each.tier, each.window_ms), {})
        kinds[each.kind] = kinds.get(each.kind, 0) + each.records
    return wrong


def _span_of(windows: Sequence[WindowBalance], width_ms: int, cells_max: int) -> int:
    for span_ms in SPANS_MS:
        if span_ms % width_ms == 0 and len({_start(each.window_ms, span_ms) for each in windows}) <= cells_max:
            return span_ms
    times = [each.window_ms for each in windows if each.window_ms >= 0]
    return -(-(max(times) - min(times) + width_ms) // (width_ms * (cells_max - 2))) * width_ms


def _start(window_ms: int, span_ms: int) -> int:
    return NO_WINDOW_MS if window_ms < 0 else window_ms - window_ms % span_ms


def _cells(tier: str, windows: Sequence[WindowBalance], wrong: _Wrong, span_ms: int) -> list[Cell]:
    together: dict[int, list[WindowBalance]] = {}
    for each in windows:
        together.setdefault(_start(each.window_ms, span_ms), []).append(each)
    return [_cell(tier, start, span_ms, together[start], wrong) for start in sorted(together)]


def _cell(tier: str, start_ms: int, span_ms: int, windows: Sequence[WindowBalance], wrong: _Wrong) -> Cell:
    kinds: dict[Kind, int] = {}
    for each in windows:
        for kind, records in wrong.get((tier, each.window_ms), {}).items():
            kinds[kind] = kinds.get(kind, 0) + records
    state = max((_state(tier, each, wrong) for each in windows), key=_BADNESS.__getitem__)
    end_ms = 0 if start_ms < 0 else start_ms + span_ms
    return Cell(tier, start_ms, end_ms, sum(_records(tier, each) for each in windows), state, kinds)


def _records(tier: str, window: WindowBalance) -> int:
    counts = {PRODUCED: window.produced, MIRRORED: window.mirrored, STORED: window.stored, LOADED: window.loaded}
    return counts[tier]


def _state(tier: str, window: WindowBalance, wrong: _Wrong) -> CellState:
    kinds = wrong.get((tier, window.window_ms), {}).keys()
    if kinds & WRONG:
        return CellState.WRONG
    if Kind.OPEN in kinds:
        return CellState.OPEN
    if not window.is_audited and tier != LOADED:  # a table is compared with the log, even without reports
        return CellState.NOT_AUDITED
    return CellState.EXPIRED if window.is_expired and tier != PRODUCED else CellState.COMPLETE


def _complete_until(tier: str, found: Balance, wrong: _Wrong) -> int | None:
    until = None
    for window in found.windows:
        state = _state(tier, window, wrong)
        if window.window_ms < 0 or (until is None and state is CellState.EXPIRED):
            continue
        if state is not CellState.COMPLETE:
            break
        until = window.window_ms + found.width_ms
    return until

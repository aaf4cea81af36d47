"""The results of the scenarios, as a table and as data."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.stalls.pings import Pings
from bench.tables import table


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a scenario.

    :param pings: the pings of the normal client during the scenario.
    :param idle: the pings to an idle broker for the same time, which show the noise of the machine.
    :param ended: the result, as text.
    :param seconds: the duration.
    :param peak_mib: the memory peak of the broker, including the preparation.
    """

    pings: Pings
    idle: Pings
    ended: str
    seconds: float
    peak_mib: float


@dataclass(frozen=True, slots=True)
class Figures:
    """A scenario with its runs. `problem` is the reason if there are no runs."""

    name: str
    title: str
    runs: Sequence[Run]
    problem: str = ""


def lines(all_figures: Sequence[Figures]) -> Iterator[str]:
    """Return a table with one run of each scenario: the run whose worst stall is the median."""
    header = ["scenario", "worst stall, ms", "p99, ms", "idle: worst, ms", "how it ended", "broker's peak, MiB"]
    rows = [_row(figures) for figures in all_figures]
    yield from table([header[0], header[4], *header[1:4], header[5]], rows, left=2)


def _row(figures: Figures) -> list[str]:
    if not figures.runs:
        return [figures.title, f"not measured: {figures.problem}", "", "", "", ""]
    run = middle(figures.runs)
    return [
        figures.title,
        f"{run.ended} ({run.seconds:.2f} s)",
        worst_of(run.pings) + _spread(figures.runs),
        f"{run.pings.p99_ms:,.1f}",
        worst_of(run.idle),
        f"{run.peak_mib:,.0f}",
    ]


def middle(runs: Sequence[Run]) -> Run:
    """Return the run whose worst stall is the median; for an even number of runs, the lower median."""
    wanted = statistics.median_low([run.pings.worst_ms for run in runs])
    return next(run for run in runs if run.pings.worst_ms == wanted)


def worst_of(pings: Pings) -> str:
    """Return the longest latency as text.

    >>> worst_of(Pings(10, 1234.5, 20.0, answered_all=False))
    '≥ 1,234.5'
    """
    return f"{'' if pings.answered_all else '≥ '}{pings.worst_ms:,.1f}"


def _spread(runs: Sequence[Run]) -> str:
    if len(runs) < 2:
        return ""
    worst = [run.pings.worst_ms for run in runs]
    return f" ({min(worst):,.1f} to {max(worst):,.1f})"


def data(all_figures: Sequence[Figures]) -> list[dict[str, Any]]:
    """Return the figures as data for JSON."""
    return [asdict(figures) for figures in all_figures]

"""The results of the cleaners, as a table and as data."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.compaction.cleaning import Run
from bench.tables import table

HEADER = (
    "records",
    "broker",
    "MB/s cleaned",
    "x Apache Kafka",
    "CPU s a GB: cleaner",
    "all",
    "cleaner's peak, MiB",
    "broker's",
    "worst stall, ms",
    "p99, ms",
    "idle: worst, ms",
    "records left",
)


@dataclass(slots=True)
class Figures:
    """The runs of a broker with one kind of records. `problem` is the reason if there are no runs."""

    case: str
    broker: str
    runs: list[Run] = field(default_factory=list)
    problem: str = ""

    def median(self, value: Callable[[Run], float]) -> float:
        """Return the median of a value over the runs."""
        return statistics.median(map(value, self.runs))


def lines(all_figures: Sequence[Figures]) -> Iterator[str]:
    """Return a table of medians. Rates and stalls also have their minimum and maximum."""
    peers = {each.case: each for each in all_figures if each.broker == "Apache Kafka" and each.runs}
    yield from table(HEADER, [_row(each, peers.get(each.case)) for each in all_figures], left=2)


def _row(figures: Figures, peer: Figures | None) -> list[str]:
    if not figures.runs:
        return [figures.case, figures.broker, f"not measured: {figures.problem}", *[""] * (len(HEADER) - 3)]
    rate = figures.median(_rate)
    return [
        figures.case,
        figures.broker,
        f"{rate:,.0f}{_spread(figures, _rate, 0)}",
        f"{rate / peer.median(_rate):.2f}" if peer else "",
        f"{figures.median(lambda run: run.cleaner_cpu_s / run.account.bytes_read * 1e9):.2f}",
        f"{figures.median(lambda run: run.cpu_s / run.account.bytes_read * 1e9):.2f}",
        f"{peak:,.0f}" if (peak := max(run.cleaner_peak_mib for run in figures.runs)) else "",
        f"{max(run.broker_peak_mib for run in figures.runs):,.0f}",
        f"{figures.median(_stall):,.1f}{_spread(figures, _stall, 1)}",
        f"{figures.median(lambda run: run.pings.p99_ms):,.1f}",
        f"{figures.median(lambda run: run.idle.worst_ms):,.1f}",
        f"{figures.median(lambda run: run.account.records_left):,.0f}"
        f" of {figures.median(lambda run: run.account.records_read):,.0f}",
    ]


def _rate(run: Run) -> float:
    return run.megabytes_per_s


def _stall(run: Run) -> float:
    return run.pings.worst_ms


def _spread(figures: Figures, value: Callable[[Run], float], digits: int) -> str:
    values = [value(run) for run in figures.runs]
    return f" ({min(values):,.{digits}f} to {max(values):,.{digits}f})" if len(values) > 1 else ""


def data(all_figures: Sequence[Figures]) -> list[dict[str, Any]]:
    """Return the figures as data for JSON."""
    return [
        {**asdict(figures), "runs": [{**asdict(run), "account": run.account._asdict()} for run in figures.runs]}
        for figures in all_figures
    ]

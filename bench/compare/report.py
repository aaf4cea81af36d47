"""The result of a comparison, as a table and as data."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.compare.experiments import Case
from bench.compare.sides import Side
from bench.compare.verdicts import (
    Interval,
    Measurement,
    coverage,
    cpu_ratio_of,
    interval_of,
    rank_of,
    ratios_of,
    verdict_of,
)

FIGURES = ("base", "checkout", "ratio [low, high]", "CPU s/million: base", "checkout", "ratio")
HEADER = ("workload", "case", *FIGURES, "verdict")
TEXT_COLUMNS = (0, 1, len(HEADER) - 1)
NOT_MEASURED = "not measured"


@dataclass(slots=True)
class Row:
    """A table row: a case with the measurements of both sides. A pair of runs is complete if both sides have run.

    :param problem: the reason for missing runs.
    """

    workload: str
    case: Case
    base: list[Measurement] = field(default_factory=list)
    checkout: list[Measurement] = field(default_factory=list)
    problem: str = ""

    @property
    def pairs(self) -> int:
        """The number of complete pairs."""
        return min(len(self.base), len(self.checkout))

    @property
    def interval(self) -> Interval | None:
        """The median ratio with its interval; None without a complete pair."""
        return interval_of(ratios_of(self.base, self.checkout, is_rate=self.case.is_rate)) if self.pairs else None

    @property
    def cpu_ratio(self) -> float | None:
        """The median ratio of the broker's CPU time; None if it was not measured."""
        return cpu_ratio_of(self.base, self.checkout)

    def verdict(self, pairs: int) -> str:
        """Return `pass`, the exceeded limits, or the reason for a missing verdict.

        :param pairs: the number of pairs that a verdict needs. Fewer pairs only show that the case works.
        """
        if self.problem:
            return f"FAIL: {self.problem}"
        if not self.interval:
            return NOT_MEASURED
        return verdict_of(self.interval, self.cpu_ratio) if self.pairs >= pairs else f"{self.pairs} of {pairs} pairs"


def lines(rows: Sequence[Row], pairs: int, caption: str) -> Iterator[str]:
    """Return the table with aligned columns, and the caption.

    :param pairs: the number of pairs that a verdict needs.
    """
    cells = [HEADER, *(_cells(row, pairs) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADER))]
    for line in cells:
        yield "  ".join(
            text.ljust(width) if column in TEXT_COLUMNS else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
    yield caption


def caption_of(base: Side, checkout: Side, pairs: int, *, is_smoke: bool = False) -> str:
    """Return the caption, which is the line below the table."""
    sides = f"checkout {checkout.label} against base {base.label}"
    if is_smoke:
        return f"{sides}: one pair of tiny runs, which only tests the bench"
    percent = 100 * coverage(pairs, rank_of(pairs))
    return (
        f"{sides}, {pairs} pairs: medians; the interval holds the median ratio with {percent:.1f} %; "
        "a ratio above 1 is better, a CPU ratio above 1 worse"
    )


def data(rows: Sequence[Row], pairs: int, caption: str) -> Iterator[dict[str, Any]]:
    """Return the rows as data for JSON, with all measurements. The caption contains the commits."""
    for row in rows:
        yield {
            "workload": row.workload,
            "case": row.case.name,
            "unit": row.case.unit,
            "base": [asdict(each) for each in row.base],
            "checkout": [asdict(each) for each in row.checkout],
            "ratio": asdict(row.interval) if row.interval else None,
            "cpu_ratio": row.cpu_ratio,
            "verdict": row.verdict(pairs),
            "caption": caption,
        }


def value_text(values: Sequence[float], unit: str) -> str:
    """Return the median of values with its unit.

    >>> value_text([144_450.2], "records/s"), value_text([0.6912], "ms"), value_text([], "s")
    ('144,450 records/s', '0.691 ms', '')
    """
    if not values:
        return ""
    value = statistics.median(values)
    digits = 0 if value >= 1000 else 1 if value >= 100 else 2 if value >= 10 else 3
    return f"{value:,.{digits}f} {unit}"


def _cells(row: Row, pairs: int) -> tuple[str, ...]:
    interval, sides = row.interval, (row.base[: row.pairs], row.checkout[: row.pairs])
    cpu = [[each.cpu_s for each in side if each.cpu_s is not None] for side in sides]
    return (
        row.workload,
        row.case.name,
        *(value_text([each.value for each in side], row.case.unit) for side in sides),
        f"{interval.median:.3f} [{interval.low:.3f}, {interval.high:.3f}]" if interval else "",
        *(f"{statistics.median(side):.4f}" if side else "" for side in cpu),
        "" if row.cpu_ratio is None else f"{row.cpu_ratio:.3f}",
        row.verdict(pairs),
    )

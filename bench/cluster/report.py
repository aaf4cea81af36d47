"""The table of cluster figures: median, minimum and maximum of several rounds."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.tables import table


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value.

    :param to_reach: the goal, as text.
    """

    what: str
    value: float
    unit: str
    to_reach: str = ""


def lines(figures: Sequence[Figure]) -> Iterator[str]:
    """Return a table with one row per figure, in the order of the first round."""
    by_name: dict[str, list[Figure]] = {}
    for each in figures:
        by_name.setdefault(each.what, []).append(each)
    rows = [[what, value_text(found), found[0].to_reach] for what, found in by_name.items()]
    yield from table(["what", "measured", "to reach"], rows, left=1)


def value_text(rounds: Sequence[Figure]) -> str:
    """Return the values of a figure in all rounds as text.

    >>> value_text([Figure("pause", 0.0271, "s")])
    '0.027 s'
    >>> value_text([Figure("memory", value, "MiB") for value in (41.2, 43.1, 40.3)])
    '41.2 MiB (40.3 to 43.1)'
    """
    values = [each.value for each in rounds]
    median = f"{_digits(statistics.median(values))} {rounds[0].unit}".strip()
    return median if len(values) == 1 else f"{median} ({_digits(min(values))} to {_digits(max(values))})"


def _digits(value: float) -> str:
    """Return a number with about three significant digits.

    >>> _digits(1234.5), _digits(12.345), _digits(0.01234), _digits(2.0)
    ('1,234', '12.3', '0.012', '2')
    """
    if value == int(value):
        return f"{value:,.0f}"
    decimals = next((count for limit, count in ((100, 0), (10, 1), (1, 2)) if abs(value) >= limit), 3)
    return f"{value:,.{decimals}f}"

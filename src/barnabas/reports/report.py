"""A report as data: columns and rows, remarks, and the panels of its picture. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

Cell = str | int | float | None
LABEL_LENGTH_MAX = 48


class Kind(enum.Enum):
    """The kind of a column's cells."""

    TEXT = "text"
    COUNT = "count"
    NUMBER = "number"
    SHARE = "share"
    """A fraction of 1, shown as a percentage."""
    TIME = "time"
    """Milliseconds since 1970, in UTC."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a report's table."""

    name: str
    kind: Kind = Kind.TEXT


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars, the largest first. `mark` is the position of a vertical line, such as a threshold."""

    title: str
    bars: Sequence[tuple[str, float]]
    mark: float | None = None
    mark_name: str = ""


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines over time: for each name, pairs of a time in milliseconds since 1970 and a value."""

    title: str
    series: Mapping[str, Sequence[tuple[int, float]]]
    percent: bool = False


Panel = Bars | Lines


@dataclass(frozen=True, slots=True)
class Report:
    """A table with a title, remarks and panels. `figures` are totals for programs, in addition to the rows."""

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    remarks: Sequence[str] = ()
    panels: Sequence[Panel] = ()
    figures: Mapping[str, Cell] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return the rows and figures as JSON objects; times are milliseconds since 1970."""
        names = [column.name for column in self.columns]
        rows = [dict(zip(names, row, strict=True)) for row in self.rows]
        return {"report": self.name, **self.figures, "rows": rows}


def shortened(text: str, letters: int = LABEL_LENGTH_MAX) -> str:
    """Return a name. A name that is too long is shortened to its end, because paths usually differ at the end.

    >>> shortened("/blog/2015/logs", 8), shortened("/logs", 8)
    ('…15/logs', '/logs')
    """
    return text if len(text) <= letters else f"…{text[1 - letters :]}"


def pair_label(one: str, sign: str, other: str) -> str:
    """Return the label of a pair of names, shortened so that both names are readable.

    >>> pair_label("/presentations/logstash-preso-1.0/index.html", "+", "/reset.css")
    '…ions/logstash-preso-1.0/index.html + /reset.css'
    """
    room = LABEL_LENGTH_MAX - len(sign) - 2
    short, long = sorted((one, other), key=len)
    taken = min(len(short), room // 2)
    letters = {short: taken, long: room - taken}
    return f"{shortened(one, letters[one])} {sign} {shortened(other, letters[other])}"


def shown(cell: Cell, kind: Kind) -> str | int | None:
    """Return the text of a cell.

    >>> shown(0.0312, Kind.SHARE), shown(1.5, Kind.NUMBER), shown(0, Kind.TIME), shown(7, Kind.COUNT)
    ('3.12 %', '1.50', '1970-01-01 00:00', 7)
    """
    if cell is None:
        return None
    if kind is Kind.SHARE:
        return f"{100 * float(cell):.2f} %"
    if kind is Kind.NUMBER:
        return f"{float(cell):,.2f}"
    if kind is Kind.TIME:
        return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(cell)):%Y-%m-%d %H:%M}"
    return int(cell) if kind is Kind.COUNT else str(cell)

"""The report on flight departures, from the warehouse table: the number and the mean delay by airport and month, as
text and as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from rich.table import Table
from rich.text import Text

from demo.departures import AIRPORTS
from demo.departures_picture import draw_departures
from demo.loaded_run import LoadedRun, Report

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True, slots=True)
class Punctuality:
    """The scheduled departures, the actual departures, and the sum of their delays in minutes."""

    scheduled: int = 0
    departed: int = 0
    delay_sum_min: float = 0.0

    @property
    def delay_mean_min(self) -> float:
        return self.delay_sum_min / self.departed if self.departed else 0.0

    def __add__(self, other: Punctuality) -> Punctuality:
        return Punctuality(
            self.scheduled + other.scheduled, self.departed + other.departed, self.delay_sum_min + other.delay_sum_min
        )


Cells = Mapping[tuple[int, str], Punctuality]
"""The figures by month (1 to 12) and airport."""


def report_departures(loaded: LoadedRun) -> Report:
    """Query the table and draw the report."""
    cells = query(loaded)
    picture = loaded.picture("departures")
    delays = {airport: [cells[month, airport].delay_mean_min for month in range(1, 13)] for airport in AIRPORTS}
    counts = {airport: [cells[month, airport].scheduled for month in range(1, 13)] for airport in AIRPORTS}
    draw_departures(picture, MONTHS, {code: f"{code} {name}" for code, name in AIRPORTS.items()}, counts, delays)
    return Report(terminal_table(cells), picture)


def query(loaded: LoadedRun) -> Cells:
    """Return the figures of each month and airport."""
    table = pa.Table.from_batches(loaded.scan(["month", "origin", "dep_time", "dep_delay"]))
    figures = [("origin", "count"), ("dep_time", "count"), ("dep_delay", "sum")]
    cells = {(month, airport): Punctuality() for month in range(1, 13) for airport in AIRPORTS}
    for row in table.group_by(["month", "origin"]).aggregate(figures).to_pylist():
        cells[row["month"], row["origin"]] = Punctuality(
            row["origin_count"], row["dep_time_count"], float(row["dep_delay_sum"] or 0)
        )
    return cells


def terminal_table(cells: Cells) -> Table:
    """Return a table with one row per month and two columns per airport."""
    table = Table(
        title="Departures from New York in 2013, and mean delay in minutes", title_style="bold", pad_edge=False
    )
    table.add_column("")
    for airport, name in AIRPORTS.items():
        table.add_column(f"{airport}\n[dim]{name}[/]", justify="right")
        table.add_column("delay", justify="right", vertical="bottom")
    table.add_column("all", justify="right", vertical="bottom", style="bold")
    table.add_column("delay", justify="right", vertical="bottom")
    for month, name in enumerate(MONTHS, 1):
        _add_row(table, name, [cells[month, airport] for airport in AIRPORTS], last=month == 12)
    totals = [_sum(cells[month, airport] for month in range(1, 13)) for airport in AIRPORTS]
    _add_row(table, "2013", totals)
    return table


def _add_row(table: Table, name: str, parts: list[Punctuality], *, last: bool = False) -> None:
    texts = [text for part in (*parts, _sum(parts)) for text in (f"{part.scheduled:,}", _delay(part))]
    table.add_row(name, *texts, end_section=last)


def _sum(parts: Iterable[Punctuality]) -> Punctuality:
    return sum(parts, start=Punctuality())


def _delay(part: Punctuality) -> Text:
    mean = part.delay_mean_min
    colour = "green" if mean < 8 else "yellow" if mean < 15 else "red"
    return Text(f"{mean:.1f}", style=colour)

"""Prints tables, drawn by rich on a terminal and as aligned text in a pipe, or JSON for programs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

import click

from barnabas.cli.terminal_text import escaped

Cell = str | int | None
Row = Sequence[Cell]


def show_table(columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Print the rows under their column names. Numbers are right-aligned, with separators (1,000) on a terminal."""
    if sys.stdout.isatty() or os.environ.get("FORCE_COLOR"):
        if is_too_wide(columns, rows, shutil.get_terminal_size().columns):
            click.echo(listed(columns, rows))
        else:
            _show_rich(columns, rows)
    else:
        click.echo(plain_table(columns, rows))


def show_json(value: object) -> None:
    """Print a value as JSON: indented on a terminal, on one line in a pipe."""
    import json

    click.echo(json.dumps(value, indent=2 if sys.stdout.isatty() else None))


def plain_table(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """Return the table as aligned text.

    >>> print(plain_table(["topic", "lag"], [["clicks", 12], ["views", None]]))
    topic   lag
    clicks   12
    views     -
    """
    texts = [list(columns), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    numeric = _numeric_columns(columns, rows)
    lines = (
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        )
        for line in texts
    )
    return "\n".join(line.rstrip() for line in lines)


CELL_LETTERS_MIN = 8
"""The minimum width of a column in characters, unless all of its cells are shorter."""
GAP = "  "


def is_too_wide(columns: Sequence[str], rows: Sequence[Row], width: int) -> bool:
    """Return whether a table exceeds a terminal's width even with folded cells.

    >>> is_too_wide(["topic", "partition", "offset"], [["clicks", 1, 123_456_789]], 25)
    True
    """
    texts = [list(columns), *([_text(cell) for cell in row] for row in rows)]
    needed = [min(CELL_LETTERS_MIN, max(map(len, column))) for column in zip(*texts, strict=True)]
    return sum(needed) + len(GAP) * (len(needed) - 1) > width


def listed(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """Return the rows as text with one line per cell, for terminals that are too narrow for a table.

    >>> print(listed(["topic", "lag"], [["clicks", 12], ["views", None]]))
    topic: clicks
    lag:   12
    <BLANKLINE>
    topic: views
    lag:   -
    """
    width = max(map(len, columns)) + 2
    blocks = (
        [f"{name}:".ljust(width - 1) + " " + _text(cell) for name, cell in zip(columns, row, strict=True)]
        for row in rows
    )
    return "\n\n".join("\n".join(block) for block in blocks)


def _show_rich(columns: Sequence[str], rows: Sequence[Row]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name, right in zip(columns, _numeric_columns(columns, rows), strict=True):
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else _text(cell) for cell in row))
    Console(highlight=False, markup=False, emoji=False).print(table)


def _numeric_columns(columns: Sequence[str], rows: Sequence[Row]) -> list[bool]:
    return [
        any(isinstance(row[at], int) for row in rows) and not any(isinstance(row[at], str) for row in rows)
        for at in range(len(columns))
    ]


def _text(cell: Cell) -> str:
    return "-" if cell is None else escaped(str(cell))

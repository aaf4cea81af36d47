"""Writes the rows of a query as they arrive: as a table, as JSON lines, or as CSV.

The width of a table's columns comes from its first rows, so only one batch of rows is in memory. On a terminal, each
row is one line: long cells are truncated, and control characters are escaped (`terminal_text`).
"""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from functools import partial
from math import isfinite
from typing import Any, Protocol, TextIO

import pyarrow as pa

from barnabas.cli.json_bytes import bytes_value
from barnabas.cli.table_output import CELL_LETTERS_MIN, GAP, listed
from barnabas.cli.terminal_text import escaped, escaped_json, escaped_lines

NULL = "NULL"
ROWS_MEASURED = 1_000
"""The number of rows that determine the widths of a table's columns."""
PLANS = (["explain_key", "explain_value"], ["plan"])
"""The columns of an EXPLAIN result in DuckDB and in Spark."""


class RowWriter(Protocol):
    """Writes the rows of a query result."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch, or buffer them."""
        ...

    def finish(self) -> None:
        """Write all remaining rows."""
        ...


class TableWriter:
    """Writes aligned columns with a header line.

    :param width: the width of a line in characters; None if unlimited.
    """

    def __init__(self, schema: pa.Schema, output: TextIO, width: int | None = None) -> None:
        self._output = output
        self._width = width
        self._names = [escaped(field.name) for field in schema]
        self._right = [_is_number(field.type) for field in schema]
        self._waiting: list[list[str]] = []
        self._widths: list[int] | None = None
        self._is_list = False
        """True if the columns do not fit into a line; each cell is then written on its own line."""

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting += [[escaped(cell_text(value)) for value in row] for row in rows_of(batch)]
        if self._widths is not None or len(self._waiting) >= ROWS_MEASURED:
            self._write_waiting()

    def finish(self) -> None:
        self._write_waiting()

    def _write_waiting(self) -> None:
        if self._widths is None:
            lines = [self._names, *self._waiting]
            self._widths = fitted([max(map(len, column)) for column in zip(*lines, strict=True)], self._width)
            needed = sum(self._widths) + len(GAP) * (len(self._widths) - 1)
            self._is_list = self._width is not None and needed > self._width and bool(self._waiting)
            if not self._is_list:
                self._write_line(self._names)
        if self._is_list and self._waiting:
            self._output.write(listed(self._names, self._waiting) + "\n\n")
            self._waiting = []
        for line in self._waiting:
            self._write_line(line)
        self._waiting = []

    def _write_line(self, cells: Sequence[str]) -> None:
        assert self._widths is not None
        padded = []
        for cell, width, right in zip(cells, self._widths, self._right, strict=True):
            text = cell if self._width is None or len(cell) <= width else f"{cell[: width - 1]}…"
            padded.append(text.rjust(width) if right else text.ljust(width))
        self._output.write(GAP.join(padded).rstrip() + "\n")


class JsonWriter:
    """Writes one JSON object per line."""

    def __init__(self, schema: pa.Schema, output: TextIO) -> None:
        self._names = schema.names
        self._output = output

    def write(self, batch: pa.RecordBatch) -> None:
        for row in rows_of(batch):
            line = {name: json_value(value) for name, value in zip(self._names, row, strict=True)}
            self._output.write(escaped_json(json.dumps(line, ensure_ascii=False)) + "\n")

    def finish(self) -> None:
        """Do nothing: all rows are written."""


class CsvWriter:
    """Writes CSV (RFC 4180) with a header line; null becomes an empty field.

    :param for_terminal: True to escape control characters.
    """

    def __init__(self, schema: pa.Schema, output: TextIO, *, for_terminal: bool = False) -> None:
        self._writer = csv.writer(output, lineterminator="\n")
        self._shown: Callable[[str], str] = escaped_lines if for_terminal else str
        self._writer.writerow(map(self._shown, schema.names))

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.writerows(
            ["" if value is None else self._shown(cell_text(value)) for value in row] for row in rows_of(batch)
        )

    def finish(self) -> None:
        """Do nothing: all rows are written."""


class PlanWriter:
    """Writes the text of an EXPLAIN result unchanged."""

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def write(self, batch: pa.RecordBatch) -> None:
        for row in rows_of(batch):
            self._output.write(escaped_lines(f"{row[-1]}\n"))

    def finish(self) -> None:
        """Do nothing: all rows are written."""


MakeWriter = Callable[[pa.Schema, TextIO], RowWriter]


def writer_for(*, as_json: bool, as_csv: bool, is_terminal: bool) -> MakeWriter:
    """Return the factory that creates the row writer for the given options."""
    if as_json:
        return JsonWriter
    if as_csv:
        return partial(CsvWriter, for_terminal=is_terminal)
    width = shutil.get_terminal_size().columns if is_terminal else None

    def table_writer(schema: pa.Schema, output: TextIO) -> RowWriter:
        return PlanWriter(output) if schema.names in PLANS else TableWriter(schema, output, width)

    return table_writer


def fitted(widths: Sequence[int], line: int | None) -> list[int]:
    """Return column widths that fit into a line. The widest columns are narrowed first.

    >>> fitted([30, 10], 32), fitted([30, 10], None)
    ([20, 10], [30, 10])
    """
    fitting = list(widths)
    if line is None:
        return fitting
    left = line - len(GAP) * (len(widths) - 1)
    while sum(fitting) > left and max(fitting) > CELL_LETTERS_MIN:
        fitting[fitting.index(max(fitting))] -= 1
    return fitting


def rows_of(batch: pa.RecordBatch) -> Iterator[Sequence[Any]]:
    """Yield rows as Python objects; times outside Python's range become text."""
    return zip(*[_objects(column) for column in batch.columns], strict=True)


def _objects(column: pa.Array) -> list[Any]:
    if pa.types.is_map(column.type):
        return [None if pairs is None else dict(pairs) for pairs in column.to_pylist()]
    try:
        objects: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):
        objects = column.cast(pa.string()).to_pylist()
    return objects


def cell_text(value: object) -> str:
    """Return a value as text, with times in UTC.

    >>> cell_text(None), cell_text(True), cell_text(datetime(2013, 1, 31, 15, tzinfo=UTC)), cell_text([1, None])
    ('NULL', 'true', '2013-01-31T15:00:00.000Z', '[1, null]')
    """
    if value is None:
        return NULL
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    plain = json_value(value)
    return json.dumps(plain, ensure_ascii=False) if isinstance(plain, bool | list | dict) else str(plain)


def json_value(value: object) -> object:
    """Return a value as a JSON value; times and decimals become text, because JSON numbers would lose precision."""
    match value:
        case dict():
            found: object = {str(name): json_value(each) for name, each in value.items()}
        case list() | tuple():
            found = [json_value(each) for each in value]
        case bytes():
            found = bytes_value(value)
        case date():  # includes datetime
            found = _time_text(value)
        case float():
            found = value if isfinite(value) else str(value)
        case None | bool() | int() | str():
            found = value
        case _:
            found = str(value)
    return found


def _time_text(value: date) -> str:
    if not isinstance(value, datetime):
        return value.isoformat()
    precision = "microseconds" if value.microsecond % 1_000 else "milliseconds"
    if value.tzinfo is None:
        return value.isoformat(timespec=precision)
    return value.astimezone(UTC).isoformat(timespec=precision).replace("+00:00", "Z")


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))

"""Rows of a query as people and programs want them: a table, lines of JSON, CSV; written as the rows come.

A table's columns are as wide as its first rows need, so that a result of any size is written with what one batch takes
in memory. On a terminal a row is a line: what is too long is cut. Control characters are written out there
(`terminal_text`).
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
"""The first rows of a table tell how wide its columns are."""
PLANS = (["explain_key", "explain_value"], ["plan"])
"""The columns of what EXPLAIN gives, in DuckDB and in Spark."""


class RowWriter(Protocol):
    """Writes a result."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows, now or later."""
        ...

    def finish(self) -> None:
        """Write what is left."""
        ...


class TableWriter:
    """Aligned columns under their names.

    :param width: the letters of a line, None for as many as there are.
    """

    def __init__(self, schema: pa.Schema, output: TextIO, width: int | None = None) -> None:
        self._output = output
        self._width = width
        self._names = [escaped(field.name) for field in schema]
        self._right = [_is_number(field.type) for field in schema]
        self._waiting: list[list[str]] = []
        self._widths: list[int] | None = None
        self._is_list = False
        """Whether the line is too short for the columns, so that each cell has a line of its own."""

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
    """An object a line."""

    def __init__(self, schema: pa.Schema, output: TextIO) -> None:
        self._names = schema.names
        self._output = output

    def write(self, batch: pa.RecordBatch) -> None:
        for row in rows_of(batch):
            line = {name: json_value(value) for name, value in zip(self._names, row, strict=True)}
            self._output.write(escaped_json(json.dumps(line, ensure_ascii=False)) + "\n")

    def finish(self) -> None:
        """Nothing is left."""


class CsvWriter:
    """RFC 4180, with the names first; null is empty.

    :param for_terminal: whether control characters are written out.
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
        """Nothing is left."""


class PlanWriter:
    """The text of EXPLAIN, as it was drawn."""

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def write(self, batch: pa.RecordBatch) -> None:
        for row in rows_of(batch):
            self._output.write(escaped_lines(f"{row[-1]}\n"))

    def finish(self) -> None:
        """Nothing is left."""


MakeWriter = Callable[[pa.Schema, TextIO], RowWriter]


def writer_for(*, as_json: bool, as_csv: bool, is_terminal: bool) -> MakeWriter:
    """Return what makes the writer that the options ask for."""
    if as_json:
        return JsonWriter
    if as_csv:
        return partial(CsvWriter, for_terminal=is_terminal)
    width = shutil.get_terminal_size().columns if is_terminal else None

    def table_writer(schema: pa.Schema, output: TextIO) -> RowWriter:
        return PlanWriter(output) if schema.names in PLANS else TableWriter(schema, output, width)

    return table_writer


def fitted(widths: Sequence[int], line: int | None) -> list[int]:
    """Return widths of columns that fit into a line, the widest made narrower first.

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
    """Yield rows as Python's objects; times beyond Python's calendar as text."""
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
    """Return a value as text, times in UTC.

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
    """Return a value as JSON has it: times and decimals as text, as no number there keeps them whole."""
    match value:
        case dict():
            found: object = {str(name): json_value(each) for name, each in value.items()}
        case list() | tuple():
            found = [json_value(each) for each in value]
        case bytes():
            found = bytes_value(value)
        case date():  # a datetime too
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

"""A topic as DuckDB scans it: as an Arrow dataset, of which it asks for columns and conditions when a query runs.

DuckDB knows Arrow's datasets, and hands over the columns that it wants and the conditions that it has worked out: of a
join, through views, with `now()` already computed. It does not check them again. The dataset is Arrow's in name only:
its records are at the brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

ReadRows = Callable[[Sequence[str], ds.Expression | None], Iterator[pa.RecordBatch]]
OnError = Callable[[BaseException], None]


class TopicDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """What DuckDB asks a dataset: its schema, and a scanner.

    :param schema: all columns.
    :param read: yields some of the columns of the rows that meet a condition.
    :param on_error: is told of an error of `read`, which DuckDB passes on as text alone.
    """

    def __init__(self, schema: pa.Schema, read: ReadRows, on_error: OnError) -> None:
        self._columns = schema
        self._read = read
        self._on_error = on_error

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self._columns

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: ds.Expression | None = None,  # noqa: A002
        **_more: Any,
    ) -> TopicScanner:
        """Return what reads some columns of the rows that meet a condition; the names are Arrow's."""
        names = self._columns.names if columns is None else list(columns)
        schema = pa.schema([self._columns.field(name) for name in names])
        return TopicScanner(pa.RecordBatchReader.from_batches(schema, self._rows(names, filter)))

    def _rows(self, names: Sequence[str], condition: ds.Expression | None) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._read(names, condition)
        except GeneratorExit:
            raise
        except BaseException as error:
            self._on_error(error)
            raise


class TopicScanner:
    """What DuckDB asks a scanner. Arrow's own would read ahead of it, also where a LIMIT wants a few rows alone."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns that are read."""
        return self._reader.schema

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows."""
        return self._reader

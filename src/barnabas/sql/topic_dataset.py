"""A topic as an Arrow dataset for DuckDB, which requests columns and filters when a query runs.

DuckDB supports Arrow datasets. It passes the required columns and the filters of the whole query, including filters
from joins and views, with `now()` already computed. DuckDB does not evaluate these filters again. This dataset fetches
its records from the brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

ReadRows = Callable[[Sequence[str], ds.Expression | None], Iterator[pa.RecordBatch]]
OnError = Callable[[BaseException], None]


class TopicDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """A dataset with the two members that DuckDB uses: `schema` and `scanner`.

    :param schema: All columns of the topic.
    :param read: Yields some of the columns of the rows that match a filter.
    :param on_error: Called with each error that `read` raises, because DuckDB only reports the text of the error.
    """

    def __init__(self, schema: pa.Schema, read: ReadRows, on_error: OnError) -> None:
        self._columns = schema
        self._read = read
        self._on_error = on_error

    @property
    def schema(self) -> pa.Schema:
        """All columns of the topic."""
        return self._columns

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: ds.Expression | None = None,  # noqa: A002
        **_more: Any,
    ) -> TopicScanner:
        """Return a scanner of some columns, for the rows that match a filter. Arrow defines the parameter names."""
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
    """A scanner with the members that DuckDB uses. Arrow's own scanner reads ahead, even for a LIMIT of a few rows."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns that the scanner reads."""
        return self._reader.schema

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows."""
        return self._reader

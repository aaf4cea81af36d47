"""The change files of a load: the changes of one task as Parquet files that only the merge of this load reads.

A task folds its buffered changes before it writes them, to those that may be the last one of their key. The rows of a
change file are those of the state table, with the column `DELETED`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from barnabas.formats.change_events import ChangeDecoder
from barnabas.formats.upsert_rules import CHANGE_ORDER, POSITION, RECORD_TIME
from barnabas.spark.change_fold import KeyIndex, candidates
from barnabas.spark.data_files import BUFFERED_BYTES_MAX, DataFile
from barnabas.spark.parquet_batches import rows_of_file
from barnabas.spark.table_rows import TableRows
from barnabas.spark.table_shape import TableShape

DELETED = "\x1fdeleted"
"""The column of change files that says whether the change deletes the row. No field has a column of this name."""


@dataclass(frozen=True, slots=True)
class MergeColumns:
    """The columns of a table that has one row for each key.

    :param schema: all columns.
    :param order: the column that orders the changes of a key; None to order by offset.
    :param position: the columns with the position of a row's last change.
    """

    schema: pa.Schema
    keys: tuple[str, ...]
    order: str | None
    position: tuple[str, ...] = POSITION

    @classmethod
    def of(cls, shape: TableShape) -> MergeColumns:
        """Return the columns of a state table."""
        assert shape.upsert is not None, "the table is a state table"
        order = "timestamp" if shape.upsert.order_by == RECORD_TIME else None
        if shape.upsert.has_order_column:
            order = shape.columns[CHANGE_ORDER]
        return cls(shape.state_schema(), shape.key_columns, order)

    @property
    def narrow(self) -> pa.Schema:
        """The columns that decide which change of a key is the last one."""
        names = [*self.keys, *self.position, *([] if self.order is None else [self.order])]
        return pa.schema([self.schema.field(name) for name in dict.fromkeys(names)])


def to_change_rows(records: pa.RecordBatch, shape: TableShape, decoder: ChangeDecoder) -> TableRows:
    """Convert records to rows of a change file.

    :param records: records in the columns of the Spark source.
    """
    fields = shape.fields or {}
    changes = decoder.decode(records.column("value"), records.column("key"), fields)
    names = [*POSITION, *(shape.columns[name] for name in fields), DELETED]
    columns = [records.column(name).take(changes.rows) for name in POSITION]
    columns += [*shape.stored(changes.columns), changes.deletes]
    rows = pa.RecordBatch.from_arrays(columns, names=names)
    return TableRows(rows, changes.reasons, found=changes.found, lost_values=changes.lost_values)


class ChangeFileWriter:
    """Buffers changes, folds them, and writes them. Not thread-safe.

    :param prefix: the prefix of the files' paths, unique to this attempt of the task.
    :param create: opens a new file for writing.
    """

    def __init__(
        self,
        prefix: str,
        create: Callable[[str], AbstractContextManager[IO[bytes]]],
        shape: TableShape,
        buffered_bytes_max: int = BUFFERED_BYTES_MAX,
    ) -> None:
        self._prefix = prefix
        self._create = create
        self._keys = shape.key_columns
        self._order = MergeColumns.of(shape).order
        self._buffered_bytes_max = buffered_bytes_max
        self._batches: list[pa.RecordBatch] = []
        self._buffered_bytes = 0
        self._files: list[DataFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Buffer changes; write a file if the buffer is full."""
        if batch.num_rows:
            self._batches.append(batch)
            self._buffered_bytes += batch.nbytes
        if self._buffered_bytes >= self._buffered_bytes_max:
            self._write()

    def finish(self) -> list[DataFile]:
        """Write the buffered changes, and return all files."""
        self._write()
        return self._files

    def _write(self) -> None:
        if not self._batches:
            return
        changes = pa.Table.from_batches(self._batches)
        index = KeyIndex([changes.column(name) for name in self._keys])
        order = None if self._order is None else changes.column(self._order)
        rows = changes.take(pa.array(candidates(index.codes, changes, order)))
        path = f"{self._prefix}-changes-{len(self._files):05}.parquet"
        with self._create(path) as file:
            pq.write_table(rows, file, compression="lz4", write_statistics=False)
            size_bytes = file.tell()
        self._files.append(DataFile(path, rows.num_rows, (), size_bytes))
        self._batches, self._buffered_bytes = [], 0


@dataclass(frozen=True, slots=True)
class ChangeFiles:
    """The changes in the files of all tasks, as a source for the merge."""

    files: Sequence[DataFile]
    io_properties: Mapping[str, str]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the columns of a schema."""
        for file in self.files:
            yield from rows_of_file(file.path, schema, self.io_properties, {})

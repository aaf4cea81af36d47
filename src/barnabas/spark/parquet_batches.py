"""Parquet files of a table as Arrow batches, in local files or an object store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from barnabas.spark.object_files import file_system_of
from barnabas.spark.projection import FormerNames, project

BATCH_ROWS = 65_536


def rows_of_file(
    file: str, schema: pa.Schema, properties: Mapping[str, str], former: FormerNames
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, batch by batch. Only the columns of the schema are read.

    :param schema: The columns to read, or parts of them. Columns that the file lacks are null.
    :param properties: The storage properties, as pyiceberg names them.
    :param former: The earlier names of fields that were renamed after the file was written.
    """
    names = [name for column in schema.names for name in (column, *former.get((column,), ()))]
    system, path = file_system_of(properties, file)
    with pq.ParquetFile(path, filesystem=system) as opened:
        for batch in opened.iter_batches(BATCH_ROWS, columns=names):
            yield project(batch, schema, former)

"""`append_batch`: the batches of a stream into an Iceberg or Delta table, each of them once, from `foreachBatch`.

    def keep(batch, batch_id):
        barnabas.spark.append_batch(batch, batch_id, warehouse="./warehouse", table="clicks")

    stream.writeStream.foreachBatch(keep).option("checkpointLocation", ...).start()

After a crash Spark hands the batch that was under way to `foreachBatch` again, with the same number and the same rows.
It may be in the table by then, so the number has to be there with the rows, in the same commit. The steps are those of
a load (table_load.py), and so is what a kill leaves: before the commit files that no snapshot names, which the next
batch removes; after it a batch that is there, which the next try finds and passes over.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql.pandas.types import to_arrow_schema

from barnabas.errors import ConfigurationError
from barnabas.spark.batch_table import BatchFile, BatchTable, nullable
from barnabas.spark.day_files import BUFFERED_BYTES_MAX, columns_with_bounds, create_file
from barnabas.spark.errors import LoadConflictError, LoadError
from barnabas.spark.extras import require
from barnabas.spark.iceberg_batch_table import IcebergBatchTable
from barnabas.spark.java_errors import gateway_of, spark_errors_as
from barnabas.spark.load_folder import claim_folder, remove_leftovers
from barnabas.spark.projection import project
from barnabas.spark.table_formats import open_place
from barnabas.spark.table_place import DELTA, ICEBERG, TablePlace
from barnabas.spark.table_store import Location
from barnabas.spark.worker_python import context_of, worker_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TRIES_MAX = 5
"""How often a commit is tried while others change the table."""
_WRITTEN = "path string, size_bytes long, records long"
_QUERY_ID_OF_SPARK = "sql.streaming.queryId"


def append_batch(
    batch: DataFrame,
    batch_id: int,
    *,
    table: str,
    warehouse: str | Path | None = None,
    catalog: str | None = None,
    catalog_properties: Mapping[str, str] | None = None,
    table_format: str = ICEBERG,
    query_id: str | None = None,
) -> bool:
    """Append the rows of one batch of a stream to a table, in one commit, unless the table has them.

    :param batch: and `batch_id`: what `foreachBatch` hands over.
    :param table: `"table"` or `"namespace.table"`; made with the columns of the first batch where there is none.
    :param warehouse: and `catalog`, `catalog_properties`, `table_format`: where the table is and of which format, as
        for `load`.
    :param query_id: tells streams apart that go into the same table, and is the same for all runs of one checkpoint;
        None for the one that Spark keeps in the checkpoint, which it does not tell through Spark Connect.
    :return: whether rows were added; False where the table has the batch already, or it has no rows.
    :raises LoadConflictError: others changed the table again and again; nothing was kept.
    :raises LoadError: it could not be done; the table is as before, unless the message says that nobody knows.
    """
    query = query_id or _query_of(batch)
    place = TablePlace.of(warehouse, catalog=catalog, catalog_properties=catalog_properties, table_format=table_format)
    target = open_place(place)
    columns = pa.schema([nullable(field) for field in to_arrow_schema(batch.schema, timezone="UTC")])
    current_table = partial(_kind_of(place), target, table)
    base = current_table(columns)
    location = base.location()
    if location.local_folder is not None:
        remove_leftovers(location.local_folder, partial(target.committed_loads, table))
    if base.has_batch(query, batch_id):
        return False
    load_id = uuid.uuid4().hex
    folder = claim_folder(location, load_id, base.name)
    try:
        files = _write(batch, f"{location.uri}/data/{load_id}", location, base.arrow_schema())
        folder.keep_only(file.path for file in files)
    except BaseException:
        folder.discard()
        raise
    try:
        is_added = bool(files) and _commit(base, files, load_id, query, batch_id, current_table)
    except BaseException as error:
        folder.give_up_after(error)
        raise
    if is_added:
        folder.release()
    else:
        folder.discard()
    return is_added


def _kind_of(place: TablePlace) -> Callable[..., BatchTable]:
    if place.table_format == DELTA:
        kind: Callable[..., BatchTable] = require("barnabas.spark.delta_batch_table").DeltaBatchTable
        return kind
    return IcebergBatchTable


def _query_of(batch: DataFrame) -> str:
    """Return the id of the query whose batch it is."""
    context = context_of(batch.sparkSession)
    query = None if context is None else context.getLocalProperty(_QUERY_ID_OF_SPARK)
    if query is None:
        raise ConfigurationError(
            "whose batch is this? Outside of foreachBatch, and with Spark Connect, give query_id: a name that all "
            "runs of one checkpoint have in common, and no other stream into this table"
        )
    return query


def _write(batch: DataFrame, folder: str, location: Location, schema: pa.Schema) -> list[BatchFile]:
    """Have the executors write the rows, and return the files of the tasks that counted."""
    spark = batch.sparkSession
    failed = "a Spark task failed, and the table is as before: "
    with spark_errors_as(LoadError, gateway_of(spark), failed), worker_python(spark):
        written = batch.mapInArrow(_writer(folder, dict(location.properties), schema), _WRITTEN).collect()
    return [BatchFile(row["path"], row["size_bytes"], row["records"]) for row in written]


def _writer(
    folder: str, io_properties: Mapping[str, str], schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what a task does: write its rows, and tell of its files."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None, "it runs on an executor"
        for number, rows in enumerate(_gathered(batches)):
            path = f"{folder}/{task.partitionId():05}-{task.taskAttemptId()}-{number:05}.parquet"
            made = pa.Table.from_batches([project(each, schema) for each in rows.to_batches()], schema)
            with create_file(io_properties, path) as file:
                pq.write_table(made, file, compression="zstd", write_statistics=columns_with_bounds(made))
                size_bytes = file.tell()
            yield pa.record_batch({"path": [path], "size_bytes": [size_bytes], "records": [made.num_rows]})

    return write


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows in tables for a file each."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            held_bytes += batch.nbytes
        if held_bytes >= BUFFERED_BYTES_MAX:
            yield pa.Table.from_batches(held)
            held, held_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _commit(
    base: BatchTable,
    files: list[BatchFile],
    load_id: str,
    query: str,
    batch_id: int,
    look_again: Callable[[pa.Schema], BatchTable],
) -> bool:
    """Commit, again where others have changed the table meanwhile, unless one of them added this very batch."""
    for number in range(TRIES_MAX):
        if base.has_batch(query, batch_id):
            return False
        try:
            base.append(files, load_id, query, batch_id)
        except LoadConflictError:
            if number == TRIES_MAX - 1:
                raise
            base = look_again(base.columns)
        else:
            return True
    raise AssertionError("the last try raises or returns")

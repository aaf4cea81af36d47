"""`append_batch`: appends the micro-batches of a stream to an Iceberg or Delta table, each of them once.

    def keep(batch, batch_id):
        barnabas.spark.append_batch(batch, batch_id, warehouse="./warehouse", table="clicks")

    stream.writeStream.foreachBatch(keep).option("checkpointLocation", ...).start()

After a crash, Spark passes the interrupted batch to `foreachBatch` again, with the same id and the same rows. The table
may contain the batch already, so a commit contains the batch id together with the rows. The steps are those of a load
(table_load.py). A kill before the commit leaves files that no snapshot references; the next batch removes them. After a
kill that follows the commit, the next call finds the batch id and appends nothing.
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

from barnabas.errors import ConfigurationError
from barnabas.spark.batch_table import BatchFile, BatchTable, nullable
from barnabas.spark.data_files import BUFFERED_BYTES_MAX, columns_with_bounds, create_file
from barnabas.spark.errors import LoadConflictError, LoadError
from barnabas.spark.extras import require
from barnabas.spark.iceberg_batch_table import IcebergBatchTable
from barnabas.spark.java_errors import gateway_of, spark_errors_as
from barnabas.spark.load_folder import claim_folder, remove_leftovers
from barnabas.spark.projection import project
from barnabas.spark.spark_version import arrow_schema_of
from barnabas.spark.table_formats import open_place
from barnabas.spark.table_place import DELTA, ICEBERG, TablePlace
from barnabas.spark.table_store import Location
from barnabas.spark.worker_python import context_of, worker_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TRIES_MAX = 5
"""The maximum number of commit attempts while other writers change the table."""
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
    """Append the rows of a micro-batch to a table, in one commit, unless the table has the batch already.

        def keep(batch, batch_id):
            barnabas.spark.append_batch(batch, batch_id, warehouse="./warehouse", table="clicks")

        stream.writeStream.foreachBatch(keep).option("checkpointLocation", "./checkpoint").start()

    :param batch: The rows, as `foreachBatch` passes them.
    :param batch_id: The id of the batch, as `foreachBatch` passes it.
    :param table: `"table"` or `"namespace.table"`. A new table is created with the columns of the batch.
    :param warehouse: The directory of the embedded warehouse, as for `load`.
    :param catalog: The name of a catalog, as for `load`.
    :param catalog_properties: Properties of the catalog, as for `load`.
    :param table_format: `iceberg` or `delta`.
    :param query_id: A name for the stream: the same in all runs with one checkpoint, and different for each stream into
        the table. None uses Spark's query id, which Spark Connect does not provide.
    :return: True if rows were added; False if the batch is empty or in the table already.
    :raises LoadConflictError: Other writers changed the table at each try; nothing was committed.
    :raises LoadError: The batch could not be appended; the table is unchanged unless the message says otherwise.
    :raises ConfigurationError: Spark provides no query id, and `query_id` is None.
    """
    query = query_id or query_of(batch)
    place = TablePlace.of(warehouse, catalog=catalog, catalog_properties=catalog_properties, table_format=table_format)
    target = open_place(place)
    columns = pa.schema([nullable(field) for field in arrow_schema_of(batch.schema)])
    current_table = partial(kind_of(place), target, table)
    base = current_table(columns)
    location = base.location()
    if location.local_folder is not None:
        remove_leftovers(location.local_folder, partial(target.committed_loads, table))
    if base.has_batch(query, batch_id):
        return False
    load_id = uuid.uuid4().hex
    folder = claim_folder(location, load_id, base.name)
    try:
        files = write_batch(batch, f"{location.uri}/data/{load_id}", location, base.arrow_schema())
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


def kind_of(place: TablePlace) -> Callable[..., BatchTable]:
    if place.table_format == DELTA:
        kind: Callable[..., BatchTable] = require("barnabas.spark.delta_batch_table").DeltaBatchTable
        return kind
    return IcebergBatchTable


def query_of(batch: DataFrame) -> str:
    """Return the id of the streaming query that a micro-batch belongs to."""
    context = context_of(batch.sparkSession)
    query = None if context is None else context.getLocalProperty(_QUERY_ID_OF_SPARK)
    if query is None:
        raise ConfigurationError(
            "the query of this batch is unknown (outside of foreachBatch, and with Spark Connect): pass query_id, a "
            "name that all runs of one checkpoint share, and no other stream into this table uses"
        )
    return query


def write_batch(batch: DataFrame, folder: str, location: Location, schema: pa.Schema) -> list[BatchFile]:
    """Write the rows on the executors, and return the files of the successful task attempts."""
    spark = batch.sparkSession
    failed = "a Spark task failed, and the table is unchanged: "
    with spark_errors_as(LoadError, gateway_of(spark), failed), worker_python(spark):
        written = batch.mapInArrow(_writer(folder, dict(location.properties), schema), _WRITTEN).collect()
    return [BatchFile(row["path"], row["size_bytes"], row["records"]) for row in written]


def _writer(
    folder: str, io_properties: Mapping[str, str], schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that a task runs. It writes the task's rows and yields one row per file."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None, "this function runs in a Spark task"
        for number, rows in enumerate(_gathered(batches)):
            path = f"{folder}/{task.partitionId():05}-{task.taskAttemptId()}-{number:05}.parquet"
            made = pa.Table.from_batches([project(each, schema) for each in rows.to_batches()], schema)
            with create_file(io_properties, path) as file:
                pq.write_table(made, file, compression="zstd", write_statistics=columns_with_bounds(made))
                size_bytes = file.tell()
            yield pa.record_batch({"path": [path], "size_bytes": [size_bytes], "records": [made.num_rows]})

    return write


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Combine record batches to tables, and yield one table per data file."""
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
    """Commit the files; retry after conflicts, and stop if another writer has added this batch.

    :return: True if this call added the batch.
    """
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
    raise AssertionError("the last try returns or raises")

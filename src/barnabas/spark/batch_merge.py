"""`merge_into`: merges the micro-batches of a stream of changes into an Iceberg or Delta table, each of them once.

    def keep(batch, batch_id):
        merge_into(batch, batch_id, warehouse="./warehouse", table="orders", keys="id", order_by="lsn")

    changes.writeStream.foreachBatch(keep).option("checkpointLocation", ...).start()

The table has one row for each key. The steps are those of `append_batch`, with a merge between them:

1. Spark keeps the last change of each key, and its tasks write these changes to files that only the merge reads.
2. The driver merges them into the files of the table (state_merge.py), and writes new files.
3. The side table `NAME__deleted` remembers the deleted keys (deleted_keys.py).
4. One commit adds the new files, removes the files that they replace, and has the batch id.

Deletions are remembered under the id of the table. So the first batch creates the table in a commit of its own, empty
and without a batch id, if the stream may delete.

A kill before the last commit leaves files that no snapshot references; the next batch removes them. Spark then repeats
the batch: a deletion that is remembered already is applied again. A conflict with another writer repeats all steps.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812  # the usual name

from barnabas.errors import ConfigurationError
from barnabas.spark.batch_append import TRIES_MAX, kind_of, query_of, write_batch
from barnabas.spark.batch_table import BatchFile, BatchTable, nullable
from barnabas.spark.change_files import DELETED, ChangeFiles, MergeColumns
from barnabas.spark.data_files import DataFile
from barnabas.spark.deleted_keys import BatchDeletedKeys
from barnabas.spark.errors import LoadConflictError
from barnabas.spark.library_errors import library_errors
from barnabas.spark.load_folder import claim_folder, remove_leftovers
from barnabas.spark.load_types import DELETE_MEMORY
from barnabas.spark.spark_version import arrow_schema_of
from barnabas.spark.state_merge import MergeTarget, StateMerge
from barnabas.spark.table_formats import open_place
from barnabas.spark.table_place import ICEBERG, TablePlace

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NO_BATCH = -1
"""The batch id of the commit that creates an empty table: the one before the first."""
_LAST, _INCOMPLETE = "\x1flast", "\x1fincomplete"


def merge_into(
    batch: DataFrame,
    batch_id: int,
    *,
    table: str,
    keys: str | Sequence[str],
    order_by: str,
    delete_when: str | None = None,
    omit: Sequence[str] = (),
    warehouse: str | Path | None = None,
    catalog: str | None = None,
    catalog_properties: Mapping[str, str] | None = None,
    table_format: str = ICEBERG,
    query_id: str | None = None,
    delete_memory: timedelta = DELETE_MEMORY,
) -> bool:
    """Merge the changes of a micro-batch into a table by key, in one commit, unless the table has the batch already.

        def keep(batch, batch_id):
            merge_into(batch, batch_id, warehouse="./warehouse", table="orders", keys="id", order_by="lsn")

        changes.writeStream.foreachBatch(keep).option("checkpointLocation", "./checkpoint").start()

    A row replaces the row of the table with the same key if it is not older. Of several rows of a batch with the same
    key, the newest one counts. A row that `delete_when` selects removes the row of the table.

    :param batch: The changes, as `foreachBatch` passes them.
    :param batch_id: The id of the batch, as `foreachBatch` passes it.
    :param table: `"table"` or `"namespace.table"`. A new table is created with the columns of the batch.
    :param keys: The key column, or several ones. They have a value in all rows.
    :param order_by: The column whose largest value is the newest change of a key. It has a value in all rows.
    :param delete_when: A condition in SQL on the columns of the batch, for the changes that delete, for example
        `"op = 'd'"`.
    :param omit: The columns of the batch that the table does not get, for example `["op"]`.
    :param warehouse: The directory of the embedded warehouse, as for `load`.
    :param catalog: The name of a catalog, as for `load`.
    :param catalog_properties: Properties of the catalog, as for `load`.
    :param table_format: `iceberg` or `delta`.
    :param query_id: A name for the stream, as for `append_batch`.
    :param delete_memory: The time for which the table `NAME__deleted` remembers the keys that `delete_when` deletes, so
        that an older change that arrives late does not restore the row. A stream without `delete_when` also respects
        the remembered deletions. 0 neither remembers deletions nor respects them.
    :return: True if the rows of the table changed; False if no change is newer than the table, or the table has the
        batch already.
    :raises LoadConflictError: Other writers changed the table at each try; the table does not have the batch.
    :raises LoadError: The batch could not be merged; the rows of the table are unchanged unless the message says
        otherwise.
    :raises ConfigurationError: A column is missing, `delete_memory` is negative, `NAME__deleted` is another table, or
        Spark provides no query id, and `query_id` is None.
    """
    names = (keys,) if isinstance(keys, str) else tuple(keys)
    query = query_id or query_of(batch)
    _check_columns(batch.columns, names, order_by, omit)
    if delete_memory < timedelta(0):
        raise ConfigurationError("delete_memory is negative; use 0 or more")
    place = TablePlace.of(warehouse, catalog=catalog, catalog_properties=catalog_properties, table_format=table_format)
    target = open_place(place)
    whole = arrow_schema_of(batch.schema)
    columns = pa.schema([nullable(field) for field in whole if field.name not in omit])
    try:
        changes = _last_changes(batch, names, order_by, delete_when, columns.names)
    except PySparkException as error:
        raise ConfigurationError(f"delete_when: {str(error).splitlines()[0]}") from None
    open_table = partial(kind_of(place), target)
    for number in range(TRIES_MAX):
        try:
            base = open_table(table, columns)
            folder = base.location().local_folder
            if folder is not None and not number:
                remove_leftovers(folder, partial(target.committed_loads, table))
            if base.has_batch(query, batch_id):
                return False
            if delete_memory and delete_when is not None and not base.exists:
                base.append((), uuid.uuid4().hex, query, NO_BATCH)
                base = open_table(table, columns)
            merge = _BatchMerge(base, MergeColumns(base.whole_schema(), names, order_by, ()), query, batch_id)
            deleted = None
            if delete_memory and base.exists:
                memory = None if delete_when is None else delete_memory
                deleted = BatchDeletedKeys(target, open_table, base, table, merge.columns, memory)
            return merge.run(changes, deleted)
        except LoadConflictError:
            if number == TRIES_MAX - 1:
                raise
    raise AssertionError("the last try returns or raises")


def _check_columns(columns: Sequence[str], keys: Sequence[str], order_by: str, omit: Sequence[str]) -> None:
    """Check that the arguments name columns of the batch that the table gets."""
    for name, argument in [
        *((key, "keys") for key in keys),
        (order_by, "order_by"),
        *((name, "omit") for name in omit),
    ]:
        if name not in columns:
            raise ConfigurationError(f"{argument}: the batch has no column {name!r}; it has {', '.join(columns)}")
    if not keys or len(set(keys)) < len(keys):
        raise ConfigurationError(f"keys: {list(keys)!r} is not a list of different columns")
    for name in (*keys, order_by):
        if name in omit:
            raise ConfigurationError(f"omit: the table needs the column {name!r}, a key or the order of the changes")


def _last_changes(
    batch: DataFrame, keys: Sequence[str], order_by: str, delete_when: str | None, columns: Sequence[str]
) -> DataFrame:
    """Return the newest change of each key, with the column `DELETED`, and the number of incomplete changes."""
    order = _column(order_by)
    is_deleted = F.lit(False) if delete_when is None else F.coalesce(F.expr(delete_when), F.lit(False))
    marked = batch.select(*(_column(name) for name in columns), is_deleted.alias(DELETED))
    newest = marked.groupBy(*(_column(name) for name in keys)).agg(
        F.max_by(F.struct("*"), order).alias(_LAST), F.count_if(order.isNull()).alias(_INCOMPLETE)
    )
    has_null_key = F.lit(False)
    for name in keys:
        has_null_key = has_null_key | _column(name).isNull()
    is_incomplete = F.when(has_null_key | (_column(_INCOMPLETE) > 0), F.lit(True)).otherwise(F.lit(False))
    return newest.select(f"`{_LAST}`.*", is_incomplete.alias(_INCOMPLETE))


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


@dataclass(frozen=True, slots=True)
class _BatchMerge:
    """The merge of a batch into one version of the table."""

    base: BatchTable
    columns: MergeColumns
    query: str
    batch_id: int

    def run(self, changes: DataFrame, deleted: BatchDeletedKeys | None) -> bool:
        """Write the changes, merge them, and commit the result; return whether the table changed.

        :param deleted: The memory of deleted keys; None for none.
        :raises LoadConflictError: Another writer has changed a table; the table of the batch is unchanged.
        """
        location = self.base.location()
        load_id = uuid.uuid4().hex
        uri = f"{location.uri}/data/{load_id}"
        folder = claim_folder(location, load_id, self.base.name)
        try:
            schema = self.base.arrow_schema().append(pa.field(DELETED, pa.bool_()))
            written = write_batch(_checked(changes, self.columns), uri, location, schema)
            files = [DataFile(file.path, file.records, size_bytes=file.size_bytes) for file in written]
            remembered = None if deleted is None else deleted.remembered
            target = MergeTarget(self.base, self.columns, uri, dict(location.properties), remembered=remembered)
            with library_errors(f"table {self.base.name}: cannot merge the changes"):
                merged = StateMerge(target, ChangeFiles(files, location.properties)).run()
            made = [BatchFile(file.path, file.size_bytes, file.records) for file in merged.files]
            folder.keep_only(file.path for file in merged.files)
            if deleted is not None:
                deleted.remember(merged.deletions, load_id, self.query, self.batch_id)
            if not merged.files and not merged.replaced:
                folder.discard()
                return False
        except BaseException:
            folder.discard()
            raise
        try:
            self.base.append(made, load_id, self.query, self.batch_id, merged.replaced, self.columns.keys)
        except BaseException as error:
            folder.give_up_after(error)
            raise
        folder.release()
        return True


def _checked(changes: DataFrame, columns: MergeColumns) -> DataFrame:
    """Return the changes, which fail the job if a change has no key or no order."""
    message = f"a row has no value in {' or '.join((*columns.keys, str(columns.order)))}: filter such rows before"
    failing = F.when(_column(_INCOMPLETE), F.raise_error(F.lit(message)).cast("boolean")).otherwise(_column(DELETED))
    return changes.withColumn(DELETED, failing).drop(_INCOMPLETE)

"""Delta tables, written with deltalake (delta-rs) to WAREHOUSE/NAMESPACE/TABLE in a local directory or S3, without a
catalog.

One load is one version of the table's log. The file of the version contains, all or nothing:

- the data files (`add`);
- the load's properties (ledger.py), as additional keys of `commitInfo`;
- the next offset of each loaded partition as an application transaction (`txn`, one per partition), and the number of
  the table's rows as another one;
- the new schema (`metaData`) if the load adds columns.

A version file can be created only once. A commit writes the version after the one that was current at the start of the
load, with `max_commit_retries` 0: by default delta-rs would retry, and commit the same files after another writer's
version.

The ledger is read from the newest `commitInfo` that has one. RESTORE is a version, too; the versions between it and the
restored version are ignored. Old versions expire with their `commitInfo`, after 30 days (`delta.logRetentionDuration`)
and by number (delta_log_cleanup.py). The application transactions remain, because checkpoints keep them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlparse

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, TableFeatures
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, Transaction, create_table_with_add_actions

from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import BarnabasError
from barnabas.formats.upsert_rules import POSITION
from barnabas.formats.value_format import RAW
from barnabas.model import TopicPartition
from barnabas.spark.data_files import TARGET_BYTES, DataFile
from barnabas.spark.delta_layout import (
    check_delta_layout,
    empty_partition,
    layout_of_delta,
    obstacle_of_delta_layout,
    partition_values,
    stored_layout,
)
from barnabas.spark.delta_log_cleanup import delete_old_versions, is_cleanup_due
from barnabas.spark.delta_schema import (
    column_names_of,
    delta_schema,
    obstacle_to_loads,
    remembered,
    remembered_topics,
    same_schema,
    shape_of_schema,
    topics_of,
)
from barnabas.spark.delta_state_files import counts_of, remove_actions, statistics_of, stored_files
from barnabas.spark.delta_storage_options import storage_options
from barnabas.spark.errors import CommitUnknownError, LoadConflictError, WarehouseError
from barnabas.spark.ledger import LEDGER, LOAD_ID, RECORDS, Ledger, LoadedTopic, ends_of_rows, unknown_position_error
from barnabas.spark.library_errors import library_errors, reason_of, warehouse_error
from barnabas.spark.parquet_batches import rows_of_file
from barnabas.spark.run_ids import RUN_ID, CommittedRun, slot_of
from barnabas.spark.table_layout import TableLayout
from barnabas.spark.table_names import DELETED_KEYS, parse_table_name
from barnabas.spark.table_place import TablePlace
from barnabas.spark.table_schema import KAFKA_COLUMNS
from barnabas.spark.table_shape import FORMAT, UPSERT, TableShape
from barnabas.spark.table_store import Contents, Location, StoredFile

log = logging.getLogger(__name__)

NOT_READ = frozenset({"deletionVectors", "columnMapping"})
"""Table features that other tools may enable, and that make the table's rows differ from the rows of its data files."""
_TIMES_WITHOUT_ZONE = "timestampNtz"
TOPIC = "topic"
"""The column whose metadata has the shape of the table and the loaded topics."""
_ROWS = "barnabas/rows"
"""The application id of the transaction with the row count. (An application id of a partition has two slashes.)"""


class DeltaWarehouse:
    """A directory of Delta tables. Not thread-safe."""

    def __init__(self, uri: str, properties: Mapping[str, str]) -> None:
        self._uri = uri.rstrip("/")
        self._properties = properties

    @classmethod
    def open(cls, place: TablePlace) -> DeltaWarehouse:
        """Return the warehouse at `place`, without creating anything."""
        warehouse = str(place.warehouse)
        uri = f"file://{Path(urlparse(warehouse).path).absolute()}" if place.is_local else warehouse
        return cls(uri, place.properties)

    def begin(self, name: str) -> DeltaBase:
        """Return the version of a table that a load starts from.

        :raises WarehouseError: The table lacks the columns of loaded tables, or cannot be read.
        """
        base = self.current_table(name)
        if base.exists:
            _check(base.table, name)
        return base

    def current_table(self, name: str) -> DeltaBase:
        """Return the current version of a table for reading. The table may be made by another tool.

        :raises WarehouseError: The table cannot be read.
        """
        identifier = parse_table_name(name)
        location = Location("/".join([self._uri, *identifier]), self._properties)
        with library_errors(f"table {name}: cannot be read"):
            table = _find(location)
            if table is not None:
                _check_is_readable(table, name)
        return DeltaBase(".".join(identifier), location, table)

    def committed_loads(self, name: str, load_ids: Collection[str]) -> set[str]:
        """Return the given load ids whose files are in any version of the table's history."""
        table = self.current_table(name).find()  # not `begin`: tables of `append_batch` have other columns
        if table is None:
            return set()
        with library_errors(f"table {name}: its list of files cannot be read"):
            found = {entry.get(LOAD_ID, "") for entry in table.history()} & set(load_ids)
            paths = pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()
        return found | {load_id for load_id in load_ids if any(f"/{load_id}/" in path for path in paths)}


def _find(location: Location) -> DeltaTable | None:
    options = storage_options(location.properties)
    if not DeltaTable.is_deltatable(path_of(location), options):
        return None
    try:
        return DeltaTable(path_of(location), storage_options=options)
    except TableNotFoundError:
        return None


def path_of(location: Location) -> str:
    """Return the path of a table in the form that delta-rs takes."""
    folder = location.local_folder
    return location.uri if folder is None else str(folder)


def _check(table: DeltaTable, name: str) -> None:
    """Check that a table has the columns of loaded tables."""
    schema = str(table.schema().to_json())
    is_state = UPSERT in remembered(schema)
    lacking = set(POSITION if is_state else KAFKA_COLUMNS) - set(column_names_of(schema))
    is_partitioned = is_state and table.metadata().partition_columns
    if lacking or is_partitioned:
        lacks = f"it lacks {', '.join(sorted(lacking))}"
        why = lacks if lacking else "it is partitioned, and tables of loads with upsert are not"
        raise WarehouseError(f"table {name} is not a table of topics: {why}; use another table")


def _check_is_readable(table: DeltaTable, name: str) -> None:
    """Check that a table uses no feature that changes the rows of its data files."""
    unknown = NOT_READ & set(table.protocol().reader_features or ())
    if unknown:
        raise WarehouseError(
            f"table {name} uses {', '.join(sorted(unknown))}, which loads and their readers do not support: "
            "load into another table"
        )


def allow_times_without_zone(table: DeltaTable, schema: Schema, name: str) -> None:
    """Enable the table feature for timestamps without a time zone if the schema needs it.

    delta-rs cannot enable it in the version of the rows, so it gets a version before. Without the feature, no reader
    could read the table. A kill between the two versions leaves an enabled feature that no column uses.

    :raises LoadConflictError: Another writer has changed the table.
    """
    protocol = table.protocol()
    if "timestamp_ntz" not in schema.to_json() or _TIMES_WITHOUT_ZONE in (protocol.writer_features or ()):
        return
    try:
        table.alter.add_feature(
            TableFeatures.TimestampWithoutTimezone,
            allow_protocol_versions_increase=True,
            commit_properties=CommitProperties(max_commit_retries=0),
        )
    except CommitFailedError as error:
        raise LoadConflictError(f"table {name}: another writer changed the table meanwhile; run this again") from error


class DeltaBase:
    """One version of a Delta table. `commit` succeeds only if the table still has this version."""

    def __init__(self, name: str, location: Location, table: DeltaTable | None) -> None:
        self._name = name
        self._location = location
        self._table = table

    @property
    def name(self) -> str:
        return self._name

    @property
    def table(self) -> DeltaTable:
        """The table as a deltalake object.

        :raises WarehouseError: The table does not exist.
        """
        if self._table is None:
            raise WarehouseError(f"table {self.name!r} does not exist: load a topic into it first")
        return self._table

    def find(self) -> DeltaTable | None:
        """Return deltalake's table; None if it does not exist."""
        return self._table

    @property
    def exists(self) -> bool:
        return self._table is not None

    @property
    def format(self) -> str | None:
        """The value format of earlier loads; None for a table that was not created by a load."""
        return None if self._table is None else remembered(self._schema).get(FORMAT)

    @property
    def last_load(self) -> Mapping[str, str]:
        """The properties of the last load's version; empty if it has expired or there is none."""
        if self._table is None:
            return {}
        with self._reading("its old versions cannot be read"):
            return next((entry for entry in _line(self._table) if LEDGER in entry), {})

    @property
    def target_file_bytes(self) -> int:
        """The target size of data files: the table property `delta.targetFileSize`, or `TARGET_BYTES`."""
        size = "" if self._table is None else self._table.metadata().configuration.get("delta.targetFileSize", "")
        return int(size) if size.isdecimal() else TARGET_BYTES

    @property
    def widens_types(self) -> bool:
        """Always False: type widening is a Delta table feature that few readers support."""
        return False

    @property
    def _schema(self) -> str:
        return str(self.table.schema().to_json())

    def check_accepts_loads(self) -> None:
        """Check that the files of loads fit the table. Other tools may have changed it.

        :raises WarehouseError: The files do not fit.
        """
        obstacle = None if self._table is None else self._obstacle(self._table)
        if obstacle is not None:
            raise WarehouseError(f"table {self.name} {obstacle}, or load into another table")

    def _obstacle(self, table: DeltaTable) -> str | None:
        obstacle = obstacle_to_loads(self._schema, table.metadata().configuration)
        shape = self.shape()
        assert shape is not None, "the table exists"
        if obstacle is not None or shape.upsert is not None:  # `_check` allows state tables no partitions
            return obstacle
        return obstacle_of_delta_layout(shape.table_layout, shape.column_types())

    def check_layout(self, layout: TableLayout, shape: TableShape) -> TableLayout:
        """Return the layout of a new table, whose files lack the partition columns.

        :raises ConfigurationError: A Delta table cannot have this layout.
        """
        check_delta_layout(layout, shape.column_types())
        return layout_of_delta([field.name for field in layout.partition], stored_layout(layout), shape.time_column)

    def shape(self, value_format: str = RAW) -> TableShape | None:
        """Return the shape of the table's rows; None for a table that does not exist.

        :param value_format: The value format of a table that was not created by a load.
        """
        if self._table is None:
            return None
        with self._reading("its properties (barnabas.*) cannot be read"):
            return shape_of_schema(self._schema, value_format, self._table.metadata().partition_columns)

    def _reading(self, what: str) -> AbstractContextManager[None]:
        return library_errors(f"table {self.name}: {what}")

    def ledger(self) -> Ledger:
        """Return the loaded offsets of the table.

        :raises HistoryExpiredError: The end of the last load is unknown. The message has the end offsets of the rows.
        """
        if self._table is None:
            return Ledger()
        with self._reading("its properties (barnabas.*) cannot be read"):
            return self._ledger(self._table)

    def _ledger(self, table: DeltaTable) -> Ledger:
        last = self.last_load
        if LEDGER in last:
            return Ledger.parse(last[LEDGER])
        topics = remembered_topics(self._schema)
        if not topics and not table.file_uris():
            return Ledger()
        recorded = Ledger({topic: LoadedTopic(topics[topic], _transactions(table, topic)) for topic in topics})
        # A RESTORE removes rows but not transactions, and its own version may have expired. If the row count equals
        # that of the last load, the transactions are valid. Offsets after the last row then belong to records that
        # compaction removed.
        was_restored = not topics or _was_restored(table)
        if not was_restored and table.transaction_version(_ROWS) == _row_count(_files(table)):
            return recorded
        # The row count differs, so the table may lack records between its last row and the transaction's offset.
        rows = self.next_offsets_of_rows()
        if was_restored or _is_ahead(recorded, rows):
            raise unknown_position_error(self.name, "old versions", rows)
        return recorded

    def find_run(self, run_id: str) -> CommittedRun | None:
        """Return the commit of a load with this run id; None if the table has or remembers none."""
        table = self._table
        if table is None:
            return None
        with self._reading("its old versions cannot be read"):
            for entry in _whole_line(table):
                if entry.get(RUN_ID) == run_id:
                    return CommittedRun(int(entry["version"]), entry)
            slot, number = slot_of(run_id)
            # A RESTORE does not undo transactions, so they prove nothing after one.
            if table.transaction_version(slot) != number or _was_restored(table):
                return None
            version, records = (table.transaction_version(f"{slot}:{name}") or 0 for name in ("version", "records"))
            return CommittedRun(version, {RECORDS: str(records)})

    def next_offsets_of_rows(self) -> dict[TopicPartition, int]:
        """Return the offset after the last row of each partition. This reads three columns of the whole table."""
        if self._table is None:
            return {}
        with self._reading("its rows cannot be read"):
            rows = self._table.to_pyarrow_dataset()
            return ends_of_rows(rows.to_batches(columns=["topic", "partition", "offset"]))

    def rows_of(self, topic: str, start_offset: int, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a topic from an offset on, in all its partitions.

        :param columns: The columns to read. Columns that the table lacks are left out.
        :raises WarehouseError: The rows cannot be read.
        """
        if self._table is None:
            return
        there = [name for name in column_names_of(self._schema) if name in columns]
        wanted = (pc.field("topic") == topic) & (pc.field("offset") >= start_offset)
        with self._reading("its rows cannot be read"):
            yield from self._table.to_pyarrow_dataset().to_batches(there, filter=wanted)

    def location(self) -> Location:
        """Return the location of the table's files."""
        return self._location

    def contents(self) -> Contents:
        """Return the number and the sizes of the table's files, its records and versions."""
        table = self.table
        with self._reading("its list of files cannot be read"):
            files = _files(table)
            return Contents(_row_count(files), tuple(files.column("size_bytes").to_pylist()), len(table.history()))

    def data_files(self, columns: Collection[str]) -> list[StoredFile]:
        """Return the files of a state table; an empty list for a table that does not exist.

        :param columns: The columns whose bounds the caller needs.
        :raises WarehouseError: The list of files cannot be read.
        """
        if self._table is None:
            return []
        with self._reading("its list of files cannot be read"):
            return stored_files(self._table, self._location.uri, columns)

    def rows_of_file(self, file: StoredFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file in their order.

        :param schema: The columns to read. Columns that the file lacks are null.
        :raises WarehouseError: The file cannot be read.
        """
        with self._reading("its rows cannot be read"):
            yield from rows_of_file(file.path, schema, self._location.properties, {})

    def commit(
        self,
        files: Sequence[DataFile],
        properties: dict[str, str],
        shape: TableShape,
        replaced: Collection[StoredFile] = (),
    ) -> int:
        """Add files and properties in one version, and return the number of the version.

        :param shape: The shape of the rows in the files. The table gets the columns that it lacks.
        :param replaced: Files that the same version removes; only in state tables.
        :raises LoadConflictError: Another writer has changed the table since the start of the load.
        :raises WarehouseError: The commit failed, and the table is unchanged.
        """
        with library_errors(f"table {self.name}: cannot commit, the table is unchanged"):
            write = self._prepared(files, properties, shape, replaced)
        version = self._written(write, properties[LOAD_ID])
        self._delete_old_versions(version, LEDGER)
        return version

    def _written(self, write: Callable[[], int], load_id: str) -> int:
        """Write a version, and return its number.

        :raises LoadConflictError: Another writer has changed the table since the start of the load.
        :raises WarehouseError: The commit failed, and the table is unchanged.
        """
        try:
            return write()
        except (BarnabasError, AssertionError):
            raise
        except Exception as error:  # noqa: BLE001  # after any error, the table's log shows the result of the commit
            return self._find_out(load_id, error)

    def _prepared(
        self,
        files: Sequence[DataFile],
        properties: dict[str, str],
        shape: TableShape,
        replaced: Collection[StoredFile] = (),
    ) -> Callable[[], int]:
        """Return a function that writes the version of a commit and returns its number."""
        ledger = Ledger.parse(properties.get(LEDGER, "{}"))
        before = "" if self._table is None else self._schema
        topics = remembered_topics(before) if before else {}
        wanted = delta_schema(shape, {**topics, **topics_of(ledger)}, before or None)
        layout, dates = shape.table_layout, {name for name, kind in shape.column_types().items() if kind == "date"}
        # The memory of deleted keys also needs the bounds of its times, to forget whole files.
        bounded = shape.columns.values() if shape.value_format == DELETED_KEYS else shape.key_columns
        adds = [self._add(file, partition_values(layout, file.partition, dates), bounded) for file in files]
        # Without a ledger, the row count stays wrong, as a sign that the transactions of partitions cannot be trusted.
        added = sum(file.records for file in files) - sum(file.records for file in replaced)
        rows = added + self._rows() if LEDGER in properties else None
        committing = CommitProperties(
            custom_metadata=properties | (counts_of(files, replaced) if shape.upsert is not None else {}),
            max_commit_retries=0,
            app_transactions=[*self._progress(ledger, rows), *self._run(properties)],
        )
        if self._table is None:
            return partial(self._create, wanted, adds, committing, layout)
        if shape.upsert is not None:
            actions = [*adds, *remove_actions(replaced, SYSTEM_CLOCK.time_ms())]
            return partial(self._replace, self._table, wanted, actions, committing)
        is_same = same_schema(before, wanted)
        return partial(self._append, self._table, wanted, adds, committing, shape, is_same=is_same)

    def _delete_old_versions(self, version: int, needed: str | None) -> None:
        """Limit the length of the log after a commit. After a failure, a later commit tries again.

        :param needed: A property that the oldest remaining version must have; None for no condition.
        """
        if not is_cleanup_due(version):
            return
        open_at = partial(
            DeltaTable, path_of(self._location), storage_options=storage_options(self._location.properties)
        )
        try:
            with self._reading("cannot delete old versions from its log"):
                delete_old_versions(open_at(), self._location, open_at, needed)
        except WarehouseError as error:
            log.warning("%s; the rows are committed, and a later load retries the deletion", error)

    def _rows(self) -> int:
        """Return the number of rows: the count of the last load if it wrote the newest version, else a new count."""
        if self._table is None:
            return 0
        counted = self._table.transaction_version(_ROWS)
        if counted is not None and any(RECORDS in entry for entry in self._table.history(1)):
            return int(counted)
        return _row_count(_files(self._table))

    def _create(self, schema: str, adds: list[AddAction], committing: CommitProperties, layout: TableLayout) -> int:
        folder = self._location.local_folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        create_table_with_add_actions(
            path_of(self._location),
            Schema.from_json(schema),
            adds,
            mode="error",
            partition_by=[field.name for field in layout.partition],
            name=self.name,
            storage_options=storage_options(self._location.properties),
            commit_properties=committing,
        )
        return 0

    def _append(
        self,
        table: DeltaTable,
        schema: str,
        adds: list[AddAction],
        committing: CommitProperties,
        shape: TableShape,
        *,
        is_same: bool,
    ) -> int:
        if not is_same:
            allow_times_without_zone(table, Schema.from_json(schema), self.name)
        version = int(table.version()) + 1
        columns = [field.name for field in shape.table_layout.partition]
        if is_same:
            table.create_write_transaction(adds, "append", table.schema(), columns, commit_properties=committing)
            return version
        # Only an overwrite may change the schema in the same version, so this overwrites a partition without rows.
        files = _files(table)
        used = {name: set(files.column(f"partition.{name}").to_pylist()) for name in columns} if files.num_rows else {}
        column, value = empty_partition(shape.table_layout, shape.column_types(), used)
        table.create_write_transaction(
            adds,
            "overwrite",
            Schema.from_json(schema),
            columns,
            partition_filters=[(column, "=", value)],
            commit_properties=committing,
        )
        return version

    def _replace(self, table: DeltaTable, schema: str, actions: list[Any], committing: CommitProperties) -> int:
        """Add and remove files in one version.

        delta-rs cannot change the schema in a version that removes chosen files, so new columns get versions before.
        After a kill between the versions, the new columns are null in all rows.
        """
        allow_times_without_zone(table, Schema.from_json(schema), self.name)
        before = {field.name: field for field in table.schema().fields}
        after = {field.name: field for field in Schema.from_json(schema).fields}
        columns = CommitProperties(max_commit_retries=0)
        with self._no_other_writer():
            new = [field for name, field in after.items() if field != before.get(name) and name != TOPIC]
            if new:
                table.alter.add_columns(new, commit_properties=columns)
            if after[TOPIC] != before[TOPIC]:
                table.alter.set_column_metadata(TOPIC, after[TOPIC].metadata, commit_properties=columns)
        version = int(table.version()) + 1
        table.create_write_transaction(actions, "append", table.schema(), [], commit_properties=committing)
        return version

    @contextmanager
    def _no_other_writer(self) -> Iterator[None]:
        try:
            yield
        except CommitFailedError as error:
            raise LoadConflictError(
                f"table {self.name}: another writer changed the table meanwhile; run this again"
            ) from error

    def _add(self, file: DataFile, partition: Mapping[str, str | None], bounded: Collection[str]) -> AddAction:
        return AddAction(
            path=quote(file.path.removeprefix(f"{self._location.uri}/"), safe="/=-_.~"),
            size=file.size_bytes,
            partition_values=dict(partition),
            modification_time=SYSTEM_CLOCK.time_ms(),
            data_change=True,
            stats=statistics_of(file.path, file.records, bounded, self._location.properties),
        )

    def _run(self, properties: Mapping[str, str]) -> list[Transaction]:
        """Return the transactions of a run (run_ids.py); none without a run id."""
        if RUN_ID not in properties:
            return []
        slot, number = slot_of(properties[RUN_ID])
        version = 0 if self._table is None else int(self._table.version()) + 1
        values = {slot: number, f"{slot}:version": version, f"{slot}:records": int(properties[RECORDS])}
        return [Transaction(name, value) for name, value in values.items()]

    def _progress(self, ledger: Ledger, rows: int | None) -> list[Transaction]:
        """Return a transaction for each partition with a new next offset, and one for the row count.

        :param rows: The number of rows after the commit; None makes no transaction for it.
        """
        versions = {
            _application(topic, partition): offset
            for topic, loaded in ledger.topics.items()
            for partition, offset in sorted(loaded.next_offsets.items())
        }
        if rows is not None:
            versions[_ROWS] = rows
        return [
            Transaction(name, version)
            for name, version in versions.items()
            if self._table is None or self._table.transaction_version(name) != version
        ]

    def _find_out(self, load_id: str, error: Exception) -> int:
        """Check whether a commit succeeded although it raised an error. Return the version number, or raise the error
        to report.
        """
        unknown = CommitUnknownError(
            f"table {self.name}: the result of the commit is unknown ({reason_of(error)}); run the load again"
        )
        try:
            with self._reading("cannot be read"):
                table = _find(self._location)
                versions = [] if table is None else table.history()
        except WarehouseError as second:
            raise unknown from second
        for entry in versions:
            if entry.get(LOAD_ID) == load_id:
                return int(entry["version"])
        known = None if self._table is None else self._table.version()
        now = None if table is None else versions[0]["version"]
        if now != known:
            other = versions[0].get(LOAD_ID) if versions else None
            happened = f"another load ({other}) was committed" if other else "another writer changed the table"
            raise LoadConflictError(
                f"table {self.name}: {happened} meanwhile, so this run committed nothing; run it again"
            ) from error
        if self._location.local_folder is None:  # an object store may still execute the request later
            raise unknown from error
        message = f"table {self.name}: cannot commit, the table is unchanged: {reason_of(error)}"
        raise warehouse_error(error)(message) from error


def _files(table: DeltaTable) -> pa.Table:
    """Return the files of the table, from its log."""
    return pa.table(table.get_add_actions(flatten=True))


def _row_count(files: pa.Table) -> int:
    """Return the sum of the files' row counts."""
    return sum(rows or 0 for rows in files.column("num_records").to_pylist())


def _application(topic: str, partition: int) -> str:
    """Return the application id under which a transaction stores the next offset of a partition."""
    return f"barnabas/{topic}/{partition}"


def _transactions(table: DeltaTable, topic: str) -> dict[int, int]:
    """Return the next offsets from the transactions of a topic. Its partitions are numbered from 0 without gaps."""
    offsets: dict[int, int] = {}
    for partition in count():
        offset = table.transaction_version(_application(topic, partition))
        if offset is None:
            return offsets
        offsets[partition] = offset
    return offsets


def _is_ahead(recorded: Ledger, rows: Mapping[TopicPartition, int]) -> bool:
    """Return whether the ledger of a partition ends after the table's last row of this partition."""
    return any(
        offset > rows.get(TopicPartition(topic, partition), 0)
        for topic, loaded in recorded.topics.items()
        for partition, offset in loaded.next_offsets.items()
    )


def _line(table: DeltaTable) -> Iterator[Mapping[str, Any]]:
    """Yield the versions that led to the current one, newest first, without versions that a RESTORE has undone.

    The iteration ends at a RESTORE to a timestamp, because the log does not contain the restored version number.
    """
    newest = table.history(1)
    if newest and LEDGER in newest[0]:
        yield newest[0]
        return
    yield from _whole_line(table)


def _whole_line(table: DeltaTable) -> Iterator[Mapping[str, Any]]:
    """Yield the versions as `_line` does, also those before the last load."""
    skipped_to: int | None = None
    for entry in table.history():
        if skipped_to is not None and entry["version"] > skipped_to:
            continue
        skipped_to = None
        if entry["operation"] == "RESTORE":
            restored = str(entry.get("operationParameters", {}).get("version"))
            if not restored.isdecimal():
                return  # a RESTORE to a timestamp, so the valid older versions are unknown
            skipped_to = int(restored)
            continue
        yield entry


def _was_restored(table: DeltaTable) -> bool:
    return any(entry["operation"] == "RESTORE" for entry in table.history())

"""Iceberg tables, written with pyiceberg: catalogs, the last load of a table, and one commit per load.

The default is the embedded warehouse: a SQLite catalog and a local directory. Another catalog is found by its name in
pyiceberg's configuration (`.pyiceberg.yaml`, or PYICEBERG_CATALOG__... in the environment), or by its address
(table_place.py).

A commit requires the snapshot that was current at the start of the load. By default pyiceberg retries after a conflict
(`commit.retry.num-retries`) and adds the same files to the other writer's snapshot; two loads at once would then append
the same records twice. So each loaded table has the property set to 0.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast
from urllib.parse import urlparse

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.utils.config import Config

from barnabas.formats.upsert_rules import POSITION
from barnabas.formats.value_format import RAW
from barnabas.model import TopicPartition
from barnabas.spark.bounded_catalogs import open_catalog
from barnabas.spark.client_properties import check_location_provider
from barnabas.spark.data_files import DataFile
from barnabas.spark.embedded_catalog import NAME, EmbeddedCatalog
from barnabas.spark.errors import CommitUnknownError, LoadConflictError, WarehouseError
from barnabas.spark.iceberg_files import add_files, bounds_of_file, files_of, manifests_of
from barnabas.spark.iceberg_layout import (
    layout_of_table,
    obstacle_of_spec,
    partition_fields_of,
    sort_order_of,
    spec_of,
    spec_text,
)
from barnabas.spark.iceberg_reading import former_names
from barnabas.spark.iceberg_snapshot_expiry import (
    BOUNDS,
    expire_surplus_snapshots,
    missing_bounds_properties,
    summary_of,
)
from barnabas.spark.ledger import (
    LEDGER,
    LEDGER_SEQUENCE,
    LOAD_ID,
    RECORDS,
    Ledger,
    ends_of_rows,
    unknown_position_error,
)
from barnabas.spark.library_errors import is_denied, library_errors, reason_of, warehouse_error
from barnabas.spark.parquet_batches import rows_of_file
from barnabas.spark.run_ids import RUN_ID, RUNS, CommittedRun, remembered_run, with_run
from barnabas.spark.spark_catalogs import is_known_to_pyiceberg, properties_in_spark, settings_of
from barnabas.spark.table_layout import TableLayout
from barnabas.spark.table_names import parse_table_name
from barnabas.spark.table_place import UNNAMED_CATALOG, TablePlace
from barnabas.spark.table_schema import (
    ADDED_LATER,
    KAFKA_COLUMNS,
    VALUE_FORM,
    WITHOUT_VALUE_FORM,
    decoded_columns,
    obstacle_to_loads,
    table_schema,
)
from barnabas.spark.table_shape import EVENT_TIME_SOURCE, FORMAT, RENAMED_FIELDS, UPSERT, TableShape
from barnabas.spark.table_store import Contents, Location, StoredFile

log = logging.getLogger(__name__)

RETRIES = "commit.retry.num-retries"
TARGET_FILE_SIZE = TableProperties.WRITE_TARGET_FILE_SIZE_BYTES
TARGET_FILE_SIZE_DEFAULT = TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT
# Errors after which a commit may still have succeeded.
_UNCLEAR: tuple[type[Exception], type[Exception], type[Exception]] = (OSError, RESTError, OSError)
"""`_open_catalog` replaces the last class with SQLAlchemy's error once a catalog has imported SQLAlchemy."""
_OF_CATALOG = frozenset({"uri", "credential", "token", "scope", "oauth2-server-uri"})
_HEADER = "header."
_REFUSED = (CommitFailedException, TableAlreadyExistsError)


class Warehouse:
    """A catalog of Iceberg tables. Not thread-safe."""

    def __init__(self, catalog: Catalog, name: str | None = None) -> None:
        """Wrap a catalog.

        :param name: The catalog name that table names may begin with; None for the embedded catalog, which has no name.
        """
        self._catalog = catalog
        self._catalog_name = name

    def identifier(self, name: str) -> tuple[str, ...]:
        """Split a table name into the levels of the namespace and the table.

        :raises ConfigurationError: The name is invalid.
        """
        return parse_table_name(name, self._catalog_name)

    @classmethod
    def open(cls, place: TablePlace | str | Path) -> Warehouse:
        """Open a warehouse; a path is an embedded warehouse.

        :raises ConfigurationError: The catalog does not exist.
        :raises WarehouseError: The warehouse cannot be opened.
        """
        if not isinstance(place, TablePlace):
            place = TablePlace.of(place)
        if place.has_catalog:
            with library_errors(f"cannot open the catalog {place.describe()}", is_set_up=True):
                return cls(_catalog(place), place.catalog or UNNAMED_CATALOG)
        with library_errors(f"cannot open the warehouse {place.describe()}"):
            return cls(_embedded_catalog(local_path(str(place.warehouse))))

    @property
    def catalog(self) -> Catalog:
        """The catalog as a pyiceberg object."""
        return self._catalog.opened() if isinstance(self._catalog, EmbeddedCatalog) else self._catalog

    def find_table(self, name: str) -> Table | None:
        """Return the current version of a table; None if it does not exist.

        :raises WarehouseError: The catalog does not answer, or rejects the request.
        """
        identifier = self.identifier(name)
        with library_errors(f"table {name}: the catalog cannot load it"):
            try:
                return self._catalog.load_table(identifier)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

    def table(self, name: str) -> Table:
        """Return the current version of a table.

        :raises WarehouseError: The table does not exist.
        """
        table = self.find_table(name)
        if table is None:
            raise WarehouseError(f"table {name!r} does not exist: load a topic into it first")
        return table

    def current_table(self, name: str) -> TableBase:
        """Return the current version of a table for reading. The table may be made by another tool."""
        return TableBase(self._catalog, self.identifier(name), self.find_table(name))

    def begin(self, name: str) -> TableBase:
        """Return the version of a table that a load starts from.

        :raises WarehouseError: The table lacks a column that each loaded table has.
        """
        table = self.find_table(name)
        if table is not None:
            _prepare(table, name)
        return TableBase(self._catalog, self.identifier(name), table)

    def committed_loads(self, name: str, load_ids: Collection[str]) -> set[str]:
        """Return the given load ids whose files are in any snapshot of the table's history."""
        table = self.find_table(name)
        if table is None:
            return set()
        wanted = set(load_ids)
        found = {summary_of(snapshot).get(LOAD_ID, "") for snapshot in table.metadata.snapshots} & wanted
        if wanted - found:
            # The properties of a snapshot expire with it, but its files may still be part of the table.
            with library_errors(f"table {name}: its list of files cannot be read"):
                paths = files_of(table, manifests_of(table))
            found |= {load_id for load_id in wanted - found if any(f"/{load_id}/" in path for path in paths)}
        return found


def _prepare(table: Table, name: str) -> None:
    """Add the columns and properties to a table that loads of earlier releases did not write.

    :raises WarehouseError: The table lacks the columns of a loaded table.
    """
    keeps_values = table.properties.get(FORMAT, RAW) in WITHOUT_VALUE_FORM
    wanted = set(KAFKA_COLUMNS) if keeps_values else {*KAFKA_COLUMNS, VALUE_FORM}
    if UPSERT in table.properties:
        wanted = set(POSITION)
    lacking = wanted - {column.name for column in table.schema().fields}
    if lacking - set(ADDED_LATER):
        raise WarehouseError(f"table {name} is not a table of topics: it lacks {', '.join(sorted(lacking))}")
    if lacking:
        with library_errors(f"table {name}: cannot add {', '.join(sorted(lacking))}"), table.update_schema() as update:
            for column in sorted(lacking):
                update.add_column(column, ADDED_LATER[column])
    set_what_commits_need(table, name, is_own=FORMAT in table.properties)


def set_what_commits_need(table: Table, name: str, *, is_own: bool) -> None:
    """Set missing table properties: no retries of commits, and limits for the history.

    :param is_own: True if Barnabas created the table.
    :raises WarehouseError: The properties cannot be set, or the table names a class for locations.
    """
    check_location_provider(table.properties, name)
    lacking = missing_bounds_properties(table, is_own=is_own)
    if table.properties.get(RETRIES) != "0":
        lacking[RETRIES] = "0"
    if lacking:
        with library_errors(f"table {name}: cannot set its properties"), table.transaction() as transaction:
            transaction.set_properties(lacking)


def _catalog(place: TablePlace) -> Catalog:
    """Return the catalog from pyiceberg's configuration, or the catalog at the given address."""
    asked = dict(place.properties)
    if place.warehouse is not None:
        asked["warehouse"] = f"file://{local_path(place.warehouse)}" if place.is_local else place.warehouse
    if place.catalog is not None and "uri" not in asked and not is_known_to_pyiceberg(place.catalog):
        asked = {**properties_in_spark(place.catalog, settings_of(None)), **asked}
    return _open_catalog(place.catalog or UNNAMED_CATALOG, asked)


def _open_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    """Open a catalog with pyiceberg. A SQL catalog imports SQLAlchemy, whose errors are then part of `_UNCLEAR`."""
    global _UNCLEAR  # noqa: PLW0603  # importing SQLAlchemy at the top would slow down `barnabas table status`
    try:
        return open_catalog(name, properties)
    finally:
        imported = sys.modules.get("sqlalchemy.exc")
        if imported is not None:
            _UNCLEAR = (OSError, RESTError, imported.SQLAlchemyError)


def _embedded_catalog(folder: Path) -> Catalog:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "catalog.db"
    properties = {"type": "sql", "uri": f"sqlite:///{file}", "warehouse": f"file://{folder}/tables"}
    if Config().get_catalog_config(NAME):  # pyiceberg's configuration overrides the default properties
        return _open_catalog(NAME, properties)
    return cast("Catalog", EmbeddedCatalog(file, properties, lambda: _open_catalog(NAME, properties)))


def local_path(uri: str) -> Path:
    """Return the path of a file in the local file system."""
    return Path(urlparse(uri).path).absolute()


class TableBase:
    """One version of an Iceberg table. `commit` succeeds only if the table still has this version."""

    def __init__(self, catalog: Catalog, name: tuple[str, ...], table: Table | None) -> None:
        self._catalog = catalog
        self._name = name
        self._table = table
        self._new_location: str | None = None

    @property
    def name(self) -> str:
        return ".".join(self._name)

    @property
    def table(self) -> Table:
        """The table as a pyiceberg object.

        :raises WarehouseError: The table does not exist.
        """
        if self._table is None:
            raise WarehouseError(f"table {self.name!r} does not exist: load a topic into it first")
        return self._table

    @property
    def exists(self) -> bool:
        return self._table is not None

    @property
    def format(self) -> str | None:
        """The value format of earlier loads; None for a table that was not created by a load."""
        return None if self._table is None else self._table.properties.get(FORMAT)

    def check_accepts_loads(self) -> None:
        """Check that the files of loads fit the table. Other tools may have changed it.

        :raises WarehouseError: The files do not fit.
        """
        if self._table is None:
            return
        schema, spec = self._table.schema(), self._table.spec()
        obstacle = obstacle_of_spec(schema, spec) or obstacle_to_loads(schema)
        if UPSERT in self._table.properties and spec.fields:
            obstacle = (
                f"is a state table with partitions ({spec_text(schema, spec)}), but loads merge changes into any file: "
                f"remove them (table.update_spec().remove_field({spec.fields[0].name!r}))"
            )
        if obstacle is not None:
            raise WarehouseError(f"table {self.name} {obstacle}, or load into another table")

    def check_layout(self, layout: TableLayout, shape: TableShape) -> TableLayout:  # Delta needs it
        """Return the layout: an Iceberg table may have every layout."""
        return layout

    def shape(self, value_format: str = RAW) -> TableShape | None:
        """Return the shape of the table's rows; None for a table that does not exist.

        :param value_format: The value format of a table that was not created by a load.
        """
        if self._table is None:
            return None
        properties = {FORMAT: value_format, **self._table.properties}
        renamed = properties.get(RENAMED_FIELDS)
        with self._reading_properties():
            columns = decoded_columns(
                self._table.schema(),
                None if renamed is None else json.loads(renamed),
                has_event_time=EVENT_TIME_SOURCE in properties,
            )
            names = {column.name for column in self._table.schema().fields}
            names |= partition_fields_of(self._table.metadata)
            return TableShape.parse(properties, columns, names=names, layout=self._layout())

    def _layout(self) -> TableLayout | None:
        """Return the layout of the table's files; None if loads cannot write to the table."""
        assert self._table is not None, "the table exists"
        try:
            return layout_of_table(self._table.metadata)
        except LookupError:
            return None

    @property
    def last_load(self) -> Mapping[str, str]:
        """The properties of the last load's snapshot; empty if it has expired or there is none."""
        snapshot = None if self._table is None else self._table.current_snapshot()
        if self._table is None or snapshot is None:
            return {}
        loads = (summary_of(each) for each in ancestors_of(snapshot, self._table.metadata))
        return next((properties for properties in loads if LEDGER in properties), {})

    def ledger(self) -> Ledger:
        """Return the loaded offsets of the table.

        Snapshots of other tools (compaction) have no ledger; then an older snapshot has it. If that has expired, the
        table's properties have it. A table with snapshots and no ledger is an error: a new start would load all records
        twice.

        :raises HistoryExpiredError: The end of the last load is unknown. The message has the end offsets of the rows.
        """
        snapshot = None if self._table is None else self._table.current_snapshot()
        if self._table is None or snapshot is None:
            return Ledger()
        oldest = snapshot
        with self._reading_properties():
            for oldest in ancestors_of(snapshot, self._table.metadata):
                properties = summary_of(oldest)
                if LEDGER in properties:
                    return Ledger.parse(properties[LEDGER])
            if _is_followed_by(self._table.properties, oldest):
                return Ledger.parse(self._table.properties[LEDGER])
        raise unknown_position_error(self.name, "snapshots", self.next_offsets_of_rows())

    def find_run(self, run_id: str) -> CommittedRun | None:
        """Return the commit of a load with this run id; None if the table has or remembers none."""
        snapshot = None if self._table is None else self._table.current_snapshot()
        if self._table is None or snapshot is None:
            return None
        oldest = snapshot
        with self._reading_properties():
            for oldest in ancestors_of(snapshot, self._table.metadata):
                properties = summary_of(oldest)
                if properties.get(RUN_ID) == run_id:
                    return CommittedRun(oldest.snapshot_id, properties)
            return remembered_run(self._table.properties.get(RUNS), run_id, oldest.sequence_number, RECORDS)

    def next_offsets_of_rows(self) -> dict[TopicPartition, int]:
        """Return the offset after the last row of each partition. This reads three columns of the whole table."""
        if self._table is None:
            return {}
        with self._reading_rows():
            rows = self._table.scan(selected_fields=("topic", "partition", "offset"))
            return ends_of_rows(rows.to_arrow_batch_reader())

    def rows_of(self, topic: str, start_offset: int, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a topic from an offset on, in all its partitions.

        :param columns: The columns to read. Columns that the table lacks are left out.
        :raises WarehouseError: The rows cannot be read.
        """
        if self._table is None:
            return
        there = {column.name for column in self._table.schema().fields}
        with self._reading_rows():
            rows = self._table.scan(
                And(
                    EqualTo(term=Reference("topic"), value=literal(topic)),
                    GreaterThanOrEqual(term=Reference("offset"), value=literal(start_offset)),
                ),
                tuple(name for name in columns if name in there),
            )
            yield from rows.to_arrow_batch_reader()

    def _reading_properties(self) -> AbstractContextManager[None]:
        return library_errors(f"table {self.name}: its properties (barnabas.*) cannot be read")

    def _reading_rows(self) -> AbstractContextManager[None]:
        return library_errors(f"table {self.name}: its rows cannot be read")

    @property
    def target_file_bytes(self) -> int:
        """The target size of data files: the table property `write.target-file-size-bytes`, or Iceberg's default."""
        size = None if self._table is None else self._table.properties.get(TARGET_FILE_SIZE)
        return TARGET_FILE_SIZE_DEFAULT if size is None or not size.isdecimal() else int(size)

    @property
    def widens_types(self) -> bool:
        """Always True: Iceberg widens a column without rewriting old files."""
        return True

    def location(self) -> Location:
        """Return the location of the table's files; for a new table the location that the catalog assigns.

        :raises WarehouseError: The catalog does not answer, or rejects the request.
        """
        if self._table is not None:
            return Location(self._table.location(), storage_properties(self._table.io.properties))
        with self._creating():
            staged = self._create_transaction(TableShape())
        # Keep the location: a catalog may assign another one in the next call.
        self._new_location = staged.table_metadata.location
        return Location(self._new_location, storage_properties(staged._table.io.properties))

    def _creating(self) -> AbstractContextManager[None]:
        return library_errors(f"table {self.name}: the catalog cannot create the table")

    def contents(self) -> Contents:
        """Return the number and the sizes of the table's files, its records and snapshots."""
        table = self.table
        with library_errors(f"table {self.name}: its list of files cannot be read"):
            files = table.inspect.files()
        return Contents(
            sum(files.column("record_count").to_pylist()),
            tuple(files.column("file_size_in_bytes").to_pylist()),
            len(table.metadata.snapshots),
        )

    def data_files(self, columns: Collection[str]) -> list[StoredFile]:
        """Return the files of a state table; an empty list for a table that does not exist.

        :param columns: The columns whose bounds the caller needs.
        :raises WarehouseError: The list of files cannot be read, or delete files remove rows.
        """
        if self._table is None:
            return []
        with library_errors(f"table {self.name}: its list of files cannot be read"):
            tasks = list(self._table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise WarehouseError(
                f"table {self.name} has delete files of another tool (merge on read), which loads do not read: rewrite "
                "its data files with that tool, or load into another table"
            )
        fields = [
            self._table.schema().find_field(name) for name in columns if name in self._table.schema().column_names
        ]
        return [
            StoredFile(
                task.file.file_path,
                task.file.record_count,
                task.file.file_size_in_bytes,
                bounds_of_file(task.file, fields),
                task.file,
            )
            for task in tasks
        ]

    def rows_of_file(self, file: StoredFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file in their order.

        :param schema: The columns to read. Columns that the file lacks are null, and widened ones are cast.
        :raises WarehouseError: The file cannot be read.
        """
        with self._reading_rows():
            yield from rows_of_file(file.path, schema, self.table.io.properties, former_names(self.table))

    def commit(
        self,
        files: Sequence[DataFile],
        properties: dict[str, str],
        shape: TableShape,
        replaced: Collection[StoredFile] = (),
    ) -> int:
        """Add files and properties in one snapshot, and return the id of the snapshot.

        :param shape: The shape of the rows in the files. The table gets the columns that it lacks.
        :param replaced: Files that the same snapshot removes; only in state tables.
        :raises LoadConflictError: Another writer has changed the table since the start of the load.
        :raises WarehouseError: The commit failed, and the table is unchanged.
        """

        def change(transaction: Transaction) -> None:
            add_files(
                transaction,
                [file.path for file in files],
                properties,
                [file.partition for file in files],
                is_sorted=bool(shape.table_layout.sort),
                replaced=[file.handle for file in replaced],
            )

        return self._commit(change, properties, shape)

    def replace(self, old: Sequence[IcebergFile], new: Sequence[IcebergFile], properties: dict[str, str]) -> int:
        """Replace files with other files that contain the same rows, in one snapshot, and return its id.

        :param properties: The snapshot properties, with the ledger.
        :raises LoadConflictError: Another writer has changed the table.
        :raises WarehouseError: The commit failed, and the table is unchanged.
        """

        def change(transaction: Transaction) -> None:
            with transaction.update_snapshot(snapshot_properties=properties).overwrite() as overwrite:
                for file in old:
                    overwrite.delete_data_file(file)
                for file in new:
                    overwrite.append_data_file(file)

        return self._commit(change, properties, None)

    def _commit(
        self, change: Callable[[Transaction], None], properties: Mapping[str, str], shape: TableShape | None
    ) -> int:
        """Commit a change to this version of the table. `shape` is None if the schema does not change."""
        try:
            transaction = self._table.transaction() if self._table else self._create_transaction(shape or TableShape())
            check_location_provider(transaction.table_metadata.properties, self.name)
            if self._table is not None and shape is not None:
                self._reshape(transaction, shape)
            change(transaction)
            added = transaction.table_metadata.current_snapshot()
            assert added is not None, "files are added with a snapshot"
            if LEDGER in properties:
                transaction.set_properties({LEDGER: properties[LEDGER], LEDGER_SEQUENCE: str(added.sequence_number)})
            if RUN_ID in properties:
                runs = transaction.table_metadata.properties.get(RUNS)
                run = (properties[RUN_ID], added.sequence_number or 0, added.snapshot_id, int(properties[RECORDS]))
                transaction.set_properties({RUNS: with_run(runs, *run)})
        except (*_REFUSED, *_UNCLEAR) as error:
            return self._find_out(properties[LOAD_ID], error)
        except Exception as error:
            with library_errors(f"table {self.name}: cannot commit, the table is unchanged"):
                raise error from None
        try:
            table = transaction.commit_transaction()
        except (AssertionError, WarehouseError):  # the latter is from `check_location_provider`, before the commit
            raise
        except Exception as error:  # noqa: BLE001  # after any error, the table shows the result of the commit
            return self._find_out(properties[LOAD_ID], error)
        snapshot = table.current_snapshot()
        assert snapshot is not None, "a commit makes a snapshot"
        self._expire_beyond_count(table)
        return snapshot.snapshot_id

    def _expire_beyond_count(self, table: Table) -> None:
        """Limit the number of snapshots after a commit. After a failure, the next commit tries again."""
        try:
            with library_errors(f"table {self.name}: cannot expire old snapshots"):
                expire_surplus_snapshots(table)
        except WarehouseError as error:
            # A conflict is expected here: another load may expire the same snapshots.
            is_conflict = isinstance(error.__cause__, CommitFailedException)
            level = logging.INFO if is_conflict else logging.WARNING
            log.log(level, "%s; the rows are committed, and a later load retries the expiry", error)

    def _reshape(self, transaction: Transaction, shape: TableShape) -> None:
        """Add the columns to the table that only the shape has, and rename columns."""
        before = self.shape()
        if shape == before and self.format is not None:
            return
        transaction.set_properties(shape.properties())
        renamed = {} if before is None else before.columns_renamed_in(shape)
        if renamed:
            with transaction.update_schema() as update:
                for path, new in renamed.items():
                    update.rename_column(path, new)
        if shape.fields:
            with transaction.update_schema() as update:
                update.union_by_name(_schema_of(shape))

    def _create_namespaces(self) -> None:
        for levels in range(1, len(self._name)):
            try:
                self._catalog.create_namespace_if_not_exists(self._name[:levels])
            except Exception as error:
                if not is_denied(error):  # a client without this permission may create tables in existing namespaces
                    raise

    def _create_transaction(self, shape: TableShape) -> Transaction:
        self._create_namespaces()
        schema = _schema_of(shape)
        return self._catalog.create_table_transaction(
            self._name,
            schema,
            self._new_location,
            partition_spec=spec_of(shape.table_layout, schema),
            sort_order=sort_order_of(shape.table_layout, schema),
            properties={RETRIES: "0", **BOUNDS, **shape.properties()},
        )

    def _find_out(self, load_id: str, error: Exception) -> int:
        """Check whether a commit succeeded although it raised an error. Return the snapshot id, or raise the error to
        report.

        A rejected commit may have succeeded: a proxy may repeat a request, and the server rejects the second one.
        """
        unknown = CommitUnknownError(
            f"table {self.name}: the result of the commit is unknown ({reason_of(error)}); run the load again"
        )
        try:
            with library_errors(f"table {self.name}: the catalog cannot load it"):
                snapshots = self._catalog.load_table(self._name).metadata.snapshots if self._is_there() else []
                happened = self._what_happened()
        except WarehouseError as second:
            raise unknown from second
        for snapshot in snapshots:
            if summary_of(snapshot).get(LOAD_ID) == load_id:
                return snapshot.snapshot_id
        if isinstance(error, _REFUSED):
            raise LoadConflictError(
                f"table {self.name}: {happened} meanwhile, so this run committed nothing; run it again"
            ) from error
        is_refused = is_denied(error) or isinstance(error, NotImplementedError)  # a catalog that only reads
        if not is_refused and (_may_happen_later(error) or not isinstance(error, _UNCLEAR)):
            raise unknown from error
        message = f"table {self.name}: cannot commit, the table is unchanged: {reason_of(error)}"
        raise warehouse_error(error)(message) from error

    def _is_there(self) -> bool:
        return self._catalog.table_exists(self._name)

    def _what_happened(self) -> str:
        if not self._is_there():
            return "it was dropped"
        snapshot = self._catalog.load_table(self._name).current_snapshot()
        load_id = summary_of(snapshot).get(LOAD_ID) if snapshot else None
        return f"another load ({load_id}) was committed" if load_id else "another writer changed the table"


def storage_properties(properties: Mapping[str, object]) -> dict[str, str]:
    """Return the properties of a table that its storage may need: without the secrets of the catalog.

    The tasks of a load get these properties. pyiceberg adds the login itself to them, an object that cannot be pickled.

    >>> storage_properties({"credential": "id:secret", "s3.region": "us-east-1", "auth": {"type": "oauth2"}})
    {'s3.region': 'us-east-1'}
    """
    return {
        name: value
        for name, value in properties.items()
        if isinstance(value, str) and name not in _OF_CATALOG and not name.startswith(_HEADER)
    }


def _may_happen_later(error: Exception) -> bool:
    """Return whether a server may still execute the request after this error, when the table has already been checked.

    Errors of other catalogs (Hive, Glue) are treated in the same way. Only REST catalogs import `requests`, because it
    takes time and memory.
    """
    requests = sys.modules.get("requests")
    return isinstance(error, RESTError) or (requests is not None and isinstance(error, requests.RequestException))


def _schema_of(shape: TableShape) -> Schema:
    return table_schema(
        shape.fields,
        shape.columns,
        has_event_time=shape.has_event_time,
        has_value_form=shape.has_value_form,
        is_state=shape.upsert is not None,
    )


def _is_followed_by(properties: Mapping[str, str], oldest: Snapshot) -> bool:
    """Return whether the ledger in the table's properties belongs to a snapshot before the oldest remaining one.

    After a rollback to a snapshot before that load the result is False: the ledger would be ahead of the table.
    """
    sequence = properties.get(LEDGER_SEQUENCE)
    if LEDGER not in properties or sequence is None:
        return False
    return oldest.sequence_number is not None and int(sequence) < oldest.sequence_number

"""Iceberg tables through pyiceberg: where they are, what their last load was, and one commit per load.

The embedded default is a SQLite catalog and a local folder; any other catalog is found by its name in pyiceberg's own
configuration (its file `.pyiceberg.yaml`, or PYICEBERG_CATALOG__... in the environment), or by its address
(table_place.py).

A commit is bound to the snapshot that was current when the load began. pyiceberg by itself would answer a
conflict by putting the same files on top of the other's snapshot (property `commit.retry.num-retries`), and two
loads at once would then both append the same records; so the property is 0 for every table that is loaded.
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
from pyiceberg.catalog import Catalog, load_catalog
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
from requests import RequestException

from barnabas.formats.value_format import RAW
from barnabas.model import TopicPartition
from barnabas.spark.day_files import DataFile
from barnabas.spark.embedded_catalog import NAME, EmbeddedCatalog
from barnabas.spark.errors import CommitUnknownError, LoadConflictError, WarehouseError
from barnabas.spark.iceberg_files import add_files
from barnabas.spark.iceberg_snapshot_expiry import (
    BOUNDS,
    expire_surplus_snapshots,
    missing_bounds_properties,
    summary_of,
)
from barnabas.spark.ledger import LEDGER, LEDGER_SEQUENCE, LOAD_ID, Ledger, ends_of_rows, unknown_position_error
from barnabas.spark.library_errors import library_errors, reason_of
from barnabas.spark.spark_catalogs import is_known_to_pyiceberg, properties_in_spark, settings_of
from barnabas.spark.table_names import parse_table_name
from barnabas.spark.table_place import UNNAMED_CATALOG, TablePlace
from barnabas.spark.table_schema import (
    ADDED_LATER,
    KAFKA_COLUMNS,
    VALUE_FORM,
    WITHOUT_VALUE_FORM,
    decoded_columns,
    obstacle_to_loads,
    partition_spec,
    table_schema,
)
from barnabas.spark.table_shape import EVENT_TIME_SOURCE, FORMAT, RENAMED_FIELDS, TableShape
from barnabas.spark.table_store import Contents, Location

log = logging.getLogger(__name__)

RETRIES = "commit.retry.num-retries"
TARGET_FILE_SIZE = TableProperties.WRITE_TARGET_FILE_SIZE_BYTES
TARGET_FILE_SIZE_DEFAULT = TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT
# What a commit may end with that does not say by itself whether it was done.
_UNCLEAR: tuple[type[Exception], type[Exception], type[Exception]] = (OSError, RESTError, OSError)
"""The last one is SQLAlchemy's once a catalog has imported it (`_open_catalog`)."""
_REFUSED = (CommitFailedException, TableAlreadyExistsError)
# What leaves a request with a server that may still carry it out, after we have looked. Other catalogs than those whose
# errors are named here (Hive, Glue) may do so, too.
_LATE = (RESTError, RequestException)


class Warehouse:
    """A catalog of Iceberg tables. Not thread-safe."""

    def __init__(self, catalog: Catalog, name: str | None = None) -> None:
        """Take a catalog.

        :param name: what names of tables may begin with; None for the embedded one, which has none.
        """
        self._catalog = catalog
        self._catalog_name = name

    def identifier(self, name: str) -> tuple[str, ...]:
        """Return the namespace and the table of a name.

        :raises ConfigurationError: it is none.
        """
        return parse_table_name(name, self._catalog_name)

    @classmethod
    def open(cls, place: TablePlace | str | Path) -> Warehouse:
        """Open the warehouse that is there; of a path the embedded one.

        :raises ConfigurationError: there is no such catalog.
        :raises WarehouseError: it cannot be opened.
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
        """pyiceberg's catalog."""
        return self._catalog.opened() if isinstance(self._catalog, EmbeddedCatalog) else self._catalog

    def find_table(self, name: str) -> Table | None:
        """Return a table as it is now, None where there is none.

        :raises WarehouseError: the catalog does not answer, or refuses.
        """
        identifier = self.identifier(name)
        with library_errors(f"table {name}: the catalog cannot load it"):
            try:
                return self._catalog.load_table(identifier)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

    def table(self, name: str) -> Table:
        """Return a table as it is now.

        :raises WarehouseError: there is none.
        """
        table = self.find_table(name)
        if table is None:
            raise WarehouseError(f"there is no table {name!r}: load a topic into it first")
        return table

    def current_table(self, name: str) -> TableBase:
        """Return a table as it is now, whoever has made it, to be read; nothing of it is changed."""
        return TableBase(self._catalog, self.identifier(name), self.find_table(name))

    def begin(self, name: str) -> TableBase:
        """Return the state of a table that a load starts from.

        :raises WarehouseError: it lacks the columns that every loaded table has.
        """
        table = self.find_table(name)
        if table is not None:
            _prepare(table, name)
        return TableBase(self._catalog, self.identifier(name), table)

    def committed_loads(self, name: str, load_ids: Collection[str]) -> set[str]:
        """Return those of the loads whose files the table names, in any snapshot that it still has."""
        table = self.find_table(name)
        if table is None:
            return set()
        wanted = set(load_ids)
        found = {summary_of(snapshot).get(LOAD_ID, "") for snapshot in table.metadata.snapshots} & wanted
        if wanted - found:
            # Expired snapshots take their properties with them, while their files may live on.
            with library_errors(f"table {name}: its list of files cannot be read"):
                paths = table.inspect.all_files().column("file_path").to_pylist()
            found |= {load_id for load_id in wanted - found if any(f"/{load_id}/" in path for path in paths)}
        return found


def _prepare(table: Table, name: str) -> None:
    """Give a table of an earlier load what loads count on now.

    :raises WarehouseError: it is not one for topics.
    """
    keeps_values = table.properties.get(FORMAT, RAW) in WITHOUT_VALUE_FORM
    wanted = set(KAFKA_COLUMNS) if keeps_values else {*KAFKA_COLUMNS, VALUE_FORM}
    lacking = wanted - {column.name for column in table.schema().fields}
    if lacking - set(ADDED_LATER):
        raise WarehouseError(f"table {name} is not one for topics: it lacks {', '.join(sorted(lacking))}")
    if lacking:
        with library_errors(f"table {name}: cannot add {', '.join(sorted(lacking))}"), table.update_schema() as update:
            for column in sorted(lacking):
                update.add_column(column, ADDED_LATER[column])
    set_what_commits_need(table, name, is_own=FORMAT in table.properties)


def set_what_commits_need(table: Table, name: str, *, is_own: bool) -> None:
    """Set the properties that a table lacks: no second try for a commit, and bounds for its history.

    :param is_own: whether Barnabas made the table.
    :raises WarehouseError: they cannot be set.
    """
    lacking = missing_bounds_properties(table, is_own=is_own)
    if table.properties.get(RETRIES) != "0":
        lacking[RETRIES] = "0"
    if lacking:
        with library_errors(f"table {name}: cannot set its properties"), table.transaction() as transaction:
            transaction.set_properties(lacking)


def _catalog(place: TablePlace) -> Catalog:
    """Return the catalog of pyiceberg's configuration, or the one whose address is given."""
    asked = dict(place.properties)
    if place.warehouse is not None:
        asked["warehouse"] = f"file://{local_path(place.warehouse)}" if place.is_local else place.warehouse
    if place.catalog is not None and "uri" not in asked and not is_known_to_pyiceberg(place.catalog):
        asked = {**properties_in_spark(place.catalog, settings_of(None)), **asked}
    return _open_catalog(place.catalog or UNNAMED_CATALOG, asked)


def _open_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    """Return pyiceberg's catalog. One in a database imports SQLAlchemy and fails with its errors from then on."""
    global _UNCLEAR  # noqa: PLW0603  # to import it here would take most of the time of `barnabas table status`
    try:
        return load_catalog(name, **properties)
    finally:
        imported = sys.modules.get("sqlalchemy.exc")
        if imported is not None:
            _UNCLEAR = (OSError, RESTError, imported.SQLAlchemyError)


def _embedded_catalog(folder: Path) -> Catalog:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "catalog.db"
    properties = {"type": "sql", "uri": f"sqlite:///{file}", "warehouse": f"file://{folder}/tables"}
    if Config().get_catalog_config(NAME):  # of pyiceberg's configuration, which has more to say
        return _open_catalog(NAME, properties)
    return cast("Catalog", EmbeddedCatalog(file, properties, lambda: _open_catalog(NAME, properties)))


def local_path(uri: str) -> Path:
    """Return the path of a file in the local file system."""
    return Path(urlparse(uri).path).absolute()


class TableBase:
    """A table as it was when a load began; `commit` succeeds only while it still is like that."""

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
        """pyiceberg's table.

        :raises WarehouseError: there is none yet.
        """
        if self._table is None:
            raise WarehouseError(f"there is no table {self.name!r}: load a topic into it first")
        return self._table

    @property
    def exists(self) -> bool:
        return self._table is not None

    @property
    def format(self) -> str | None:
        """How values were decoded in earlier loads; None for a table that no load has made."""
        return None if self._table is None else self._table.properties.get(FORMAT)

    def check_accepts_loads(self) -> None:
        """Check that files of loads fit the table, which other tools may have changed.

        :raises WarehouseError: they do not.
        """
        if self._table is None:
            return
        has_event_time = EVENT_TIME_SOURCE in self._table.properties
        obstacle = obstacle_to_loads(self._table.schema(), self._table.spec(), has_event_time=has_event_time)
        if obstacle is not None:
            raise WarehouseError(f"table {self.name} {obstacle}, or load into another table")

    def shape(self, value_format: str = RAW) -> TableShape | None:
        """Return what its rows look like; None for a table that does not exist.

        :param value_format: that of the values, for a table that no load has made.
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
            return TableShape.parse(properties, columns, names=[column.name for column in self._table.schema().fields])

    @property
    def last_load(self) -> Mapping[str, str]:
        """The properties of the snapshot of the last load; empty where there is none left."""
        snapshot = None if self._table is None else self._table.current_snapshot()
        if self._table is None or snapshot is None:
            return {}
        loads = (summary_of(each) for each in ancestors_of(snapshot, self._table.metadata))
        return next((properties for properties in loads if LEDGER in properties), {})

    def ledger(self) -> Ledger:
        """Return how far the table is loaded.

        A snapshot that others have written (compaction) leaves the ledger to those before it, and when these have
        expired the table's properties have it. A table that has snapshots and no ledger is not taken for empty: to
        start again would load everything twice.

        :raises HistoryExpiredError: nothing that is left says how far the table is loaded; it tells how far its rows
            go.
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

    def next_offsets_of_rows(self) -> dict[TopicPartition, int]:
        """Return the offset after the last row of each partition. It reads three columns of the whole table."""
        if self._table is None:
            return {}
        with self._reading_rows():
            rows = self._table.scan(selected_fields=("topic", "partition", "offset"))
            return ends_of_rows(rows.to_arrow_batch_reader())

    def rows_of(self, topic: str, start_offset: int, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a topic, from an offset on in all of its partitions.

        :param columns: those that the table lacks are left out.
        :raises WarehouseError: they cannot be read.
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
        """How large its files are to become: as Iceberg's `write.target-file-size-bytes` says, or its default."""
        told = None if self._table is None else self._table.properties.get(TARGET_FILE_SIZE)
        return TARGET_FILE_SIZE_DEFAULT if told is None or not told.isdecimal() else int(told)

    @property
    def widens_types(self) -> bool:
        """Iceberg does, without touching old files."""
        return True

    def location(self) -> Location:
        """Return where the table's files are, or will be.

        :raises WarehouseError: the catalog does not answer, or refuses.
        """
        if self._table is not None:
            return Location(self._table.location(), self._table.io.properties)
        with library_errors(f"table {self.name}: the catalog makes no table"):
            staged = self._create_transaction(TableShape())
        # A catalog may choose another place each time that it is asked.
        self._new_location = staged.table_metadata.location
        return Location(self._new_location, staged._table.io.properties)

    def contents(self) -> Contents:
        """Return what it holds."""
        table = self.table
        with library_errors(f"table {self.name}: its list of files cannot be read"):
            files = table.inspect.files()
        return Contents(
            sum(files.column("record_count").to_pylist()),
            tuple(files.column("file_size_in_bytes").to_pylist()),
            len(table.metadata.snapshots),
        )

    def commit(self, files: Sequence[DataFile], properties: dict[str, str], shape: TableShape) -> int:
        """Add the files and the properties in one snapshot, and return its id.

        :param shape: what the rows of the files look like; the table gets the columns that it lacks.
        :raises LoadConflictError: the table is no longer as it was when the load began.
        :raises WarehouseError: it could not be done, and the table is as before.
        """

        def change(transaction: Transaction) -> None:
            add_files(transaction, [file.path for file in files], properties)

        return self._commit(change, properties, shape)

    def replace(self, old: Sequence[IcebergFile], new: Sequence[IcebergFile], properties: dict[str, str]) -> int:
        """Put files in the place of others with the same rows, in one snapshot, and return its id.

        :param properties: of the snapshot; the ledger is in them.
        :raises LoadConflictError: the table is no longer as it was.
        :raises WarehouseError: it could not be done, and the table is as before.
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
        """Commit one change, bound to the table as it was; `shape` is None where that stays."""
        try:
            transaction = self._table.transaction() if self._table else self._create_transaction(shape or TableShape())
            if self._table is not None and shape is not None:
                self._reshape(transaction, shape)
            change(transaction)
            added = transaction.table_metadata.current_snapshot()
            assert added is not None, "files are added with a snapshot"
            if LEDGER in properties:
                transaction.set_properties({LEDGER: properties[LEDGER], LEDGER_SEQUENCE: str(added.sequence_number)})
        except (*_REFUSED, *_UNCLEAR) as error:
            return self._find_out(properties[LOAD_ID], error)
        except Exception as error:
            with library_errors(f"table {self.name}: cannot commit, the table is as before"):
                raise error from None
        try:
            table = transaction.commit_transaction()
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, the table says whether it was committed
            return self._find_out(properties[LOAD_ID], error)
        snapshot = table.current_snapshot()
        assert snapshot is not None, "a commit makes a snapshot"
        self._expire_beyond_count(table)
        return snapshot.snapshot_id

    def _expire_beyond_count(self, table: Table) -> None:
        """Bound the history after a commit; what fails here is left to the next one."""
        try:
            with library_errors(f"table {self.name}: cannot expire old snapshots"):
                expire_surplus_snapshots(table)
        except WarehouseError as error:
            is_conflict = isinstance(error.__cause__, CommitFailedException)  # with a load that is as good at it
            level = logging.INFO if is_conflict else logging.WARNING
            log.log(level, "%s; the rows are committed, and a later load tries again", error)

    def _reshape(self, transaction: Transaction, shape: TableShape) -> None:
        """Give the table the columns that the shape has more."""
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

    def _create_transaction(self, shape: TableShape) -> Transaction:
        for levels in range(1, len(self._name)):
            self._catalog.create_namespace_if_not_exists(self._name[:levels])
        return self._catalog.create_table_transaction(
            self._name,
            _schema_of(shape),
            self._new_location,
            partition_spec=partition_spec(has_event_time=shape.has_event_time),
            properties={RETRIES: "0", **BOUNDS, **shape.properties()},
        )

    def _find_out(self, load_id: str, error: Exception) -> int:
        """Look whether a commit that ended with an error is in the table after all.

        One that was refused may be: what stands between may send a request twice, and the second finds the first.
        """
        unknown = CommitUnknownError(
            f"table {self.name}: cannot tell whether the commit was done ({reason_of(error)}); run the load again"
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
                f"table {self.name}: {happened} while this was running, so nothing of it was kept; run it again to do "
                "what is left"
            ) from error
        if isinstance(error, _LATE) or not isinstance(error, _UNCLEAR):
            raise unknown from error
        raise WarehouseError(f"table {self.name}: cannot commit, the table is as before: {reason_of(error)}") from error

    def _is_there(self) -> bool:
        return self._catalog.table_exists(self._name)

    def _what_happened(self) -> str:
        if not self._is_there():
            return "it was dropped"
        snapshot = self._catalog.load_table(self._name).current_snapshot()
        load_id = summary_of(snapshot).get(LOAD_ID) if snapshot else None
        return f"another load ({load_id}) was committed" if load_id else "it was changed by somebody else"


def _schema_of(shape: TableShape) -> Schema:
    return table_schema(
        shape.fields, shape.columns, has_event_time=shape.has_event_time, has_value_form=shape.has_value_form
    )


def _is_followed_by(properties: Mapping[str, str], oldest: Snapshot) -> bool:
    """Whether the ledger in a table's properties is of a snapshot that came before the oldest one left.

    It is not where the table was rolled back to before that load: then it is too far ahead.
    """
    sequence = properties.get(LEDGER_SEQUENCE)
    if LEDGER not in properties or sequence is None:
        return False
    return oldest.sequence_number is not None and int(sequence) < oldest.sequence_number

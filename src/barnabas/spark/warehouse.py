"""Iceberg tables through pyiceberg: where they are, what their last load was, and one commit per load.

The embedded default is a SQLite catalog and a local folder; any other catalog comes from pyiceberg's own
configuration (its file `.pyiceberg.yaml`, or PYICEBERG_CATALOG__... in the environment) by its name.

A commit is bound to the snapshot that was current when the load began. pyiceberg by itself would answer a
conflict by putting the same files on top of the other's snapshot (property `commit.retry.num-retries`), and two
loads at once would then both append the same records; so the property is 0 for every table that is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, RESTError, TableAlreadyExistsError
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from sqlalchemy.exc import SQLAlchemyError

from barnabas.errors import ConfigurationError
from barnabas.formats.value_format import RAW
from barnabas.model import TopicPartition
from barnabas.spark.errors import CommitUnknownError, HistoryExpiredError, LoadConflictError, WarehouseError
from barnabas.spark.ledger import LEDGER, LEDGER_SEQUENCE, LOAD_ID, Ledger
from barnabas.spark.table_schema import (
    ADDED_LATER,
    KAFKA_COLUMNS,
    VALUE_FORM,
    decoded_columns,
    partition_spec,
    table_schema,
)
from barnabas.spark.table_shape import EVENT_TIME_SOURCE, FORMAT, RENAMED_FIELDS, TableShape

RETRIES = "commit.retry.num-retries"
DEFAULT_NAMESPACE = "default"
# What a commit may end with that does not say by itself whether it was done.
_UNCLEAR = (OSError, SQLAlchemyError, RESTError)


def parse_table_name(name: str) -> tuple[str, str]:
    """Return namespace and table of `"table"` or `"namespace.table"`.

    :raises WarehouseError: it has more parts, or an empty one.

    >>> parse_table_name("clicks"), parse_table_name("web.clicks")
    (('default', 'clicks'), ('web', 'clicks'))
    """
    parts = name.split(".")
    if len(parts) > 2 or not all(parts):
        raise WarehouseError(f"{name!r} is no table: give 'table' or 'namespace.table'")
    return (parts[0], parts[1]) if len(parts) == 2 else (DEFAULT_NAMESPACE, parts[0])


def table_name_of_topic(topic: str) -> str:
    """Return the name of the table for a topic, where nobody chose another.

    >>> table_name_of_topic("web.clicks-v2")
    'web_clicks_v2'
    """
    return "".join(letter if letter.isalnum() else "_" for letter in topic)


def tables_of_topics(topics: Iterable[str]) -> dict[str, str]:
    """Return the topic of each table, where each topic has a table named after it.

    :raises ConfigurationError: two topics would be in the same table.

    >>> tables_of_topics(["clicks", "web.views"])
    {'clicks': 'clicks', 'web_views': 'web.views'}
    """
    tables: dict[str, str] = {}
    for topic in topics:
        name = table_name_of_topic(topic)
        # Catalogs and file systems there are that do not look at case.
        other = next((known for table, known in tables.items() if table.lower() == name.lower()), None)
        if other is not None:
            raise ConfigurationError(
                f"topics {other!r} and {topic!r} would both be loaded into table {name!r}: load one of them by itself "
                "and name its table, table=... (--table NAME)"
            )
        tables[name] = topic
    return tables


class Warehouse:
    """A catalog of tables. Not thread-safe."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    @classmethod
    def open(cls, folder: str | Path | None = None, *, catalog: str | None = None) -> Warehouse:
        """Open the embedded warehouse in `folder`, or the catalog that pyiceberg's configuration names `catalog`.

        :raises WarehouseError: neither or both are given, or it cannot be opened.
        """
        if (folder is None) == (catalog is None):
            raise WarehouseError("give either a warehouse folder or the name of a catalog")
        try:
            return cls(load_catalog(catalog) if catalog else _embedded_catalog(Path(str(folder)).absolute()))
        except (OSError, ValueError, SQLAlchemyError) as error:
            raise WarehouseError(f"cannot open the warehouse {folder or catalog}: {error}") from error

    @property
    def catalog(self) -> Catalog:
        """pyiceberg's catalog."""
        return self._catalog

    def find_table(self, name: str) -> Table | None:
        """Return a table as it is now, None where there is none."""
        try:
            return self._catalog.load_table(parse_table_name(name))
        except NoSuchTableError:
            return None

    def table(self, name: str) -> Table:
        """Return a table as it is now.

        :raises WarehouseError: there is none.
        """
        table = self.find_table(name)
        if table is None:
            raise WarehouseError(f"there is no table {name!r}: load a topic into it first")
        return table

    def begin(self, name: str) -> TableBase:
        """Return the state of a table that a load starts from.

        :raises WarehouseError: it lacks the columns that every loaded table has.
        """
        table = self.find_table(name)
        if table is not None:
            _prepare(table, name)
        return TableBase(self._catalog, parse_table_name(name), table)

    def committed_loads(self, name: str, load_ids: Collection[str]) -> set[str]:
        """Return those of the loads whose files the table names, in any snapshot that it still has."""
        table = self.find_table(name)
        if table is None:
            return set()
        wanted = set(load_ids)
        found = {summary_of(snapshot).get(LOAD_ID, "") for snapshot in table.metadata.snapshots} & wanted
        if wanted - found:
            # Expired snapshots take their properties with them, while their files may live on.
            paths = table.inspect.all_files().column("file_path").to_pylist()
            found |= {load_id for load_id in wanted - found if any(f"/{load_id}/" in path for path in paths)}
        return found


def _prepare(table: Table, name: str) -> None:
    """Give a table of an earlier load what loads count on now.

    :raises WarehouseError: it is not one for topics.
    """
    wanted = set(KAFKA_COLUMNS) if table.properties.get(FORMAT, RAW) == RAW else {*KAFKA_COLUMNS, VALUE_FORM}
    lacking = wanted - {column.name for column in table.schema().fields}
    if lacking - set(ADDED_LATER):
        raise WarehouseError(f"table {name} is not one for topics: it lacks {', '.join(sorted(lacking))}")
    if lacking:
        with table.update_schema() as update:
            for column in sorted(lacking):
                update.add_column(column, ADDED_LATER[column])
    if table.properties.get(RETRIES) != "0":
        with table.transaction() as transaction:
            transaction.set_properties({RETRIES: "0"})


def _embedded_catalog(folder: Path) -> Catalog:
    folder.mkdir(parents=True, exist_ok=True)
    return load_catalog(
        "barnabas", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/tables"
    )


def local_path(uri: str) -> Path:
    """Return the path of a file in the local file system."""
    return Path(urlparse(uri).path)


@dataclass(frozen=True, slots=True)
class Location:
    """Where a table's files are, and how pyiceberg reaches them."""

    uri: str
    properties: Mapping[str, str]

    @property
    def local_folder(self) -> Path | None:
        """The folder, where it is one of this machine's file system."""
        parsed = urlparse(self.uri)
        return Path(parsed.path) if parsed.scheme in ("", "file") else None


class TableBase:
    """A table as it was when a load began; `commit` succeeds only while it still is like that."""

    def __init__(self, catalog: Catalog, name: tuple[str, str], table: Table | None) -> None:
        self._catalog = catalog
        self._name = name
        self._table = table

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

    def shape(self, value_format: str = RAW) -> TableShape | None:
        """Return what its rows look like; None for a table that does not exist.

        :param value_format: that of the values, for a table that no load has made.
        """
        if self._table is None:
            return None
        properties = {FORMAT: value_format, **self._table.properties}
        renamed = properties.get(RENAMED_FIELDS)
        columns = decoded_columns(
            self._table.schema(),
            None if renamed is None else json.loads(renamed),
            has_event_time=EVENT_TIME_SOURCE in properties,
        )
        return TableShape.parse(properties, columns)

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
        for oldest in ancestors_of(snapshot, self._table.metadata):
            properties = summary_of(oldest)
            if LEDGER in properties:
                return Ledger.parse(properties[LEDGER])
        if _is_followed_by(self._table.properties, oldest):
            return Ledger.parse(self._table.properties[LEDGER])
        raise HistoryExpiredError(
            f"table {self.name}: nothing that is left says where the last load ended (snapshots expire); the table's "
            f"rows go on at {_dump_offsets(self.next_offsets_of_rows())}: check these and give them as "
            "starting_offsets (--starting-offsets)"
        )

    def next_offsets_of_rows(self) -> dict[TopicPartition, int]:
        """Return the offset after the last row of each partition. It reads three columns of the whole table."""
        if self._table is None:
            return {}
        ends: dict[TopicPartition, int] = {}
        for batch in self._table.scan(selected_fields=("topic", "partition", "offset")).to_arrow_batch_reader():
            last = pa.Table.from_batches([batch]).group_by(["topic", "partition"]).aggregate([("offset", "max")])
            for row in last.to_pylist():
                partition = TopicPartition(row["topic"], row["partition"])
                ends[partition] = max(ends.get(partition, 0), row["offset_max"] + 1)
        return ends

    def location(self) -> Location:
        """Return where the table's files are, or will be."""
        if self._table is not None:
            return Location(self._table.location(), self._table.io.properties)
        staged = self._create_transaction(TableShape())
        return Location(staged.table_metadata.location, staged._table.io.properties)

    def commit(self, files: list[str], properties: dict[str, str], shape: TableShape) -> int:
        """Add the files and the properties in one snapshot, and return its id.

        :param shape: what the rows of the files look like; the table gets the columns that it lacks.
        :raises LoadConflictError: the table is no longer as it was when the load began.
        :raises WarehouseError: it could not be done, and the table is as before.
        """

        def change(transaction: Transaction) -> None:
            transaction.add_files(files, snapshot_properties=properties, check_duplicate_files=False)

        return self._commit(change, properties, shape)

    def replace(self, old: Sequence[DataFile], new: Sequence[DataFile], properties: dict[str, str]) -> int:
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
            table = transaction.commit_transaction()
        except (CommitFailedException, TableAlreadyExistsError) as error:
            raise LoadConflictError(
                f"table {self.name}: {self._what_happened()} while this was running, so nothing of it was kept; run it "
                "again to do what is left"
            ) from error
        except _UNCLEAR as error:
            return self._find_out(properties[LOAD_ID], error)
        snapshot = table.current_snapshot()
        assert snapshot is not None, "a commit makes a snapshot"
        return snapshot.snapshot_id

    def _reshape(self, transaction: Transaction, shape: TableShape) -> None:
        """Give the table the columns that the shape has more."""
        before = self.shape()
        if shape == before and self.format is not None:
            return
        transaction.set_properties(shape.properties())
        renamed = {} if before is None else before.columns_renamed_in(shape)
        if renamed:
            with transaction.update_schema() as update:
                for old, new in renamed.items():
                    update.rename_column(old, new)
        if shape.fields:
            wanted = table_schema(shape.fields, shape.columns, has_event_time=shape.has_event_time)
            with transaction.update_schema() as update:
                update.union_by_name(wanted)

    def _create_transaction(self, shape: TableShape) -> Transaction:
        self._catalog.create_namespace_if_not_exists(self._name[0])
        return self._catalog.create_table_transaction(
            self._name,
            table_schema(shape.fields, shape.columns, has_event_time=shape.has_event_time),
            partition_spec=partition_spec(has_event_time=shape.has_event_time),
            properties={RETRIES: "0", **shape.properties()},
        )

    def _find_out(self, load_id: str, error: Exception) -> int:
        """Look whether a commit that failed in an unclear way is in the table after all."""
        try:
            snapshots = self._catalog.load_table(self._name).metadata.snapshots if self._is_there() else []
        except _UNCLEAR as second:
            raise CommitUnknownError(
                f"table {self.name}: cannot tell whether the commit was done ({error}); run the load again"
            ) from second
        for snapshot in snapshots:
            if summary_of(snapshot).get(LOAD_ID) == load_id:
                return snapshot.snapshot_id
        kind = CommitUnknownError if isinstance(error, RESTError) else WarehouseError
        raise kind(f"table {self.name}: cannot commit, the table is as before: {error}") from error

    def _is_there(self) -> bool:
        return self._catalog.table_exists(self._name)

    def _what_happened(self) -> str:
        if not self._is_there():
            return "it was dropped"
        snapshot = self._catalog.load_table(self._name).current_snapshot()
        load_id = summary_of(snapshot).get(LOAD_ID) if snapshot else None
        return f"another load ({load_id}) was committed" if load_id else "it was changed by somebody else"


def _is_followed_by(properties: Mapping[str, str], oldest: Snapshot) -> bool:
    """Whether the ledger in a table's properties is of a snapshot that came before the oldest one left.

    It is not where the table was rolled back to before that load: then it is too far ahead.
    """
    sequence = properties.get(LEDGER_SEQUENCE)
    if LEDGER not in properties or sequence is None:
        return False
    return oldest.sequence_number is not None and int(sequence) < oldest.sequence_number


def _dump_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(by_topic)


def summary_of(snapshot: Snapshot) -> Mapping[str, str]:
    """Return what a snapshot says of itself."""
    return snapshot.summary.additional_properties if snapshot.summary else {}

"""Delta tables through deltalake (delta-rs): WAREHOUSE/NAMESPACE/TABLE, in a folder or in S3, with no catalog.

One load is one version of the table's log, and in its file are, all or nothing:

- the data files (`add`);
- the load's properties (ledger.py), as further keys of `commitInfo`;
- for each partition of a topic how far it is loaded, as an application's transaction (`txn`, one per partition), and
  how many rows the table has by then, as one more;
- where columns came, the new schema (`metaData`).

A version is a file that can be made once only, and a commit is made for the version after the one that was current when
the load began, without a second try (`max_commit_retries` 0): delta-rs by itself would put the same files behind
somebody else's version.

The ledger is read from the newest `commitInfo` that has one. RESTORE is a version too: then the versions behind the
restored one do not count. Old versions expire (30 days, as `delta.logRetentionDuration` says, and by count:
delta_log_cleanup.py), and their `commitInfo` with them. The transactions remain: checkpoints keep them for ever.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
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
from barnabas.formats.value_format import RAW
from barnabas.model import TopicPartition
from barnabas.spark.day_files import TARGET_BYTES, DataFile
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
from barnabas.spark.delta_storage_options import storage_options
from barnabas.spark.errors import CommitUnknownError, LoadConflictError, WarehouseError
from barnabas.spark.ledger import LEDGER, LOAD_ID, RECORDS, Ledger, LoadedTopic, ends_of_rows, unknown_position_error
from barnabas.spark.library_errors import library_errors, reason_of
from barnabas.spark.table_names import parse_table_name
from barnabas.spark.table_place import TablePlace
from barnabas.spark.table_schema import EVENT_DAY, KAFKA_COLUMNS
from barnabas.spark.table_shape import FORMAT, TableShape
from barnabas.spark.table_store import Contents, Location

log = logging.getLogger(__name__)

NO_DAY_AT_ALL = "0001-01-01"
"""No row is in this partition: event times begin with the year 2. To replace what is in it replaces nothing."""
NOT_READ = frozenset({"deletionVectors", "columnMapping"})
"""Features of tables that others may switch on, with which a table's files alone are not its rows."""
_TIMES_WITHOUT_ZONE = "timestampNtz"
_ROWS = "barnabas/rows"
"""The application whose transaction says how many rows there are; that of a partition has two signs `/`."""


class DeltaWarehouse:
    """A folder of Delta tables. Not thread-safe."""

    def __init__(self, uri: str, properties: Mapping[str, str]) -> None:
        self._uri = uri.rstrip("/")
        self._properties = properties

    @classmethod
    def open(cls, place: TablePlace) -> DeltaWarehouse:
        """Open what is there; nothing is made yet."""
        warehouse = str(place.warehouse)
        uri = f"file://{Path(urlparse(warehouse).path).absolute()}" if place.is_local else warehouse
        return cls(uri, place.properties)

    def begin(self, name: str) -> DeltaBase:
        """Return the state of a table that a load starts from.

        :raises WarehouseError: it is not one for topics, or cannot be read.
        """
        base = self.current_table(name)
        if base.exists:
            _check(base.table, name)
        return base

    def current_table(self, name: str) -> DeltaBase:
        """Return a table as it is now, whoever has made it, to be read; nothing of it is changed.

        :raises WarehouseError: it cannot be read.
        """
        identifier = parse_table_name(name)
        location = Location("/".join([self._uri, *identifier]), self._properties)
        with library_errors(f"table {name}: cannot be read"):
            table = _find(location)
            if table is not None:
                _check_is_readable(table, name)
        return DeltaBase(".".join(identifier), location, table)

    def committed_loads(self, name: str, load_ids: Collection[str]) -> set[str]:
        """Return those of the loads whose files the table names, in any version that it still has."""
        table = self.current_table(name).find()  # streams have tables that are not for topics
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
    """Return where a table is, as delta-rs takes it."""
    folder = location.local_folder
    return location.uri if folder is None else str(folder)


def _check(table: DeltaTable, name: str) -> None:
    """Raise where a table is none that loads can go on with."""
    columns = column_names_of(table.schema().to_json())
    lacking = {*KAFKA_COLUMNS, EVENT_DAY} - set(columns)
    if lacking or table.metadata().partition_columns != [EVENT_DAY]:
        why = f"it lacks {', '.join(sorted(lacking))}" if lacking else f"it is not partitioned by {EVENT_DAY}"
        raise WarehouseError(f"table {name} is not one for topics: {why}")


def _check_is_readable(table: DeltaTable, name: str) -> None:
    """Raise where the files of a table are not all that there is to its rows."""
    unknown = NOT_READ & set(table.protocol().reader_features or ())
    if unknown:
        raise WarehouseError(
            f"table {name} has {', '.join(sorted(unknown))} switched on, which loads and their readers do not know: "
            "load into another table"
        )


def allow_times_without_zone(table: DeltaTable, schema: Schema, name: str) -> None:
    """Switch on the feature that columns of times without a zone need, where a table gets its first one.

    It comes in a version before the rows, as delta-rs cannot do both at once. Without the feature nobody could read the
    table any more. A kill between the two versions leaves a feature that no column uses.

    :raises LoadConflictError: the table is no longer as it was.
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
        raise LoadConflictError(
            f"table {name}: it was changed by somebody else while this was running; run it again"
        ) from error


class DeltaBase:
    """A Delta table as it was when a load began; `commit` succeeds only while it still is like that."""

    def __init__(self, name: str, location: Location, table: DeltaTable | None) -> None:
        self._name = name
        self._location = location
        self._table = table

    @property
    def name(self) -> str:
        return self._name

    @property
    def table(self) -> DeltaTable:
        """deltalake's table.

        :raises WarehouseError: there is none yet.
        """
        if self._table is None:
            raise WarehouseError(f"there is no table {self.name!r}: load a topic into it first")
        return self._table

    def find(self) -> DeltaTable | None:
        """Return deltalake's table, None where there is none yet."""
        return self._table

    @property
    def exists(self) -> bool:
        return self._table is not None

    @property
    def format(self) -> str | None:
        """How values were decoded in earlier loads; None for a table that no load has made."""
        return None if self._table is None else remembered(self._schema).get(FORMAT)

    @property
    def last_load(self) -> Mapping[str, str]:
        """The properties of the version of the last load; empty where there is none left."""
        if self._table is None:
            return {}
        with self._reading("its old versions cannot be read"):
            return next((entry for entry in _line(self._table) if LEDGER in entry), {})

    @property
    def target_file_bytes(self) -> int:
        """How large its files are to become: as `delta.targetFileSize` says, where it is set."""
        told = "" if self._table is None else self._table.metadata().configuration.get("delta.targetFileSize", "")
        return int(told) if told.isdecimal() else TARGET_BYTES

    @property
    def widens_types(self) -> bool:
        """Delta does, but as a feature that few readers have."""
        return False

    @property
    def _schema(self) -> str:
        return str(self.table.schema().to_json())

    def check_accepts_loads(self) -> None:
        """Check that files of loads fit the table, which other tools may have changed.

        :raises WarehouseError: they do not.
        """
        obstacle = None if self._table is None else self._obstacle(self._table)
        if obstacle is not None:
            raise WarehouseError(f"table {self.name} {obstacle}, or load into another table")

    def _obstacle(self, table: DeltaTable) -> str | None:
        return obstacle_to_loads(self._schema, table.metadata().configuration)

    def shape(self, value_format: str = RAW) -> TableShape | None:
        """Return what its rows look like; None for a table that does not exist.

        :param value_format: that of the values, for a table that no load has made.
        """
        if self._table is None:
            return None
        with self._reading("its properties (barnabas.*) cannot be read"):
            return shape_of_schema(self._schema, value_format)

    def _reading(self, what: str) -> AbstractContextManager[None]:
        return library_errors(f"table {self.name}: {what}")

    def ledger(self) -> Ledger:
        """Return how far the table is loaded.

        :raises HistoryExpiredError: nothing that is left says so; it tells how far the table's rows go.
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
        told = Ledger({topic: LoadedTopic(topics[topic], _transactions(table, topic)) for topic in topics})
        # A RESTORE takes rows back and leaves transactions as they are, and it may have expired itself. As many rows as
        # the last load left are those: an offset behind the last one was no record's, or that of one that is compacted.
        was_restored = not topics or _was_restored(table)
        if not was_restored and table.transaction_version(_ROWS) == _row_count(_files(table)):
            return told
        # Else records between the last row and where transactions end may not be in the table.
        rows = self.next_offsets_of_rows()
        if was_restored or _is_ahead(told, rows):
            raise unknown_position_error(self.name, "old versions", rows)
        return told

    def next_offsets_of_rows(self) -> dict[TopicPartition, int]:
        """Return the offset after the last row of each partition. It reads three columns of the whole table."""
        if self._table is None:
            return {}
        with self._reading("its rows cannot be read"):
            rows = self._table.to_pyarrow_dataset()
            return ends_of_rows(rows.to_batches(columns=["topic", "partition", "offset"]))

    def rows_of(self, topic: str, start_offset: int, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a topic, from an offset on in all of its partitions.

        :param columns: those that the table lacks are left out.
        :raises WarehouseError: they cannot be read.
        """
        if self._table is None:
            return
        there = [name for name in column_names_of(self._schema) if name in columns]
        wanted = (pc.field("topic") == topic) & (pc.field("offset") >= start_offset)
        with self._reading("its rows cannot be read"):
            yield from self._table.to_pyarrow_dataset().to_batches(there, filter=wanted)

    def location(self) -> Location:
        """Return where the table's files are, or will be."""
        return self._location

    def contents(self) -> Contents:
        """Return what it holds."""
        table = self.table
        with self._reading("its list of files cannot be read"):
            files = _files(table)
            return Contents(_row_count(files), tuple(files.column("size_bytes").to_pylist()), len(table.history()))

    def commit(self, files: Sequence[DataFile], properties: dict[str, str], shape: TableShape) -> int:
        """Add the files and the properties in one version, and return its number.

        :param shape: what the rows of the files look like; the table gets the columns that it lacks.
        :raises LoadConflictError: the table is no longer as it was when the load began.
        :raises WarehouseError: it could not be done, and the table is as before.
        """
        with library_errors(f"table {self.name}: cannot commit, the table is as before"):
            write = self._prepared(files, properties, shape)
        version = self._written(write, properties[LOAD_ID])
        self._delete_old_versions(version, LEDGER)
        return version

    def _written(self, write: Callable[[], int], load_id: str) -> int:
        """Write a version, and return its number.

        :raises LoadConflictError: the table is no longer as it was when the load began.
        :raises WarehouseError: it could not be done, and the table is as before.
        """
        try:
            return write()
        except (BarnabasError, AssertionError):
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, the log says whether it was committed
            return self._find_out(load_id, error)

    def _prepared(self, files: Sequence[DataFile], properties: dict[str, str], shape: TableShape) -> Callable[[], int]:
        """Return what writes the version of a commit, and returns its number."""
        ledger = Ledger.parse(properties[LEDGER])
        before = "" if self._table is None else self._schema
        topics = remembered_topics(before) if before else {}
        wanted = delta_schema(shape, {**topics, **topics_of(ledger)}, before or None)
        adds = [self._add(file) for file in files]
        rows = sum(file.records for file in files) + self._rows()
        committing = CommitProperties(
            custom_metadata=dict(properties), max_commit_retries=0, app_transactions=self._progress(ledger, rows)
        )
        if self._table is None:
            return partial(self._create, wanted, adds, committing)
        return partial(self._append, self._table, wanted, adds, committing, is_same=same_schema(before, wanted))

    def _delete_old_versions(self, version: int, needed: str | None) -> None:
        """Bound the log after a commit; what fails here is left to a later one.

        :param needed: what the oldest version that stays must have among its properties, None for nothing.
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
            log.warning("%s; the rows are committed, and a later load tries again", error)

    def _rows(self) -> int:
        """Return how many rows the table has: as the last load counted them, where nobody has committed since."""
        if self._table is None:
            return 0
        counted = self._table.transaction_version(_ROWS)
        if counted is not None and any(RECORDS in entry for entry in self._table.history(1)):
            return int(counted)
        return _row_count(_files(self._table))

    def _create(self, schema: str, adds: list[AddAction], committing: CommitProperties) -> int:
        folder = self._location.local_folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        create_table_with_add_actions(
            path_of(self._location),
            Schema.from_json(schema),
            adds,
            mode="error",
            partition_by=[EVENT_DAY],
            name=self.name,
            storage_options=storage_options(self._location.properties),
            commit_properties=committing,
        )
        return 0

    def _append(
        self, table: DeltaTable, schema: str, adds: list[AddAction], committing: CommitProperties, *, is_same: bool
    ) -> int:
        if not is_same:
            allow_times_without_zone(table, Schema.from_json(schema), self.name)
        version = int(table.version()) + 1
        if is_same:
            table.create_write_transaction(adds, "append", table.schema(), [EVENT_DAY], commit_properties=committing)
            return version
        # Only what replaces rows may bring a schema in the same version: so this replaces those of a day without any.
        table.create_write_transaction(
            adds,
            "overwrite",
            Schema.from_json(schema),
            [EVENT_DAY],
            partition_filters=[(EVENT_DAY, "=", NO_DAY_AT_ALL)],
            commit_properties=committing,
        )
        return version

    def _add(self, file: DataFile) -> AddAction:
        return AddAction(
            path=quote(file.path.removeprefix(f"{self._location.uri}/"), safe="/=-_.~"),
            size=file.size_bytes,
            partition_values={EVENT_DAY: None if file.day is None else file.day.isoformat()},
            modification_time=SYSTEM_CLOCK.time_ms(),
            data_change=True,
            stats=json.dumps({"numRecords": file.records}),
        )

    def _progress(self, ledger: Ledger, rows: int) -> list[Transaction]:
        """Return a transaction for each partition that this load takes further, and one for its rows.

        :param rows: how many there are then.
        """
        told = {
            _application(topic, partition): offset
            for topic, loaded in ledger.topics.items()
            for partition, offset in sorted(loaded.next_offsets.items())
        }
        told[_ROWS] = rows
        return [
            Transaction(name, version)
            for name, version in told.items()
            if self._table is None or self._table.transaction_version(name) != version
        ]

    def _find_out(self, load_id: str, error: Exception) -> int:
        """Look what became of a commit that ended with an error."""
        unknown = CommitUnknownError(
            f"table {self.name}: cannot tell whether the commit was done ({reason_of(error)}); run the load again"
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
            happened = f"another load ({other}) was committed" if other else "it was changed by somebody else"
            raise LoadConflictError(
                f"table {self.name}: {happened} while this was running, so nothing of it was kept; run it again to do "
                "what is left"
            ) from error
        if self._location.local_folder is None:  # a store may still carry out what it was asked for
            raise unknown from error
        raise WarehouseError(f"table {self.name}: cannot commit, the table is as before: {reason_of(error)}") from error


def _files(table: DeltaTable) -> pa.Table:
    """Return what the log says of the table's files."""
    return pa.table(table.get_add_actions(flatten=True))


def _row_count(files: pa.Table) -> int:
    """Return how many rows files say that they have."""
    return sum(rows or 0 for rows in files.column("num_records").to_pylist())


def _application(topic: str, partition: int) -> str:
    """Return the application whose transaction says how far a partition is loaded."""
    return f"barnabas/{topic}/{partition}"


def _transactions(table: DeltaTable, topic: str) -> dict[int, int]:
    """Return how far the transactions say that a topic is loaded: its partitions are numbered from 0 without a gap."""
    offsets: dict[int, int] = {}
    for partition in count():
        offset = table.transaction_version(_application(topic, partition))
        if offset is None:
            return offsets
        offsets[partition] = offset
    return offsets


def _is_ahead(told: Ledger, rows: Mapping[TopicPartition, int]) -> bool:
    """Whether a ledger says of a partition that more of it is loaded than there are rows of it."""
    return any(
        offset > rows.get(TopicPartition(topic, partition), 0)
        for topic, loaded in told.topics.items()
        for partition, offset in loaded.next_offsets.items()
    )


def _line(table: DeltaTable) -> Iterator[Mapping[str, Any]]:
    """Yield the versions that led to the current one, newest first: those behind a restored one did not.

    It ends where a table was restored to a time, of which the log does not tell the version.
    """
    newest = table.history(1)
    if newest and LEDGER in newest[0]:
        yield newest[0]
        return
    skipped_to: int | None = None
    for entry in table.history():
        if skipped_to is not None and entry["version"] > skipped_to:
            continue
        skipped_to = None
        if entry["operation"] == "RESTORE":
            told = str(entry.get("operationParameters", {}).get("version"))
            if not told.isdecimal():
                return  # to a time, which writers have several words for: nobody knows which versions count
            skipped_to = int(told)
            continue
        yield entry


def _was_restored(table: DeltaTable) -> bool:
    return any(entry["operation"] == "RESTORE" for entry in table.history())

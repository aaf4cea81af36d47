"""The definition and the contents of a table, for `barnabas table show`. The same for all table formats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from barnabas.spark.errors import LoadError, WarehouseError
from barnabas.spark.ledger import LEDGER, Ledger
from barnabas.spark.table_snapshots import SnapshotPage, TableFile
from barnabas.spark.table_store import StoredTable, TableDefinition, TableFormat, TableStore

FILES_MAX = 2**31


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """The size of a partition; files of an older partition spec have the fields of that spec."""

    partition: str
    files: int
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TableDetails:
    """The definition and the contents of a table's current version.

    :param value_format: The format of the values that loads decode; None for a table of another tool.
    :param partitions: The sizes of all partitions, the largest first.
    :param delete_files: The number of files that delete rows of other files.
    :param ledger: The loaded offsets; None if the table has no record of loads.
    """

    table: str
    location: str
    definition: TableDefinition
    value_format: str | None
    files: int
    delete_files: int
    records: int
    bytes: int
    partitions: tuple[PartitionSize, ...]
    snapshots: SnapshotPage
    ledger: Ledger | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    """The properties of the table, without the copy of the ledger."""


def table_details(table_format: TableFormat, store: TableStore, name: str, snapshots_max: int) -> TableDetails:
    """Return the details of a table, which may be made by another tool.

    :param snapshots_max: The number of newest snapshots in the result.
    :raises WarehouseError: The table does not exist, or cannot be read.
    """
    stored = store.current_table(name)
    if not stored.exists:
        raise WarehouseError(f"table {name!r} does not exist: load a topic into it first")
    definition = table_format.definition(stored)
    current = definition.snapshot_id
    files = [] if current is None else table_format.files(stored, current, 0, FILES_MAX).files
    data = [file for file in files if file.content == "data"]
    return TableDetails(
        table=stored.name,
        location=stored.location().uri,
        definition=definition,
        value_format=stored.format,
        files=len(data),
        delete_files=len(files) - len(data),
        records=sum(file.records or 0 for file in data),
        bytes=sum(file.bytes for file in data),
        partitions=sizes_of_partitions(data),
        snapshots=table_format.snapshots(stored, 0, snapshots_max),
        ledger=_ledger_of(stored),
        properties={key: value for key, value in sorted(definition.properties.items()) if key != LEDGER},
    )


def sizes_of_partitions(files: Iterable[TableFile]) -> tuple[PartitionSize, ...]:
    """Return the sizes of the partitions of files, the largest first.

    >>> sizes_of_partitions([TableFile("a", "data", 3, 10, "day=1"), TableFile("b", "data", None, 5, "day=1")])
    (PartitionSize(partition='day=1', files=2, records=3, bytes=15),)
    """
    sizes: dict[str, list[int]] = {}
    for file in files:
        size = sizes.setdefault(file.partition, [0, 0, 0])
        for number, more in enumerate((1, file.records or 0, file.bytes)):
            size[number] += more
    found = [PartitionSize(partition, *size) for partition, size in sizes.items()]
    return tuple(sorted(found, key=lambda each: (-each.bytes, each.partition)))


def _ledger_of(stored: StoredTable) -> Ledger | None:
    if stored.format is None and not stored.last_load:
        return None  # another tool made the table
    try:
        return stored.ledger()
    except LoadError:
        return None  # `table status` and loads report the reason

"""The status of a loaded table: the offsets and the event time up to which it is complete, and its files.

The status is read from the catalog alone, without Spark or brokers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas.audit.watermark import AUDIT, AuditState
from barnabas.formats.column_types import ColumnType
from barnabas.formats.upsert_rules import UpsertRules
from barnabas.spark.completeness import COMPLETE, Completeness
from barnabas.spark.errors import WarehouseError
from barnabas.spark.ledger import BAD_RECORDS, MISSING, RECORDS, Ledger
from barnabas.spark.table_store import SMALL_FILE_BYTES, TableStore


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The current status of a table."""

    table: str
    value_format: str
    ledger: Ledger
    """The loaded offsets of each topic."""
    complete: Completeness
    """The event time up to which the table is complete."""
    records: int
    files: int
    small_files: int
    bytes: int
    snapshots: int
    event_time: str
    """The source of the event times, as the option `event_time` names it."""
    fields: Mapping[str, ColumnType] = field(default_factory=dict)
    last_records: int = 0
    """The number of records that the last load added."""
    last_bad_records: Mapping[str, int] = field(default_factory=dict)
    """The number of bad records of the last load, by reason."""
    last_missing: Mapping[str, Mapping[str, list[int]]] = field(default_factory=dict)
    """The offsets that the log had lost before the last load, as in the snapshot property `barnabas.missing`."""
    upsert: UpsertRules | None = None
    """The rules of a state table; None for a table with a row for each record."""
    audited_until_ms: int | None = None
    """The event time, in ms, up to which the table has all records that producers reported; None if unknown."""


def table_status(store: TableStore, name: str) -> TableStatus:
    """Return the status of a table.

    :raises WarehouseError: The table does not exist.
    :raises HistoryExpiredError: The table has no record of the end of its last load.
    """
    base = store.begin(name)
    shape = base.shape()
    if shape is None:
        raise WarehouseError(f"table {name!r} does not exist: load a topic into it first")
    last, contents = base.last_load, base.contents()
    return TableStatus(
        table=base.name,
        value_format=shape.value_format,
        ledger=base.ledger(),
        complete=Completeness.parse(last.get(COMPLETE)),
        records=contents.records,
        files=len(contents.file_sizes),
        small_files=sum(size < SMALL_FILE_BYTES for size in contents.file_sizes),
        bytes=sum(contents.file_sizes),
        snapshots=contents.versions,
        event_time=str(shape.event_time),
        fields=shape.fields or {},
        last_records=int(last.get(RECORDS, 0)),
        last_bad_records=json.loads(last.get(BAD_RECORDS, "{}")),
        last_missing=json.loads(last.get(MISSING, "{}")),
        upsert=shape.upsert,
        audited_until_ms=None if AUDIT not in last else AuditState.parse(last[AUDIT]).complete_until_ms,
    )

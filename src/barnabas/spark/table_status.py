"""What a loaded table says of itself: up to which offsets and which event time it is complete, and how it is stored.

Asked of the catalog alone: no Spark, no brokers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas.audit.watermark import AUDIT, AuditState
from barnabas.formats.column_types import ColumnType
from barnabas.spark.completeness import COMPLETE, Completeness
from barnabas.spark.errors import WarehouseError
from barnabas.spark.ledger import BAD_RECORDS, MISSING, RECORDS, Ledger
from barnabas.spark.table_store import SMALL_FILE_BYTES, TableStore


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table as it is now.

    `ledger`: up to which offsets each topic is loaded. `complete`: up to which event time.
    `audited_until_ms`: up to which event time producers and table agree; None where that is not known.
    `last_records`, `last_bad_records`, `last_missing`: of the last load; offsets as in `barnabas.missing`.
    """

    table: str
    value_format: str
    ledger: Ledger
    complete: Completeness
    records: int
    files: int
    small_files: int
    bytes: int
    snapshots: int
    event_time: str
    fields: Mapping[str, ColumnType] = field(default_factory=dict)
    last_records: int = 0
    last_bad_records: Mapping[str, int] = field(default_factory=dict)
    last_missing: Mapping[str, Mapping[str, list[int]]] = field(default_factory=dict)
    audited_until_ms: int | None = None


def table_status(store: TableStore, name: str) -> TableStatus:
    """Return how a table is.

    :raises WarehouseError: there is none.
    :raises HistoryExpiredError: nothing that is left says how far it is loaded.
    """
    base = store.begin(name)
    shape = base.shape()
    if shape is None:
        raise WarehouseError(f"there is no table {name!r}: load a topic into it first")
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
        audited_until_ms=None if AUDIT not in last else AuditState.parse(last[AUDIT]).complete_until_ms,
    )

"""Rows as they are read from a table, which may have been written by anybody."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from barnabas.audit.account import offsets_of
from barnabas.audit.batch_windows import RecordRange
from barnabas.audit.findings import Kind
from barnabas.audit.table_rows import TableRows
from barnabas.spark.table_audit import _add

ADDED_BY_HAND = {"partition": None, "offset": None, "timestamp": None, "raw_timestamp_ms": None}


def test_rows_without_the_columns_that_loads_write_are_of_no_log() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    loaded = [{"partition": 0, "offset": 2**53 + each, "timestamp": at, "raw_timestamp_ms": None} for each in range(3)]
    batch = pa.RecordBatch.from_pylist(
        [*loaded, ADDED_BY_HAND, ADDED_BY_HAND | {"partition": 0}],
        pa.schema({
            "partition": pa.int32(), "offset": pa.int64(), "timestamp": pa.timestamp("us", "UTC"),
            "raw_timestamp_ms": pa.int64(),
        }),
    )  # fmt: skip
    rows = TableRows({0: 2**53}, {0: 2**53 + 3}, 60_000)
    _add(rows, batch, None)
    rows.check(offsets_of(0), 2**53, RecordRange(3, 0))
    rows.check_is_over()
    assert {(each.kind, each.producer.partition, each.records) for each in rows.findings} == {
        (Kind.EXTRA, 0, 1),
        (Kind.EXTRA, -1, 1),
    }

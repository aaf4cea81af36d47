"""The columns of a record in Arrow and in Spark: names and types of Spark's Kafka source.

Timestamps are microseconds in UTC; a record without a timestamp (-1) has the time 1969-12-31 23:59:59.999,
as there. Headers are null where a record has none, as there.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")

RECORD_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP_TYPE),
        ("timestampType", pa.int32()),
        ("headers", HEADERS_TYPE),
    ]
)

SPARK_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
SPARK_HEADERS = "headers array<struct<key: string, value: binary>>"

BATCH_RECORDS_MAX = 65_536
"""Records in a batch that goes to Spark: enough that a batch costs next to nothing, few enough to stay in the cache."""


def to_record_batches(
    records: pa.RecordBatch, *, include_headers: bool, records_max: int = BATCH_RECORDS_MAX
) -> Iterator[pa.RecordBatch]:
    """Yield records (in the columns of `barnabas.records.arrow`) under Spark's names, in batches of `records_max`."""
    arrays = [
        records.column("key"),
        records.column("value"),
        records.column("topic"),
        records.column("partition"),
        records.column("offset"),
        records.column("timestamp").cast(TIMESTAMP_TYPE),
        records.column("timestamp_type").cast(pa.int32()),
    ]
    schema = pa.schema(list(RECORD_SCHEMA)[:-1])
    if include_headers:
        arrays.append(_headers_array(records.column("headers")))
        schema = RECORD_SCHEMA
    whole = pa.RecordBatch.from_arrays(arrays, schema=schema)
    for start in range(0, len(whole), records_max):
        yield whole.slice(start, records_max)


def _headers_array(headers: pa.ListArray) -> pa.ListArray:
    """Return headers with Spark's names, and null where a record has none."""
    pairs = pa.StructArray.from_arrays(headers.values.flatten(), fields=list(HEADERS_TYPE.value_type))
    has_none = pc.equal(headers.value_lengths(), 0)
    return pa.ListArray.from_arrays(headers.offsets, pairs, HEADERS_TYPE, mask=has_none)

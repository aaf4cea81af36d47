"""The columns of a record in Arrow and in Spark: names and types of Spark's Kafka source.

Timestamps are microseconds in UTC; a record without a timestamp (-1) has the time 1969-12-31 23:59:59.999,
as there. Headers are null where a record has none, as there.

A record's timestamp is any 64-bit number; a producer that counts nanoseconds sends one millions of years ahead.
Spark, Iceberg and Python agree on times of the years 1 to 9999, and the first and last of these have days that are
outside in some time zones. A record before year 2 or after 9998 has no `timestamp` (null), and `raw_timestamp_ms`
has what it was sent with; everywhere else that column is null.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")

TIMESTAMP_MS_MIN = -62_104_060_800_000
"""0002-01-01 00:00:00 UTC."""
TIMESTAMP_MS_MAX = 253_370_764_799_999
"""9998-12-31 23:59:59.999 UTC."""

RAW_TIMESTAMP = pa.field("raw_timestamp_ms", pa.int64())
HEADERS = pa.field("headers", HEADERS_TYPE)

RECORD_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP_TYPE),
        ("timestampType", pa.int32()),
    ]
)

SPARK_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
SPARK_HEADERS = "headers array<struct<key: string, value: binary>>"
SPARK_RAW_TIMESTAMP = "raw_timestamp_ms bigint"

BATCH_RECORDS_MAX = 65_536
"""Records in a batch that goes to Spark: enough that a batch costs next to nothing, few enough to stay in the cache."""


def to_record_batches(
    records: pa.RecordBatch,
    *,
    include_headers: bool,
    include_raw_timestamp: bool = False,
    records_max: int = BATCH_RECORDS_MAX,
) -> Iterator[pa.RecordBatch]:
    """Yield records (in the columns of `barnabas.records.arrow`) under Spark's names, in batches of `records_max`."""
    timestamps, raw_timestamps = split_timestamps(records.column("timestamp"))
    arrays = [
        records.column("key"),
        records.column("value"),
        records.column("topic"),
        records.column("partition"),
        records.column("offset"),
        timestamps,
        records.column("timestamp_type").cast(pa.int32()),
    ]
    fields = list(RECORD_SCHEMA)
    if include_headers:
        arrays.append(_headers_array(records.column("headers")))
        fields.append(HEADERS)
    if include_raw_timestamp:
        arrays.append(raw_timestamps)
        fields.append(RAW_TIMESTAMP)
    whole = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    for start in range(0, len(whole), records_max):
        yield whole.slice(start, records_max)


def split_timestamps(timestamps: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the columns `timestamp` and `raw_timestamp_ms`: of each row one has the time, the other is null."""
    milliseconds = timestamps.cast(pa.int64())
    least, greatest = pc.min_max(milliseconds).values()
    if not len(timestamps) or (least.as_py() >= TIMESTAMP_MS_MIN and greatest.as_py() <= TIMESTAMP_MS_MAX):
        return timestamps.cast(TIMESTAMP_TYPE), pa.nulls(len(timestamps), pa.int64())
    fits = pc.and_(pc.greater_equal(milliseconds, TIMESTAMP_MS_MIN), pc.less_equal(milliseconds, TIMESTAMP_MS_MAX))
    null = pa.scalar(None, pa.int64())
    fitting = pc.if_else(fits, milliseconds, null).cast(timestamps.type)
    return fitting.cast(TIMESTAMP_TYPE), pc.if_else(fits, null, milliseconds)


def _headers_array(headers: pa.ListArray) -> pa.ListArray:
    """Return headers with Spark's names, and null where a record has none."""
    pairs = pa.StructArray.from_arrays(headers.values.flatten(), fields=list(HEADERS_TYPE.value_type))
    has_none = pc.equal(headers.value_lengths(), 0)
    return pa.ListArray.from_arrays(headers.offsets, pairs, HEADERS_TYPE, mask=has_none)

"""The columns of a record in Arrow and in Spark: names and types of Spark's Kafka source.

As in that source, timestamps are microseconds in UTC. A record without a timestamp (-1) has the time 1969-12-31
23:59:59.999. The headers of a record without headers are null.

A record timestamp may be any 64-bit number; a producer that sends nanoseconds writes times millions of years ahead.
Spark, Iceberg and Python support the years 1 to 9999, and some time zones shift times of the first and the last year
out of this range. So a record before year 2 or after 9998 has a null `timestamp`, and its original timestamp in
`raw_timestamp_ms`. That column is null for all other records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

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

_FIELDS = {field.name: field for field in (*RECORD_SCHEMA, HEADERS, RAW_TIMESTAMP)}

SPARK_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
    "raw_timestamp_ms": "bigint",
}
"""All columns of the source, with their Spark types."""

BATCH_RECORDS_MAX = 65_536
"""The maximum number of records in a batch for Spark: large enough for small overhead per batch, small enough for the
CPU cache."""


def column_names(*, include_headers: bool, include_raw_timestamp: bool) -> list[str]:
    """Return the default columns of a query.

    >>> column_names(include_headers=False, include_raw_timestamp=True)[5:]
    ['timestamp', 'timestampType', 'raw_timestamp_ms']
    """
    left_out = {"headers": include_headers, "raw_timestamp_ms": include_raw_timestamp}
    return [name for name in SPARK_TYPES if left_out.get(name, True)]


def to_record_batches(
    records: pa.RecordBatch,
    *,
    include_headers: bool,
    include_raw_timestamp: bool = False,
    records_max: int = BATCH_RECORDS_MAX,
) -> Iterator[pa.RecordBatch]:
    """Yield records as batches of up to `records_max` with Spark's column names.

    :param records: Records in the columns of `barnabas.records.arrow`.
    """
    columns = column_names(include_headers=include_headers, include_raw_timestamp=include_raw_timestamp)
    return select_columns(records, columns, records_max=records_max)


def select_columns(
    records: pa.RecordBatch, columns: Sequence[str], *, records_max: int = BATCH_RECORDS_MAX
) -> Iterator[pa.RecordBatch]:
    """Yield some columns of records, as `to_record_batches` does with all columns.

    :param columns: The names of the columns, in this order. Other columns are not computed.
    """
    timestamps, raw_timestamps = None, None
    if "timestamp" in columns or "raw_timestamp_ms" in columns:
        timestamps, raw_timestamps = split_timestamps(records.column("timestamp"))
    made = {"timestamp": timestamps, "raw_timestamp_ms": raw_timestamps}
    arrays = [made[name] if name in made else _column(records, name) for name in columns]
    whole = pa.RecordBatch.from_arrays(arrays, schema=pa.schema([_FIELDS[name] for name in columns]))
    for start in range(0, len(whole), records_max):
        yield whole.slice(start, records_max)


def _column(records: pa.RecordBatch, name: str) -> pa.Array:
    if name == "timestampType":
        return records.column("timestamp_type").cast(pa.int32())
    if name == "headers":
        return _headers_array(records.column("headers"))
    return records.column(name)


def split_timestamps(timestamps: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the columns `timestamp` and `raw_timestamp_ms`. Exactly one of them has a value in each row."""
    import pyarrow.compute as pc  # noqa: PLC0415  # slow to import, and not needed by processes that only plan

    milliseconds = timestamps.cast(pa.int64())
    least, greatest = pc.min_max(milliseconds).values()
    if not len(timestamps) or (least.as_py() >= TIMESTAMP_MS_MIN and greatest.as_py() <= TIMESTAMP_MS_MAX):
        return timestamps.cast(TIMESTAMP_TYPE), pa.nulls(len(timestamps), pa.int64())
    fits = pc.and_(pc.greater_equal(milliseconds, TIMESTAMP_MS_MIN), pc.less_equal(milliseconds, TIMESTAMP_MS_MAX))
    null = pa.scalar(None, pa.int64())
    fitting = pc.if_else(fits, milliseconds, null).cast(timestamps.type)
    return fitting.cast(TIMESTAMP_TYPE), pc.if_else(fits, null, milliseconds)


def _headers_array(headers: pa.ListArray) -> pa.ListArray:
    """Return headers with Spark's field names; null for records without headers."""
    import pyarrow.compute as pc  # noqa: PLC0415

    pairs = pa.StructArray.from_arrays(headers.values.flatten(), fields=list(HEADERS_TYPE.value_type))
    has_none = pc.equal(headers.value_lengths(), 0)
    return pa.ListArray.from_arrays(headers.offsets, pairs, HEADERS_TYPE, mask=has_none)

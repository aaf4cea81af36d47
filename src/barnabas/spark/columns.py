"""The columns of a record in Arrow and in Spark: names and types of Spark's Kafka source.

Timestamps are microseconds in UTC; a record without a timestamp (-1) has the time 1969-12-31 23:59:59.999,
as there. Headers are null where a record has none, as there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING

import pyarrow as pa

from barnabas.model import Headers

if TYPE_CHECKING:
    from barnabas.records import Columns

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

BATCH_RECORDS_MAX = 8192


def to_record_batches(
    topic: str, partition: int, columns: Columns, *, include_headers: bool, records_max: int = BATCH_RECORDS_MAX
) -> Iterator[pa.RecordBatch]:
    """Yield the records of `columns` as Arrow batches of at most `records_max` records, in order."""
    for start in range(0, len(columns.offsets), records_max):
        yield _record_batch(topic, partition, columns, slice(start, start + records_max), include_headers)


def _record_batch(topic: str, partition: int, columns: Columns, part: slice, include_headers: bool) -> pa.RecordBatch:
    offsets = columns.offsets[part]
    count = len(offsets)
    arrays = [
        pa.array(columns.keys[part], pa.binary()),
        pa.array(columns.values[part], pa.binary()),
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.array(offsets, pa.int64()),
        pa.array(columns.timestamps_ms[part], pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP_TYPE),
        pa.array(map(int, columns.timestamp_types[part]), pa.int32()),
    ]
    if not include_headers:
        return pa.RecordBatch.from_arrays(arrays, names=RECORD_SCHEMA.names[:-1])
    arrays.append(_headers_array(columns.headers[part]))
    return pa.RecordBatch.from_arrays(arrays, names=RECORD_SCHEMA.names)


def _headers_array(headers: Sequence[Headers]) -> pa.ListArray:
    """Build the lists from their flat contents: many times faster than from Python dicts."""
    flat = list(chain.from_iterable(headers))
    pairs = pa.StructArray.from_arrays(
        [pa.array((key for key, _ in flat), pa.string()), pa.array((value for _, value in flat), pa.binary())],
        fields=list(HEADERS_TYPE.value_type),
    )
    positions = pa.array(_running_total(map(len, headers)), pa.int32())
    return pa.ListArray.from_arrays(positions, pairs, HEADERS_TYPE, mask=pa.array([not each for each in headers]))


def _running_total(lengths: Iterable[int]) -> Iterator[int]:
    return accumulate(lengths, initial=0)

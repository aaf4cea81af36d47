"""Reads records out of the batches of a fetch response: as `Record`s, or as columns for Arrow.

Damaged input raises CorruptBatchError and nothing else, and allocates no more than its real content needs.
Control batches (transaction markers) hold nothing for users and are skipped. A batch that the buffer holds only
in part, as the last one of a fetch response may be, is left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat
from typing import cast

from barnabas.errors import CorruptBatchError
from barnabas.model import TimestampType
from barnabas.records.codec import decode_records
from barnabas.records.columns import Columns
from barnabas.records.compression import DECOMPRESSED_BYTES_MAX, Compression, decompress
from barnabas.records.header import (
    BATCH_HEADER_SIZE,
    BatchHeader,
    Buffer,
    check_batch,
    check_structure,
    iter_headers,
)
from barnabas.records.record import Record

OFFSET_MAX = 2**63 - 1
"""No record has a greater offset."""

_make_record = cast("Callable[[Iterable[object]], Record]", partial(tuple.__new__, Record))


def read_records(
    buffer: Buffer,
    topic: str,
    partition: int,
    min_offset: int = 0,
    check_crc: bool = True,
) -> list[Record]:
    """Return the records of all complete batches in `buffer`.

    :param min_offset: records before it are left out; a fetch answers with whole batches.
    :raises CorruptBatchError: a batch is damaged.
    """
    columns = read_columns(buffer, min_offset, check_crc=check_crc)
    rows = zip(
        repeat(topic),
        repeat(partition),
        columns.offsets,
        columns.timestamps_ms,
        columns.timestamp_types,
        columns.keys,
        columns.values,
        columns.headers,
        strict=False,
    )
    return list(map(_make_record, rows))


def read_columns(
    buffer: Buffer,
    min_offset: int = 0,
    max_offset: int = OFFSET_MAX,
    *,
    check_crc: bool = True,
    max_batch_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> Columns:
    """Return the records with `min_offset <= offset < max_offset` of all complete batches in `buffer`.

    :param max_batch_bytes: the size that a batch may have when decompressed.
    :raises CorruptBatchError: a batch is damaged, or larger than `max_batch_bytes`.
    """
    columns = Columns()
    for position, header in iter_headers(buffer, partial_ok=True):
        if check_crc:
            check_batch(buffer, position, header)
        else:
            check_structure(header, position)
        if header.is_control or header.last_offset < min_offset or header.base_offset >= max_offset:
            continue
        _read_batch(buffer, position, header, columns, max_batch_bytes)
        if header.base_offset < min_offset or header.last_offset >= max_offset:
            _cut(columns, min_offset, max_offset)
    return columns


def _read_batch(buffer: Buffer, position: int, header: BatchHeader, columns: Columns, max_batch_bytes: int) -> None:
    records = memoryview(buffer)[position + BATCH_HEADER_SIZE : position + header.size]
    compression = header.compression
    body = bytes(records) if compression is Compression.NONE else decompress(compression, records, max_batch_bytes)
    count_before = len(columns.offsets)
    decode_records(body, header.record_count, header.base_offset, header.base_timestamp_ms, columns)
    if header.record_count and columns.offsets[-1] > header.last_offset:
        raise CorruptBatchError(f"offset {columns.offsets[-1]} in a batch that ends at {header.last_offset}")
    timestamp_type = header.timestamp_type
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        columns.timestamps_ms[count_before:] = [header.max_timestamp_ms] * header.record_count
    columns.timestamp_types.extend(repeat(timestamp_type, header.record_count))


def _cut(columns: Columns, min_offset: int, max_offset: int) -> None:
    """Drop the records outside of the range; offsets ascend, so they are at the two ends."""
    start = bisect_left(columns.offsets, min_offset)
    end = bisect_left(columns.offsets, max_offset)
    for name in Columns.__slots__:
        column = getattr(columns, name)
        del column[end:]
        del column[:start]

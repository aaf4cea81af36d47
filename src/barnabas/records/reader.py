"""Reads records from the batches of a fetch response; `arrow` reads them into columns.

Damaged input only raises CorruptBatchError. It cannot cause larger allocations than its actual content needs. Control
batches (transaction markers) contain no user data and are skipped. An incomplete batch at the end of the buffer is also
skipped, because a fetch response may end with an incomplete batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.errors import CorruptBatchError
from barnabas.records.codec import Record, decode_records, twin
from barnabas.records.codec_pure.limits import OFFSET_MAX
from barnabas.records.compression import DECOMPRESSED_BYTES_MAX, Compression, decompress
from barnabas.records.header import (
    BATCH_HEADER_SIZE,
    COMPRESSED_RECORDS_MAX,
    COMPRESSION_MASK,
    BatchHeader,
    Buffer,
    check_batch,
    check_structure,
    iter_headers,
)
from barnabas.records.scan import usual_header

SMALL_BYTES_MAX = 4096
"""The maximum size of a batch that is checked in one step.

A consumer that waits for new records mostly gets small batches. For these, separate steps would take more time than
decoding the records.
"""


def read_records(
    buffer: Buffer,
    topic: str,
    partition: int,
    min_offset: int = 0,
    check_crc: bool = True,
    *,
    max_batch_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> list[Record]:
    """Return the records of all complete batches in `buffer`.

    :param min_offset: records before this offset are left out. A fetch returns complete batches, so it may return such
        records.
    :param max_batch_bytes: the maximum decompressed size of a batch.
    :raises CorruptBatchError: a batch is damaged, or larger than `max_batch_bytes`.
    """
    if check_crc and len(buffer) <= SMALL_BYTES_MAX and (fields := usual_header(buffer, SMALL_BYTES_MAX)) is not None:
        header = BatchHeader._make(fields)
        if not header.attributes & COMPRESSION_MASK and header.last_offset >= min_offset:
            return decode_records(memoryview(buffer)[BATCH_HEADER_SIZE:], header, topic, partition, min_offset)
    records: list[Record] = []
    for header, body in iter_bodies(buffer, min_offset, check_crc=check_crc, max_batch_bytes=max_batch_bytes):
        records += decode_records(body, header, topic, partition, min_offset)
    return records


def record_stretches(records: list[Record], width_ms: int) -> list[tuple[int, int, int]]:
    """Group consecutive records whose timestamps are in the same window.

    :returns: for each group, the offset of its first record, the number of records, and the start of the window in ms,
        or -1 for records without a timestamp.
    """
    return twin.record_stretches(records, width_ms)


def iter_bodies(
    buffer: Buffer,
    min_offset: int = 0,
    max_offset: int = OFFSET_MAX,
    *,
    check_crc: bool = True,
    max_batch_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[tuple[BatchHeader, Buffer]]:
    """Yield the header and the decompressed body of each batch that may contain records in the offset range.

    :raises CorruptBatchError: a batch is damaged, or larger than `max_batch_bytes`.
    """
    view = memoryview(buffer)
    for position, header in iter_headers(view, partial_ok=True):
        if check_crc:
            check_batch(view, position, header)
        else:
            check_structure(header, position)
        if header.is_control or header.last_offset < min_offset or header.base_offset >= max_offset:
            continue
        body = view[position + BATCH_HEADER_SIZE : position + header.size]
        compression = header.compression
        # If compaction has removed all records of a batch, the batch may still have its compression attribute.
        is_plain = compression is Compression.NONE or not body
        if not is_plain and header.record_count > COMPRESSED_RECORDS_MAX:
            raise CorruptBatchError(
                f"a compressed batch has {header.record_count} records; the maximum is {COMPRESSED_RECORDS_MAX}"
            )
        yield header, body if is_plain else decompress(compression, body, max_batch_bytes)

"""Chunks to records, and what to do about damage: hand out what is whole before it, then say where it is."""

from __future__ import annotations

from barnabas.client.consumer.fetcher import Chunk
from barnabas.errors import CorruptBatchError
from barnabas.records import Record, iter_headers, read_records


def decode_chunk(
    chunk: Chunk, min_offset: int, *, check_crc: bool
) -> tuple[list[Record], int, CorruptBatchError | None]:
    """Return the records from `min_offset` on, the offset after them, and the damage that ended them, if any."""
    tp = chunk.state.tp
    try:
        records = read_records(chunk.data, tp.topic, tp.partition, min_offset=min_offset, check_crc=check_crc)
    except CorruptBatchError as error:
        return (*_whole_part(chunk, min_offset, check_crc), error)
    return records, chunk.next_offset, None


def _whole_part(chunk: Chunk, min_offset: int, check_crc: bool) -> tuple[list[Record], int]:
    """Return the records before the first damaged batch, and the offset after them."""
    tp = chunk.state.tp
    view = memoryview(chunk.data)
    records: list[Record] = []
    next_offset = min_offset
    try:
        for position, header in iter_headers(view, partial_ok=True):
            batch = view[position : position + header.size]
            records += read_records(batch, tp.topic, tp.partition, min_offset=min_offset, check_crc=check_crc)
            next_offset = max(next_offset, header.next_offset)
    except CorruptBatchError:
        pass  # the caller has this error already, from reading all at once
    return records, next_offset

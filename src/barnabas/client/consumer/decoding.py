"""Chunks to records or columns, and what to do about damage: hand out what is whole before it, then say where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.consumer.fetcher import Chunk
from barnabas.errors import CorruptBatchError
from barnabas.records import Record, iter_headers, read_records

if TYPE_CHECKING:
    from barnabas.records.arrow import ArrowReader


def decode_chunk(
    chunk: Chunk, min_offset: int, *, check_crc: bool
) -> tuple[list[Record], Chunk, CorruptBatchError | None]:
    """Return the records from `min_offset` on, the part of the chunk that is whole, and the damage that ends it."""
    tp = chunk.state.tp
    try:
        records = read_records(chunk.data, tp.topic, tp.partition, min_offset=min_offset, check_crc=check_crc)
    except CorruptBatchError as error:
        return (*_whole_part(chunk, min_offset, check_crc), error)
    return records, chunk, None


def decode_columns(
    chunk: Chunk, reader: ArrowReader, min_offset: int, records_max: int, *, check_crc: bool
) -> tuple[int, Chunk | None, CorruptBatchError | None]:
    """Add at most `records_max` records from `min_offset` on to `reader`.

    :return: the offset after them, what is left of the chunk from there on, and the damage that ended them.
    """
    tp = chunk.state.tp
    try:
        next_offset = reader.read(
            chunk.data, tp.topic, tp.partition, min_offset=min_offset, max_records=records_max, check_crc=check_crc
        )
    except CorruptBatchError as error:
        _, whole = _whole_part(chunk, min_offset, check_crc)
        return whole.next_offset, None, error
    rest = _rest(chunk, next_offset)
    return chunk.next_offset if rest is None else next_offset, rest, None


def offset_after_batch(chunk: Chunk, offset: int) -> int | None:
    """Return the offset after the batch that holds `offset`, by the header of that batch; None: no header says it."""
    try:
        for _, header in iter_headers(chunk.data, partial_ok=True):
            if header.next_offset > offset:
                return header.next_offset
    except CorruptBatchError:
        pass
    return None


def _rest(chunk: Chunk, offset: int) -> Chunk | None:
    """Return the batches from the one that holds `offset` on, if there are any with records for the application."""
    view = memoryview(chunk.data)
    for position, header in iter_headers(view, partial_ok=True):
        if header.next_offset > offset and not header.is_control:
            return Chunk(chunk.state, chunk.version, view[position:], chunk.next_offset)
    return None


def _whole_part(chunk: Chunk, min_offset: int, check_crc: bool) -> tuple[list[Record], Chunk]:
    """Return the records before the first damaged batch, and the batches before it."""
    tp = chunk.state.tp
    view = memoryview(chunk.data)
    records: list[Record] = []
    end, next_offset = 0, min_offset
    try:
        for position, header in iter_headers(view, partial_ok=True):
            batch = view[position : position + header.size]
            records += read_records(batch, tp.topic, tp.partition, min_offset=min_offset, check_crc=check_crc)
            end, next_offset = position + header.size, max(next_offset, header.next_offset)
    except CorruptBatchError:
        pass  # the caller has this error already, from reading all at once
    return records, Chunk(chunk.state, chunk.version, view[:end], next_offset)

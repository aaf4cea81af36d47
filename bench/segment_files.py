"""Writes segments of many one-record batches without a broker, because a broker would be slower."""

from __future__ import annotations

import struct
from pathlib import Path

from barnabas.records import BatchBuilder, stamp
from barnabas.storage.file_names import LOG_SUFFIX, offset_name

VALUE_BYTES = 100
LEADER_EPOCH = 0
CHUNK_BATCHES = 50_000

_BASE_OFFSET = struct.Struct(">q")


def one_record_batch(timestamp_ms: int, value: bytes = b"x" * VALUE_BYTES) -> bytes:
    """Return a batch of one record with offset 0, as a log stores it."""
    builder = BatchBuilder()
    builder.append(timestamp_ms, None, value)
    batch = bytearray(builder.build())
    stamp(batch, 0, 0, LEADER_EPOCH)
    return bytes(batch)


def write_segment(folder: Path, base_offset: int, batch: bytes, count: int) -> int:
    """Write a segment with many copies of a one-record batch. Return the offset after the last record.

    The copies differ only in the base offset, which the checksum does not cover.
    """
    pack, rest = _BASE_OFFSET.pack, batch[_BASE_OFFSET.size :]
    end_offset = base_offset + count
    with (folder / offset_name(base_offset, LOG_SUFFIX)).open("wb") as file:
        for begin in range(base_offset, end_offset, CHUNK_BATCHES):
            offsets = range(begin, min(begin + CHUNK_BATCHES, end_offset))
            file.write(b"".join([part for offset in offsets for part in (pack(offset), rest)]))
    return end_offset

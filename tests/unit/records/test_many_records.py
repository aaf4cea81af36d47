"""Batches of few bytes with very many records or headers: readers refuse them before they allocate."""

from __future__ import annotations

from types import ModuleType

import pytest

from barnabas.errors import ApiError, CorruptBatchError
from barnabas.records import Compression, codec_pure, read_header, read_records
from barnabas.records.arrow import ArrowReader
from barnabas.records.codec import load_implementation
from barnabas.records.codec_pure.limits import HEADERS_MAX
from barnabas.records.codec_pure.varints import encode_varint
from barnabas.records.compression import compress
from barnabas.records.header import COMPRESSED_RECORDS_MAX, BatchHeader, pack_header, write_crc
from barnabas.storage.log_appender import checked_batch
from barnabas.storage.log_config import LogConfig


def batch_of(body: bytes, count: int) -> bytearray:
    batch = bytearray(61) + compress(Compression.ZSTD, body)
    pack_header(batch, BatchHeader(0, len(batch) - 12, 0, 2, 0, 4, count - 1, 0, 0, -1, -1, -1, count))
    write_crc(batch, 0, len(batch))
    return batch


def test_more_records_than_a_compressed_batch_may_have_are_neither_taken_nor_read() -> None:
    batch = batch_of(b"\x0c\0\0\0\1\1\0" * 100_000, COMPRESSED_RECORDS_MAX + 1)
    with pytest.raises(ApiError, match="contains at most 393216"):
        checked_batch(memoryview(batch), LogConfig())
    with pytest.raises(CorruptBatchError, match="the maximum is 4000000"):
        read_records(batch, "t", 0)
    with pytest.raises(CorruptBatchError, match="the maximum is 4000000"):
        ArrowReader().read(batch, "t", 0)


@pytest.mark.parametrize(
    ("codec", "more"), [(codec_pure, 1), (load_implementation("codec"), 0), (load_implementation("codec"), 1)]
)
def test_a_record_has_at_most_a_million_headers(codec: ModuleType, more: int) -> None:
    count = HEADERS_MAX + more
    content = b"\0\0\0\1\1" + encode_varint(count) + b"\0\1" * count
    body = encode_varint(len(content)) + content
    header = read_header(batch_of(body, 1))
    if more:
        with pytest.raises(CorruptBatchError):
            codec.decode_records(body, header, "t", 0)
    else:
        assert len(codec.decode_records(body, header, "t", 0)) == 1

"""Batches compressed anew are the same batches otherwise."""

from __future__ import annotations

import pytest

from barnabas.errors import CorruptBatchError
from barnabas.records import BatchBuilder, Compression, check_batch, read_header, read_records
from barnabas.records.recompression import recompress


def batch_of(kind: Compression, *values: bytes) -> bytearray:
    builder = BatchBuilder(kind)
    for value in values:
        builder.append(1_000, b"key", value, [("h", b"x")])
    return builder.build(producer_id=7, producer_epoch=1, base_sequence=40)


@pytest.mark.parametrize("wanted", list(Compression))
@pytest.mark.parametrize("given", list(Compression))
def test_only_the_compression_changes(given: Compression, wanted: Compression) -> None:
    batch = batch_of(given, b"a" * 500, b"b")
    changed = recompress(bytes(batch), wanted)
    header = read_header(changed)
    check_batch(changed, 0, header)
    assert header.compression is wanted
    assert (header.producer_id, header.base_sequence, header.record_count) == (7, 40, 2)
    assert [r.value for r in read_records(changed, "t", 0)] == [b"a" * 500, b"b"]


def test_batches_that_are_right_already_are_not_copied() -> None:
    batch = bytes(batch_of(Compression.ZSTD, b"a"))
    assert recompress(batch, Compression.ZSTD) is batch


def test_several_batches_are_changed_each() -> None:
    both = bytes(batch_of(Compression.GZIP, b"a")) + bytes(batch_of(Compression.NONE, b"b"))
    assert [r.value for r in read_records(recompress(both, Compression.LZ4), "t", 0)] == [b"a", b"b"]


def test_a_damaged_batch_is_refused() -> None:
    batch = batch_of(Compression.GZIP, b"a" * 500)
    batch[-3] ^= 0xFF
    with pytest.raises(CorruptBatchError):
        recompress(batch, Compression.NONE)


def test_a_body_over_the_bound_is_refused() -> None:
    with pytest.raises(CorruptBatchError):
        recompress(bytes(batch_of(Compression.GZIP, b"a" * 50_000)), Compression.NONE, max_bytes=10_000)


def test_bodies_over_the_bound_together_are_refused() -> None:
    both = bytes(batch_of(Compression.GZIP, b"a" * 6_000)) * 2
    assert recompress(both, Compression.NONE, max_bytes=20_000)
    with pytest.raises(CorruptBatchError):
        recompress(both, Compression.NONE, max_bytes=10_000)

"""Batches survive the round trip whatever is in them; damaged ones raise CorruptBatchError and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import CorruptBatchError
from barnabas.records import BatchBuilder, Compression, decompress, read_records, stamp
from barnabas.records.header import write_crc

blobs = st.one_of(st.none(), st.binary(max_size=300), st.integers(0, 20_000).map(bytes))
headers = st.lists(st.tuples(st.text(max_size=10), blobs), max_size=3)
records = st.lists(st.tuples(st.integers(-1, 2**45), blobs, blobs, headers), min_size=1, max_size=20)
compressions = st.sampled_from(Compression)


def build(compression: Compression, content: list[tuple]) -> bytearray:
    builder = BatchBuilder(compression)
    for timestamp_ms, key, value, record_headers in content:
        builder.append(timestamp_ms, key, value, record_headers)
    return builder.build()


@given(compressions, records, st.integers(0, 2**50))
def test_round_trip(compression: Compression, content: list[tuple], base_offset: int) -> None:
    batch = build(compression, content)
    stamp(batch, 0, base_offset, 0)
    seen = read_records(batch, "t", 0)
    assert [(r.timestamp_ms, r.key, r.value, list(r.headers)) for r in seen] == content
    assert [r.offset for r in seen] == list(range(base_offset, base_offset + len(content)))


@given(compressions, records, st.data())
def test_flipped_bit_outside_of_the_stamped_fields_is_found(
    compression: Compression, content: list[tuple], data: st.DataObject
) -> None:
    batch = build(compression, content)
    position = data.draw(st.integers(16, len(batch) - 1))
    batch[position] ^= 1 << data.draw(st.integers(0, 7))
    try:
        read_records(batch, "t", 0)
    except CorruptBatchError:
        return
    raise AssertionError("damage was not found")


@given(compressions, records, st.data())
def test_damage_behind_a_valid_crc_raises_nothing_but_corrupt_batch(
    compression: Compression, content: list[tuple], data: st.DataObject
) -> None:
    """What a hostile producer can send: the CRC fits, the rest is anything."""
    batch = build(compression, content)
    for _ in range(data.draw(st.integers(1, 5))):
        position = data.draw(st.integers(21, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    write_crc(batch, 0, len(batch))
    try:
        seen = read_records(batch, "t", 0, max_batch_bytes=1_000_000)
    except CorruptBatchError:
        return
    assert [record.offset for record in seen] == sorted({record.offset for record in seen})
    assert len(repr(seen)) > 0  # all attributes can be made


@given(st.binary(max_size=500))
def test_noise_raises_nothing_but_corrupt_batch(noise: bytes) -> None:
    try:
        read_records(noise, "t", 0)
    except CorruptBatchError:
        return


@given(compressions, records, st.data())
def test_truncated_batch_is_left_out(compression: Compression, content: list[tuple], data: st.DataObject) -> None:
    batch = build(compression, content)
    assert read_records(batch[: data.draw(st.integers(0, len(batch) - 1))], "t", 0) == []


@given(st.sampled_from([kind for kind in Compression if kind]), st.binary(max_size=200), st.data())
def test_noise_after_a_valid_beginning_does_not_break_decompression(
    kind: Compression, noise: bytes, data: st.DataObject
) -> None:
    valid = bytes(build(kind, [(0, None, b"to be or not to be " * 20, [])])[61:])
    damaged = valid[: data.draw(st.integers(0, len(valid)))] + noise
    try:
        assert len(decompress(kind, damaged, max_bytes=10_000)) <= 10_000
    except CorruptBatchError:
        return

"""Building batches and reading them back."""

from __future__ import annotations

import pytest

from barnabas.errors import CorruptBatchError
from barnabas.model import TimestampType
from barnabas.records import BatchBuilder, Compression, read_header, read_records, stamp
from barnabas.records.codec_pure.varints import decode_varint, encode_varint
from barnabas.records.header import CONTROL_MASK, write_crc


def make_log(*sizes: int) -> bytearray:
    """Batches one after the other, with offsets; the value is the offset."""
    log = bytearray()
    offset = 0
    for size in sizes:
        builder = BatchBuilder()
        builder.append_many(1_000, [str(offset + index).encode() for index in range(size)])
        batch = builder.build()
        stamp(batch, 0, offset, 0)
        log += batch
        offset += size
    return log


def test_records_come_with_everything_they_were_sent_with() -> None:
    builder = BatchBuilder(Compression.GZIP)
    assert builder.append(5_000, b"k", b"v", [("a", b"1"), ("a", None)]) == 0
    assert builder.append(4_000, None, None) == 1
    batch = builder.build()
    stamp(batch, 0, 10, 0)
    first, second = read_records(batch, "clicks", 3)
    assert tuple(first) == ("clicks", 3, 10, 5_000, TimestampType.CREATE_TIME, b"k", b"v", (("a", b"1"), ("a", None)))
    assert (second.offset, second.timestamp_ms, second.key, second.value) == (11, 4_000, None, None)
    assert read_header(batch).max_timestamp_ms == 5_000


def test_records_before_the_fetch_offset_are_left_out() -> None:
    records = read_records(make_log(5, 5), "t", 0, min_offset=3)
    assert [record.value for record in records] == [b"3", b"4", b"5", b"6", b"7", b"8", b"9"]


def test_partial_last_batch_is_left_out() -> None:
    log = make_log(5, 5)
    assert len(read_records(log[:-1], "t", 0)) == 5
    assert read_records(b"", "t", 0) == []


def test_control_batches_are_skipped() -> None:
    log = make_log(2, 2)
    log[22] |= CONTROL_MASK
    write_crc(log, 0, read_header(log).size)
    assert [record.offset for record in read_records(log, "t", 0)] == [2, 3]


def test_damage_is_found_and_named_by_crc() -> None:
    log = make_log(3)
    log[-2] ^= 1
    with pytest.raises(CorruptBatchError, match="CRC"):
        read_records(log, "t", 0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x0c",
        b"\x0c\x00\x00\x00\x01\x01\x02",
        b"\x0c\x00\x00\x00\x01\xfe\xff\xff\xff\x0f\x00",
        b"\x0b\x00\x00\x00\x01\x01\x00",
        b"\x0e\x00\x00\x00\x01\x01\x00",
        b"\x0c\x00\x00\x00\x01\x01\x00trailing",
        b"\x14\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x10\x00\x00\x00\x01\x01\x02\x7f\x00",
    ],
)
def test_records_that_do_not_fit_are_refused(body: bytes) -> None:
    batch = make_log(1)[:61] + body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    write_crc(batch, 0, len(batch))
    with pytest.raises(CorruptBatchError):
        read_records(batch, "t", 0)


def test_header_names_that_are_not_utf8_do_not_stop_a_consumer() -> None:
    builder = BatchBuilder()
    builder.append(1, None, b"v", [("xx", b"1")])
    batch = bytearray(builder.build())
    batch[batch.index(b"xx") : batch.index(b"xx") + 2] = b"\xff\xfe"
    write_crc(batch, 0, len(batch))
    assert read_records(batch, "t", 0)[0].headers == (("\ufffd\ufffd", b"1"),)


def test_builder_builds_again_with_another_producer() -> None:
    builder = BatchBuilder(Compression.LZ4)
    builder.append_many(7, [b"a", None, b"c"], [b"k", None, b"m"])
    first = builder.build(producer_id=1, producer_epoch=0, base_sequence=10)
    again = builder.build(producer_id=2, producer_epoch=3, base_sequence=0)
    assert first[61:] == again[61:]
    assert read_header(again).producer_id == 2
    assert [record.key for record in read_records(again, "t", 0)] == [b"k", None, b"m"]
    builder.append(8, None, b"d")
    assert len(read_records(builder.build(), "t", 0)) == 4


def test_size_of_the_builder_is_the_size_of_the_uncompressed_batch() -> None:
    builder = BatchBuilder()
    builder.append(1, b"key", b"value" * 3_000, [("h", b"1")])
    builder.append_many(5_000, [b"x" * 100, None] * 500)
    assert builder.size_bytes == len(builder.build())
    assert builder.count == 1_001


def test_large_batches_have_offsets_beyond_the_varint_table() -> None:
    builder = BatchBuilder()
    builder.append_many(0, [b""] * 9_000)
    builder.append(1_700_000_000_000, None, b"late")
    builder.append(0, None, b"early again")
    records = read_records(builder.build(), "t", 0)
    assert [record.offset for record in records] == list(range(9_002))
    assert records[-2].timestamp_ms == 1_700_000_000_000


def test_append_that_fails_leaves_the_builder_as_it_was() -> None:
    builder = BatchBuilder()
    builder.append(1, None, b"good")
    with pytest.raises((TypeError, AttributeError)):
        builder.append(2, None, "text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="0 keys for 1 values"):
        builder.append_many(2, [b"a"], [])
    builder.append(3, None, b"good too")
    assert [record.value for record in read_records(builder.build(), "t", 0)] == [b"good", b"good too"]


def test_empty_builder_does_not_build() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        BatchBuilder().build()


@pytest.mark.parametrize("value", [0, -1, 63, 64, -64, -65, 8_191, 8_192, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)])
def test_varints_round_trip(value: int) -> None:
    encoded = encode_varint(value)
    assert decode_varint(b"\xff" + encoded, 1) == (value, 1 + len(encoded))

"""What both codecs do, run on each: the compiled one is skipped, visibly, where it was not built."""

from __future__ import annotations

import pickle
import struct
from types import ModuleType
from typing import Any

import pytest

from barnabas.errors import CorruptBatchError
from barnabas.model import TimestampType
from barnabas.records import codec_pure
from barnabas.records.columns import BinaryBuffers
from barnabas.records.header import BatchHeader


@pytest.fixture(params=["pure", "compiled"])
def codec(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "pure":
        return codec_pure
    return pytest.importorskip("barnabas.records.codec_compiled", reason="the compiled codec was not built")


def header_of(encoder: Any, base_offset: int = 0, log_append_time_ms: int | None = None) -> BatchHeader:
    return BatchHeader(
        base_offset=base_offset,
        batch_length=encoder.size_bytes - 12,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0 if log_append_time_ms is None else 8,
        last_offset_delta=encoder.count - 1,
        base_timestamp_ms=encoder.base_timestamp_ms,
        max_timestamp_ms=encoder.max_timestamp_ms if log_append_time_ms is None else log_append_time_ms,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=encoder.count,
    )


def column(*values: bytes | None, start: int = 0, is_wide: bool = False) -> BinaryBuffers:
    """An Arrow column whose first `start` values are before its beginning."""
    bits = sum((value is not None) << place for place, value in enumerate(values))
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + len(value or b""))
    return BinaryBuffers(
        len(values) - start,
        struct.pack(f"={len(offsets)}{'q' if is_wide else 'i'}", *offsets),
        b"".join(value or b"" for value in values),
        bits.to_bytes((len(values) + 7) // 8, "little") if None in values else None,
        values[start:].count(None),
        start,
        is_wide,
    )


# --- encoding ---


def test_a_limited_append_takes_what_fits_and_no_more(codec: ModuleType) -> None:
    encoder = codec.RecordEncoder()
    encoder.limit_bytes = 61 + 3 * 17
    values = [b"x" * 10] * 5
    assert encoder.append_many(0, values, limited=True) == 3
    assert encoder.size_bytes == encoder.limit_bytes
    assert encoder.append_many(0, values, start=3, limited=True) == 0
    assert encoder.append_many(0, values, start=3) == 2
    assert encoder.count == 5


def test_what_was_built_stays_when_the_encoder_goes_on(codec: ModuleType) -> None:
    encoder = codec.RecordEncoder()
    encoder.append(0, None, b"a")
    first = encoder.whole()
    again = encoder.whole()
    before = bytes(first)
    first[0] = again[1] = 7
    encoder.append_many(0, [b"b"] * 1000)
    assert bytes(first[61:]) == before[61:] == bytes(again[61:])
    assert (first[0], first[1], again[0], again[1]) == (7, 0, 0, 7)
    assert encoder.whole()[61:].tobytes() if isinstance(encoder.whole(), memoryview) else encoder.whole()[61:]
    assert len(encoder.whole()) == encoder.size_bytes


def test_bytes_like_values_are_taken_as_they_are_now(codec: ModuleType) -> None:
    encoder = codec.RecordEncoder()
    value = bytearray(b"now")
    encoder.append(0, memoryview(b"key"), value)
    encoder.append_many(0, [value, memoryview(b"view")], [bytearray(b"k"), None])
    value[:] = b"---"
    records = codec.decode_records(encoder.body(), header_of(encoder), "t", 0)
    assert [(record.key, record.value) for record in records] == [(b"key", b"now"), (b"k", b"now"), (None, b"view")]


@pytest.mark.parametrize("given", ["text", 5, object()])
def test_what_is_not_bytes_is_a_type_error_and_changes_nothing(codec: ModuleType, given: Any) -> None:
    encoder = codec.RecordEncoder()
    for attempt in (
        lambda: encoder.append(0, None, given),
        lambda: encoder.append(0, given, b""),
        lambda: encoder.append_many(0, [b"good", given]),
        lambda: encoder.append_many(0, [b"good"], [given]),
        lambda: encoder.append(given if given != 5 else "5", None, b""),
    ):
        with pytest.raises(TypeError):
            attempt()
    assert (encoder.count, encoder.size_bytes) == (0, 61)


@pytest.mark.parametrize("timestamp_ms", [2**63, -(2**63) - 1, 2**70])
def test_timestamps_that_do_not_fit_64_bits_are_refused(codec: ModuleType, timestamp_ms: int) -> None:
    encoder = codec.RecordEncoder()
    with pytest.raises(ValueError, match="between"):
        encoder.append(timestamp_ms, None, b"")
    assert encoder.count == 0


def test_arrow_columns_are_appended_in_the_order_asked_for(codec: ModuleType) -> None:
    encoder = codec.RecordEncoder()
    values = column(b"gone", b"a", None, b"", b"ccc", start=1)
    keys = column(b"k1", None, b"k3", b"k4", is_wide=True)
    stamps = struct.pack("=4q", 10, 20, 5, 40)
    order = struct.pack("=3q", 3, 0, 1)
    assert encoder.append_columns(stamps, values, keys, order, 0, 3) == 3
    assert encoder.append_columns(7, values, None, None, 2, 4) == 2
    records = codec.decode_records(encoder.body(), header_of(encoder), "t", 0)
    assert [(record.timestamp_ms, record.key, record.value) for record in records] == [
        (40, b"k4", b"ccc"),
        (10, b"k1", b"a"),
        (20, None, None),
        (7, None, b""),
        (7, None, b"ccc"),
    ]
    assert (encoder.base_timestamp_ms, encoder.max_timestamp_ms) == (40, 40)


def test_arrow_columns_stop_at_the_limit(codec: ModuleType) -> None:
    encoder = codec.RecordEncoder()
    encoder.limit_bytes = 61 + 2 * 17
    assert encoder.append_columns(0, column(*[b"x" * 10] * 5), None, None, 1, 5) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        BinaryBuffers(2, struct.pack("=3i", 0, 5, 3), b"12345", None, 0),
        BinaryBuffers(2, struct.pack("=3i", 0, 1, 6), b"12345", None, 0),
        BinaryBuffers(2, struct.pack("=3i", -1, 1, 2), b"12345", None, 0),
        BinaryBuffers(2, struct.pack("=2i", 0, 1), b"12345", None, 0),
        BinaryBuffers(9, struct.pack("=10i", *range(10)), b"123456789", b"\xff", 0),
        BinaryBuffers(1, struct.pack("=2i", 0, 1), b"1", None, 0, start=-1),
    ],
)
def test_columns_that_point_outside_of_their_data_are_refused(codec: ModuleType, wrong: BinaryBuffers) -> None:
    with pytest.raises(ValueError, match="offsets"):
        codec.RecordEncoder().append_columns(0, wrong, None, None, 0, wrong.length)
    with pytest.raises(ValueError, match="offsets"):
        codec.group_rows(wrong, 3)


def test_rows_outside_of_a_column_are_refused(codec: ModuleType) -> None:
    encoder = codec.RecordEncoder()
    with pytest.raises(IndexError):
        encoder.append_columns(0, column(b"a"), None, None, 0, 2)
    with pytest.raises(ValueError, match="offsets"):
        encoder.append_columns(0, column(b"a"), None, struct.pack("=q", 1), 0, 1)
    with pytest.raises(ValueError, match="offsets"):
        encoder.append_columns(0, column(b"a", b"b"), column(b"k"), None, 0, 2)


def test_rows_are_grouped_by_the_partition_of_their_key(codec: ModuleType) -> None:
    names = [b"member-%d" % number for number in range(50)]
    keys = column(*names[:25], None, *names[25:])
    order, counts = codec.group_rows(keys, 6)
    rows = list(memoryview(order).cast("B").cast("q"))
    assert sorted(rows) == list(range(51))
    assert counts == [*counts[:6], 1]
    assert rows[-1] == 25
    start = 0
    for partition, count in enumerate(counts[:6]):
        part = rows[start : start + count]
        assert part == sorted(part)
        for row in part:
            name = names[row if row < 25 else row - 1]
            assert (codec.murmur2(name) & 0x7FFFFFFF) % 6 == partition
        start += count


@pytest.mark.parametrize(
    ("key", "expected"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"", 275646681)],
)
def test_keys_hash_as_in_java(codec: ModuleType, key: bytes, expected: int) -> None:
    assert codec.murmur2(key) == expected & 0xFFFFFFFF


# --- records ---


def test_a_record_is_a_value(codec: ModuleType) -> None:
    fields = ("t", 3, 7, 1_700, TimestampType.CREATE_TIME, b"k", None, (("a", b"1"), ("b", None)))
    record = codec.Record(*fields)
    assert tuple(record) == fields
    assert (record.topic, record.partition, record.offset, record.timestamp_ms) == fields[:4]
    assert (record.timestamp_type, record.key, record.value, record.headers) == fields[4:]
    assert record == codec.Record(*fields)
    assert record != codec.Record(*fields[:6], b"", fields[7])
    assert hash(record) == hash(codec.Record(*fields))
    assert pickle.loads(pickle.dumps(record)) == record
    assert len(record) == 8
    assert record[2] == 7
    assert repr(record).startswith("Record(topic='t', partition=3, offset=7, timestamp_ms=1700, ")
    topic, *_, headers = record
    assert (topic, headers) == ("t", fields[7])
    with pytest.raises(AttributeError):
        record.offset = 8


def test_records_compare_by_their_fields(codec: ModuleType) -> None:
    earlier = codec.Record("t", 0, 1, 0, TimestampType.CREATE_TIME, None, b"b", ())
    later = codec.Record("t", 0, 2, 0, TimestampType.CREATE_TIME, None, b"a", ())
    assert sorted([later, earlier]) == [earlier, later]
    assert earlier != 5


def test_records_outlive_what_they_were_read_from(codec: ModuleType) -> None:
    encoder = codec.RecordEncoder()
    encoder.append(0, b"key", b"value", [("h", b"1")])
    body = bytearray(encoder.body())
    (record,) = codec.decode_records(memoryview(body), header_of(encoder), "t", 0)
    body[:] = bytes(len(body))
    assert (record.key, record.value, record.headers) == (b"key", b"value", (("h", b"1"),))


def test_log_append_time_replaces_the_timestamps(codec: ModuleType) -> None:
    encoder = codec.RecordEncoder()
    encoder.append_many(5, [b"a", b"b"])
    header = header_of(encoder, log_append_time_ms=99)
    records = codec.decode_records(encoder.body(), header, "t", 0)
    assert {(record.timestamp_ms, record.timestamp_type) for record in records} == {(99, TimestampType.LOG_APPEND_TIME)}
    decoder = codec.ColumnDecoder()
    decoder.decode(encoder.body(), header)
    columns = decoder.finish()
    assert list(memoryview(columns.timestamps_ms).cast("B").cast("q")) == [99, 99]
    assert bytes(columns.timestamp_types) == b"\x01\x01"


@pytest.mark.parametrize(
    "changes",
    [
        {"record_count": 4},
        {"record_count": -1},
        {"record_count": 2**31 - 1},
        {"last_offset_delta": 1},
        {"record_count": 2},
        {"base_offset": 2**63 - 2},
        {"base_offset": -1},
    ],
)
def test_headers_that_do_not_fit_the_body_are_corrupt(codec: ModuleType, changes: dict[str, int]) -> None:
    encoder = codec.RecordEncoder()
    encoder.append_many(5, [b"a", b"b", b"c"])
    header = header_of(encoder)._replace(**changes)
    decoder = codec.ColumnDecoder()
    for attempt in (
        lambda: codec.decode_records(encoder.body(), header, "t", 0),
        lambda: decoder.decode(encoder.body(), header),
    ):
        with pytest.raises(CorruptBatchError):
            attempt()
    assert len(decoder) == 0


# --- columns ---


def test_columns_are_cut_by_offset_and_number(codec: ModuleType) -> None:
    encoder = codec.RecordEncoder()
    encoder.append_many(5, [b"%d" % number for number in range(10)])
    header = header_of(encoder, base_offset=100)
    decoder = codec.ColumnDecoder(include_headers=False)
    assert decoder.decode(encoder.body(), header, 103, 109) == 6
    assert decoder.decode(encoder.body(), header, 108, max_records=1) == 1
    assert decoder.decode(encoder.body(), header, 110) == 0
    assert decoder.decode(encoder.body(), header, max_records=0) == 0
    assert (len(decoder), decoder.last_offset, decoder.size_bytes) == (7, 108, 7)
    columns = decoder.finish()
    assert columns.length == 7
    assert bytes(columns.values.data) == b"3456788"
    assert columns.headers is None
    assert len(decoder) == 0
    assert decoder.finish().length == 0


def test_timestamps_that_are_far_apart_can_be_read_again(codec: ModuleType) -> None:
    encoder = codec.RecordEncoder()
    encoder.append(-(2**63), None, b"")
    encoder.append(2**63 - 1, None, b"")
    records = codec.decode_records(encoder.body(), header_of(encoder), "t", 0)
    assert [record.timestamp_ms for record in records] == [-(2**63), 2**63 - 1]


def test_lists_of_nothing_but_bytes_are_taken_as_they_are(codec: ModuleType) -> None:
    exact = [b"a", None]
    assert codec.exact_bytes(exact) is exact
    assert codec.exact_bytes((bytearray(b"a"), None, memoryview(b"b"))) == [b"a", None, b"b"]
    with pytest.raises(TypeError):
        codec.exact_bytes([b"a", "b"])


def test_an_empty_range_of_offsets_adds_nothing(codec: ModuleType) -> None:
    encoder = codec.RecordEncoder()
    encoder.append_many(0, [b"a", b"b"])
    decoder = codec.ColumnDecoder()
    assert decoder.decode(encoder.body(), header_of(encoder), 2, 1) == 0
    assert codec.decode_records(encoder.body(), header_of(encoder), "t", 0, 2, 1) == []


def test_records_are_found_by_windows_while_their_offsets_follow_on_each_other(codec: ModuleType) -> None:
    encoder = codec.RecordEncoder()
    for timestamp_ms in (0, 59, 60, 119, 5, -1, -7, 2**61 - 1):
        encoder.append(timestamp_ms, None, b"x")
    header = header_of(encoder, base_offset=10)
    last = (17, 1, (2**61 - 1) // 60 * 60)
    expected = [(10, 2, 0), (12, 2, 60), (14, 1, 0), (15, 2, -1), last]
    assert codec.record_stretches(codec.decode_records(encoder.body(), header, "t", 0), 60) == expected
    decoder = codec.ColumnDecoder()
    assert decoder.stretches(0, 60) == []
    decoder.decode(encoder.body(), header, 11, 13)
    decoder.decode(encoder.body(), header, 14)
    assert decoder.stretches(0, 60) == [(11, 1, 0), (12, 1, 60), *expected[2:]]
    assert decoder.stretches(2, 2**62) == [(14, 1, 0), (15, 2, -1), (17, 1, 0)]
    assert decoder.stretches(6, 60) == decoder.stretches(2**62, 60) == codec.record_stretches([], 60) == []
    with pytest.raises(TypeError):
        codec.record_stretches(None, 60)

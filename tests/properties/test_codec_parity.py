"""The compiled codec and its twin in Python give the same bytes, records, columns and errors."""

from __future__ import annotations

import os
from array import array
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.errors import CorruptBatchError
from barnabas.records import codec_pure
from barnabas.records.columns import BinaryBuffers
from barnabas.records.header import BatchHeader
from tests.support.searches import examples

codec_compiled = pytest.importorskip("barnabas.records.codec_compiled", reason="the compiled codec was not built")

EXAMPLES = int(os.environ.get("PARITY_EXAMPLES", "0")) or examples(150)
"""More are run where the codec is built with a sanitizer: `tools/sanitize_codec.sh`."""

blobs = st.one_of(st.none(), st.binary(max_size=80), st.integers(0, 9_000).map(bytes))
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
headers = st.lists(st.tuples(names, blobs), max_size=3)
timestamps = st.one_of(st.integers(-1, 2**45), st.integers(-(2**63), 2**63 - 1))
contents = st.lists(st.tuples(timestamps, blobs, blobs, headers), min_size=1, max_size=12)
varints = st.one_of(
    st.integers(-3, 200), st.integers(-(2**66), 2**66), st.sampled_from([2**31 - 1, 2**31, 2**63 - 1, -(2**63)])
)
"""Numbers that a length or a delta of a hostile batch may be."""


def encoder_with(codec: Any, content: list[tuple]) -> Any:
    encoder = codec.RecordEncoder()
    for record in content:
        encoder.append(record[0], record[1], record[2], record[3])
    return encoder


def header_of(encoder: Any, base_offset: int = 0, appended_ms: int | None = None) -> BatchHeader:
    last, maximum = encoder.count - 1, encoder.max_timestamp_ms if appended_ms is None else appended_ms
    place = (base_offset, encoder.size_bytes - 12, 0, 2, 0, 0 if appended_ms is None else 8, last)
    return BatchHeader(*place, encoder.base_timestamp_ms, maximum, -1, -1, -1, encoder.count)


def outcome(function: Any, *arguments: Any) -> Any:
    """What a function returns, or the kind and the words of the error that it raises."""
    try:
        return function(*arguments)
    except CorruptBatchError as error:
        return type(error), str(error)


def columns_of(codec: Any, body: bytes, header: BatchHeader, *limits: int) -> Any:
    decoder = codec.ColumnDecoder()
    decoder.decode(body, header, *limits)
    return plain(decoder.finish())


def plain(columns: Any) -> Any:
    """Buffers as bytes, so that they can be compared."""
    if isinstance(columns, tuple):
        return tuple(plain(each) for each in columns)
    return bytes(columns) if isinstance(columns, (memoryview, bytearray)) else columns


def records_of(codec: Any, body: bytes, header: BatchHeader, *limits: int) -> list[tuple]:
    return [tuple(record) for record in codec.decode_records(body, header, "t", 3, *limits)]


def assert_same_reading(body: bytes, header: BatchHeader, *limits: int) -> None:
    assert outcome(records_of, codec_compiled, body, header, *limits) == outcome(
        records_of, codec_pure, body, header, *limits
    )
    assert outcome(columns_of, codec_compiled, body, header, *limits) == outcome(
        columns_of, codec_pure, body, header, *limits
    )


@given(contents)
def test_they_encode_the_same_bytes(content: list[tuple]) -> None:
    compiled, pure = encoder_with(codec_compiled, content), encoder_with(codec_pure, content)
    assert compiled.body() == pure.body()
    assert header_of(compiled) == header_of(pure)


@given(st.lists(st.tuples(blobs, blobs), max_size=12), st.integers(0, 5), st.integers(61, 3_000), timestamps)
def test_they_append_many_alike(rows: list[tuple], start: int, limit_bytes: int, timestamp_ms: int) -> None:
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    seen = []
    for codec in (codec_compiled, codec_pure):
        encoder = codec.RecordEncoder()
        encoder.limit_bytes = limit_bytes
        added = encoder.append_many(timestamp_ms, values, keys, start=start, limited=True)
        more = encoder.append_many(timestamp_ms, values)
        seen.append((added, more, encoder.size_bytes, encoder.body()))
    assert seen[0] == seen[1]


@given(contents, st.integers(0, 2**62), st.integers(-1, 15), st.integers(-1, 15), st.one_of(st.none(), timestamps))
def test_they_read_the_same(
    content: list[tuple], base_offset: int, low: int, high: int, appended_ms: int | None
) -> None:
    encoder = encoder_with(codec_pure, content)
    assert_same_reading(
        encoder.body(), header_of(encoder, base_offset, appended_ms), base_offset + low, base_offset + high
    )


@given(
    st.lists(st.one_of(st.integers(-2, 300), timestamps), min_size=1),
    st.integers(0, 40),
    st.integers(1, 2**63 - 1),
    st.sampled_from([None, 2**63 - 1, 2**63 - 2, -(2**63)]),
)
@example([0, 0], 0, 1, 2**63 - 1)
def test_they_find_the_same_windows_and_each_record_once(
    times_ms: list[int], row: int, width_ms: int, appended_ms: int | None
) -> None:
    encoder = encoder_with(codec_pure, [(time_ms, None, b"", ()) for time_ms in times_ms])
    header = header_of(encoder, 7, appended_ms)
    if appended_ms is not None:
        times_ms = [appended_ms] * len(times_ms)
    for width in (60, width_ms):
        seen = []
        for codec in (codec_compiled, codec_pure):
            decoder = codec.ColumnDecoder()
            decoder.decode(encoder.body(), header)
            records = codec.decode_records(encoder.body(), header, "t", 3)
            seen += [decoder.stretches(row, width), codec.record_stretches(records[row:], width)]
        assert all(each == seen[0] for each in seen)
        assert appended_ms is None or len(seen[0]) <= 1
        assert [(first + place, window) for first, count, window in seen[0] for place in range(count)] == [
            (7 + place, -1 if each < 0 else each - each % width) for place, each in enumerate(times_ms) if place >= row
        ]


@settings(max_examples=EXAMPLES)
@given(contents, st.data())
def test_they_refuse_the_same_damage_with_the_same_words(content: list[tuple], data: st.DataObject) -> None:
    encoder = encoder_with(codec_pure, content)
    header, body = header_of(encoder), bytearray(encoder.body())
    for _ in range(data.draw(st.integers(1, 4))):
        if body:
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del body[data.draw(st.integers(0, len(body))) :]
    count = data.draw(st.one_of(st.just(encoder.count), st.integers(-1, 20)))
    header = header._replace(
        record_count=count, last_offset_delta=data.draw(st.sampled_from([encoder.count - 1, 0, 99]))
    )
    assert_same_reading(bytes(body), header)


@settings(max_examples=EXAMPLES)
@given(st.lists(varints, min_size=5, max_size=12), st.binary(max_size=20))
def test_they_agree_on_records_made_of_any_numbers(numbers: list[int], tail: bytes) -> None:
    fields = b"".join(codec_pure.varints.encode_varint(number) for number in numbers[1:])
    body = codec_pure.varints.encode_varint(numbers[0]) + b"\x00" + fields + tail
    exact = codec_pure.varints.encode_varint(len(fields) + len(tail) + 1) + b"\x00" + fields + tail
    for each in (body, exact):
        for last in (0, 2**31 - 1):
            assert_same_reading(each, BatchHeader(0, 0, 0, 2, 0, 0, last, 0, 0, -1, -1, -1, 1))


@given(st.lists(st.one_of(st.integers(-5, 40)), min_size=1, max_size=9), st.binary(max_size=30), st.binary(max_size=2))
def test_they_agree_on_columns_of_any_offsets(offsets: list[int], data: bytes, validity: bytes) -> None:
    column = BinaryBuffers(len(offsets) - 1, array("i", offsets).tobytes(), data, validity or None, 0)
    seen = []
    for codec in (codec_compiled, codec_pure):
        encoder = codec.RecordEncoder()
        try:
            encoder.append_columns(0, column, column, None, 0, column.length)
            order, counts = codec.group_rows(column, 3)
            seen.append((encoder.body(), bytes(order), counts))
        except ValueError as error:
            seen.append(str(error))
    assert seen[0] == seen[1]

"""Every reader reads each record of a batch that the broker accepts, with either codec.

The batches have extreme values in every field of their headers and records. The checks of a produce request
(`barnabas.storage.log_appender`) choose those that are read: as records, as Arrow columns and as lines of `barnabas
consume`. A decoder of this file, which knows no limits, gives the expected records.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from barnabas.cli.message_format import compile_format, json_line
from barnabas.cli.times import show_time_ms
from barnabas.errors import BarnabasError
from barnabas.records import Compression, codec_pure, read_header
from barnabas.records.arrow import ArrowReader
from barnabas.records.codec_pure.encoding import column_reader
from barnabas.records.codec_pure.varints import encode_varint
from barnabas.records.compression import compress
from barnabas.records.header import BATCH_HEADER_SIZE, MAGIC, BatchHeader, pack_header, write_crc
from barnabas.records.reader import iter_bodies, read_records
from barnabas.storage.log_appender import checked_batch, stamped
from barnabas.storage.log_config import LogConfig
from tests.support.searches import examples

codec_compiled = pytest.importorskip("barnabas.records.codec_compiled", reason="the compiled codec was not built")
TWINS: tuple[ModuleType, ...] = (codec_pure, codec_compiled)

BASE_OFFSET = 1_000
EDGES_64 = [-(2**63), -(2**62), -(2**61), -1, 0, 1, 2**31, 2**61, 2**62, 2**63 - 1]
EDGES_32 = [-(2**31), -1, 0, 1, 2**31 - 1]

longs = st.one_of(st.sampled_from(EDGES_64), st.integers(-(2**63), 2**63 - 1))
ints = st.one_of(st.sampled_from(EDGES_32), st.integers(-(2**31), 2**31 - 1))
null_lengths = st.one_of(st.just(-1), st.just(-2), st.integers(-(2**63), -1))
blobs = st.one_of(st.binary(max_size=9), null_lengths)
"""A value, or the negative length that stands for null."""


class Drawn(NamedTuple):
    """A record as it is written."""

    attributes: int
    timestamp_delta: int
    offset_delta: int | None
    """None: the number of the record."""
    key: bytes | int
    value: bytes | int
    headers: list[tuple[str, bytes | int]]


class Read(NamedTuple):
    """A record as readers return it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


records = st.builds(
    Drawn,
    st.integers(0, 255),
    st.one_of(st.integers(-100, 20_000), longs),
    st.one_of(st.none(), st.none(), st.none(), ints),
    blobs,
    blobs,
    st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), blobs), max_size=2),
)


def blob(content: bytes | int) -> bytes:
    return encode_varint(content) if isinstance(content, int) else encode_varint(len(content)) + content


def encoded(number: int, drawn: Drawn) -> bytes:
    delta = number if drawn.offset_delta is None else drawn.offset_delta
    content = bytes([drawn.attributes]) + encode_varint(drawn.timestamp_delta) + encode_varint(delta)
    content += blob(drawn.key) + blob(drawn.value) + encode_varint(len(drawn.headers))
    content += b"".join(blob(name.encode()) + blob(value) for name, value in drawn.headers)
    return encode_varint(len(content)) + content


@st.composite
def batches(draw: st.DrawFn) -> tuple[bytearray, list[Drawn]]:
    """A batch, and the records in it. At most one field has a value that the broker may refuse."""
    wild = draw(st.sampled_from([None, None, None, "producer", "base offset", "attributes", "last offset", "count"]))
    drawn = draw(st.lists(records, min_size=1, max_size=4))
    kind = draw(st.sampled_from(Compression))
    body = compress(kind, b"".join(encoded(number, each) for number, each in enumerate(drawn)))
    sent = st.tuples(st.integers(0, 2**63 - 1), st.sampled_from([0, 2**15 - 1]), st.integers(0, 2**31 - 1))
    any_producer = st.tuples(longs, st.sampled_from([-1, 0, -(2**15)]), ints)
    producer = draw(any_producer if wild == "producer" else st.one_of(st.just((-1, -1, -1)), sent))
    header = BatchHeader(
        draw(longs if wild == "base offset" else st.just(0)),
        BATCH_HEADER_SIZE - 12 + len(body),
        draw(ints),
        MAGIC,
        0,
        kind | draw(st.sampled_from([16, 32, 64, 128, -(2**15)] if wild == "attributes" else [0, 8])),
        draw(ints) if wild == "last offset" else len(drawn) - 1,
        draw(longs),
        draw(longs),
        *producer,
        draw(ints) if wild == "count" else len(drawn),
    )
    batch = bytearray(BATCH_HEADER_SIZE) + body
    pack_header(batch, header)
    write_crc(batch, 0, len(batch))
    return batch, drawn


def expected(header: BatchHeader, drawn: Sequence[Drawn]) -> list[Read]:
    def content(value: bytes | int) -> bytes | None:
        return None if isinstance(value, int) else value

    rows = []
    for number, record in enumerate(drawn):
        total = header.base_timestamp_ms + record.timestamp_delta
        wrapped = int.from_bytes((total % 2**64).to_bytes(8, "big"), "big", signed=True)
        timestamp_ms = header.max_timestamp_ms if header.attributes & 8 else wrapped
        headers = tuple((name, content(value)) for name, value in record.headers)
        rows.append(Read(BASE_OFFSET + number, timestamp_ms, content(record.key), content(record.value), headers))
    return rows


def of_columns(codec: ModuleType, batch: bytes | memoryview) -> list[Read]:
    (header, body), = iter_bodies(batch)  # fmt: skip
    decoder = codec.ColumnDecoder()
    decoder.decode(body, header)
    buffers = decoder.finish()
    offsets = memoryview(buffers.offsets).cast("B").cast("q").tolist()
    timestamps_ms = memoryview(buffers.timestamps_ms).cast("B").cast("q").tolist()
    find_key, find_value = column_reader(buffers.keys), column_reader(buffers.values)
    find_name = column_reader(buffers.headers.names)
    find_content = column_reader(buffers.headers.values)
    ends = memoryview(buffers.headers.offsets).cast("B").cast("i").tolist()
    return [
        Read(
            offsets[row],
            timestamps_ms[row],
            find_key(row),
            find_value(row),
            tuple((find_name(each).decode(), find_content(each)) for each in range(ends[row], ends[row + 1])),
        )
        for row in range(buffers.length)
    ]


@settings(max_examples=examples(200))
@given(batches(), st.sampled_from([-1, -1, 0, 2**63 - 1]))
def test_every_reader_reads_each_accepted_record(made: tuple[bytearray, list[Drawn]], append_time_ms: int) -> None:
    batch, drawn = made
    try:
        checked_batch(memoryview(batch), LogConfig())
    except BarnabasError:
        assume(False)
    stored = stamped(memoryview(batch), BASE_OFFSET, 3, append_time_ms)
    rows = expected(read_header(stored), drawn)
    (header, body), = iter_bodies(stored)  # fmt: skip
    for codec in TWINS:
        read = codec.decode_records(body, header, "t", 5)
        assert [Read(each.offset, each.timestamp_ms, each.key, each.value, each.headers) for each in read] == rows
        assert of_columns(codec, stored) == rows
        assert [each.offset for each in codec.decode_records(body, header, "t", 5, BASE_OFFSET + 1)] == [
            row.offset for row in rows[1:]
        ]
        assert sum(count for _, count, _ in codec.record_stretches(read, 60_000)) == len(rows)
    reader = ArrowReader()
    assert reader.read(stored, "t", 5) == BASE_OFFSET + len(rows)
    columns = reader.finish()
    columns.validate(full=True)
    assert columns.column("timestamp").cast(pa.int64()).to_pylist() == [row.timestamp_ms for row in rows]
    render = compile_format(r"%o %T %S %K %h\n", show_null=True)
    for record, row in zip(read_records(stored, "t", 5), rows, strict=True):
        assert render(record).startswith(b"%d %d " % (row.offset, row.timestamp_ms))
        assert json.loads(json_line(record))["ts"] == row.timestamp_ms
        assert show_time_ms(row.timestamp_ms)


@pytest.mark.parametrize("codec", TWINS)
@pytest.mark.parametrize("timestamps_ms", [(2**63 - 1, 0), (-(2**63), 2**63 - 1), (0, 2**62, -(2**62), -(2**63))])
def test_any_timestamps_are_written_and_read(codec: ModuleType, timestamps_ms: tuple[int, ...]) -> None:
    encoder = codec.RecordEncoder()
    for timestamp_ms in timestamps_ms:
        encoder.append(timestamp_ms, None, b"v")
    last = len(timestamps_ms) - 1
    header = BatchHeader(0, 0, 0, MAGIC, 0, 0, last, encoder.base_timestamp_ms, 0, -1, -1, -1, last + 1)
    read = codec.decode_records(encoder.body(), header, "t", 0)
    assert tuple(record.timestamp_ms for record in read) == timestamps_ms

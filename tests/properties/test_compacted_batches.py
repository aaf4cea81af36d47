"""What compaction has left of batches is decoded as it was: by both codecs, to records and to columns, in any part."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.model import TimestampType
from barnabas.records import Compression, codec_pure, read_records
from barnabas.records.arrow import ArrowReader
from barnabas.records.header import write_crc
from barnabas.records.reader import iter_bodies
from tests.support.compacted_logs import Batch, Kept
from tests.support.searches import examples

BASE_MS = 1_700_000_000_000

codecs: list[Any] = [pytest.param("codec_pure", id="pure"), pytest.param("codec_compiled", id="compiled")]
blobs = st.one_of(st.none(), st.binary(max_size=70))


@st.composite
def batches(draw: st.DrawFn) -> list[Batch]:
    found, offset = [], draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(0, 5))):
        offset += draw(st.integers(0, 3))
        count = draw(st.integers(1, 8))
        kept = [
            Kept(offset + delta, BASE_MS + draw(st.integers(-9, 9)), draw(blobs), draw(blobs))
            for delta in range(count)
            if draw(st.booleans())
        ]
        found.append(
            Batch(
                offset,
                offset + count - 1,
                kept,
                draw(st.sampled_from([Compression.NONE, Compression.ZSTD, Compression.SNAPPY])),
                delete_horizon_ms=draw(st.sampled_from([None, BASE_MS + 86_400_000])) if kept else None,
                max_timestamp_ms=BASE_MS + 9,
                timestamp_type=draw(st.sampled_from(TimestampType)),
            )
        )
        offset += count
    return found


def expected(found: list[Batch], start: int, end: int) -> list[Kept]:
    return [
        record._replace(timestamp_ms=BASE_MS + 9) if batch.timestamp_type is TimestampType.LOG_APPEND_TIME else record
        for batch in found
        for record in batch.records
        if start <= record.offset < end
    ]


@pytest.fixture(params=codecs, scope="module")
def codec(request: pytest.FixtureRequest) -> ModuleType:
    return codec_pure if request.param == "codec_pure" else pytest.importorskip("barnabas.records.codec_compiled")


@settings(max_examples=examples(100))
@given(found=batches(), data=st.data())
def test_both_codecs_decode_what_is_left(codec: ModuleType, found: list[Batch], data: st.DataObject) -> None:
    encoded = b"".join(batch.encode() for batch in found)
    first, last = (found[0].base_offset, found[-1].last_offset + 1) if found else (0, 0)
    start, end = data.draw(st.integers(first, last)), data.draw(st.integers(first, last))
    decoder = codec.ColumnDecoder()
    records: list[Kept] = []
    for header, body in iter_bodies(encoded, start, end):
        made = codec.decode_records(body, header, "clicks", 0, start, end)
        records += [Kept(each.offset, each.timestamp_ms, each.key, each.value) for each in made]
        assert decoder.decode(body, header, start, end) == len(made)
    assert records == expected(found, start, end)
    assert list(decoder.finish().offsets.cast("q")) == [record.offset for record in records]


@settings(max_examples=examples(100))
@given(found=batches(), records_max=st.integers(1, 9), data=st.data())
def test_columns_are_read_in_parts(found: list[Batch], records_max: int, data: st.DataObject) -> None:
    """Each part goes on where the one before says, and the last of them after the last batch."""
    encoded = b"".join(batch.encode() for batch in found)
    first, last = (found[0].base_offset, found[-1].last_offset + 1) if found else (0, 0)
    offset = data.draw(st.integers(first, last))
    wanted = expected(found, offset, last)
    reader, seen = ArrowReader(include_headers=False), []
    while offset < last:
        before, offset = offset, reader.read(encoded, "clicks", 0, min_offset=offset, max_records=records_max)
        assert offset > before
        part = reader.finish()
        assert part.num_rows <= records_max
        seen += part.column("offset").to_pylist()
    assert seen == [record.offset for record in wanted]
    assert offset == last


def test_a_batch_without_records_may_say_that_it_is_compressed() -> None:
    """There is nothing to decompress: others may keep the attribute of a batch whose records are all gone."""
    batch = bytearray(Batch(3, 9).encode())
    batch[22] |= Compression.GZIP
    write_crc(batch, 0, len(batch))
    assert read_records(bytes(batch), "clicks", 0) == []

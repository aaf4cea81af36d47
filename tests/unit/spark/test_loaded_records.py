"""From batches of the log to rows of a table and back: any bytes and any timestamp come back as they were produced."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.formats.column_names import column_names
from barnabas.formats.column_types import ColumnType, settled
from barnabas.formats.event_time import EventTime
from barnabas.formats.json_fields import JsonRules, infer_fields
from barnabas.formats.json_text import restore, without_blanks
from barnabas.formats.json_values import nulls_beside
from barnabas.model import Header
from barnabas.records import BatchBuilder
from barnabas.records.arrow import ArrowReader
from barnabas.spark import load_tasks
from barnabas.spark.data_files import DataFile
from barnabas.spark.ledger import Ledger, snapshot_properties
from barnabas.spark.load_tasks import ReadSettings, TaskWritten, WriteSettings, write_ranges
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.table_shape import TableShape
from barnabas.spark.warehouse import Warehouse
from tests.support.searches import examples

Fields = dict[str, ColumnType] | None


class Sent(NamedTuple):
    """A record as it was produced."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: list[Header]


def shape_of(fields: Fields) -> TableShape:
    return TableShape.of("raw" if fields is None else "json", fields)


def write(folder: Path, records: list[Sent], shape: TableShape) -> tuple[DataFile, ...]:
    """Do what a task does, without a broker."""
    builder = BatchBuilder()
    for record in records:
        builder.append(record.timestamp_ms, record.key, record.value, record.headers)
    reader = ArrowReader()
    reader.read(builder.build(), "t", 0)
    writing = WriteSettings(str(folder), {}, shape)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(load_tasks, "read_range", lambda *_args, **_options: [reader.finish()])
        done = write_ranges([OffsetRange("t", 0, 0, len(records))], ReadSettings("", {}), writing, 0)
    assert isinstance(done, TaskWritten)
    return done.files


def check_same(table: pa.Table, records: list[Sent], fields: Fields) -> None:
    rows = table.sort_by("offset").combine_chunks()
    assert rows["offset"].to_pylist() == list(range(len(records)))
    assert rows["key"].to_pylist() == [record.key for record in records]
    times = zip(rows["timestamp"].cast(pa.int64()).to_pylist(), rows["raw_timestamp_ms"].to_pylist(), strict=True)
    assert [raw if us is None else us // 1000 for us, raw in times] == [record.timestamp_ms for record in records]
    headers = [[(pair["key"], pair["value"]) for pair in row or []] for row in rows["headers"].to_pylist()]
    assert headers == [record.headers for record in records]
    values = pa.array([record.value for record in records], pa.binary())
    if fields is None:
        assert rows["value"].to_pylist() == values.to_pylist()
        return
    names = column_names(fields)
    columns = {name: rows[names[name]].combine_chunks() for name in fields}
    kept, forms = rows["value"].combine_chunks().cast(pa.binary()), rows["value_form"].combine_chunks()
    restored = restore(kept, forms, columns).to_pylist()
    as_sent = pc.if_else(pc.starts_with(forms, "columns"), without_blanks(values), values)
    check_given_back(pa.array(restored, pa.binary()), as_sent, forms)


def check_given_back(restored: pa.Array, as_sent: pa.Array, forms: pa.Array) -> None:
    for given_back, value, form in zip(*(each.to_pylist() for each in (restored, as_sent, forms)), strict=True):
        if form.startswith("same"):
            assert nulls_beside(value, given_back) == frozenset()
        else:
            assert given_back == value


HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2)
VALUES = st.none() | st.binary(max_size=9) | st.sampled_from([b'{"a":1}', b'{"a": 1.50}', b'{"A":"1"}', b"{}"])
TIMESTAMPS = st.integers(-(2**60), 2**60) | st.integers(1_600_000_000_000, 1_600_200_000_000)
RECORD = st.builds(Sent, st.none() | st.binary(max_size=5), VALUES, TIMESTAMPS, HEADERS)
RECORDS = st.lists(RECORD, min_size=1, max_size=6)


@given(RECORDS, st.booleans())
@settings(max_examples=examples(50))
def test_what_is_written_gives_back_what_was_produced(records: list[Sent], decodes: bool) -> None:
    found = infer_fields(pa.array([record.value for record in records], pa.binary()))
    fields: Fields = {name: kind or "string" for name, kind in found.items()} if decodes else None
    with tempfile.TemporaryDirectory() as folder:
        tables = [
            pq.read_table(file.path, partitioning=None) for file in write(Path(folder), records, shape_of(fields))
        ]
    check_same(pa.concat_tables(tables), records, fields)


LINE = b'h - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 5'
STRANGE = st.sampled_from(
    [
        LINE,
        LINE.replace(b"200", b"0200"),
        LINE + b"\n",
        b'{"a":19.99,"b":{"c":[1,null]}}',
        b'{"a":1e400}',
        b'{"a":123456789012345678901234567890}',
        b'{"b":{"c":[{"d":"x"}],"e":null}}',
        b'{"a":1,"a":2}',
        b"[" * 2_000,
        b"",
    ]
)
SHAPES = (
    TableShape("json", rules=JsonRules(nested=True, decimals=True)),
    TableShape("json", rules=JsonRules(nested=True), event_time=EventTime("a")),
    TableShape("lines:common", event_time=EventTime("time")),
    TableShape(r"lines:(?P<a>\S*) (?P<b>.*)", event_time=EventTime("line")),
    TableShape("raw", event_time=EventTime("a", "ms")),
)


@given(
    st.lists(RECORD | st.builds(Sent, st.none(), STRANGE, TIMESTAMPS, HEADERS), min_size=1, max_size=6),
    st.sampled_from(SHAPES),
)
@settings(max_examples=examples(60))
def test_any_bytes_come_back_from_a_table_of_any_format(records: list[Sent], shape: TableShape) -> None:
    values = pa.array([record.value for record in records], pa.binary())
    decoder = shape.decoder()
    if decoder is not None:
        fields = {name: settled(kind) for name, kind in decoder.infer(values).items()}
        shape = replace(shape, fields=fields, columns=column_names(fields))
    with tempfile.TemporaryDirectory() as folder:
        tables = [pq.read_table(file.path, partitioning=None) for file in write(Path(folder), records, shape)]
    rows = pa.concat_tables(tables).sort_by("offset").combine_chunks()
    kept = rows["value"].combine_chunks()
    if decoder is None:
        assert kept.equals(values)
        return
    forms = rows["value_form"].combine_chunks()
    columns = {name: rows[shape.columns[name]].combine_chunks() for name in shape.fields or ()}  # in the fields' order
    bare = without_blanks(values) if shape.value_format == "json" else values
    as_sent = pc.if_else(pc.starts_with(forms, "columns"), bare, values)
    check_given_back(decoder.restore(kept, forms, columns), as_sent, forms)


@pytest.mark.parametrize("fields", [None, {"a": "double", "A": "string", "b.c": "long"}])
def test_no_record_stops_the_commit(tmp_path: Path, fields: Fields) -> None:
    text = "\ud7ff" * 20
    records = [
        Sent(b"\xff" * 20, b'{"A":"%s","b.c":1}' % text.encode(), 10**11, [(text, b"\xff" * 20)]),
        Sent(None, b'{"A":"%s"}' % ("\U0010ffff" * 20).encode(), -(2**60), []),
        Sent(b"", b'{"a":1e400}', -1, []),
        Sent(b"", b'{"a":-0.0}', 0, []),
        Sent(b"", b'{"a":1e308,"A":"\x00"}', 10**15, []),
        Sent(b"", None, 10**12, []),
        Sent(b"", b"\xff", 10**12, []),
    ]
    warehouse = Warehouse.open(tmp_path)
    base = warehouse.begin("t")
    folder = base.location().local_folder
    assert folder is not None
    (folder / "data").mkdir(parents=True)
    loaded = [OffsetRange("t", 0, 0, len(records))]
    properties = snapshot_properties("one", Ledger().advanced({}, loaded), loaded, len(records))
    base.commit(write(folder / "data", records, shape_of(fields)), properties, shape_of(fields))
    check_same(warehouse.table("t").scan().to_arrow(), records, fields)

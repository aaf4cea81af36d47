"""Whatever is sent as a record with a schema: a table gives its bytes back, also when it has grown since then."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.formats.column_types import ColumnType, arrow_type, settled
from barnabas.formats.json_text import without_blanks
from barnabas.formats.value_format import decoder_of
from barnabas.serialization.avro_bytes import PythonCodec
from barnabas.serialization.avro_types import AvroType, avro_type
from barnabas.serialization.avro_values import AvroKind
from barnabas.serialization.column_casts import fitted
from barnabas.serialization.framed_json import FramedJsonDecoder
from barnabas.serialization.record_values import RecordDecoder
from barnabas.serialization.registry_client import Schema
from barnabas.serialization.wire_format import header
from barnabas.spark.table_shape import TableShape
from tests.known_schemas import registry_of
from tests.searches import examples

NAMES = ("a", "b", "c", "d")
PLAIN = st.sampled_from(
    [
        *("null", "boolean", "int", "long", "float", "double", "string", "bytes"),
        {"type": "int", "logicalType": "date"},
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "long", "logicalType": "timestamp-nanos"},
        {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
    ]
)
MAYBE = PLAIN.flatmap(
    lambda kind: st.sampled_from([kind] if kind == "null" else [kind, ["null", kind], [kind, "null"]])
)
NESTED = st.recursive(
    MAYBE,
    lambda inner: (
        inner.filter(lambda kind: kind != "null").map(lambda kind: {"type": "array", "items": kind})
        | inner.map(lambda kind: {"type": "map", "values": kind})
        | st.sampled_from([["null", "long", "string"], ["int", "bytes"]])
    ),
    max_leaves=3,
)


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    """Return a record's schema, some of its fields records, enums or fixed."""
    fields = []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4)):
        kind: Any = draw(NESTED)
        shape = draw(st.integers(0, 9))
        if shape == 0:
            kind = {"type": "record", "name": f"R{name}", "fields": [{"name": "x", "type": kind}]}
        elif shape == 1:
            kind = {"type": "enum", "name": f"E{name}", "symbols": ["P", "Q"]}
        elif shape == 2:
            kind = {"type": "fixed", "name": f"F{name}", "size": 2}
        elif shape == 3:
            kind = ["null", "Top"]
        alias = draw(st.sampled_from([None, None, *NAMES]))
        fields.append({"name": name, "type": kind} | ({"aliases": [alias]} if alias and alias != name else {}))
    return {"type": "record", "name": "Top", "fields": fields}


def values_of(tree: AvroType) -> st.SearchStrategy[Any]:
    """Return values as the codec in Python takes them; what does not fit it writes as zero."""
    plain: dict[str, st.SearchStrategy[Any]] = {
        "boolean": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 2),
        "long": st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "string": st.text(max_size=3),
        "bytes": st.binary(max_size=3),
        "fixed": st.binary(min_size=2, max_size=2),
        "enum": st.sampled_from(["P", "Q"]),
    }
    if tree.kind == "array":
        found: st.SearchStrategy[Any] = st.lists(values_of(tree.inner["items"]), max_size=3)
    elif tree.kind == "map":
        pairs = st.tuples(st.text(max_size=2), values_of(tree.inner["values"]))
        found = st.lists(pairs, max_size=3)
    elif tree.kind == "record":
        found = st.fixed_dictionaries({name: values_of(each) for name, each in tree.inner.items()})
    elif tree.kind == "union":
        found = st.one_of(
            [values_of(each).map(lambda value, name=name: {name: value}) for name, each in tree.inner.items()]
        )
    else:
        found = plain.get(tree.kind, st.none())
    return found | st.none() if tree.is_nullable else found


@st.composite
def records(draw: st.DrawFn, schema_id: int, schema: dict[str, Any]) -> bytes:
    """Return a record of a schema, some of them damaged."""
    tree = avro_type(registry_of(schema), Schema(json.dumps(schema)))
    out = bytearray()
    PythonCodec(tree)._write(draw(values_of(tree)), out)
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        place = draw(st.integers(0, len(out)))
        out[place : place + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return header(schema_id) + bytes(out)


def restored(decoder: Any, kept: pa.Array, forms: pa.Array, columns: dict[str, pa.Array]) -> list[bytes | None]:
    return list(decoder.restore(kept, forms, columns).to_pylist())


@given(st.data())
@settings(max_examples=examples(100))
def test_any_bytes_come_back_from_a_table_of_avro_also_when_it_has_grown(data: st.DataObject) -> None:
    known = data.draw(st.lists(schemas(), min_size=1, max_size=3))
    registry = registry_of(*known)
    each = st.one_of([records(number, schema) for number, schema in enumerate(known, 1)])
    values = pa.array(
        data.draw(st.lists(each | st.none() | st.binary(max_size=8), min_size=1, max_size=6)), pa.binary()
    )
    first = RecordDecoder(AvroKind(), registry)
    seen = values.slice(0, data.draw(st.integers(0, len(values))))
    shape = TableShape.of("avro", {name: settled(kind) for name, kind in first.infer(seen).items()})
    assert shape.fields is not None
    decoded = first.decode(values, shape.fields)
    kept = pc.if_else(pc.equal(decoded.forms, "value"), values, pa.scalar(None, values.type))
    columns = dict(zip(shape.fields, decoded.columns, strict=True))
    assert restored(RecordDecoder(AvroKind(), registry), kept, decoded.forms, columns) == values.to_pylist()

    grown = shape.grown_by(decoded.found, first.renames(values))
    now = {grown.aliases.get(name, name): column for name, column in columns.items()}
    assert grown.fields is not None
    later: dict[str, pa.Array] = {
        name: fitted(now[name], kind) if name in now else pa.nulls(len(values), arrow_type(kind))
        for name, kind in grown.fields.items()
    }
    after = RecordDecoder(AvroKind(), registry, grown.aliases)
    assert restored(after, kept, decoded.forms, later) == values.to_pylist()
    again = after.decode(values, grown.fields)
    kept_again = pc.if_else(pc.equal(again.forms, "value"), values, pa.scalar(None, values.type))
    assert (
        restored(after, kept_again, again.forms, dict(zip(grown.fields, again.columns, strict=True)))
        == values.to_pylist()
    )


JSON_FIELDS: dict[str, ColumnType] = {"a": "long", "b": "string"}


@pytest.mark.parametrize("fields", [JSON_FIELDS, {}])
@given(
    st.lists(
        st.none()
        | st.binary(max_size=9)
        | st.tuples(
            st.sampled_from([b"", header(1), header(2), header(3)]),
            st.sampled_from([b'{"a":1,"b":"x"}', b'{"a":1.0}', b"{}", b"[]", b"\xff"]),
        ).map(b"".join),
        min_size=1,
        max_size=6,
    )
)
@example([b"\t{}", header(1) + b'{ "a": 1}', b" {"])
@settings(max_examples=examples(60))
def test_any_json_comes_back_with_its_schema_id(
    fields: dict[str, ColumnType], given_values: list[bytes | None]
) -> None:
    inner: Any = decoder_of("json")
    decoder = FramedJsonDecoder(inner, registry_of(Schema("{}", "JSON"), {"type": "record", "name": "R", "fields": []}))
    values = pa.array(given_values, pa.binary())
    decoded = decoder.decode(values, fields)
    kept = pc.if_else(pc.equal(decoded.forms, "value"), values, pa.scalar(None, values.type))
    back = restored(decoder, kept, decoded.forms, dict(zip(fields, decoded.columns, strict=True)))
    # JSON that is in columns comes back without the blanks between its tokens.
    wanted = pc.if_else(pc.equal(decoded.forms, "value"), values, without_blanks(values))
    assert back == wanted.to_pylist()

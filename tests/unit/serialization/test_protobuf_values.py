"""Protobuf records as columns: each kind of field, what comes back from its columns, what is kept, and what is bad."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.formats.change_events import change_decoder
from barnabas.formats.column_types import settled
from barnabas.formats.json_fields import JsonRules
from barnabas.formats.upsert_rules import KEY_OF_RECORD, UpsertRules
from barnabas.serialization.protobuf import message_class
from barnabas.serialization.protobuf_values import ProtobufFormat
from barnabas.serialization.record_values import RecordDecoder
from barnabas.serialization.registry_client import PROTOBUF, Schema
from barnabas.serialization.wire_format import Writer
from tests.support.fake_registry import registry_of
from tests.support.searches import examples

KINDS = descriptor_pb2.FieldDescriptorProto
MOMENT = datetime(2015, 5, 17, 10, 5, 3, 123000, tzinfo=UTC)
EVENT = Writer(1, (0,))


def schema() -> Schema:
    """Return a file with a message that has fields of all kinds, and a second one."""
    file = descriptor_pb2.FileDescriptorProto(name="event.proto", package="web", syntax="proto3")
    file.dependency.extend(f"google/protobuf/{name}.proto" for name in ("timestamp", "wrappers", "struct"))
    event = file.message_type.add(name="Event")
    enum = event.enum_type.add(name="Kind")
    for number, name in enumerate(("UNKNOWN", "VIEW")):
        enum.value.add(name=name, number=number)
    point = event.nested_type.add(name="Point")
    point.field.add(name="x", number=1, type=KINDS.TYPE_FLOAT, label=KINDS.LABEL_OPTIONAL)
    entry = event.nested_type.add(name="PointsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=KINDS.TYPE_INT32, label=KINDS.LABEL_OPTIONAL)
    entry.field.add(
        name="value", number=2, type=KINDS.TYPE_MESSAGE, type_name=".web.Event.Point", label=KINDS.LABEL_OPTIONAL
    )
    event.oneof_decl.add(name="choice")

    def add(name: str, kind: int, type_name: str = "", *, is_repeated: bool = False, **more: Any) -> None:
        label = KINDS.LABEL_REPEATED if is_repeated else KINDS.LABEL_OPTIONAL
        number = len(event.field) + 1
        event.field.add(name=name, number=number, type=kind, type_name=type_name or None, label=label, **more)

    add("id", KINDS.TYPE_INT64)
    add("size", KINDS.TYPE_UINT64)
    add("ratio", KINDS.TYPE_DOUBLE)
    add("raw", KINDS.TYPE_BYTES)
    add("kind", KINDS.TYPE_ENUM, ".web.Event.Kind")
    add("tags", KINDS.TYPE_STRING, is_repeated=True)
    add("point", KINDS.TYPE_MESSAGE, ".web.Event.Point")
    add("points", KINDS.TYPE_MESSAGE, ".web.Event.PointsEntry", is_repeated=True)
    add("at", KINDS.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    add("count", KINDS.TYPE_MESSAGE, ".google.protobuf.Int32Value")
    add("more", KINDS.TYPE_MESSAGE, ".google.protobuf.Struct")
    add("left", KINDS.TYPE_STRING, oneof_index=0)
    add("right", KINDS.TYPE_BOOL, oneof_index=0)
    add("parent", KINDS.TYPE_MESSAGE, ".web.Event")
    file.message_type.add(name="Other").field.add(name="a", number=1, type=KINDS.TYPE_INT32, label=KINDS.LABEL_OPTIONAL)
    return Schema(base64.b64encode(file.SerializeToString()).decode(), PROTOBUF)


REGISTRY = registry_of(schema(), {"type": "record", "name": "R", "fields": []})
MADE = message_class(REGISTRY, 1, (0,))


def decoder() -> RecordDecoder:
    return RecordDecoder(ProtobufFormat(), REGISTRY)


def record(message: Any, writer: Writer = EVENT) -> bytes:
    return writer.prefix() + bytes(message.SerializeToString(deterministic=True))


def load(*given_values: bytes | None) -> tuple[dict[str, list[Any]], list[str | None], list[str | None]]:
    """Return columns, forms and reasons, after having seen that all bytes come back."""
    values = pa.array(given_values, pa.binary())
    fields = {name: settled(kind) for name, kind in decoder().infer(values).items()}
    decoded = decoder().decode(values, fields)
    kept = pc.if_else(pc.equal(decoded.forms, "value"), values, pa.scalar(None, values.type))
    columns = dict(zip(fields, decoded.columns, strict=True))
    assert decoder().restore(kept, decoded.forms, columns).to_pylist() == list(given_values)
    lists = {name: column.to_pylist() for name, column in columns.items()}
    return lists, decoded.forms.to_pylist(), decoded.reasons.to_pylist()


def test_each_kind_of_field_has_its_column_and_comes_back() -> None:
    event = MADE(id=-7, size=2**64 - 1, ratio=0.5, raw=b"\xff", kind="VIEW", tags=["a", ""], left="l")
    event.point.x = 1.5
    event.points[2].x = 2.5
    event.points[1].SetInParent()
    event.at.FromDatetime(MOMENT)
    event.count.value = 0
    event.more.update({"a": [1, None]})
    columns, forms, reasons = load(record(event), record(MADE()), None)
    assert {name: column[0] for name, column in columns.items()} == {
        "id": -7,
        "size": Decimal(2**64 - 1),
        "ratio": 0.5,
        "raw": b"\xff",
        "kind": "VIEW",
        "tags": ["a", ""],
        "point": {"x": 1.5},
        "points": [(1, {"x": 0.0}), (2, {"x": 2.5})],
        "at": MOMENT,
        "count": 0,
        "more": '{"a":[1.0,null]}',
        "left": "l",
        "right": None,
    }
    not_set = {name: column[1] for name, column in columns.items() if column[1] is not None}
    assert not_set == {"id": 0, "size": 0, "ratio": 0.0, "raw": b"", "kind": "UNKNOWN", "tags": [], "points": []}
    assert (forms, reasons) == (["protobuf:1:0", "protobuf:1:0", "tombstone"], [None] * 3)


def test_order_of_fields_and_of_a_map_is_no_reason_to_keep_a_value() -> None:
    event = MADE(id=5, tags=["x"])
    event.points[1].x = 1.5
    event.points[2].x = 2.5
    canonical = record(event)
    body = canonical[len(EVENT.prefix()) :]
    fields = [body[:2], body[2:5], body[5:16], body[16:27]]
    assert b"".join(fields) == body
    others = [EVENT.prefix() + b"".join(fields[number] for number in order) for order in ((3, 1, 0, 2), (1, 0, 3, 2))]
    others.append(EVENT.prefix() + b"\x08\x85\x00" + body[2:])  # a number with more bytes than it needs
    values = pa.array([canonical, *others, others[0] + b"\xf8\x07\x01"])
    kinds = {name: settled(kind) for name, kind in decoder().infer(values).items()}
    decoded = decoder().decode(values, kinds)
    assert decoded.forms.to_pylist() == ["protobuf:1:0"] * 4 + ["value"], "an unknown field is in no column"
    columns = dict(zip(kinds, decoded.columns, strict=True))
    assert decoder().restore(values, decoded.forms, columns).to_pylist() == [canonical] * 4 + [values[4].as_py()]


def test_what_has_no_column_is_kept_whole() -> None:
    parent = MADE(id=1)
    parent.parent.id = 2
    late = MADE()
    late.at.nanos = 1
    unknown_field = record(MADE(id=3)) + b"\xf8\x07\x01"
    columns, forms, reasons = load(record(parent), record(late), unknown_field, record(MADE(kind=9)))
    assert (forms, reasons) == (["value", "value", "value", "protobuf:1:0"], [None] * 4)
    assert (columns["id"], columns["kind"][3], "parent" in columns) == ([1, 0, 3, 0], "9", False)


def test_messages_of_several_types_are_in_one_topic() -> None:
    other = message_class(REGISTRY, 1, (1,))
    columns, forms, _ = load(record(MADE(id=1)), record(other(a=5), Writer(1, (1,))))
    assert (columns["id"], columns["a"], forms) == ([1, None], [None, 5], ["protobuf:1:0", "protobuf:1:1"])


def test_bad_records_say_why() -> None:
    bad = {
        record(MADE(id=1))[:-1]: "invalid message of type web.Event",
        b"\0\0\0\0\1\x02\0": "the message indexes are not in the usual form",
        b"\0\0\0\0\1": "the record ends within its message indexes",
        b"\0\0\0\0\2\0": "schema 2: schema 2 is of type AVRO, not PROTOBUF",
        b"\0\0\0\0\x63\0": "schema 99 is not known to the registry",
        b"{}": "a record of 2 bytes is too short for a schema id: its header takes 5 bytes",
    }
    _, forms, reasons = load(*bad, record(MADE()))
    assert (forms, reasons) == ([*["value"] * len(bad), "protobuf:1:0"], [*bad.values(), None])


MESSAGES = st.builds(
    MADE,
    id=st.integers(-(2**63), 2**63 - 1),
    size=st.integers(0, 2**64 - 1),
    ratio=st.floats(),
    raw=st.binary(max_size=3),
    kind=st.integers(-3, 3),
    tags=st.lists(st.text(max_size=2), max_size=2),
)


@given(
    st.lists(
        st.none() | MESSAGES.map(record) | st.binary(max_size=6).map(EVENT.prefix().__add__), min_size=1, max_size=5
    )
)
@settings(max_examples=examples(60))
def test_any_bytes_come_back(values: list[bytes | None]) -> None:
    load(*values)


@pytest.mark.parametrize("order_by", ["offset", "size"])
def test_protobuf_values_are_changes_of_a_state_table(order_by: str) -> None:
    values = pa.array(
        [
            record(MADE(id=1, size=7, left="a")),
            record(MADE(id=1, size=8, left="b")),
            None,
            b"\x00\x00\x00\x00\x01\x00\xff",
        ],
        pa.binary(),
    )
    keys = pa.array([b"1"] * 4, pa.binary())
    own, of_keys = (RecordDecoder(ProtobufFormat(), REGISTRY, with_forms=False, may_rename=False) for _ in range(2))
    changes = change_decoder(UpsertRules.of("id", order_by=order_by), JsonRules(), own, of_keys)
    found = changes.infer(values, keys)
    fields = {name: settled(kind) for name, kind in found.items() if not name.startswith(KEY_OF_RECORD)}
    decoded = changes.decode(values, keys, fields)
    columns = dict(zip(fields, (column.to_pylist() for column in decoded.columns), strict=True))
    assert (columns["id"], columns["left"]) == ([1, 1, 1], ["a", "b", None])
    assert decoded.deletes.to_pylist() == [False, False, True]
    assert decoded.reasons.null_count == 3
    narrow = changes.decode(values, keys, {name: kind for name, kind in fields.items() if name != "left"})
    assert (decoded.lost_values, narrow.lost_values) == (0, 2)

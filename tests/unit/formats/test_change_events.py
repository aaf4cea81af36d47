"""Change events of all envelopes become the same changes of rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import ConfigurationError
from barnabas.formats.change_events import as_order, change_decoder, without_schemas
from barnabas.formats.column_types import ColumnType, settled
from barnabas.formats.json_fields import JsonRules
from barnabas.formats.upsert_rules import CHANGE_ORDER, KEY_OF_RECORD, UpsertRules

Row = dict[str, Any]
ROWS = [{"id": 1, "n": "a"}, {"id": 1, "n": "b"}, {"id": 2, "n": None}]
WITH_SCHEMA = {
    "type": "struct",
    "fields": [{"field": "before", "optional": True, "default": {"x": [1, "y"]}}],
}


def bytes_of(values: Sequence[object]) -> pa.Array:
    texts = [value if value is None or isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    return pa.array(texts, pa.binary())


def changes(
    rules: UpsertRules,
    values: Sequence[object],
    keys: Sequence[bytes | None] | None = None,
    *,
    nested: bool = False,
) -> tuple[list[tuple[int, Row | None, Row]], list[str | None]]:
    """Return each change: the index of its record, the row or None if it deletes, and the key; and the reasons."""
    decoder = change_decoder(rules, JsonRules(nested=nested), None, None)
    records, of_keys = (
        bytes_of(values),
        pa.array(keys or [None] * len(values), pa.binary()),
    )
    fields: dict[str, ColumnType] = {
        name: settled(kind)
        for name, kind in decoder.infer(records, of_keys).items()
        if not name.startswith(KEY_OF_RECORD)
    }
    decoded = decoder.decode(records, of_keys, fields)
    assert decoded.found == {}
    columns = {name: column.to_pylist() for name, column in zip(fields, decoded.columns, strict=True)}
    found = []
    for number, (record, is_delete) in enumerate(
        zip(decoded.rows.to_pylist(), decoded.deletes.to_pylist(), strict=True)
    ):
        row = {name: column[number] for name, column in columns.items()}
        key = {name: row[name] for name in (*rules.keys, CHANGE_ORDER) if name in row}
        found.append((record, None if is_delete else row, key))
    return found, decoded.reasons.to_pylist()


def debezium(op: str, before: Row | None, after: Row | None, **more: object) -> Row:
    source = {"lsn": 7, "db": "shop", "sequence": [1, None]}
    return {
        "before": before,
        "after": after,
        "source": source,
        "op": op,
        "ts_ms": 5,
        "transaction": None,
        **more,
    }


EVENTS = [
    debezium("c", None, ROWS[0]),
    debezium("u", ROWS[0], ROWS[1]),
    debezium("r", None, ROWS[2]),
    debezium("d", ROWS[1], None),
]
CHANGES = [
    (0, ROWS[0], {"id": 1}),
    (1, ROWS[1], {"id": 1}),
    (2, ROWS[2], {"id": 2}),
    (3, None, {"id": 1}),
]


@pytest.mark.parametrize(
    "wrap",
    [lambda event: event, lambda event: {"schema": WITH_SCHEMA, "payload": event}],
)
@pytest.mark.parametrize("odd", [[], [b'{"payload": {"op": "t"}, "schema": {}}', b"junk", {"a": 1}]])
def test_events_of_debezium_with_and_without_schema(wrap: Any, odd: list[Any]) -> None:
    found, reasons = changes(UpsertRules.of("id", envelope="debezium"), [*map(wrap, EVENTS), *odd])
    assert found == CHANGES
    assert [reason is None for reason in reasons] == [True] * 4 + [False] * len(odd)


def test_fields_after_the_payload_do_not_make_an_event_bad() -> None:
    values = [{"schema": WITH_SCHEMA, "payload": event, "more": {"x": {}}} for event in EVENTS]
    found, reasons = changes(UpsertRules.of("id", envelope="debezium"), values)
    assert (found, reasons) == (CHANGES, [None] * 4)


def test_events_of_maxwell() -> None:
    values = [
        {
            "database": "d",
            "table": "t",
            "type": "insert",
            "ts": 1,
            "xid": 8,
            "commit": True,
            "data": ROWS[0],
        },
        {
            "database": "d",
            "table": "t",
            "type": "update",
            "ts": 2,
            "data": ROWS[1],
            "old": {"n": "a"},
        },
        {"type": "bootstrap-insert", "data": ROWS[2]},
        {"type": "bootstrap-start", "data": {}},
        {"type": "delete", "data": ROWS[1]},
    ]
    found, reasons = changes(UpsertRules.of("id", envelope="maxwell"), values)
    assert found == [*CHANGES[:3], (4, None, {"id": 1})]
    assert reasons == [None] * 5


def test_tombstones_of_maxwell_name_their_row_in_the_key() -> None:
    rules = UpsertRules.of("n,id", envelope="maxwell")
    key = b'{"database":"d","table":"t","pk.id":1,"pk.n":"a"}'
    found, reasons = changes(rules, [{"type": "insert", "data": ROWS[0]}, None, None], [key, key, b'{"pk.id":1}'])
    assert found == [(0, ROWS[0], ROWS[0]), (1, None, ROWS[0])]
    assert [reason is None for reason in reasons] == [True, True, False]


def test_update_that_changes_the_key_deletes_the_former_row() -> None:
    moved = {"id": 9, "n": "b"}
    for rules, value in (
        (
            UpsertRules.of("id", envelope="maxwell"),
            {"type": "update", "data": moved, "old": {"id": 1}},
        ),
        (UpsertRules.of("id", envelope="debezium"), debezium("u", ROWS[1], moved)),
    ):
        found, _ = changes(rules, [value])
        assert sorted(found, key=str) == [(0, None, {"id": 1}), (0, moved, {"id": 9})]


@pytest.mark.parametrize(
    "key",
    [
        b'{"id": 3}',
        b'{"schema":{"type":"struct"},"payload":{"id":3}}',
        b"3",
        b'"3"',
        b" 3"[1:],
    ],
)
def test_tombstone_deletes_the_row_of_its_key(key: bytes) -> None:
    found, reasons = changes(UpsertRules.of("id"), [ROWS[0], None], [b"x", key])
    assert found == [(0, ROWS[0], {"id": 1}), (1, None, {"id": 3})]
    assert reasons == [None, None]


@pytest.mark.parametrize("key", [None, b"", b"\xff", b"text", b"{", b"[1]", b"1.5"])
def test_tombstone_without_usable_key_is_bad(key: bytes | None) -> None:
    found, reasons = changes(UpsertRules.of("id"), [ROWS[0], None], [None, key])
    assert len(found) == 1
    assert reasons == [None, "no key: a column of the key (id) is null"]


def test_deletion_without_former_row_takes_the_key_of_the_record() -> None:
    found, _ = changes(
        UpsertRules.of("id", envelope="debezium"),
        [EVENTS[0], debezium("d", None, None)],
        [None, b'{"id":4}'],
    )
    assert found[1] == (1, None, {"id": 4})


def test_keys_of_several_columns_come_from_objects_only() -> None:
    rules = UpsertRules.of("a,b")
    found, reasons = changes(
        rules,
        [{"a": 1, "b": "x"}, {"a": 1}, None, None],
        [None, None, b'{"a":2,"b":"y"}', b"2"],
    )
    assert found == [
        (0, {"a": 1, "b": "x"}, {"a": 1, "b": "x"}),
        (2, None, {"a": 2, "b": "y"}),
    ]
    assert [reason is None for reason in reasons] == [True, False, True, False]


@pytest.mark.parametrize(
    ("order_by", "values", "orders"),
    [
        ("at", [{"id": 1, "at": 5}, {"id": 1, "at": 6}], [5, 6]),
        (
            "meta.v",
            [{"id": 1, "meta": {"v": 0.5}}, {"id": 1, "meta": {"v": 2}}],
            [0.5, 2.0],
        ),
        ("at", [{"id": 1, "at": "b"}, {"id": 1, "at": "a"}], ["b", "a"]),
    ],
)
def test_order_is_the_value_of_a_field(order_by: str, values: list[Row], orders: list[object]) -> None:
    found, _ = changes(UpsertRules.of("id", order_by=order_by), values)
    assert [key[CHANGE_ORDER] for _, _, key in found] == orders


@pytest.mark.parametrize(("order_by", "order"), [("source.lsn", 7), ("ts_ms", 5), ("n", "a")])
def test_order_of_debezium_is_a_field_of_the_event_or_of_the_row(order_by: str, order: object) -> None:
    rules = UpsertRules.of("id", envelope="debezium", order_by=order_by)
    for odd in ([], [b"junk"]):
        found, _ = changes(rules, [EVENTS[0], *odd])
        assert found[0][2] == {"id": 1, CHANGE_ORDER: order}


@pytest.mark.parametrize("envelope", ["none", "debezium"])
@pytest.mark.parametrize("bad", [1.5, 2**64, "later", None])
def test_bad_order_of_one_change_leaves_the_order_of_the_others(envelope: str, bad: object) -> None:
    rules = UpsertRules.of("id", envelope=envelope, order_by="source.lsn")
    orders = [2**40 + 1, 2**40 + 2, bad]
    values = [{"op": "c", "after": {"id": 1}, "id": 1, "source": {"lsn": order}} for order in orders]
    fields: dict[str, ColumnType] = {"id": "long", CHANGE_ORDER: "long"}
    decoded = change_decoder(rules, JsonRules(), None, None).decode(bytes_of(values), pa.nulls(3, pa.binary()), fields)
    assert decoded.columns[1].to_pylist() == orders[:2]
    assert [reason is None for reason in decoded.reasons.to_pylist()] == [True, True, False]


@pytest.mark.parametrize("envelope", ["none", "debezium"])
@pytest.mark.parametrize("order_by", ["source.lsn", "lsn", "ts_ms"])
@pytest.mark.parametrize("column", ["long", "double"])
@pytest.mark.parametrize("bad", [1.5, 2**63, 2**70])
def test_numbers_beside_large_integers_do_not_round_their_order(
    envelope: str, order_by: str, column: ColumnType, bad: float
) -> None:
    rules = UpsertRules.of("id", envelope=envelope, order_by=order_by)
    orders = [2**60 + 1, 2**60, 5]
    values = []
    for order in [*orders, bad]:
        row = {"id": 1, "lsn": order}
        values.append({"op": "c", "after": row, **row, "ts_ms": order, "source": {"lsn": order}})
    fields: dict[str, ColumnType] = {"id": "long", "lsn": column, CHANGE_ORDER: "long"}
    decoded = change_decoder(rules, JsonRules(), None, None).decode(bytes_of(values), pa.nulls(4, pa.binary()), fields)
    assert decoded.columns[2].to_pylist()[:3] == orders
    assert [reason is None for reason in decoded.reasons.to_pylist()] == [True, True, True, False]


@pytest.mark.parametrize("envelope", ["none", "debezium"])
@pytest.mark.parametrize("order_by", ["source.lsn", "lsn"])
@pytest.mark.parametrize(
    ("kind", "column", "good", "bad"),
    [
        ("string", "string", "b", 5),
        ("string", "string", "b", 5.5),
        ("timestamp", "string", "2024-01-01T00:00:00Z", 1704067200000),
        ("timestamp", "timestamp", "2024-01-01T00:00:00Z", 1704067200000),
    ],
)
@pytest.mark.parametrize("are_mixed", [True, False])
def test_numbers_among_order_values_that_are_texts_are_bad(
    envelope: str, order_by: str, kind: ColumnType, column: ColumnType, good: str, bad: float, are_mixed: bool
) -> None:
    rules = UpsertRules.of("id", envelope=envelope, order_by=order_by)
    values = []
    for order in [good, bad] if are_mixed else [bad]:
        row = {"id": 1, "lsn": order}
        values.append({"op": "c", "after": row, **row, "source": {"lsn": order}})
    fields: dict[str, ColumnType] = {"id": "long", "lsn": column, CHANGE_ORDER: kind}
    count = len(values)
    decoder = change_decoder(rules, JsonRules(), None, None)
    decoded = decoder.decode(bytes_of(values), pa.nulls(count, pa.binary()), fields)
    assert decoded.reasons.to_pylist()[-1] == (
        f"no order: the field {order_by!r} has no {'time' if kind == 'timestamp' else 'text'}, "
        "by which this table orders changes"
    )
    assert decoded.rows.to_pylist() == ([0] if are_mixed else [])


@pytest.mark.parametrize(
    ("values", "kind", "orders"),
    [
        (pa.array([5]), "timestamp", [None]),
        (pa.array([5]), "string", [None]),
        (pa.array(["5"]), "long", [None]),
        (pa.array([5], pa.timestamp("us", tz="UTC")), "long", [None]),
        (pa.array([True]), "long", [None]),
        (pa.array([5, 6.5]), "long", [5, None]),
        (pa.array([5], pa.int32()), "long", [5]),
    ],
)
def test_order_values_of_schemas_are_not_converted_between_numbers_texts_and_times(
    values: pa.Array, kind: ColumnType, orders: list[object]
) -> None:
    assert as_order(values, kind).to_pylist() == orders


def test_texts_that_are_times_are_ordered_as_times() -> None:
    texts = [
        "2024-01-01T00:00:00.5Z",
        "2024-01-01T00:00:00Z",
        "2024-01-01T01:00:00+02:00",
    ]
    found, _ = changes(UpsertRules.of("id", order_by="at"), [{"id": 1, "at": text} for text in texts])
    orders = [key[CHANGE_ORDER] for _, _, key in found]
    assert sorted(range(3), key=orders.__getitem__) == [2, 1, 0]


def test_change_without_order_is_bad_but_a_tombstone_is_not() -> None:
    found, reasons = changes(
        UpsertRules.of("id", order_by="at"),
        [{"id": 1, "at": 5}, {"id": 1}, None],
        [None, None, b"1"],
    )
    assert [record for record, _, _ in found] == [0, 2]
    assert reasons[1] == "no order: the field 'at' has no integer, by which this table orders changes"


@pytest.mark.parametrize(
    ("delete", "deleted"),
    [
        ("never", []),
        ("tombstone", [3]),
        ("op=d", [1]),
        ("op=d,op=x", [1, 2]),
        (None, [1, 3]),
    ],
)
def test_rules_select_the_records_that_delete(delete: str | None, deleted: list[int]) -> None:
    values = [{"id": 1, "op": "c"}, {"id": 1, "op": "d"}, {"id": 1, "op": "x"}, None]
    found, _ = changes(UpsertRules.of("id", op="op", delete=delete), values, [None, None, None, b"1"])
    assert [record for record, row, _ in found if row is None] == deleted


@pytest.mark.parametrize(
    "wrong",
    [
        {"keys": ""},
        {"keys": "a,,b"},
        {"keys": "a,a"},
        {"keys": "a", "envelope": "other"},
        {"keys": "a", "envelope": "debezium", "op": "op"},
        {"keys": "a", "delete": "op=d"},
        {"keys": "a", "delete": "sometimes"},
        {"keys": "a", "op": "op", "delete": "never,op=d"},
        {"keys": "a", "op": "op", "delete": "op="},
    ],
)
def test_wrong_rules_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        UpsertRules.of(**wrong)


def test_rules_survive_their_text() -> None:
    rules = UpsertRules.of(["a", "b"], op="op", order_by="at", delete="op=d")
    assert UpsertRules.parse(rules.dump()) == rules


def test_schemas_are_cut_off_where_they_are_the_same_text() -> None:
    values = [{"schema": {"n": number // 4}, "payload": {"op": "c", "n": number}} for number in range(8)]
    texts = [json.dumps(value, separators=(",", ":")).encode() for value in values]
    odd = [
        b'{"schema":{},"payload":null}',
        b'{"schema":1',
        b'{"schema":{"n":0},"payload":{"a":1},"x":{}}',
    ]
    cut = without_schemas(pa.array([*texts, *odd], pa.binary())).to_pylist()
    assert [json.loads(value) for value in cut[:8]] == [value["payload"] for value in values]


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.binary(max_size=20),
            st.sampled_from([b'{"id":1}', b'{"op":"c","after":{"id":2}}']),
        ),
        max_size=8,
    ),
    st.lists(
        st.one_of(
            st.none(),
            st.binary(max_size=9),
            st.sampled_from([b'{"id":[1]}', b'{"payload":{"id":1}}']),
        ),
        max_size=8,
    ),
    st.sampled_from(["none", "debezium", "maxwell"]),
)
def test_no_bytes_raise_an_error(values: list[bytes | None], keys: list[bytes | None], envelope: str) -> None:
    count = min(len(values), len(keys))
    decoder = change_decoder(UpsertRules.of("id", envelope=envelope, order_by="at"), JsonRules(), None, None)
    records, of_keys = (
        pa.array(values[:count], pa.binary()),
        pa.array(keys[:count], pa.binary()),
    )
    decoder.infer(records, of_keys)
    decoded = decoder.decode(records, of_keys, {"id": "long", "n": "string", CHANGE_ORDER: "long"})
    assert len(decoded.reasons) == count
    assert len(decoded.rows) == len(decoded.deletes) == len(decoded.columns[0])

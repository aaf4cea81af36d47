"""Values of a type that a field's column does not take: a further column has them, and nothing is lost or null."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from barnabas.formats.event_time import EventTime
from barnabas.formats.json_fields import JsonRules
from barnabas.serialization import value_decoders
from barnabas.spark.table_schema import KAFKA_COLUMNS, VALUE_FORM
from barnabas.spark.tables import scan_table
from tests.support.fake_registry import avro_record, registry_of
from tests.support.loads_without_spark import Lake


class Drifting(Lake):
    """A topic whose records change, all of one day."""

    def add(self, *values: Any, **settings: Any) -> Any:
        """Load values, bytes as they are and others as JSON; the table must give back equal ones."""
        self.ms_between = 1
        written = (each if isinstance(each, bytes) else json.dumps(each).encode() for each in values)
        self.values = [*self.values, *written]
        done = self.load(bad=None, **settings)
        for given_back, value in zip(self.restored(settings.get("registry")), self.values, strict=True):
            assert json.loads(given_back) == json.loads(value) if value[:1] == b"{" else given_back == value
        return done

    def table(self) -> pa.Table:
        rows = pa.Table.from_batches(scan_table(self.folder, "t", table_format=self.place.table_format))
        return rows.sort_by("offset").combine_chunks()

    def restored(self, registry: str | None) -> list[bytes]:
        shape = self.open().current_table("t").shape()
        assert shape is not None
        restored: list[bytes] = shape.values_of(self.table(), registry).to_pylist()
        return restored

    def columns(self) -> dict[str, list[Any]]:
        rows = self.table()
        own = {*KAFKA_COLUMNS, VALUE_FORM, "event_day", "event_time"}
        return {name: rows[name].to_pylist() for name in rows.column_names if name not in own}


@pytest.fixture(params=["iceberg", "delta"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Drifting:
    made = Drifting(tmp_path, request.param)
    made.stand_in(monkeypatch)
    return made


def test_fractions_after_integers_have_a_column_of_their_own(lake: Drifting) -> None:
    lake.add({"amount": 5}, {"amount": 10}, {"amount": 20})
    done = lake.add({"amount": 12.5}, {"amount": 7}, {"amount": 3.0}, {"amount": None}, {})
    assert lake.columns() == {
        "amount": [5, 10, 20, None, 7, 3, None, None],
        "amount_double": [None, None, None, 12.5, None, None, None, None],
    }
    assert (done.bad.count, done.kept_values, done.new_fields) == (0, 0, {"amount_double": "double"})
    assert done.further_columns == {"amount": {"amount": 2, "amount_double": 1}}
    done = lake.add({"amount": 0.25}, {"amount": 1})
    assert (done.new_fields, done.further_columns) == ({}, {"amount": {"amount": 1, "amount_double": 1}})
    assert lake.add({"amount": 1}).further_columns == {}
    total = [a if b is None else b for a, b in zip(*lake.columns().values(), strict=True)]
    assert sum(filter(None, total)) == 58.75 + 1


def test_each_type_has_its_column(lake: Drifting) -> None:
    lake.add({"a": True})
    done = lake.add({"a": 5}, {"a": 2.5}, {"a": "x"}, {"a": {"b": 1}}, {"a": [1]}, {"a": False})
    assert lake.columns() == {
        "a": [True, *[None] * 5, False],
        "a_long": [None, 5, *[None] * 5],
        "a_double": [None, None, 2.5, *[None] * 4],
        "a_string": [*[None] * 3, "x", '{"b":1}', "[1]", None],
    }
    assert (done.bad.count, done.kept_values) == (0, 0)


def test_fields_within_structs_and_lists_have_further_columns(lake: Drifting) -> None:
    rules = JsonRules(nested=True)
    lake.add({"o": {"p": 5, "in": {"q": True}}, "l": [{"n": 1}], "m": [1, 2]}, rules=rules)
    drifted = {"o": {"p": 1.5, "in": {"q": "x"}}, "l": [{"n": 2}, {"n": 0.5}, None], "m": [1, 2.5]}
    done = lake.add(drifted, {"o": {"p": 6}, "m": [3]}, {"o": 7})
    assert lake.columns() == {
        "o": [
            {"p": 5, "in": {"q": True, "q_string": None}, "p_double": None},
            {"p": None, "in": {"q": None, "q_string": "x"}, "p_double": 1.5},
            {"p": 6, "in": None, "p_double": None},
            None,
        ],
        "l": [
            [{"n": 1, "n_double": None}],
            [{"n": 2, "n_double": None}, {"n": None, "n_double": 0.5}, None],
            None,
            None,
        ],
        "m": [[1, 2], None, [3], None],
        "m_list_double": [None, [1.0, 2.5], None, None],
        "o_long": [None, None, None, 7],
    }
    assert (done.bad.count, done.kept_values) == (0, 0)
    assert done.further_columns == {
        "m": {"m": 1, "m_list_double": 1},
        "o": {"o": 2, "o_long": 1},
        "o.p": {"o.p": 1, "o.p_double": 1},
        "o.in.q": {"o.in.q": 0, "o.in.q_string": 1},
        "l.n": {"l.n": 1, "l.n_double": 1},
    }
    assert lake.add(drifted, {"o": {"p": "free", "new": 1}}).bad.count == 0
    assert lake.columns()["o"][-1] == {"p": None, "in": None, "p_double": None, "p_string": "free", "new": 1}


def test_groups_of_lines_have_further_columns(lake: Drifting) -> None:
    given = {"value_format": r"lines:(?P<name>\w+)=(?P<n>\S*)"}
    lake.add(b"a=5", **given)
    done = lake.add(b"b=2.5", b"c=on", b"d=-", b"e=", b"f=7", b"g=2.50", **given)
    found = lake.columns()
    assert found["n"] == [5, None, None, None, None, 7, None]
    assert (found["n_double"], found["n_string"][2]) == ([None, 2.5, None, None, None, None, 2.5], "on")
    assert (done.bad.count, done.further_columns) == (0, {"n": {"n": 1, "n_double": 2, "n_string": 1}})


def test_fields_of_avro_whose_type_changes_have_further_columns(
    lake: Drifting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def schema(amount: Any, place: Any) -> dict[str, Any]:
        inner = {"type": "record", "name": "P", "fields": [{"name": "x", "type": place}]}
        fields = [{"name": "amount", "type": amount}, {"name": "place", "type": inner}]
        return {"type": "record", "name": "R", "fields": fields}

    schemas = [schema("long", "long"), schema("double", "double"), schema(["null", "string"], "long")]
    monkeypatch.setattr(value_decoders, "registry_at", lambda _url: registry_of(*schemas))

    def record(number: int, amount: Any, x: Any) -> bytes:
        return avro_record(number, schemas[number - 1], {"amount": amount, "place": {"x": x}})

    given = {"value_format": "avro", "registry": "http://registry"}
    lake.add(record(1, 5, 1), **given)
    done = lake.add(record(2, 12.5, 0.5), record(2, 7.0, 2.0), record(1, 6, 3), record(3, "n/a", 4), **given)
    lake.add(record(3, None, 5), record(2, 0.25, 6.0), **given)
    assert lake.columns() == {
        "amount": [5, None, 7, 6, None, None, None],
        "place": [{"x": 1}, None, None, {"x": 3}, {"x": 4}, {"x": 5}, None],
        "amount_double": [None, 12.5, None, None, None, None, 0.25],
        "place_struct": [None, {"x": 0.5}, {"x": 2.0}, None, None, None, {"x": 6.0}],
        "amount_string": [None, None, None, None, "n/a", None, None],
    }
    assert (done.bad.count, done.kept_values) == (0, 0)
    assert done.further_columns["amount"] == {"amount": 2, "amount_double": 1, "amount_string": 1}


def test_further_columns_follow_a_field_that_is_renamed(lake: Drifting, monkeypatch: pytest.MonkeyPatch) -> None:
    def schema(name: str, kind: str, aliases: list[str]) -> dict[str, Any]:
        return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind, "aliases": aliases}]}

    schemas = [schema("page", "long", []), schema("page", "double", []), schema("url", "long", ["page"])]
    monkeypatch.setattr(value_decoders, "registry_at", lambda _url: registry_of(*schemas))
    given = {"value_format": "avro", "registry": "http://registry"}
    lake.add(avro_record(1, schemas[0], {"page": 1}), **given)
    lake.add(avro_record(2, schemas[1], {"page": 1.5}), **given)
    lake.add(avro_record(3, schemas[2], {"url": 2}), avro_record(2, schemas[1], {"page": 2.5}), **given)
    name = "url" if lake.place.table_format == "iceberg" else "page"
    assert lake.columns()[f"{name}_double"] == [None, 1.5, None, 2.5]


def test_names_of_other_fields_are_not_taken(lake: Drifting) -> None:
    lake.add({"n": 1, "N_double": "x", "o": {"n": 1, "n_double": 2}}, rules=JsonRules(nested=True))
    done = lake.add({"n": 1.5, "N_double": "y", "o": {"n": 0.5, "n_double": 3}})
    lake.add({"n\x1fdouble": 7, "n": 2.5, "n_double_2": 8, "o": {"n_double_2": 9, "n": 1}})
    found = lake.columns()
    assert (found["n"], found["N_double"], found["n_double_2"]) == ([1, None, None], ["x", "y", None], [None, 1.5, 2.5])
    assert found["value_n_double_2"] == [None, None, 8]
    assert found["o"][1] == {"n": None, "n_double": 3, "n_double_2": 0.5}
    assert done.bad.count == 0


def test_decimals_and_numbers_beyond_them(lake: Drifting) -> None:
    lake.add({"n": 5, "d": 1.25}, rules=JsonRules(decimals=True))
    done = lake.add(b'{"n": 12.5, "d": 1.125}', b'{"n": 123456789012345678901234567890, "d": 1e37}')
    found = lake.columns()
    assert (found["n_decimal"], found["d_decimal"]) == ([None, Decimal("12.5"), None], [None, Decimal("1.125"), None])
    assert (found["n_double"][-1], found["d_double"][-1]) == (123456789012345678901234567890.0, 1e37)
    assert done.bad.count == 0
    assert lake.add(b'{"n": 1e400}').bad.count == 1, "no column takes it"


def test_integers_beyond_their_column_are_rounded_and_kept(lake: Drifting) -> None:
    lake.add({"n": 5})
    done = lake.add(b'{"n": 9223372036854775808}')
    assert (lake.columns()["n_double"], done.kept_values, done.bad.count) == ([None, 2.0**63], 1, 0)


def test_types_widen_where_the_table_can(lake: Drifting) -> None:
    lake.add({"n": 5, "f": 0.5}, fields={"n": "int", "f": "float"}, takes_new_fields=True)
    done = lake.add({"n": 2**40, "f": 0.1})
    found = lake.columns()
    widens = lake.place.table_format == "iceberg"
    assert found["n"] == [5, 2**40 if widens else None]
    assert done.new_fields == ({"n": "long", "f": "double"} if widens else {"n_long": "long", "f_double": "double"})
    assert done.bad.count == 0


def test_without_new_fields_a_value_that_does_not_fit_is_a_bad_record(lake: Drifting) -> None:
    lake.add({"n": 5}, takes_new_fields=False)
    done = lake.add({"n": 2.5})
    assert done.bad.reasons == {"field 'n' does not fit its column (long)": 1}
    assert (lake.columns(), done.kept_values) == ({"n": [5, None]}, 1)


def test_event_times_are_read_from_all_columns_of_a_field(lake: Drifting) -> None:
    moment = datetime(2024, 6, 30, 12, tzinfo=UTC)
    lake.add({"s": {"at": 1_719_748_800}}, event_time=EventTime.parse("s.at"), rules=JsonRules(nested=True))
    done = lake.add({"s": {"at": "2024-06-30T12:00:00Z"}}, {"s": {"at": 1_719_748_800.0}})
    assert (lake.rows("t", "event_time"), done.without_time) == ([(0, moment), (1, moment), (2, moment)], 0)

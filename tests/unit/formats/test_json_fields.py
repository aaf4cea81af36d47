"""JSON values as typed columns: what is inferred, what is decoded, and what is kept because it does not fit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.formats.column_types import ColumnType, grown, merge_fields
from barnabas.formats.further_columns import further_key
from barnabas.formats.json_fields import PART_ROWS, JsonRules, decode, infer_fields, read_fields

FIELDS: dict[str, ColumnType] = {"i": "long", "d": "double", "s": "string", "b": "boolean"}


def column_of(values: Sequence[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


def decoded(values: list[bytes | None], fields: dict[str, ColumnType]) -> tuple[list[list[Any]], list[bool]]:
    parsed = decode(column_of(values), fields)
    return [column.to_pylist() for column in parsed.columns], parsed.whole.to_pylist()


def test_types_meet_in_the_least_that_holds_them_all() -> None:
    values = [b'{"a": 1, "b": true, "c": 1, "d": null, "e": {"x": 1}}', b'{"a": 2.5, "b": false, "c": "x"}']
    assert infer_fields(column_of(values)) == {"a": "double", "b": "boolean", "c": "string", "d": None, "e": "string"}


def test_strings_that_look_like_times_stay_strings() -> None:
    assert infer_fields(column_of([b'{"t": "2013-01-01T10:00:00Z"}'])) == {"t": "string"}


def test_parts_are_merged() -> None:
    assert merge_fields([{"a": "long", "b": None}, {"b": "long", "a": "double"}]) == {"a": "double", "b": "long"}


def test_values_that_fit_are_decoded_whole() -> None:
    columns, whole = decoded([b'{"i": 1, "d": 2, "s": "x", "b": true}', b"{}"], FIELDS)
    assert columns == [[1, None], [2.0, None], ["x", None], [True, None]]
    assert whole == [True, True]


@pytest.mark.parametrize(
    "odd",
    [
        b"not json",
        b"[1, 2]",
        b'{"unknown": 1}',
        b'{"i": "text"}',
        b'{"i": 1.5}',
        b'{"i": 99999999999999999999}',
        b'{"b": 1}',
        b'{"s": "\xff"}',
        b'{"s": "\\ud800"}',
        b"",
    ],
)
def test_a_value_that_does_not_fit_is_marked_and_disturbs_no_other(odd: bytes) -> None:
    columns, whole = decoded([b'{"i": 1}', odd, b'{"i": 3}'], FIELDS)
    assert columns[0] == [1, None, 3]
    assert whole == [True, False, True]


def test_values_with_line_breaks_and_two_objects_in_one_value_do_not_shift_rows() -> None:
    columns, whole = decoded([b'{"i": 1}{"i": 2}', b'{\n"i": 3}', b" ", b'{"i": 4}'], FIELDS)
    assert columns[0] == [None, 3, None, 4]
    assert whole == [False, True, False, True]


def test_values_that_are_objects_only_together_shift_no_rows() -> None:
    """There are as many objects in them as values: two of them are one, and another one is two."""
    values = [b'{"o":', b'{"x":1}}', b'{"o":{"x":1}}{"o":{"x":2}}']
    parsed = decode(column_of(values), {"o": {"x": "long"}}, JsonRules(nested=True))
    assert parsed.reasons == ["not JSON"] * 3
    assert parsed.columns[0].null_count == 3
    assert read_fields(column_of(values), {"o": {"x": "long"}})[0].null_count == 3
    assert infer_fields(column_of(values)) == {}


@pytest.mark.parametrize("end", [b"}", b"} ", b"}\r\n", b"\n\t}\n"])
def test_blanks_and_line_breaks_between_tokens_cost_no_value_its_columns(end: bytes) -> None:
    values = [b'{"i": %d' % number + end for number in range(3)]
    assert decoded(list(values), FIELDS)[0][0] == [0, 1, 2]
    assert decoded([*values, None, b"?"], FIELDS)[0][0] == [0, 1, 2, None, None]


def test_a_tombstone_is_all_null_and_no_object() -> None:
    columns, whole = decoded([None, b'{"i": 1}'], FIELDS)
    assert columns[0] == [None, 1]
    assert whole == [False, True]


def test_what_is_not_a_string_is_json_text_in_a_string_column() -> None:
    columns, whole = decoded([b'{"s": {"x": [1, "\xc3\xa4"]}}', b'{"s": 5}'], FIELDS)
    assert columns[2] == ['{"x":[1,"ä"]}', "5"]
    assert whole == [True, True]


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (b"not json", "not JSON"),
        (b"", "empty"),
        (b"[1]", "JSON, but no object"),
        (b"\xff", "not UTF-8"),
        (b'{"s": "\\ud800"}', "an escape is half of a letter (a lone surrogate)"),
        (b'{"i":' + b"[" * 500_000, "nested too deep"),
        (b'{"i": "text"}', "field 'i' does not fit its column (long)"),
        (b'{"unknown": 1}', None),
        (None, None),
    ],
)
def test_a_bad_record_has_a_reason(odd: bytes | None, reason: str | None) -> None:
    assert (decode(column_of([b'{"i": 1}', odd]), FIELDS).reasons or [None, None]) == [None, reason]


def test_what_has_no_column_is_found_with_its_type() -> None:
    values = column_of([b'{"i": 1, "new": 2}', b'{"new": 2.5, "other": {"x": [true]}}'])
    parsed = decode(values, FIELDS, JsonRules(nested=True))
    assert parsed.found == {"new": "double", "other": {"x": ["boolean"]}}


def test_one_bad_value_of_many_leaves_the_others_as_they_are() -> None:
    values: list[bytes | None] = [b'{"i": %d}' % number for number in range(3 * PART_ROWS)]
    values[PART_ROWS + 7] = b"?"
    parsed = decode(column_of(values), FIELDS)
    assert parsed.columns[0].null_count == 1
    assert [row for row, reason in enumerate(parsed.reasons or []) if reason] == [PART_ROWS + 7]


@pytest.mark.parametrize("nested", [False, True])
def test_numbers_are_decimals_where_that_is_asked_for_whoever_parses_them(nested: bool) -> None:
    """Arrow's parser takes values that are all objects, and finds no decimals; it is not asked where one is null."""
    values = [b'{"price": 19.99, "big": 9223372036854775808, "count": 1}', b'{"price": 5, "big": 1, "count": 2}']
    rules = JsonRules(nested=nested, decimals=True)
    wanted = {"price": "decimal(38,2)", "big": "decimal(38,0)", "count": "long"}
    assert infer_fields(column_of(values), rules) == infer_fields(column_of([*values, None]), rules) == wanted


def test_tables_grow_by_what_is_safe_alone() -> None:
    table: dict[str, ColumnType] = {"a": "int", "b": {"x": "long"}, "c": ["float"], "d": "decimal(10,2)", "e": "long"}
    found = {"a": "long", "b": {"y": "string"}, "c": ["double"], "d": "decimal(38,2)", "e": "double", "n": "boolean"}
    assert grown(table, found, 100) == {
        "a": "long",
        "b": {"x": "long", "y": "string"},
        "c": ["double"],
        "d": "decimal(38,2)",
        "e": "long",
        "n": "boolean",
    }
    assert "n" not in grown(table, found, 5)


SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), SCALARS, max_size=3), max_size=8))
def test_what_is_inferred_from_values_decodes_them(objects: list[dict[str, Any]]) -> None:
    values: list[bytes | None] = [json.dumps(each, ensure_ascii=False).encode("utf-8") for each in objects]
    fields = {name: column_type or "string" for name, column_type in infer_fields(column_of(values)).items()}
    columns, whole = decoded(values, fields)
    assert all(len(column) == len(values) for column in columns)
    for row, each in enumerate(objects):
        for name, column in zip(fields, columns, strict=True):
            if each.get(name) is None or not whole[row]:
                continue
            expected = each[name]
            if fields[name] == "string" and not isinstance(expected, str):
                expected = json.dumps(expected)
            assert column[row] == (pytest.approx(float(expected)) if fields[name] == "double" else expected)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b'{"a":12345678901234567890123456789012345678}', "decimal(38,1)"),
        (b'{"a":[12345678901234567890123456789012345678]}', ["decimal(38,1)"]),
        (b'{"a":{"b":123456}}', {"b": "decimal(5,0)"}),
        (b'{"a":NaN}', "double"),
        (b'{"a":[-Infinity]}', ["double"]),
        (b'{"a":"9999-12-31T23:59:59Z"}', "timestamp"),
        (b'{"a":"0001-01-01"}', "timestamp"),
    ],
)
def test_a_value_reads_alike_whatever_stands_beside_it(value: bytes, kind: ColumnType) -> None:
    alone, beside = (
        decode(pa.array(values), {"a": kind}, JsonRules(nested=True, decimals=True))
        for values in ([value], [value, b"no JSON"])
    )
    assert str(alone.columns[0][0]) == str(beside.columns[0][0])
    alone.columns[0].validate(full=True)
    assert (alone.reasons or [None])[0] == (beside.reasons or [None])[0]


DOUBLES = further_key("n", "double")
DRIFTING: dict[str, ColumnType] = {"n": "long", DOUBLES: "double", "i": "int", further_key("i", "double"): "double"}


@pytest.mark.parametrize("others", [[], [b'{"n": 9007199254740993}'], [b'{"i": 3000000000}'], [b'{"n": "x"}'], [b"?"]])
def test_fractions_beside_integers_are_decoded_at_once_as_one_by_one(others: list[bytes]) -> None:
    numbers = ["1", "-2.5", "3.0", "1e3", "-0.0", "null", "2147483648.5", "9007199254740992", "4503599627370497.5"]
    values = [b'{"n": %s, "i": %d}' % (number.encode(), 5) for number in numbers] + others
    many = decode(pa.array(values), DRIFTING)
    single = [decode(pa.array([value, b"?"]), DRIFTING) for value in values]
    for number, name in enumerate(DRIFTING):
        assert many.columns[number].to_pylist() == [each.columns[number][0].as_py() for each in single], name
    assert many.whole.to_pylist() == [each.whole[0].as_py() for each in single]
    assert many.columns[1].to_pylist()[:5] == [None, -2.5, None, None, None]


def test_values_without_room_are_found_by_type() -> None:
    values = [b'{"n": true}', b'{"n": 2.5, "i": 0.5}', b'{"n": "x"}', b'{"n": {"a": 1}}', b'{"n\\u001fdouble": 1}']
    parsed = decode(pa.array(values), {"n": "long", "i": "int", further_key("i", "double"): "double"})
    assert parsed.found == {further_key("n", kind): kind for kind in ("boolean", "double", "string")}
    assert infer_fields(pa.array(values)) == {"n": "string", "i": "double"}

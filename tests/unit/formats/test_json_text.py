"""Whatever was produced can be had back: from the columns where they hold it, else from `value`."""

from __future__ import annotations

import json
import re
import struct
from decimal import MAX_PREC, Context, Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.formats import json_text
from barnabas.formats.column_types import ColumnType, grown, settled
from barnabas.formats.decoding import TOMBSTONE, VALUE
from barnabas.formats.json_fields import PLAIN, JsonRules, decode, infer_fields
from barnabas.formats.json_text import STYLES, compose, restore, value_forms, without_blanks
from tests.support.searches import examples

FIELDS: dict[str, ColumnType] = {"i": "long", "d": "double", "s": "string", "b": "boolean"}
BLANKS = re.compile(rb'("(?:[^"\\]|\\.)*")|[ \t\r\n]+', re.DOTALL)


def load(
    values: list[bytes | None], fields: dict[str, ColumnType], rules: JsonRules = PLAIN
) -> tuple[pa.Array, pa.Array, dict[str, pa.Array]]:
    """Return the columns `value`, `value_form` and the decoded ones, as a table has them."""
    column = pa.array(values, pa.binary())
    parsed = decode(column, fields, rules)
    columns = dict(zip(fields, parsed.columns, strict=True))
    forms = value_forms(column, parsed.whole, columns)
    kept = [value if form == VALUE else None for value, form in zip(values, forms.to_pylist(), strict=True)]
    return pa.array(kept, pa.binary()), forms, columns


def forms_of(*values: bytes | None) -> list[str]:
    return load(list(values), FIELDS)[1].to_pylist()


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (b'{"i":1,"d":2.5,"s":"x","b":true}', "columns"),
        (b'{"i": 1, "d": 2.5, "s": "x", "b": true}', "columns"),
        (b' {"i" :1,\n"b": false } ', "columns"),
        (b'{"d": 5}', "columns"),
        (b'{"d": 5.0}', "columns+fractions"),
        (b'{"i":null,"d":2.5,"s":null,"b":null}', "columns+nulls:4"),
        (b'{"i":null,"d":2.0,"s":null,"b":null}', "columns+fractions+nulls:4"),
        (b'{"s": {"x": [1, "\xc3\xa4"]}}', "columns"),
        (b'{"s": "a \\" \\\\ \\n b"}', "columns"),
        (b"{}", "columns"),
        (None, TOMBSTONE),
        (b"", VALUE),
        (b"null", VALUE),
        (b'{"i": 9223372036854775808}', VALUE),
        (b'{"d": 9007199254740993}', VALUE),
        (b'{"d": 0.1234567890123456789}', VALUE),
        (b'{"d": 1e400}', VALUE),
        (b'{"d": 1.50}', "same"),
        (b'{"d": 15e-1}', "same"),
        (b'{"d": 1E2}', "same"),
        (b'{"d": -0.0}', "columns+fractions"),
        (b'{"d": -0e7}', "same"),
        (b'{"d": 1e-400}', VALUE),
        (b'{"s": "\\u0061\\/"}', "same"),
        (b'{"\\u0069": 1}', "same"),
        (b'{"s": {"y": 1, "x": 2.50}}', "same"),
        (b'{"s": {"x": 1, "x": 1}}', VALUE),
        (b'{"i": 1, "i": 1}', VALUE),
        (b'{"b": 1}', VALUE),
        (b'{"i": -0}', VALUE),
        (b'{"i": 1, "i": 2}', VALUE),
        (b'{"s": 5}', VALUE),
        (b'{"s": "[5]"}', VALUE),
        (b'{"s": {"x": 1.0000000000000000001}}', VALUE),
        (b'{"b": true, "i": 1}', "same"),
        (b'{"i": null}', "same:0"),
        (b'{"b": null, "s": "x", "i": null}', "same:0,3"),
        (b'{"i": 1, "new": 2}', VALUE),
        (b'{"i": nu ll}', VALUE),
        (b'{"d": NaN}', VALUE),
        (b'{"s": "\xed\xa0\x80"}', VALUE),
        ('{"i": 1}'.encode("utf-16"), VALUE),
    ],
)
def test_the_form_of_a_value(value: bytes | None, form: str) -> None:
    assert forms_of(value) == [form]
    assert forms_of(b'{"i": 1}', value, b"no JSON", b'{"d":1.5}') == ["columns", form, VALUE, "columns"]


def test_values_that_no_column_gives_back_are_not_put_together_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counting(columns: dict[str, pa.Array], length: int, *rest: Any) -> pa.Array:
        made.append(length)
        return compose(columns, length, *rest)

    monkeypatch.setattr(json_text, "compose", counting)
    # One in ten is written in a way that no column keeps, and one in seven as Python does it.
    values = [b'{"d":%d.50}' % n if n % 10 == 0 else b'{"d":%d.5}' % n for n in range(20_000)]
    values[::7] = [value.replace(b":", b": ") for value in values[::7]]
    forms = load(list(values), FIELDS)[1].to_pylist()
    assert [form == "same" for form in forms] == [value.endswith(b"0}") for value in values]
    # Once, a seventh once more, and the samples.
    assert sum(made) < 1.5 * len(values), made


def test_strings_and_numbers_that_look_alike_in_a_column_are_told_apart() -> None:
    assert forms_of(b'{"s":"5"}', b'{"s":5}', b'{"s":"true"}', b'{"s":true}') == ["columns", VALUE, "columns", VALUE]


def test_a_number_beyond_the_doubles_is_not_infinite_in_its_column() -> None:
    _, _, columns = load([b'{"d": 1e400, "i": 3}', b'{"d": 1}'], FIELDS)
    assert (columns["d"].to_pylist(), columns["i"].to_pylist()) == ([None, 1.0], [3, None])


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_a_value_of_any_depth_is_kept_and_ends_no_process(opening: bytes) -> None:
    deep = b'{"i":' + opening * 500_000
    assert infer_fields(pa.array([deep, b'{"i":1}'])) == {"i": "long"}
    assert forms_of(deep, b'{"i":1}') == [VALUE, "columns"]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda parts: st.lists(parts, max_size=2) | st.dictionaries(st.sampled_from("xy"), parts, max_size=2),
    max_leaves=4,
)
OBJECTS = st.dictionaries(st.sampled_from(["i", "d", "s", "b"]) | st.text(max_size=2), JSON, max_size=5)
WRITTEN = st.builds(
    lambda parsed, separators, ascii_only: json.dumps(parsed, separators=separators, ensure_ascii=ascii_only).encode(
        errors="replace"
    ),
    OBJECTS,
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:")]),
    st.booleans(),
)
WORDS = [b"{", b"}", b'"i"', b'"s"', b'"d"', b":", b",", b" ", b"1", b"-0", b"1e9", b"null", b"[", b"]", b'"']
TOKENS = st.lists(st.sampled_from(WORDS), max_size=9).map(b"".join)
VALUES = st.none() | WRITTEN | TOKENS | TOKENS.map(lambda inner: b"{" + inner + b"}") | st.binary(max_size=12)


def exactly(text: bytes) -> object:
    """Return what a text of JSON says: objects as sets of pairs, numbers with all their digits."""

    def number(written: str) -> object:
        return "number", Decimal(written).normalize(Context(prec=MAX_PREC)).as_tuple()

    def members(pairs: list[tuple[str, object]]) -> object:
        assert len({name for name, _ in pairs}) == len(pairs)
        return "object", frozenset(pairs)

    def frozen(item: object) -> object:
        return ("array", *map(frozen, item)) if isinstance(item, list) else item

    def frozen_members(pairs: list[tuple[str, object]]) -> object:
        return members([(name, frozen(item)) for name, item in pairs])

    return json.loads(text, parse_int=number, parse_float=number, object_pairs_hook=frozen_members)


def check_given_back(values: list[bytes | None], fields: dict[str, ColumnType], rules: JsonRules = PLAIN) -> None:
    kept, forms, columns = load(values, fields, rules)
    restored = restore(kept, forms, columns).to_pylist()
    for value, form, given_back in zip(values, forms.to_pylist(), restored, strict=True):
        if value is None or form in (TOMBSTONE, VALUE):
            assert (given_back, form == TOMBSTONE) == (value, value is None)
        elif form.startswith("same"):
            assert exactly(given_back) == exactly(value)
        else:
            assert given_back == BLANKS.sub(rb"\1", value)
            json.loads(value)  # blanks mean nothing in JSON, and only there


@given(st.lists(VALUES, max_size=6))
@example([b'{"i":1}', b'{"i":1.5}', b'{"i":9007199254740993}'])
@example([b'{"i":"5"}', b'{"i":5}', b"{}", None])
def test_any_bytes_are_given_back_by_a_table_made_for_them(values: list[bytes | None]) -> None:
    found = infer_fields(pa.array(values, pa.binary()))
    check_given_back(values, {name: column_type or "string" for name, column_type in found.items()})


@given(st.lists(VALUES, max_size=6))
def test_any_bytes_are_given_back_by_a_table_made_for_others(values: list[bytes | None]) -> None:
    check_given_back(values, FIELDS)


@given(st.lists(st.floats() | st.integers(-(10**17), 10**17).map(float) | st.none(), max_size=9))
@example([1e-4, 9.9e-5, 1e15, 999999999999999.9, 5e-324, -0.0, 1e16, None])
def test_doubles_are_written_as_python_writes_them(numbers: list[float | None]) -> None:
    """Whatever Arrow's own way is: what a table leaves out must still be given back by a later version."""
    column = {"d": pa.array(numbers, pa.float64())}
    for style in STYLES:
        written = [None if number is None else repr(number) for number in numbers]
        if not style.fractions:
            written = [text and text.removesuffix(".0") for text in written]
        empty = '{"d":null}' if style.nulls else "{}"
        expected = [f'{{"d":{text}}}' if text else empty for text in written]
        assert compose(column, len(numbers), style).to_pylist() == [text.encode() for text in expected]


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_blanks_inside_strings_stay(values: list[bytes]) -> None:
    assert without_blanks(pa.array(values, pa.binary())).to_pylist() == [BLANKS.sub(rb"\1", value) for value in values]


RICH_FIELDS: dict[str, ColumnType] = {
    "n": "decimal(38,2)",
    "t": "timestamp",
    "o": {"a": "long", "d": "double", "l": ["string"]},
    "l": [{"x": "long"}],
    "i": "int",
    "f": "float",
}


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (b'{"n":19.99}', "columns"),
        (b'{"n":19.5}', "columns"),
        (b'{"n":19.50}', "columns+fractions"),
        (b'{"n":20}', "columns"),
        (b'{"n":20.000}', "same"),
        (b'{"n":0.000}', "same"),
        (b'{"n":19.990000000000000000000000000000000000000}', "same"),
        (b'{"i":5.0}', "same"),
        (b'{"i":5e3}', "same"),
        (b'{"i":5.0000000000000000001}', VALUE),
        (b'{"i":-0.0}', VALUE),
        (b'{"l":[{"x":null}]}', VALUE),
        (b'{"o":{"l":["x"],"d":null,"a":null},"n":null,"i":7}', "same:0,2.0,2.1"),
        (b'{"n":19.999}', VALUE),
        (b'{"n":"19.99"}', VALUE),
        (b'{"n":123456789012345678901234567890.25}', "columns"),
        (b'{"t":"2015-05-17T10:05:03Z"}', "columns"),
        (b'{"t":"2015-05-17T10:05:03.120Z"}', "columns+fractions"),
        (b'{"t":"2015-05-17T12:05:03+02:00"}', VALUE),
        (b'{"o":{"a":1,"l":["x",null]},"l":[{"x":1},{},null]}', "columns"),
        (b'{"o": {"a": 1, "l": ["x"]}, "l": []}', "columns"),
        (b'{"o":{},"l":[]}', "columns"),
        (b'{"o":{"a":1,"a":2}}', VALUE),
        (b'{"o":{"a":null}}', "same:2.0"),
        (b'{"o":{"new":1}}', VALUE),
        (b'{"o":{"d":2.0}}', "columns+fractions"),
        (b'{"l":{"x":1}}', VALUE),
        (b'{"i":5,"f":0.5}', "columns"),
        (b'{"i":5000000000}', VALUE),
        (b'{"f":0.1}', VALUE),
    ],
)
def test_the_form_of_values_of_other_types(value: bytes, form: str) -> None:
    for values in ([value], [b'{"n":1.25}', value, b"no JSON"]):
        kept, forms, columns = load(list(values), RICH_FIELDS)
        assert forms.to_pylist()[values.index(value)] == form
        given_back = restore(kept, forms, columns).to_pylist()[values.index(value)]
        is_same = exactly(given_back) == exactly(value) if form.startswith("same") else False
        assert is_same or given_back == BLANKS.sub(rb"\1", value)


def test_columns_that_a_table_got_later_are_no_nulls_of_earlier_values() -> None:
    kept, forms, columns = load([b'{"i":1,"d":null,"s":null,"b":null}'], FIELDS)
    later = {**columns, "new": pa.nulls(1, pa.string())}
    assert restore(kept, forms, later).to_pylist() == [b'{"i":1,"d":null,"s":null,"b":null}']


@given(st.lists(VALUES, max_size=5), st.lists(VALUES, max_size=5), st.booleans(), st.booleans())
@settings(max_examples=examples(60))
@example([b'{"i":5}'], [b'{"i":12.5}', b'{"i":"x"}', b'{"i":[1]}', b'{"i":12345678901234567890123}'], True, True)
@example([b'{"i":{"x":5}}'], [b'{"i":{"x":12.5,"y":null}}', b'{"i":[{"x":"x"}]}', b'{"i":7}'], True, False)
@example([b'{"i":[{"x":[5]}]}'], [b'{"i":[{"x":[12.5]},null]}', b'{"i":[{"x":{"y":1}}]}', b'{"i":[1,2]}'], True, False)
@example([], [b'{"i":[1e+38]}', b'{"i":[[1e+38],[1.5]]}', b'{"n":{"x":[1e+38]}}'], True, True)
@example([b'{"i":[]}'], [b'{"i":{"x":1e+38}}'], True, True)
@example([b'{"i":5}'], [b'{"i":[{"x":[{"y":1e+38}]},{"x":[{"y":1.5}]}]}'], True, True)
def test_values_of_any_type_have_columns_once_a_table_has_grown(
    first: list[bytes | None], then: list[bytes | None], nested: bool, decimals: bool
) -> None:
    rules = JsonRules(nested, decimals)
    inferred = infer_fields(pa.array(first, pa.binary()), rules)
    fields = {name: settled(column_type) for name, column_type in inferred.items()}
    for _ in range(2):  # a new column of decimals does not take all numbers
        fields = grown(fields, decode(pa.array(then, pa.binary()), fields, rules).found, 1_000)
    reasons = decode(pa.array(then, pa.binary()), fields, rules).reasons or []
    assert not [reason for reason in reasons if reason and reason.startswith("field")]
    check_given_back(then, fields, rules)
    check_given_back(first, fields, rules)


@given(st.lists(OBJECTS, min_size=1, max_size=3), st.randoms(use_true_random=False), st.booleans(), st.booleans())
@settings(max_examples=examples(40))
def test_another_spelling_of_a_value_is_kept_no_more_than_the_first(
    objects: list[dict[str, Any]], random: Random, nested: bool, decimals: bool
) -> None:
    usual = [json.dumps(each).encode() for each in objects]
    found = infer_fields(pa.array(usual), JsonRules(nested, decimals))
    fields = {name: settled(column_type) for name, column_type in found.items()}
    others = [spelled_otherwise(each, random).encode() for each in objects]
    forms = zip(load(list(usual), fields)[1].to_pylist(), load(list(others), fields)[1].to_pylist(), strict=True)
    assert all(other != VALUE for form, other in forms if form != VALUE)
    check_given_back(list(others), fields)


def spelled_otherwise(item: Any, random: Random) -> str:
    """Return JSON with its fields in another order, with blanks, escapes and exponents where they are not needed."""
    if isinstance(item, dict):
        pairs = [f"{spelled_otherwise(name, random)} :{spelled_otherwise(each, random)}" for name, each in item.items()]
        random.shuffle(pairs)
        return "{" + ",\n".join(pairs) + " }"
    if isinstance(item, list):
        return "[ " + ", ".join(spelled_otherwise(each, random) for each in item) + "]"
    if isinstance(item, str) and item:
        letter = random.randrange(len(item))
        escape = "".join(f"\\u{unit:04X}" for unit in struct.unpack(">H", item[letter].encode("utf-16-be")[:2]))
        return (
            json.dumps(item)
            if ord(item[letter]) > 0xFFFF
            else (json.dumps(item[:letter])[:-1] + escape + json.dumps(item[letter + 1 :])[1:])
        )
    if isinstance(item, float):
        sign, digits, exponent = Decimal(repr(item)).as_tuple()
        return f"{'-' * sign}{''.join(map(str, digits))}e{exponent:+}"
    return json.dumps(item)


@given(st.lists(VALUES, max_size=6), st.booleans(), st.booleans())
@example([b'{"i":19.99}', b'{"i":1e2}', b'{"i":123456789012345678901}'], False, True)
@example([b'{"i":{"x":[1,null]}}', b'{"i":{"y":2.5}}', b'{"i":{}}', b'{"i":null}'], True, False)
def test_any_bytes_are_given_back_by_columns_of_any_type(
    values: list[bytes | None], nested: bool, decimals: bool
) -> None:
    found = infer_fields(pa.array(values, pa.binary()), JsonRules(nested, decimals))
    check_given_back(values, {name: settled(column_type) for name, column_type in found.items()})
    check_given_back(values, RICH_FIELDS)

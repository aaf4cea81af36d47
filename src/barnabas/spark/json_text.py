"""Whether decoded columns give a JSON value back as it was produced, and the value itself put together from them.

A table has no need to keep a value that its columns give back byte for byte, apart from blanks between tokens,
which mean nothing in JSON. `value_forms` says of each value how to get it back:

    tombstone    there is none: the record's value is null
    value        the column `value` has it, as it came
    columns...   put together from the columns: an object with the fields in the columns' order

Writers of JSON differ in two habits, so `columns` comes in four styles: with `+nulls` a field whose column is null
is there as `null`, otherwise it is absent; with `+fractions` a whole number of a column of type double is written
as `5.0`, otherwise as `5`. Whatever is written in another way (an escape where none is needed, `1.50`, another
order of fields, a field twice) is no loss: it is kept in `value`.

The form is found by putting the value together and comparing. So nothing has to be known of how a parser reads
large numbers, repeated fields or strings that look like numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc

TOMBSTONE = "tombstone"
VALUE = "value"

_STRING_OR_BLANKS = r'(?s)("(?:[^"\\]|\\.)*")|[ \t\r\n]+'
_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\b", "\\b"), ("\f", "\\f"))


@dataclass(frozen=True, slots=True)
class Style:
    """A way in which writers of JSON write an object."""

    name: str
    nulls: bool
    fractions: bool


@dataclass(frozen=True, slots=True)
class Spacing:
    """What stands between fields, and between a name and its value."""

    comma: str
    colon: str


STYLES = (
    Style("columns", nulls=False, fractions=False),
    Style("columns+fractions", nulls=False, fractions=True),
    Style("columns+nulls", nulls=True, fractions=False),
    Style("columns+fractions+nulls", nulls=True, fractions=True),
)
COMPACT, SPACED = Spacing(",", ":"), Spacing(", ", ": ")
"""JavaScript's habit, and that of Python's module json."""


def value_forms(values: pa.Array, whole: pa.Array, columns: Mapping[str, pa.Array]) -> pa.Array:
    """Return the form of each value.

    :param values: binary, null for tombstones.
    :param whole: boolean: which values are valid JSON objects that have no field without a column.
    :param columns: the decoded columns by the names of their fields, as `compose` takes them.
    """
    forms = pc.if_else(pc.is_null(values), TOMBSTONE, VALUE)
    styles = _styles(columns)
    forms, left = _search(forms, values, whole, columns, product(styles, _likely_first(values)))
    if pc.any(left).as_py():  # with blanks elsewhere, which is slow to find out
        stripped = without_blanks(pc.if_else(left, values, pa.scalar(None, values.type)))
        forms, _ = _search(forms, stripped, left, columns, product(styles, [COMPACT]))
    return forms


def _search(
    forms: pa.Array,
    values: pa.Array,
    left: pa.Array,
    columns: Mapping[str, pa.Array],
    attempts: Iterable[tuple[Style, Spacing]],
) -> tuple[pa.Array, pa.Array]:
    """Return `forms` with those that were found for the rows `left` (a boolean each), and the rows still left."""
    for style, spacing in attempts:
        if not left.true_count:
            break
        rows = {name: column.filter(left) for name, column in columns.items()}
        made = compose(rows, left.true_count, style, spacing)
        found = pc.replace_with_mask(left, left, pc.equal(values.filter(left), made))
        forms = pc.if_else(found, style.name, forms)
        left = pc.and_not(left, found)
    return forms, left


def _styles(columns: Mapping[str, pa.Array]) -> Sequence[Style]:
    has_doubles = any(pa.types.is_float64(column.type) for column in columns.values())
    return [style for style in STYLES if has_doubles or not style.fractions]


def _likely_first(values: pa.Array) -> Sequence[Spacing]:
    first = next((value.as_py() for value in values if value.is_valid), b"")
    return (SPACED, COMPACT) if b'": ' in first else (COMPACT, SPACED)


def compose(columns: Mapping[str, pa.Array], length: int, style: Style, spacing: Spacing = COMPACT) -> pa.Array:
    """Return the values (binary) that columns make: JSON objects with the fields in the columns' order.

    :param columns: by field; boolean, int64, double or string. A string that begins with `{` or `[` is taken for
        an object or array.
    """
    members = []
    for name, column in columns.items():
        head = spacing.comma + json.dumps(name, ensure_ascii=False) + spacing.colon
        text = _text(column, style)
        member = pc.binary_join_element_wise(head, text.fill_null("null") if style.nulls else text, "")
        members.append(member.fill_null(""))
    if not members:
        return pa.repeat(pa.scalar(b"{}"), length)
    joined = pc.binary_join_element_wise(*members, "")
    inner = pc.utf8_slice_codeunits(joined, len(spacing.comma))
    return pc.binary_join_element_wise("{", inner, "}", "").cast(pa.binary())


def _text(column: pa.Array, style: Style) -> pa.Array:
    """Return a column as JSON text, null where it is null."""
    if pa.types.is_float64(column.type):
        return _double_text(column, style)
    return _string_text(column) if pa.types.is_string(column.type) else column.cast(pa.string())


def _double_text(column: pa.Array, style: Style) -> pa.Array:
    """Return the shortest text that is read as the same number, as Python's `repr` has it."""
    texts = column.cast(pa.string())
    size = pc.abs(column)
    is_usual = pc.or_(pc.and_(pc.greater_equal(size, 1e-4), pc.less(size, 1e15)), pc.equal(size, 0.0))
    is_plain = pc.and_not(is_usual, pc.match_substring(texts, "e")).fill_null(True)
    if style.fractions:
        texts = pc.if_else(pc.match_substring(texts, "."), texts, pc.binary_join_element_wise(texts, ".0", ""))
    if is_plain.true_count == len(column):
        return texts
    # Arrow has rules of its own for very small, very large and very long numbers.
    odd = pc.invert(is_plain)
    reprs = map(repr, column.filter(odd).to_pylist())
    written = [text if style.fractions else text.removesuffix(".0") for text in reprs]
    return pc.replace_with_mask(texts, odd, pa.array(written, pa.string()))


def _string_text(column: pa.Array) -> pa.Array:
    escaped = column
    if pc.any(pc.match_substring_regex(column, r'[\x00-\x1f"\\]')).as_py():
        for letter, escape in _ESCAPES:
            escaped = pc.replace_substring(escaped, letter, escape)
    quoted = pc.binary_join_element_wise('"', escaped, '"', "")
    return pc.if_else(pc.match_substring_regex(column, r"^[\[{]"), column, quoted)


def without_blanks(values: pa.Array) -> pa.Array:
    """Return JSON texts (binary) without the blanks between their tokens."""
    return pc.replace_substring_regex(values, _STRING_OR_BLANKS, r"\1")


def restore(values: pa.Array, forms: pa.Array, columns: Mapping[str, pa.Array]) -> pa.Array:
    """Return the values as they were produced, apart from blanks between tokens where the columns have them.

    :param values: the table's column `value`; `forms`: its column `value_form`.
    :param columns: the decoded columns by the names of their fields, in the table's order.
    """
    restored = values
    for style in STYLES:
        mask = pc.equal(forms, style.name)
        if pc.any(mask).as_py():
            restored = pc.if_else(mask, compose(columns, len(values), style), restored)
    return restored

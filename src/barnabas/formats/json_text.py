"""The forms of JSON values, and the restoration of values from decoded columns.

A table does not keep a value that its columns can restore. `value_forms` returns the form of each value:

    tombstone    the record's value is null
    value        the column `value` contains the original bytes
    columns...   the columns restore the value: an object with the fields in the order of the columns. The bytes equal
                 the produced ones except for whitespace between tokens
    same...      the columns restore an equal value (json_values.py). The order of fields, the escapes or the notation
                 of numbers may differ from the produced bytes

JSON writers differ in two habits, so `columns` has four styles. With `+nulls`, a field with a null column is written as
`null`; otherwise the field is absent. With `+fractions`, an integer in a double column is written as `5.0`, otherwise
as `5`; a decimal is written with all digits, `19.90` instead of `19.9`, and a time with milliseconds. `columns+nulls:7`
means the table's first seven columns: later columns are always appended. `same:0,4.2` writes null for the first column
and for the third field of the struct in the fifth column; other null fields are absent.

`value_forms` composes each value in each style and compares the bytes. So it needs no assumptions about the way in
which parsers handle large numbers, repeated fields or strings that look like numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice, product
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.formats.decoding import TOMBSTONE, VALUE
from barnabas.formats.further_columns import is_further, keys_of_fields
from barnabas.formats.json_values import Path, nulls_beside

SAME = "same"
"""The form of a value that the columns restore with equal content but different bytes."""
SAMPLE_ROWS = 256
"""The number of values in the sample that determines which styles to try."""

_TO_ESCAPE = bytes((*range(0x20), *b'"\\'))
_STRING_OR_BLANKS = r'(?s)("(?:[^"\\]|\\.)*")|[ \t\r\n]+'
_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\b", "\\b"), ("\f", "\\f"))


@dataclass(frozen=True, slots=True)
class Style:
    """A combination of habits with which programs write a JSON object."""

    name: str
    nulls: bool
    fractions: bool


@dataclass(frozen=True, slots=True)
class Spacing:
    """The separators between fields, and between a name and its value."""

    comma: str
    colon: str


STYLES = (
    Style("columns", nulls=False, fractions=False),
    Style("columns+fractions", nulls=False, fractions=True),
    Style("columns+nulls", nulls=True, fractions=False),
    Style("columns+fractions+nulls", nulls=True, fractions=True),
)
COMPACT, SPACED = Spacing(",", ":"), Spacing(", ", ": ")
"""The separators that JavaScript writes (COMPACT), and the default separators of Python's module `json` (SPACED)."""
Way = tuple[Style, Spacing]
Place = tuple[int, ...]
"""The index of a column, followed by the indexes of nested struct fields."""


def value_forms(values: pa.Array, whole: pa.Array, columns: Mapping[str, pa.Array]) -> pa.Array:
    """Return the form of each value.

    :param values: binary values; null for tombstones.
    :param whole: for each value, True if it is a valid JSON object and every field has a column.
    :param columns: the decoded columns by field name, as for `compose`.
    """
    forms = pc.if_else(pc.is_null(values), TOMBSTONE, VALUE)
    styles = _styles(columns)
    forms, left = _search_likely(forms, values, whole, columns, list(product(styles, (COMPACT, SPACED))))
    if left.true_count:
        # The remaining values have unusual whitespace, which is slow to detect, or a style that cannot be restored.
        ways = [(style, COMPACT) for style in styles]
        sample = _sampled(left)
        written = values.take(sample)
        bare = without_blanks(written)
        # If the sample has no such whitespace, all styles have already been tried.
        likely = [] if bare.equals(written) else _likely(bare, columns, sample, ways)
        if likely:
            stripped = without_blanks(pc.if_else(left, values, pa.scalar(None, values.type)))
            forms, left = _search(forms, stripped, left, columns, likely)
    return _search_same(forms, values, left, columns) if left.true_count else forms


def _search_same(forms: pa.Array, values: pa.Array, left: pa.Array, columns: Mapping[str, pa.Array]) -> pa.Array:
    """Return `forms` with the form `same` for each row in `left` whose columns restore an equal value with different
    bytes.
    """
    rows = {name: column.filter(left) for name, column in columns.items()}
    made = compose(rows, left.true_count, STYLES[0])
    found: list[str | None] = []
    for original, composed in zip(values.filter(left).to_pylist(), made.to_pylist(), strict=True):
        nulls = nulls_beside(original, composed)
        places = None if nulls is None else [_place(path, columns) for path in nulls]
        if places is None or None in places:
            found.append(None)
        else:
            listed = ",".join(".".join(map(str, place)) for place in sorted(filter(None, places)))
            found.append(f"{SAME}:{listed}" if listed else SAME)
    return pc.replace_with_mask(forms, left, pc.coalesce(pa.array(found, pa.string()), forms.filter(left)))


def _place(path: Path, columns: Mapping[str, pa.Array]) -> Place | None:
    """Return the indexes that lead to a nested field; None if a further column contains the struct with that field."""
    first, *within = path
    place, kind = [list(columns).index(first)], columns[first].type
    for name in within:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return None
        place.append(kind.get_field_index(name))
        kind = kind.field(place[-1]).type
    return tuple(place)


def _search_likely(
    forms: pa.Array, values: pa.Array, left: pa.Array, columns: Mapping[str, pa.Array], ways: list[Way]
) -> tuple[pa.Array, pa.Array]:
    """Try the styles that occur in a sample of the values, and repeat this with a new sample of the remaining values.
    See `_search`.

    Composing a value costs as much as parsing it. A style that the sample does not contain is not tried: only few
    values use it, and the table keeps these values.
    """
    while ways and left.true_count:
        sample = _sampled(left)
        likely = _likely(values.take(sample), columns, sample, ways)
        if not likely:
            break
        forms, left = _search(forms, values, left, columns, likely)
        ways = [way for way in ways if way not in likely]
    return forms, left


def _sampled(left: pa.Array) -> pa.Array:
    """Return the indexes of a sample of the remaining rows, spread evenly."""
    rows = pc.indices_nonzero(left)
    return rows.take(pa.array(range(0, len(rows), -(-len(rows) // SAMPLE_ROWS)), pa.int64()))


def _likely(values: pa.Array, columns: Mapping[str, pa.Array], rows: pa.Array, ways: Iterable[Way]) -> list[Way]:
    """Return the styles of some values, most frequent style first.

    :param rows: the indexes of the values in the columns.
    """
    left, sampled = pa.repeat(pa.scalar(True), len(rows)), {name: each.take(rows) for name, each in columns.items()}
    counts: dict[Way, int] = {}
    for way in ways:
        before = left.true_count
        _, left = _search(pa.nulls(len(rows), pa.string()), values, left, sampled, [way])
        if left.true_count < before:
            counts[way] = before - left.true_count
    return sorted(counts, key=lambda way: -counts[way])


def _search(
    forms: pa.Array,
    values: pa.Array,
    left: pa.Array,
    columns: Mapping[str, pa.Array],
    ways: Iterable[Way],
) -> tuple[pa.Array, pa.Array]:
    """Try styles for the rows in `left`. Return `forms` with the forms found, and the rows for which no style restores
    the value.
    """
    for style, spacing in ways:
        if not left.true_count:
            break
        if left.true_count == len(left):
            found = pc.equal(values, compose(columns, len(left), style, spacing))
        else:
            rows = {name: column.filter(left) for name, column in columns.items()}
            made = compose(rows, left.true_count, style, spacing)
            found = pc.replace_with_mask(left, left, pc.equal(values.filter(left), made))
        forms = pc.if_else(found, _form(style, len(columns)), forms)
        left = pc.and_not(left, found)
    return forms, left


def _form(style: Style, column_count: int) -> str:
    return f"{style.name}:{column_count}" if style.nulls else style.name


def _styles(columns: Mapping[str, pa.Array]) -> Sequence[Style]:
    types = [column.type for column in columns.values()]
    has_fractions = any(_has(each, _is_written_with_fractions) for each in types)
    # A struct may get more fields later, and those fields must not appear as nulls in earlier values.
    has_structs = any(_has(each, pa.types.is_struct) for each in types)
    has_nulls = not has_structs and any(column.null_count for column in columns.values())
    return [style for style in STYLES if (has_fractions or not style.fractions) and (has_nulls or not style.nulls)]


def _is_written_with_fractions(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_timestamp(kind))


def _has(kind: pa.DataType, is_wanted: Callable[[pa.DataType], bool]) -> bool:
    inner = [kind.field(number).type for number in range(kind.num_fields)]
    return is_wanted(kind) or any(_has(each, is_wanted) for each in inner)


def compose(
    columns: Mapping[str, pa.Array],
    length: int,
    style: Style,
    spacing: Spacing = COMPACT,
    *,
    nulls: Collection[Place] = (),
) -> pa.Array:
    """Compose binary values from columns: JSON objects with the fields in the order of the columns.

    :param columns: the columns by field name. A string that begins with `{` or `[` is written as an object or array.
    :param nulls: the positions of columns and nested struct fields that are always written as null, regardless of the
        style.
    """
    return _object_text(columns, length, style, spacing, nulls).cast(pa.binary())


def _object_text(
    columns: Mapping[str, pa.Array], length: int, style: Style, spacing: Spacing, nulls: Collection[Place] = ()
) -> pa.Array:
    if not columns:
        return pa.repeat(pa.scalar("{}"), length)
    pieces: list[Any] = ["{"]
    first = next(iter(columns.values()))
    # A comma precedes each field. If the first field may be absent, the leading comma is removed from the finished
    # text. Otherwise the first field gets no comma, which saves a copy of the text.
    comma = spacing.comma if first.null_count and not (style.nulls or (0,) in nulls) else ""
    cut = len(comma)
    further = keys_of_fields(columns)
    for number, (name, column) in enumerate(columns.items()):
        if is_further(name):
            continue
        head = comma + json.dumps(name, ensure_ascii=False) + spacing.colon
        comma = spacing.comma
        within = [place[1:] for place in nulls if place[0] == number and len(place) > 1]
        text = _text(column, style, spacing, within)
        null_count = column.null_count
        if name in further:
            others = [_joined(_text(columns[key], style, spacing)) for key in further[name]]
            text = [pc.coalesce(_joined(text), *others)]
            null_count = text[0].null_count
        if not null_count:
            pieces += [head, *text]
        elif style.nulls or (number,) in nulls:
            pieces += [head, _joined(text).fill_null("null")]
        else:
            pieces.append(_joined([head, *text]).fill_null(""))
    if not cut:
        return _joined([*pieces, "}"])
    members = pc.utf8_slice_codeunits(_joined(pieces[1:]), cut)
    return _joined(["{", members, "}"])


def _joined(pieces: Sequence[Any]) -> pa.Array:
    """Concatenate strings. The result is null if any string is null."""
    if len(pieces) == 1:
        return pieces[0]
    merged = (each if kind is not str else ["".join(each)] for kind, each in groupby(pieces, type))
    return pc.binary_join_element_wise(*chain.from_iterable(merged), "")


def _text(column: pa.Array, style: Style, spacing: Spacing, nulls: Collection[Place] = ()) -> Sequence[Any]:
    """Return a column as JSON text, or null where the column is null. The result is a list of parts to concatenate."""
    kind = column.type
    if pa.types.is_string(kind):
        return _string_text(column)
    if pa.types.is_struct(kind):
        inner = dict(zip((field.name for field in kind), column.flatten(), strict=True))
        text = _object_text(inner, len(column), style, spacing, nulls)
        return [pc.if_else(column.is_valid(), text, pa.scalar(None, pa.string())) if column.null_count else text]
    if pa.types.is_list(kind):
        return [_list_text(column, style, spacing)]
    if pa.types.is_timestamp(kind):
        return ['"', _time_text(column, style), '"']
    return [_number_text(column, style)]


def _number_text(column: pa.Array, style: Style) -> pa.Array:
    if pa.types.is_floating(column.type):
        return _double_text(column.cast(pa.float64()), style)
    return _decimal_text(column, style) if pa.types.is_decimal(column.type) else column.cast(pa.string())


def _list_text(column: pa.ListArray, style: Style, spacing: Spacing) -> pa.Array:
    items = column.flatten()
    texts = pa.nulls(0, pa.string())
    if len(items):
        texts = _joined(_text(items, style, spacing)).fill_null("null")
    counts = pc.fill_null(column.value_lengths(), 0)
    ends = pc.cumulative_sum(counts)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
    members = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), spacing.comma)
    text = _joined(["[", members, "]"])
    return pc.if_else(column.is_valid(), text, pa.scalar(None, pa.string())) if column.null_count else text


def _decimal_text(column: pa.Array, style: Style) -> pa.Array:
    if style.fractions or not column.type.scale:
        return column.cast(pa.string())
    return pc.replace_substring_regex(column.cast(pa.string()), r"(\.\d*[1-9])?(\.)?0+$", r"\1")


def _time_text(column: pa.Array, style: Style) -> pa.Array:
    """Return times in ISO 8601 format with a Z. The style determines whether they have milliseconds or the shortest
    fraction.
    """
    texts = pc.strftime(column, "%Y-%m-%dT%H:%M:%SZ")
    if style.fractions:
        return pc.replace_substring_regex(texts, r"(\.\d{3})000Z$", r"\1Z")
    return pc.replace_substring_regex(texts, r"(\.\d*[1-9])?(\.)?0*Z$", r"\1Z")


def _double_text(column: pa.Array, style: Style) -> pa.Array:
    """Return the shortest text that parses to the same number, like Python's `repr`."""
    texts = column.cast(pa.string())
    size = pc.abs(column)
    is_usual = pc.or_(pc.and_(pc.greater_equal(size, 1e-4), pc.less(size, 1e15)), pc.equal(size, 0.0))
    is_plain = pc.and_not(is_usual, pc.match_substring(texts, "e")).fill_null(True)
    if style.fractions:
        texts = pc.if_else(pc.match_substring(texts, "."), texts, pc.binary_join_element_wise(texts, ".0", ""))
    if is_plain.true_count == len(column):
        return texts
    # Arrow's format differs from Python's for very small, very large and very long numbers.
    odd = pc.invert(is_plain)
    reprs = map(repr, column.filter(odd).to_pylist())
    written = [text if style.fractions else text.removesuffix(".0") for text in reprs]
    return pc.replace_with_mask(texts, odd, pa.array(written, pa.string()))


def _string_text(column: pa.Array) -> Sequence[Any]:
    escaped = column
    if _has_any(column, _TO_ESCAPE):
        for letter, escape in _ESCAPES:
            escaped = pc.replace_substring(escaped, letter, escape)
    quoted = ['"', escaped, '"']
    if not _has_any(column, b"[{"):
        return quoted
    is_nested = pc.or_(pc.starts_with(column, "["), pc.starts_with(column, "{"))
    return [pc.if_else(is_nested, column, _joined(quoted))]


def _has_any(column: pa.Array, letters: bytes) -> bool:
    """Return whether a string column contains any byte of `letters`. For a slice, this checks the whole underlying
    buffer.
    """
    data = column.buffers()[2]
    if data is None:
        return False
    text = data.to_pybytes()
    return len(text.translate(None, letters)) != len(text)


def without_blanks(values: pa.Array) -> pa.Array:
    """Remove the whitespace between the tokens of binary JSON texts."""
    return pc.replace_substring_regex(values, _STRING_OR_BLANKS, r"\1")


def restore(values: pa.Array, forms: pa.Array, columns: Mapping[str, pa.Array]) -> pa.Array:
    """Return the produced values. The bytes equal the produced bytes except for whitespace. With the form `same`, only
    the values are equal.

    :param values: the table's column `value`.
    :param forms: the table's column `value_form`.
    :param columns: the decoded columns by field name, in the order of the table.
    """
    restored = values
    for form in pc.unique(forms).to_pylist():
        name, _, rest = (form or VALUE).partition(":")
        style = STYLES[0] if name == SAME else next((style for style in STYLES if style.name == name), None)
        if style is None:
            continue
        rows = pc.equal(forms, form).fill_null(False)
        own = {name: column.filter(rows) for name, column in columns.items()}
        nulls: frozenset[Place] = frozenset()
        if name == SAME and rest:
            nulls = frozenset(tuple(map(int, place.split("."))) for place in rest.split(","))
        elif rest:
            own = dict(islice(own.items(), int(rest)))
        made = compose(own, rows.true_count, style, nulls=nulls)
        restored = pc.replace_with_mask(restored, rows, made.cast(restored.type))
    return restored

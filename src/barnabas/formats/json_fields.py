"""The fields of JSON values as typed columns. The first load infers the types; each load decodes the values.

A field with values of several types gets the narrowest type that can hold all of them: `double` for integers and
fractions, otherwise `string` with JSON text. Objects and arrays also become strings, unless structs and lists are
requested (`nested`). A field that was always null is a `string`. Integers beyond 64 bits are `double`, which rounds, as
in most JSON parsers. On request (`decimals`), such integers and all numbers with a fraction are decimals. A number
beyond the range of doubles gets no column.

The table keeps values that the columns cannot restore; json_text.py determines them.

Arrow's parser decodes a whole batch if every value fits the columns. Otherwise, only the parts of the batch with values
that do not fit are decoded value by value.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import reduce
from math import isfinite
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from barnabas.formats import times
from barnabas.formats.column_types import (
    DECIMAL_DIGITS,
    SCALE_MAX,
    STRUCT_DEPTH_MAX,
    ColumnType,
    Fields,
    MaybeType,
    arrow_type,
    decimal_parts,
    further_type,
    is_good_struct,
    merge_fields,
    settled,
    type_of_arrow,
    type_word,
    wider,
)
from barnabas.formats.further_columns import further_key, is_further, keys_of_fields

DEPTH_MAX = 1_000
"""The maximum number of opening brackets and braces in a value that Arrow's parser gets. It limits the nesting depth.
"""
PART_ROWS = 256
"""The number of values in a part of a batch. If one value does not fit, its whole part is decoded value by value."""
NAME_LETTERS_SHOWN = 60
SCHEMA_ID_BYTES = 5
"""The length of the header that serializers with a schema registry write before the JSON: a zero byte and the id."""
_INT_MAX, _LONG_MAX = 2**31 - 1, 2**63 - 1
_EXACT_MAX = 2**53
"""The highest absolute value up to which a double represents every integer."""
_FLOAT = struct.Struct("f")
_USUAL_TIME = re.compile(
    r"\d{4}-\d{2}-\d{2}T(?:[01]\d|2[0-3]):\d{2}:\d{2}(?:\.\d{1,6})?(?:Z|[-+](?:[01]\d|2[0-3]):[0-5]\d)?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class JsonRules:
    """The rules by which JSON becomes columns.

    :param nested: True if objects and arrays become structs and lists instead of strings.
    :param decimals: True if numbers with a fraction become decimals instead of doubles.
    """

    nested: bool = False
    decimals: bool = False


PLAIN = JsonRules()


@dataclass(slots=True)
class Parsed:
    """Decoded values.

    :param columns: the columns in the order of the fields.
    :param whole: for each value, True if it is a JSON object and columns took all of its fields. A column may have
        changed a field, for example by rounding; `json_text.value_forms` detects such changes.
    :param unplaced: for each value, True if it has a field, not null, that no column takes.
    :param reasons: for each value, the reason why it is a bad record, or None. The whole list is None if no record is
        bad.
    :param found: the fields without a column, and the fields with a value that did not fit the column.
    """

    columns: list[pa.Array]
    whole: pa.Array
    unplaced: pa.Array
    reasons: list[str | None] | None = None
    found: Fields = field(default_factory=dict)


class WrittenNumber(float):
    """A number with a fraction, stored as the text in the JSON value."""

    text: str

    @classmethod
    def parse(cls, text: str) -> WrittenNumber:
        """Parse a JSON number."""
        number = cls(text)
        number.text = text
        return number


def infer_fields(values: pa.Array, rules: JsonRules = PLAIN) -> Fields:
    """Return the fields of the binary values that are JSON objects, in the order of their first appearance.

    >>> infer_fields(pa.array([b'{"a": 1, "b": null}', b'{"a": 2.5, "c": [1]}', b'nonsense', None]))
    {'a': 'double', 'b': None, 'c': 'string'}
    >>> infer_fields(pa.array([b'{"a": 19.99, "c": [{"d": 1}]}']), JsonRules(nested=True, decimals=True))
    {'a': 'decimal(38,2)', 'c': [{'d': 'long'}]}
    """
    fields = infer_at_once(values, rules)
    if fields is not None:
        return fields
    fields = {}
    for value in values.to_pylist():
        parsed = parse_object(value, rules.decimals)
        if isinstance(parsed, dict):
            note_fields(fields, parsed.items(), rules)
    return fields


def note_fields(fields: Fields, items: Iterable[tuple[str, object]], rules: JsonRules) -> None:
    for name, item in items:
        if not is_further(name):
            fields[name] = wider(fields.get(name), _type_of(item, rules))


def _note_misfit(found: Fields, name: str, item: object, types: Mapping[str, ColumnType], rules: JsonRules) -> None:
    """Record the new or wider column that a field needs, because its current columns cannot hold an item."""
    if name not in types or is_further(name):
        note_fields(found, [(name, item)], rules)
    elif _is_alike(item, types[name]):
        found[name] = wider(found.get(name), _misfits_within(item, types[name], rules))
    else:
        for key, kind in _further_types(name, item, types[name], rules):
            is_new = key not in types
            column = settled(further_type(kind)) if is_new else types[key]
            if _is_alike(item, column):
                known = wider(found.get(key), kind) if is_new else found.get(key)
                found[key] = wider(known, _misfits_within(item, column, rules))
                return
            if is_new and _convert(item, column, rules)[0]:
                found[key] = wider(found.get(key), kind)
                return


def _misfits_within(item: object, column_type: ColumnType, rules: JsonRules) -> MaybeType:
    """Return the nested fields without a fitting column, in an object or in the objects of a list."""
    if isinstance(item, dict) and isinstance(column_type, dict):
        found: Fields = {}
        for name, each in item.items():
            if is_further(name) or name not in column_type or not _place(name, each, column_type, rules)[0]:
                _note_misfit(found, name, each, column_type, rules)
        return cast("ColumnType", found)
    assert isinstance(item, list), "_is_alike() is true for both"
    assert isinstance(column_type, list), "_is_alike() is true for both"
    within = [_misfits_within(each, column_type[0], rules) for each in item if each is not None]
    return [cast("ColumnType", reduce(wider, within, None))]


def _is_alike(item: object, column_type: ColumnType) -> bool:
    """Return whether an item and a column are both structs, or both lists of structs. Only nested fields can then fail
    to fit.
    """
    if isinstance(column_type, dict):
        return isinstance(item, dict)
    is_deep = isinstance(column_type, list) and not isinstance(column_type[0], str)
    return (
        is_deep
        and isinstance(item, list)
        and all(each is None or _is_alike(each, cast("list[ColumnType]", column_type)[0]) for each in item)
    )


def _further_types(
    name: str, item: object, column_type: ColumnType, rules: JsonRules
) -> Iterator[tuple[str, MaybeType]]:
    """Yield the keys and types of the further columns that may hold an item, narrowest type first."""
    kind = settled(_type_of(item, rules))
    if wider(column_type, kind) != column_type:
        yield further_key(name, type_word(kind)), kind
    in_doubles = _in_doubles(kind)
    if in_doubles != kind:
        yield further_key(name, type_word(in_doubles)), in_doubles


def _in_doubles(kind: MaybeType) -> MaybeType:
    """Replace decimal by double in a type, also inside lists. Doubles can hold numbers that exceed the range of
    decimals.
    """
    if isinstance(kind, list):
        return [cast("ColumnType", _in_doubles(each)) for each in kind]
    return "double" if decimal_parts(kind) else kind


def infer_at_once(values: pa.Array, rules: JsonRules) -> Fields | None:
    """Infer the fields with Arrow's parser; return None if it cannot parse the values. Times stay strings."""
    table = parse_lines(values, pajson.ParseOptions())
    if table is None:
        return None
    fields = {column.name: type_of_arrow(column.type) for column in table.schema if not is_further(column.name)}
    if not rules.nested:
        fields = {name: "string" if isinstance(kind, dict | list) else kind for name, kind in fields.items()}
    return None if rules.decimals and "double" in repr(list(fields.values())) else fields


def decode(
    values: pa.Array, fields: Mapping[str, ColumnType], rules: JsonRules = PLAIN, *, is_guess: bool = False
) -> Parsed:
    """Decode binary values to one column per field, in the order of `fields`.

    :param is_guess: True if the types were inferred from other values. `found` then also contains the types that these
        values would have added to the inference, although the columns can hold the values: 5.0 fits a `long` column,
        but makes the inferred type a `double`.
    """
    further = keys_of_fields(fields)
    columns = _decode_with_further(values, fields, further) if further else _decode_at_once(values, fields)
    if columns is not None:
        return Parsed(columns, pa.repeat(pa.scalar(True), len(values)), pa.repeat(pa.scalar(False), len(values)))
    if len(values) <= PART_ROWS:
        return _decode_one_by_one(values.to_pylist(), fields, rules, is_guess=is_guess)
    return _joined([decode(part, fields, rules, is_guess=is_guess) for part in _parts(values)])


def read_fields(values: pa.Array, fields: Mapping[str, ColumnType], rules: JsonRules = PLAIN) -> list[pa.Array]:
    """Return one column per requested field of binary values. Other fields of the values are ignored.

    A cell is null if the value lacks the field, if the column cannot hold it, or if the value is not a JSON object.

    >>> read_fields(pa.array([b'{"a": 1, "b": 2}', b"nonsense", None]), {"a": "long"})[0].to_pylist()
    [1, None, None]
    """
    schema = pa.schema([(name, arrow_type(column_type)) for name, column_type in fields.items()])
    table = parse_lines(
        values.fill_null(b"{}"), pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    )
    if table is not None:
        return [_one_chunk(table.column(name)) for name in fields]
    if len(values) <= PART_ROWS:
        return _decode_one_by_one(values.to_pylist(), fields, rules).columns
    parts = [read_fields(part, fields, rules) for part in _parts(values)]
    return [pa.concat_arrays(chunks) for chunks in zip(*parts, strict=True)]


def _parts(values: pa.Array) -> Iterator[pa.Array]:
    return (values.slice(start, PART_ROWS) for start in range(0, len(values), PART_ROWS))


def _joined(parts: Sequence[Parsed]) -> Parsed:
    columns = [pa.concat_arrays(chunks) for chunks in zip(*(part.columns for part in parts), strict=True)]
    whole = pa.concat_arrays([part.whole for part in parts])
    unplaced = pa.concat_arrays([part.unplaced for part in parts])
    reasons = None
    if any(part.reasons for part in parts):
        reasons = [reason for part in parts for reason in part.reasons or [None] * len(part.whole)]
    return Parsed(columns, whole, unplaced, reasons, merge_fields(part.found for part in parts))


def _decode_at_once(values: pa.Array, fields: Mapping[str, ColumnType]) -> list[pa.Array] | None:
    """Decode with Arrow's parser; return None if a value does not fit."""
    schema = pa.schema([(name, arrow_type(column_type)) for name, column_type in fields.items()])
    table = parse_lines(values, pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"))
    return None if table is None else [_one_chunk(table.column(name)) for name in fields]


def _decode_with_further(
    values: pa.Array, fields: Mapping[str, ColumnType], further: Mapping[str, Sequence[str]]
) -> list[pa.Array] | None:
    """Decode with Arrow's parser. Return None if a value needs a further column. The only exception is a further column
    for doubles in an integer field.
    """
    usual = {name: kind for name, kind in fields.items() if not is_further(name)}
    numbers = {
        name: key
        for name, keys in further.items()
        if (key := further_key(name, "double")) in keys and usual.get(name) in ("int", "long")
    }
    decoded = _decode_at_once(values, usual)
    if decoded is not None:
        columns = dict(zip(usual, decoded, strict=True))
    elif numbers and (decoded := _decode_at_once(values, usual | dict.fromkeys(numbers, "double"))) is not None:
        columns = dict(zip(usual, decoded, strict=True))
        for name, key in numbers.items():
            number = columns[name]
            size = pc.abs(number)
            is_whole = pc.equal(pc.floor(number), number)
            # 2^53 + 1 also parses to the double 2^53, so only smaller numbers are exact.
            greatest = _INT_MAX if usual[name] == "int" else _EXACT_MAX - 1
            if pc.any(pc.and_(is_whole, pc.greater(size, float(greatest)))).as_py():
                return None
            nothing = pa.scalar(None, number.type)
            columns[name] = pc.if_else(is_whole, number, nothing).cast(arrow_type(usual[name]))
            columns[key] = pc.if_else(is_whole, nothing, number)
    else:
        return None
    return [columns[key] if key in columns else pa.nulls(len(values), arrow_type(fields[key])) for key in fields]


def parse_lines(values: pa.Array, options: pajson.ParseOptions) -> pa.Table | None:
    """Parse values as the lines of one text. Return None if a value is not an object, or if rows and values may not
    correspond.

    Each value must begin and end with a brace, and there must be as many rows as values. In JSON, no string continues
    after a line break, and no object continues after its closing brace. So each value consists of one or more complete
    objects, and equal counts mean exactly one object per value.
    """
    texts = _texts(values)
    if texts is None or not (_all(pc.starts_with(texts, "{")) and _all(_ends_with_brace(texts)) and _is_shallow(texts)):
        return None
    lines = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), "\n")[0].as_buffer()
    read_options = pajson.ReadOptions(use_threads=False, block_size=lines.size + 1)
    try:
        table = pajson.read_json(pa.BufferReader(lines), read_options=read_options, parse_options=options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return table if table.num_rows == len(values) and all(map(_holds_json, map(_one_chunk, table.columns))) else None


def _holds_json(column: pa.Array) -> bool:
    """Return whether `_convert` would produce the same values for all cells.

    Arrow's parser accepts NaN, Infinity, times of any year, and decimals with more digits than their type.
    """
    kind = column.type
    if pa.types.is_struct(kind):
        return all(map(_holds_json, column.flatten()))
    if pa.types.is_list(kind):
        return _holds_json(column.flatten())
    if pa.types.is_floating(kind):
        return bool(pc.all(pc.is_finite(column)).as_py() is not False)
    if pa.types.is_timestamp(kind):
        return bool(times.from_dates_and_times(column).null_count == column.null_count)
    try:
        column.validate(full=pa.types.is_decimal(kind))
    except pa.ArrowInvalid:
        return False
    return True


def _texts(values: pa.Array) -> pa.Array | None:
    """Return values as strings. Return None if there are no values, if a value is null or not UTF-8, or if their total
    size is too large.

    Arrow's parser does not check the encoding, and a string column that is not UTF-8 cannot be read later.
    """
    if not len(values) or values.null_count or values.nbytes >= _INT_MAX:
        return None
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return None


def _all(conditions: pa.Array) -> bool:
    return bool(conditions.true_count == len(conditions))


def _ends_with_brace(texts: pa.Array) -> pa.Array:
    return pc.ends_with(pc.ascii_rtrim(texts, characters=" \t\r\n"), "}")


def _is_shallow(texts: pa.Array) -> bool:
    """Return whether no value is nested too deeply. Arrow's parser is recursive, and a stack overflow would crash the
    process.
    """
    long = texts.filter(pc.greater(pc.binary_length(texts), DEPTH_MAX))
    return all(text.count("[") + text.count("{") <= DEPTH_MAX for text in long.to_pylist())


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _decode_one_by_one(
    values: Sequence[bytes | None], fields: Mapping[str, ColumnType], rules: JsonRules, *, is_guess: bool = False
) -> Parsed:
    keeps_text = keeps_number_texts(fields, rules)
    return decode_objects([parse_object(value, keeps_text) for value in values], fields, rules, is_guess=is_guess)


def keeps_number_texts(fields: Mapping[str, ColumnType], rules: JsonRules) -> bool:
    """Return whether decoding needs the texts of numbers with a fraction, for decimals."""
    return rules.decimals or "decimal(" in repr(list(fields.values()))


def decode_objects(
    objects: Sequence[dict[str, Any] | str | None],
    fields: Mapping[str, ColumnType],
    rules: JsonRules,
    *,
    is_guess: bool = False,
) -> Parsed:
    """Decode parsed objects, one after the other.

    :param objects: the objects. A text is the reason why a value is no object; None is no value.
    """
    columns: dict[str, list[Any]] = {name: [None] * len(objects) for name in fields}
    whole = [False] * len(objects)
    unplaced = [False] * len(objects)
    reasons: list[str | None] = [None] * len(objects)
    found: Fields = {}
    inferred: Fields = {}
    for row, parsed in enumerate(objects):
        if not isinstance(parsed, dict):
            reasons[row] = parsed
            continue
        whole[row] = True
        if is_guess:
            note_fields(inferred, parsed.items(), rules)
        for name, item in parsed.items():
            has_column = name in fields and not is_further(name)
            if has_column:
                has_column, key, converted = _place(name, item, fields, rules)
                columns[key][row] = converted
                if not has_column:
                    reasons[row] = _misfit(name, fields[name])
            if not has_column:
                whole[row] = False
                unplaced[row] = unplaced[row] or item is not None
                _note_misfit(found, name, item, fields, rules)
    arrays = [pa.array(columns[name], arrow_type(column_type)) for name, column_type in fields.items()]
    if inferred:
        known: Fields = dict(fields)
        wider_types = {name: kind for name, kind in inferred.items() if wider(known.get(name), kind) != known.get(name)}
        found = merge_fields([found, wider_types])
    are_whole, are_unplaced = (pa.array(each, pa.bool_()) for each in (whole, unplaced))
    return Parsed(arrays, are_whole, are_unplaced, reasons if any(reasons) else None, found)


def _misfit(name: str, column_type: ColumnType) -> str:
    shown = name if len(name) <= NAME_LETTERS_SHOWN else name[:NAME_LETTERS_SHOWN] + "..."
    kind = column_type if isinstance(column_type, str) else "struct" if isinstance(column_type, dict) else "list"
    return f"field {shown!r} does not fit its column ({kind})"


def parse_object(value: bytes | None, keeps_text: bool) -> dict[str, Any] | str | None:
    """Parse a JSON object. If the value is not an object, return the reason as a string. If the value is null, return
    None.

    :param keeps_text: True to parse numbers with a fraction as `WrittenNumber`.
    """
    if value is None:
        return None
    try:
        # json.loads() would also accept other encodings and surrogates.
        text = value.decode()
    except UnicodeDecodeError:
        return "not UTF-8"
    parse_float: Callable[[str], float] | None = WrittenNumber.parse if keeps_text else None
    try:
        parsed = json.loads(text, parse_constant=_refuse_constant, parse_float=parse_float)
        if b"\\u" in value:
            # An escape sequence may encode half of a surrogate pair, which a string column cannot store.
            json.dumps(parsed, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "an escape is half of a letter (a lone surrogate)"
    except RecursionError:
        return "nested too deep"
    except ValueError:
        return _why_no_json(text)
    return parsed if isinstance(parsed, dict) else "JSON, but no object"


def _why_no_json(text: str) -> str:
    if not text.strip():
        return "empty"
    is_framed = text[0] == "\0" and len(text) > SCHEMA_ID_BYTES
    return "begins with a schema id: give the registry (--registry)" if is_framed else "not JSON"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _type_of(item: object, rules: JsonRules, depth: int = 0) -> MaybeType:
    if item is None or isinstance(item, bool):
        return None if item is None else "boolean"
    match item:
        case int():
            return "long" if -_LONG_MAX - 1 <= item <= _LONG_MAX else _number(0, rules)
        case float():
            return _number(_scale(item), rules)
        case dict() if rules.nested and depth < STRUCT_DEPTH_MAX:
            inner = {name: _type_of(each, rules, depth + 1) for name, each in item.items()}
            return cast("ColumnType", inner) if is_good_struct(inner) else "string"
        case list() if rules.nested and depth < STRUCT_DEPTH_MAX:
            return cast("ColumnType", [reduce(wider, (_type_of(each, rules, depth + 1) for each in item), None)])
        case _:
            return "string"


def _number(scale: int, rules: JsonRules) -> ColumnType:
    return f"decimal({DECIMAL_DIGITS},{scale})" if rules.decimals else "double"


def _scale(number: float) -> int:
    """Return the number of fraction digits in the text of a number; 0 if there are more than SCALE_MAX."""
    exponent = _decimal(number).as_tuple().exponent
    digits = -exponent if isinstance(exponent, int) else 0
    return digits if 0 < digits <= SCALE_MAX else 0


def _decimal(number: float) -> Decimal:
    return Decimal(number.text if isinstance(number, WrittenNumber) else repr(number))


def _place(name: str, item: object, types: Mapping[str, ColumnType], rules: JsonRules) -> tuple[bool, str, Any]:
    """Return whether a column of the field can hold an item, the key of that column, and the converted item or part of
    it.
    """
    fits, converted = _convert(item, types[name], rules)
    if fits or _is_alike(item, types[name]):
        return fits, name, converted
    for key, _ in _further_types(name, item, types[name], rules):
        if key in types:
            fits, other = _convert(item, types[key], rules)
            if fits or _is_alike(item, types[key]):
                return fits, key, other
    return False, name, converted


def _convert(item: object, column_type: ColumnType, rules: JsonRules) -> tuple[bool, Any]:
    """Return whether a column can hold an item, and the converted item or the part that fits."""
    if item is None:
        return True, None
    if isinstance(column_type, dict):
        return _convert_object(item, column_type, rules)
    if isinstance(column_type, list):
        return _convert_list(item, column_type[0], rules)
    try:
        converted = _convert_plain(item, column_type)
    except (OverflowError, ValueError, InvalidOperation, struct.error):
        converted = None
    return converted is not None, converted


def _convert_object(item: object, types: Mapping[str, ColumnType], rules: JsonRules) -> tuple[bool, Any]:
    if not isinstance(item, dict):
        return False, None
    fits, converted = True, {}
    for name, each in item.items():
        # a field that is always null has no column; `value_forms` detects that columns cannot restore it
        each_fits = each is None
        if name in types and not is_further(name):
            each_fits, key, of_each = _place(name, each, types, rules)
            converted[key] = of_each
        fits = fits and each_fits
    return fits, converted


def _convert_list(item: object, element: ColumnType, rules: JsonRules) -> tuple[bool, Any]:
    if not isinstance(item, list):
        return False, None
    pairs = [_convert(each, element, rules) for each in item]
    return all(fits for fits, _ in pairs), [converted for _, converted in pairs]


def _convert_plain(item: object, column_type: str) -> object:
    """Convert an item to a simple type; return None if it does not fit."""
    if column_type == "string":
        return item if isinstance(item, str) else _compact_text(item)
    if column_type == "timestamp":
        return _time(item)
    if column_type == "boolean" or isinstance(item, bool):
        return item if column_type == "boolean" and isinstance(item, bool) else None
    return _convert_number(item, column_type) if isinstance(item, int | float) else None


def _convert_number(item: float, column_type: str) -> object:
    if column_type in ("int", "long"):
        greatest = _INT_MAX if column_type == "int" else _LONG_MAX
        if isinstance(item, float) and item.is_integer() and abs(item) <= _EXACT_MAX:
            item = int(item)  # JSON does not distinguish between 5.0 and 5
        return item if isinstance(item, int) and -greatest - 1 <= item <= greatest else None
    decimal = decimal_parts(column_type)
    if decimal is not None:
        return _exact(Decimal(item) if isinstance(item, int) else _decimal(item), *decimal)
    number = float(item)
    is_exact = column_type == "double" or _FLOAT.unpack(_FLOAT.pack(number))[0] == number
    return number if isfinite(number) and is_exact else None


def _exact(number: Decimal, precision: int, scale: int) -> Decimal | None:
    """Return the number if a decimal column can hold it without rounding; else None."""
    if not number:
        return Decimal(0)
    sign, digits, exponent = number.as_tuple()
    if isinstance(exponent, int) and -exponent > scale and len(digits) > -exponent - scale:
        spare = -exponent - scale
        if not any(digits[-spare:]):  # 20.000 equals 20.00
            number = Decimal((sign, digits[:-spare], -scale))
            _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int) or len(digits) + max(exponent, 0) > DECIMAL_DIGITS or -exponent > scale:
        return None
    return number if number.adjusted() < precision - scale else None


def _time(item: object) -> datetime | None:
    if isinstance(item, bool) or not isinstance(item, str | int | float):
        return None
    if isinstance(item, str):
        if _USUAL_TIME.fullmatch(item):  # about a hundred times faster than `from_texts` with a single text
            with suppress(ValueError):
                parsed = datetime.fromisoformat(item)
                if 2 < parsed.year < 9998:
                    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
        found = times.from_texts(pa.array([item], pa.string()))
    elif isinstance(item, float):
        found = times.from_numbers(pa.array([float(item)], pa.float64()))
    elif -_LONG_MAX - 1 <= item <= _LONG_MAX:
        found = times.from_numbers(pa.array([item], pa.int64()))
    else:
        return None
    return cast("datetime | None", found[0].as_py())


def _compact_text(item: object) -> str:
    """Return the item as JSON text without whitespace.

    :raises ValueError: if the item contains a number that JSON cannot represent, such as NaN.
    """
    return json.dumps(item, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

"""Top-level fields of JSON values as typed columns: inferred on the first load, decoded on each.

A column is one of four types. Values of a field that are of different types meet in the least type that holds
them all: whole numbers and others in `double`, anything else in `string`, as JSON text; objects and arrays are
such strings too. A field that was always null is a `string`. Whole numbers beyond 64 bits are `double`, which
rounds, as it does for most readers of JSON. Numbers beyond the doubles are in no column.

What the columns do not give back is kept as it came: json_text.py says of each value whether they do.

Arrow's parser does a whole batch at once where all fits; only batches where something does not are gone
through value by value.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, Literal

import pyarrow as pa
import pyarrow.json as pajson

ColumnType = Literal["boolean", "long", "double", "string"]
Fields = dict[str, ColumnType | None]
"""The type of each field; None where only nulls were seen so far."""

ARROW_TYPES: Mapping[ColumnType, pa.DataType] = {
    "boolean": pa.bool_(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
}
DEPTH_MAX = 1_000
"""Of objects and arrays in a value that goes to Arrow's parser."""
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1


def infer_fields(values: Sequence[bytes | None]) -> Fields:
    """Return the fields of the values that are JSON objects, in the order in which they appear.

    >>> infer_fields([b'{"a": 1, "b": null}', b'{"a": 2.5, "c": [1]}', b'nonsense', None])
    {'a': 'double', 'b': None, 'c': 'string'}
    """
    fields = _infer_at_once(values)
    if fields is not None:
        return fields
    fields = {}
    for value in values:
        for name, item in (_object(value) or {}).items():
            fields[name] = wider(fields.get(name), _type_of(item))
    return fields


def _infer_at_once(values: Sequence[bytes | None]) -> Fields | None:
    """Infer with Arrow's parser, None where it does not manage. It takes some strings for times; here they stay."""
    table = _parse_lines(values, pajson.ParseOptions())
    if table is None:
        return None
    return {field.name: _column_type(field.type) for field in table.schema}


def _column_type(arrow_type: pa.DataType) -> ColumnType | None:
    if pa.types.is_null(arrow_type):
        return None
    known = {arrow: column_type for column_type, arrow in ARROW_TYPES.items()}
    return known.get(arrow_type, "string")


def merge_fields(parts: Iterable[Fields]) -> Fields:
    """Return the fields of several parts together."""
    merged: Fields = {}
    for part in parts:
        for name, column_type in part.items():
            merged[name] = wider(merged.get(name), column_type)
    return merged


def wider(one: ColumnType | None, other: ColumnType | None) -> ColumnType | None:
    """Return the least type that holds values of both."""
    if one == other or other is None:
        return one
    if one is None:
        return other
    return "double" if {one, other} == {"long", "double"} else "string"


def decode(values: Sequence[bytes | None], fields: Mapping[str, ColumnType]) -> tuple[list[pa.Array], pa.Array]:
    """Decode values into a column per field, in the order of `fields`.

    :returns: the columns, and a boolean array: whether a value is a JSON object whose every field has a column that
        took what it holds. It may have changed on the way (rounded, say): `json_text.value_forms` looks.
    """
    columns = _decode_at_once(values, fields)
    if columns is not None:
        return columns, pa.repeat(pa.scalar(True), len(values))
    return _decode_one_by_one(values, fields)


def _decode_at_once(values: Sequence[bytes | None], fields: Mapping[str, ColumnType]) -> list[pa.Array] | None:
    """Decode with Arrow's parser, None where a value does not fit."""
    schema = pa.schema([(name, ARROW_TYPES[column_type]) for name, column_type in fields.items()])
    table = _parse_lines(values, pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"))
    return None if table is None else [_one_chunk(table.column(name)) for name in fields]


def _parse_lines(values: Sequence[bytes | None], options: pajson.ParseOptions) -> pa.Table | None:
    """Parse values as the lines of one text, None where row n is not surely value n, or a value is no object.

    It is, when no value has a line break, none is blank, and there are as many rows as values.
    """
    if not values or not all(value is not None and value[:1] == b"{" for value in values):
        return None
    lines = b"\n".join(values)  # type: ignore[arg-type]  # no None: checked above
    if lines.count(b"\n") != len(values) - 1 or not _is_utf8(lines) or not _is_shallow(lines, values):
        return None
    read_options = pajson.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    try:
        table = pajson.read_json(io.BytesIO(lines), read_options=read_options, parse_options=options)
    except pa.ArrowInvalid:
        return None
    return table if table.num_rows == len(values) else None


def _is_utf8(text: bytes) -> bool:
    """Arrow's parser does not look, and a string column that is not UTF-8 could not be read again."""
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_shallow(lines: bytes, values: Sequence[bytes | None]) -> bool:
    """Arrow's parser goes down with the depth of the values, and ends the process where its stack does."""
    if lines.count(b"[") + lines.count(b"{") <= DEPTH_MAX:
        return True
    return all(value is None or value.count(b"[") + value.count(b"{") <= DEPTH_MAX for value in values)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _decode_one_by_one(
    values: Sequence[bytes | None], fields: Mapping[str, ColumnType]
) -> tuple[list[pa.Array], pa.Array]:
    columns: dict[str, list[Any]] = {name: [None] * len(values) for name in fields}
    whole = [False] * len(values)
    for row, value in enumerate(values):
        parsed = _object(value)
        if parsed is None:
            continue
        whole[row] = True
        for name, item in parsed.items():
            fits, converted = _convert(item, fields[name]) if name in fields else (False, None)
            if fits:
                columns[name][row] = converted
            else:
                whole[row] = False
    arrays = [pa.array(columns[name], ARROW_TYPES[column_type]) for name, column_type in fields.items()]
    return arrays, pa.array(whole, pa.bool_())


def _object(value: bytes | None) -> dict[str, Any] | None:
    """Parse a JSON object, None where the value is none, or where its strings cannot be UTF-8."""
    if value is None:
        return None
    try:
        # Decoded here, as json.loads takes other encodings too, and surrogates.
        parsed = json.loads(value.decode(), parse_constant=_refuse_constant)
        if b"\\u" in value:
            # An escape may stand for half of a surrogate pair, which no string column takes.
            json.dumps(parsed, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _type_of(item: object) -> ColumnType | None:
    match item:
        case None:
            return None
        case bool():
            return "boolean"
        case int():
            return "long" if _LONG_MIN <= item <= _LONG_MAX else "double"
        case float():
            return "double"
        case _:
            return "string"


def _convert(item: object, column_type: ColumnType) -> tuple[bool, object]:
    """Return whether the column takes the item, and as what."""
    item_type = _type_of(item)
    if item_type is None:
        return True, None
    try:
        if column_type == "string":
            return True, item if isinstance(item, str) else _compact_text(item)
        if column_type == "double" and isinstance(item, int | float) and item_type != "boolean":
            number = float(item)
            return isfinite(number), number if isfinite(number) else None
    except (OverflowError, ValueError):
        return False, None
    return item_type == column_type, item if item_type == column_type else None


def _compact_text(item: object) -> str:
    """Return JSON text without blanks.

    :raises ValueError: it has a number that JSON lacks.
    """
    return json.dumps(item, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

"""Casts of Arrow columns that never change a value: a value that the target type cannot represent becomes null."""

from __future__ import annotations

import pyarrow as pa

from barnabas.formats.column_types import ColumnType, arrow_type, decimal_parts


def fitted(array: pa.Array, wanted: ColumnType) -> pa.Array:
    """Cast a column to a type, including nested types. Fields of structs are matched by name."""
    kind = arrow_type(wanted)
    if array.type.equals(kind):
        return array
    if isinstance(wanted, dict) and pa.types.is_struct(array.type):
        parts = {field.name: array.field(number) for number, field in enumerate(array.type)}
        children = [
            fitted(parts[name], inner) if name in parts else pa.nulls(len(array), arrow_type(inner))
            for name, inner in wanted.items()
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if isinstance(wanted, list) and len(wanted) == 2 and pa.types.is_map(array.type):
        if array.type.key_type.equals(kind.key_type):
            return with_items(array, fitted(array.items, wanted[1]), kind)
    elif isinstance(wanted, list) and len(wanted) == 1 and pa.types.is_list(array.type):
        return with_items(array, fitted(array.values, wanted[0]), kind)
    elif isinstance(wanted, str) and not pa.types.is_nested(array.type):
        return widened(array, wanted)
    return pa.nulls(len(array), kind)


def with_items(array: pa.Array, items: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a list or map array with the given type and items, and the offsets and nulls of `array`."""
    children = [items]
    if pa.types.is_map(kind):
        children = [pa.StructArray.from_arrays([array.keys, items], fields=[kind.key_field, kind.item_field])]
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, array.offset, children)


def widened(array: pa.Array, wanted: str) -> pa.Array:
    """Cast a column of a simple type to another one. A value that does not fit becomes null."""
    kind = arrow_type(wanted)
    if array.type.equals(kind):
        return array
    if wanted == "string" and pa.types.is_binary(array.type):
        return _as_text(array)
    is_number = pa.types.is_integer(array.type) or pa.types.is_floating(array.type) or pa.types.is_decimal(array.type)
    if wanted == "string" and (is_number or pa.types.is_boolean(array.type)):
        return array.cast(pa.string())
    if is_number and (wanted in ("int", "long", "float", "double") or decimal_parts(wanted)):
        return exactly(array, kind)
    return array.cast(kind) if wanted == "binary" and pa.types.is_string(array.type) else pa.nulls(len(array), kind)


def _as_text(array: pa.Array) -> pa.Array:
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_decoded(each) for each in array.to_pylist()], pa.string())


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def exactly(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast numbers to another type. A number that the type cannot represent becomes null."""
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:
        return pa.concat_arrays([_one(each, kind) for each in array])


def _one(number: pa.Scalar, kind: pa.DataType) -> pa.Array:
    try:
        return pa.array([number.as_py()], number.type).cast(kind)
    except pa.ArrowInvalid:
        return pa.nulls(1, kind)

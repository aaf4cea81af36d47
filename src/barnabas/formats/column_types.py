"""The types of decoded columns in their JSON notation, and the rules that combine types.

    "boolean" "int" "long" "float" "double" "string" "timestamp" "decimal(20,2)"
    "binary" "date" "timestamp_ntz"         only in Avro and Protobuf; the last is a timestamp without a time zone
    {"lat": "double", "lon": "double"}      a struct
    ["string"]                              a list
    ["string", "long"]                      a map, only in Avro and Protobuf

Type inference yields boolean, long, double and string. On request it yields `decimal(38,scale)` instead of double, and
structs and lists. The other types are available to users who declare the fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias, cast

import pyarrow as pa

from barnabas.errors import ConfigurationError
from barnabas.formats.further_columns import field_of, is_further, stored_names

ColumnType: TypeAlias = "str | dict[str, ColumnType] | list[ColumnType]"
MaybeType: TypeAlias = "ColumnType | None"
Fields: TypeAlias = dict[str, MaybeType]
"""The type of each field, by name. The type is None if all values seen so far are null."""

SIMPLE_TYPES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
WITH_SCHEMA_TYPES: Mapping[str, pa.DataType] = {
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
}
"""The types that require a schema."""
DECIMAL_DIGITS = 38
SCALE_MAX = 18
"""The maximum number of fraction digits of an inferred decimal. Numbers with more digits do not fit it."""
STRUCT_FIELDS_MAX = 200
"""The maximum number of fields in a struct. A larger object becomes a JSON string, because it probably uses data as
field names.
"""
STRUCT_DEPTH_MAX = 16

_DECIMAL = re.compile(r"decimal\((\d{1,2}), ?(\d{1,2})\)")
_NAMES_OF_TYPES = {arrow: name for name, arrow in SIMPLE_TYPES.items()}
_WIDER_NUMBERS = {
    frozenset({"int", "long"}): "long",
    frozenset({"float", "double"}): "double",
    frozenset({"int", "double"}): "double",
    frozenset({"long", "double"}): "double",
    frozenset({"int", "float"}): "double",
    frozenset({"long", "float"}): "double",
}
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f.`]")


def check_type(name: str, column_type: object) -> None:
    """Check that an object is a valid column type.

    :raises ConfigurationError: if the type is invalid. The message lists the valid types.
    """
    if isinstance(column_type, dict):
        for inner, inner_type in column_type.items():
            check_type(f"{name}.{inner}", inner_type)
        if column_type and is_good_struct(column_type):
            return
    elif isinstance(column_type, list) and len(column_type) == 1:
        check_type(f"{name}[]", column_type[0])
        return
    elif isinstance(column_type, str) and (column_type in SIMPLE_TYPES or _is_decimal(column_type)):
        return
    raise ConfigurationError(
        f"fields: {name!r} has the invalid type {column_type!r}; valid are {', '.join(SIMPLE_TYPES)}, decimal(20,2) "
        f'with up to {DECIMAL_DIGITS} digits, {{"a": "long"}} for a struct whose names differ by more than case '
        'and have no dot, ["long"] for a list'
    )


def _is_decimal(text: str) -> bool:
    match = _DECIMAL.fullmatch(text)
    return match is not None and 1 <= int(match[1]) <= DECIMAL_DIGITS and int(match[2]) <= int(match[1])


def decimal_parts(column_type: MaybeType) -> tuple[int, int] | None:
    """Return the precision and scale of a decimal type; None for other types.

    >>> decimal_parts("decimal(20,2)"), decimal_parts("long")
    ((20, 2), None)
    """
    match = _DECIMAL.fullmatch(column_type) if isinstance(column_type, str) else None
    return (int(match[1]), int(match[2])) if match else None


def arrow_type(column_type: ColumnType) -> pa.DataType:
    """Return the Arrow type of a column type.

    >>> arrow_type({"a": ["long"]}), arrow_type(["string", "date"])
    (StructType(struct<a: list<element: int64>>), MapType(map<string, date32[day]>))
    """
    if isinstance(column_type, dict):
        return pa.struct([pa.field(name, arrow_type(inner)) for name, inner in column_type.items()])
    if isinstance(column_type, list):
        if len(column_type) == 2:
            return pa.map_(arrow_type(column_type[0]), arrow_type(column_type[1]))
        return pa.list_(pa.field("element", arrow_type(column_type[0])))
    decimal = decimal_parts(column_type)
    if decimal:
        return pa.decimal128(*decimal)
    return SIMPLE_TYPES.get(column_type) or WITH_SCHEMA_TYPES[column_type]


def type_of_arrow(arrow: pa.DataType) -> MaybeType:
    """Return the column type of an Arrow type. Arrow's null type has the type None, and a type without an equivalent
    becomes `string`.
    """
    if pa.types.is_null(arrow):
        return None
    if pa.types.is_struct(arrow):
        fields = {field.name: type_of_arrow(field.type) for field in arrow}
        return cast("ColumnType", fields)
    if pa.types.is_list(arrow):
        return cast("ColumnType", [type_of_arrow(arrow.value_type)])
    if pa.types.is_decimal128(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    return _NAMES_OF_TYPES.get(arrow, "string")


def wider(one: MaybeType, other: MaybeType) -> MaybeType:
    """Return the narrowest type that can hold the values of both types.

    >>> wider("long", "double"), wider({"a": "long"}, {"b": "string"}), wider(["long"], "long")
    ('double', {'a': 'long', 'b': 'string'}, 'string')
    """
    if one == other or other is None:
        return one
    if one is None:
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        return cast("ColumnType", merge_fields([cast("Fields", one), cast("Fields", other)]))
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [cast("ColumnType", wider(*pair)) for pair in zip(one, other, strict=True)]
    if isinstance(one, str) and isinstance(other, str):
        return _wider_number(one, other) or "string"
    return "string"


def _wider_number(one: str, other: str) -> str | None:
    met = _WIDER_NUMBERS.get(frozenset({one, other}))
    if met is not None:
        return met
    scales = [0 if each in ("int", "long") else parts[1] for each in (one, other) if (parts := _as_decimal(each))]
    return f"decimal({DECIMAL_DIGITS},{max(scales)})" if len(scales) == 2 else None


def _as_decimal(column_type: str) -> tuple[int, int] | None:
    return (19, 0) if column_type in ("int", "long") else decimal_parts(column_type)


def merge_fields(parts: Iterable[Fields]) -> Fields:
    """Merge the fields of several batches, in the order of their first appearance."""
    merged: Fields = {}
    for part in parts:
        for name, column_type in part.items():
            merged[name] = wider(merged.get(name), column_type)
    return merged


def settled(column_type: MaybeType, depth: int = 0) -> ColumnType:
    """Return a type that a table supports. An unknown type becomes `string`, and so does a struct that tables do not
    support.

    >>> settled({"a": None, "b": [None]}), settled({"a.b": "long"})
    ({'a': 'string', 'b': ['string']}, 'string')
    """
    if isinstance(column_type, dict):
        if depth >= STRUCT_DEPTH_MAX or not is_good_struct(column_type):
            return "string"
        return {name: settled(inner, depth + 1) for name, inner in column_type.items()}
    if isinstance(column_type, list):
        return "string" if depth >= STRUCT_DEPTH_MAX else [settled(inner, depth + 1) for inner in column_type]
    return column_type or "string"


def is_good_struct(fields: Mapping[str, object]) -> bool:
    """Return whether a table supports a struct. SQL must be able to distinguish its fields, and there must not be too
    many.
    """
    stored = stored_names(fields).values()
    names = {name.upper().lower() for name in stored}
    are_distinct = len(names) == len(fields) and not any(not name or _NOT_IN_NAMES.search(name) for name in stored)
    return 0 < len(fields) <= STRUCT_FIELDS_MAX and are_distinct


def grown(
    table: Mapping[str, ColumnType], found: Fields, fields_max: int, *, widens: bool = True
) -> dict[str, ColumnType]:
    """Return the fields of a table after a batch with other fields: new fields are added, and types widen if that is
    safe.

    The safe changes are int to long, float to double, more digits before the point of a decimal, and more fields in a
    struct. Iceberg supports them without rewriting old files. All other types stay unchanged, and the field gets a
    further column for the values that do not fit (further_columns.py). A field that was always null has no column until
    its type is known.

    :param table: the fields of the table.
    :param found: the fields of the batch.
    :param fields_max: the maximum number of fields of the table.
    :param widens: False if no type may widen. Structs still get new fields then, except in maps.

    >>> grown({"a": "int", "b": "long"}, {"a": "long", "b": "string", "c": "double", "d": None}, 10)
    {'a': 'long', 'b': 'long', 'c': 'double'}
    """
    after = dict(table)
    for name, kind in found.items():
        field, column_type = field_of(name), kind
        if field in after:
            own = _widened(after[field], kind, widens=widens)
            if takes(own, kind, widens=False):
                after[field] = own
                continue
            column_type = further_type(kind)
        if name in after:
            after[name] = _widened(after[name], column_type, widens=widens)
        elif column_type is not None and len(after) < fields_max:
            after[name] = settled(column_type)
    return after


def takes(column: ColumnType, found: MaybeType, *, widens: bool = True) -> bool:
    """Return whether a column can hold all values of a type, after safe widening. A struct may get new fields.

    The rule applies to values with schemas. A string column takes their numbers and booleans, but no structs, lists or
    dates: only JSON values are stored in string columns as JSON text.

    :param widens: True if the column's type may widen.

    >>> takes("int", "long"), takes("long", "double"), takes({"a": "int"}, {"a": "long", "b": "date"})
    (True, False, True)
    >>> takes("string", "long"), takes("string", "date"), takes("string", ["string"])
    (True, False, False)
    """
    if isinstance(column, dict) and isinstance(found, dict):
        return all(takes(column[name], kind, widens=widens) for name, kind in found.items() if name in column)
    if isinstance(column, list) and isinstance(found, list) and len(column) == len(found):
        return all(takes(*pair, widens=widens) for pair in zip(column, found, strict=True))
    if column == "string" and (not isinstance(found, str | None) or found == "timestamp" or found in WITH_SCHEMA_TYPES):
        return False
    after = _widened(column, found, widens=widens)
    return wider(after, found) == after


def type_word(column_type: MaybeType) -> str:
    """Return the word that represents a type in the name of a further column.

    >>> type_word("double"), type_word("decimal(38,2)"), type_word([["long"]]), type_word({"a": "long"})
    ('double', 'decimal', 'list_list_long', 'struct')
    """
    if isinstance(column_type, dict):
        return "struct"
    if isinstance(column_type, list):
        return "map" if len(column_type) == 2 else f"list_{type_word(column_type[0])}"
    return "decimal" if decimal_parts(column_type) else column_type or "string"


def further_type(column_type: MaybeType) -> MaybeType:
    """Return the type of a further column. A further column of decimals has the maximum scale."""
    return f"decimal({DECIMAL_DIGITS},{SCALE_MAX})" if decimal_parts(column_type) else column_type


def stored_type(column_type: ColumnType) -> ColumnType:
    """Return a column type whose struct fields have the table's names instead of keys.

    >>> from barnabas.formats.further_columns import further_key
    >>> stored_type({"n": "long", further_key("n", "double"): "double"})
    {'n': 'long', 'n_double': 'double'}
    """
    if isinstance(column_type, dict):
        names = stored_names(column_type)
        return {names[key]: stored_type(inner) for key, inner in column_type.items()}
    return [stored_type(inner) for inner in column_type] if isinstance(column_type, list) else column_type


def stored_paths(column_type: ColumnType, path: str) -> dict[str, str]:
    """Return the keys of the further columns inside a column, by their dotted paths in the table.

    >>> from barnabas.formats.further_columns import further_key
    >>> stored_paths([{"n": "long", further_key("n", "double"): "double"}], "items")
    {'items.element.n_double': 'n\\x1fdouble'}
    """
    found: dict[str, str] = {}
    if isinstance(column_type, dict):
        for key, name in stored_names(column_type).items():
            if is_further(key):
                found[f"{path}.{name}"] = key
            found |= stored_paths(column_type[key], f"{path}.{name}")
    elif isinstance(column_type, list):
        found |= stored_paths(column_type[-1], f"{path}.{'element' if len(column_type) == 1 else 'value'}")
    return found


def type_of_stored(column_type: ColumnType, path: str, further: Mapping[str, str]) -> ColumnType:
    """Return a column type with keys, from the table's type and the result of `stored_paths`. This is the inverse of
    `stored_type`.
    """
    if isinstance(column_type, dict):
        return {
            further.get(f"{path}.{name}", name): type_of_stored(inner, f"{path}.{name}", further)
            for name, inner in column_type.items()
        }
    if isinstance(column_type, list):
        step = "element" if len(column_type) == 1 else "value"
        return [*column_type[:-1], type_of_stored(column_type[-1], f"{path}.{step}", further)]
    return column_type


def _widened(column: ColumnType, found: MaybeType, *, widens: bool) -> ColumnType:
    if isinstance(column, dict) and isinstance(found, dict):
        more = grown(column, cast("Fields", found), STRUCT_FIELDS_MAX, widens=widens)
        return more if is_good_struct(more) else column
    # Structs in maps get no new fields if types may not widen, because delta-rs 1.6 could not read older files
    # afterwards.
    grows_within = widens or len(column) == 1
    if isinstance(column, list) and isinstance(found, list) and len(column) == len(found) and grows_within:
        # The key type of a map never changes, because a wider type could break queries that look up keys.
        return [*column[:-1], _widened(column[-1], found[-1], widens=widens)]
    if not widens:
        return column
    if (column, found) in (("int", "long"), ("float", "double")):
        return cast("ColumnType", found)
    before, after = decimal_parts(column), decimal_parts(found)
    if before and after and before[1] == after[1] and after[0] > before[0]:
        return cast("ColumnType", found)
    return column


_USUAL = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


def without_large_types(array: pa.Array) -> pa.Array:
    """Return an array with regular Arrow types instead of large, view and dictionary types.

    pyiceberg returns large strings for a column that some files lack, and Polars has only large strings.
    """
    kind = _without_large(array.type)
    return array if array.type.equals(kind) else array.cast(kind)


def _without_large(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _without_large(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_large(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_without_large(kind.key_type), _without_large(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_without_large(kind.value_type)))
    return _USUAL.get(kind, kind)


def renamed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert an array to a type that differs only in the names of struct fields.

    >>> renamed(pa.array([{"a": 1}, None]), pa.struct([("b", pa.int64())])).to_pylist()
    [{'b': 1}, None]
    """
    if array.type.equals(kind):
        return array
    if pa.types.is_struct(kind):
        children = [renamed(child, each.type) for child, each in zip(array.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if pa.types.is_map(kind):
        pairs = array.cast(pa.map_(array.type.key_type, array.type.item_type))
        items = renamed(pairs.items, kind.item_type)
        inner = pa.StructArray.from_arrays([pairs.keys, items], fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, array.offset, [inner])
    if pa.types.is_list(kind):
        # The offsets of a sliced array do not start at zero, so use `values` of the whole array.
        values = renamed(array.values, kind.value_type)
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, array.offset, [values])
    return array.cast(kind)

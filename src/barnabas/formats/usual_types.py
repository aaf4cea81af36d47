"""Arrow columns of other libraries with the types that ours have: 32-bit offsets, and no dictionaries."""

from __future__ import annotations

import pyarrow as pa

_USUAL = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


def without_large_types(array: pa.Array) -> pa.Array:
    """Return an array with the usual types, whoever has made it.

    pyiceberg gives a column that some files lack as a large string, and Polars has no others.
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
    """Return an array of a type that differs in the names of the fields of structs only.

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
        # The offsets of a slice begin in the middle of the values, so these are taken whole.
        values = renamed(array.values, kind.value_type)
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, array.offset, [values])
    return array.cast(kind)

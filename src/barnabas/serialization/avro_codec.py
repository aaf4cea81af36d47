"""The codecs between the records of one Avro schema and Arrow columns.

The columns have the physical types of avro_types.py. The compiled codec is pyruhvro. avro_python_codec.py handles the
types that pyruhvro does not support: fixed, null, unions of several types, recursive records and records without
fields. pyruhvro does not support bytes either, so `CompiledCodec` declares them as strings, which have the same Avro
encoding and Arrow layout.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.errors import SerializationError
from barnabas.serialization.avro_python_codec import PythonCodec
from barnabas.serialization.avro_types import AvroType
from barnabas.serialization.extras import require_schema_package

_NOT_COMPILED = frozenset({"fixed", "union", "null", "again"})


class Codec(Protocol):
    """A codec for the records of one schema."""

    def decode(self, payloads: Sequence[bytes]) -> list[pa.Array]:
        """Decode records to one column per field.

        :raises SerializationError: if at least one of the records is damaged.
        """
        ...

    def encode(self, columns: Sequence[pa.Array], count: int) -> pa.Array:
        """Encode the rows of columns as binary records. A forbidden null is written as zero or as an empty value."""
        ...


def codec_of(tree: AvroType) -> Codec:
    """Return the fastest codec for a record schema, a union of a record and null, or another union."""
    if tree.kind == "record" and isinstance(tree.written, list):
        return BranchCodec(tree)
    if not _is_compiled(tree):
        return PythonCodec(tree)
    try:
        return CompiledCodec(tree)
    except SerializationError:  # the compiled schema parser has its own limits, such as 128 levels of nested JSON
        return PythonCodec(tree)


def _is_compiled(tree: AvroType) -> bool:
    return all(
        each.kind not in _NOT_COMPILED
        and (each.kind != "record" or bool(each.inner))
        and (each.is_nullable or not isinstance(each.written, list))
        for each in tree.walk()
    )


class CompiledCodec:
    """A codec that uses pyruhvro."""

    def __init__(self, tree: AvroType) -> None:
        compiled = require_schema_package("pyruhvro")
        self._decode, self._encode = compiled.deserialize_array, compiled.serialize_record_batch
        self._fields = list(tree.inner.values())
        self._types = [each.physical() for each in self._fields]
        try:
            self._text = json.dumps(_bytes_as_strings(tree.written))
        except RecursionError as error:
            raise SerializationError("the schema is nested too deep") from error
        self._arrow = self._called(compiled.avro_to_arrow_schema, self._text)

    def decode(self, payloads: Sequence[bytes]) -> list[pa.Array]:
        batch = self._called(self._decode, list(payloads), self._text)
        columns = [retyped(column, kind) for column, kind in zip(batch.columns, self._types, strict=True)]
        for column in columns:
            try:
                column.validate(full=True)  # check, among other things, that strings are valid UTF-8
            except pa.ArrowInvalid as error:
                raise SerializationError("a string is not valid UTF-8") from error
        return columns

    def encode(self, columns: Sequence[pa.Array], count: int) -> pa.Array:
        if not count:
            return pa.array([], pa.binary())
        filled = [
            retyped(_filled(field, column), wanted.type)
            for field, column, wanted in zip(self._fields, columns, self._arrow, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(filled, schema=self._arrow)
        parts = self._called(self._encode, batch, self._text, 1)
        return pa.concat_arrays([part.cast(pa.binary()) for part in parts])

    def _called(self, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
            raise SerializationError(str(error)) from error
        except BaseException as error:
            if not is_panic(error):
                raise
            raise SerializationError(f"the decoder failed: {error}") from error


class BranchCodec:
    """A codec for a union of one record, with or without null.

    A null value becomes a row of nulls. Encoding this row does not return the original bytes, so a caller that compares
    them detects the difference and keeps the original bytes.
    """

    def __init__(self, tree: AvroType) -> None:
        own = 1 if tree.null_at == 0 else 0
        self._head = bytes([2 * own])
        self._codec = codec_of(replace(tree, written=tree.written[own], null_at=None))
        self._others = PythonCodec(tree)

    def decode(self, payloads: Sequence[bytes]) -> list[pa.Array]:
        size = len(self._head)
        places = [place for place, each in enumerate(payloads) if each.startswith(self._head)]
        columns = self._codec.decode([payloads[place][size:] for place in places])
        if len(places) == len(payloads):
            return columns
        other_places = sorted(set(range(len(payloads))).difference(places))
        others = self._others.decode([payloads[place] for place in other_places])
        order = pc.sort_indices(pa.array([*places, *other_places], pa.int64()))
        return [pa.concat_arrays(parts).take(order) for parts in zip(columns, others, strict=True)]

    def encode(self, columns: Sequence[pa.Array], count: int) -> pa.Array:
        return pc.binary_join_element_wise(pa.scalar(self._head), self._codec.encode(columns, count), b"")


def is_panic(error: BaseException) -> bool:
    """Return whether an error is a panic of compiled code. Panics derive from BaseException, so `except Exception` does
    not catch them.
    """
    return type(error).__name__ == "PanicException"


def _bytes_as_strings(written: Any) -> Any:
    if isinstance(written, str):
        return "string" if written == "bytes" else written
    if isinstance(written, list):
        return [_bytes_as_strings(each) for each in written]
    changed = {part: _bytes_as_strings(written[part]) for part in ("items", "values") if part in written}
    if written["type"] == "record":
        changed["fields"] = [{**each, "type": _bytes_as_strings(each["type"])} for each in written["fields"]]
    return {**written, **changed}


def retyped(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return an array as another type with the same memory layout. The types may differ in names, nullability, and
    bytes versus strings.
    """
    kind = array.type
    if kind.equals(wanted):
        return array
    if pa.types.is_struct(kind):
        children = [retyped(array.field(number), wanted.field(number).type) for number in range(kind.num_fields)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)
    if pa.types.is_map(kind):
        items = retyped(array.items, wanted.item_type)
        children = [pa.StructArray.from_arrays([array.keys, items], fields=[wanted.key_field, wanted.item_field])]
    elif pa.types.is_list(kind):
        children = [retyped(array.values, wanted.value_type)]
    else:
        return array.view(wanted)
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(wanted, len(array), buffers, array.null_count, array.offset, children)


def _filled(tree: AvroType, array: pa.Array) -> pa.Array:
    """Return an array with zeros or empty values in place of the nulls that the schema forbids."""
    if tree.kind == "record":
        names = [field.name for field in array.type]
        children = [_filled(tree.inner[name], child) for name, child in zip(names, array.flatten(), strict=True)]
        mask = array.is_null() if array.null_count and tree.is_nullable else None
        return pa.StructArray.from_arrays(children, names=names, mask=mask)
    if array.null_count and not tree.is_nullable:
        array = pc.coalesce(array, pa.scalar(_zero(tree), array.type))
    if tree.kind in ("array", "map"):
        return _with_filled_items(tree, array)
    return array


def _with_filled_items(tree: AvroType, array: pa.Array) -> pa.Array:
    inner = next(iter(tree.inner.values()))
    items = array.items if tree.kind == "map" else array.values
    filled = _filled(inner, items)
    if filled is items:
        return array
    children = [filled]
    if tree.kind == "map":
        fields = [array.type.key_field, array.type.item_field.with_type(filled.type)]
        children = [pa.StructArray.from_arrays([array.keys, filled], fields=fields)]
    kind = pa.map_(pa.string(), filled.type) if tree.kind == "map" else pa.list_(pa.field("item", filled.type))
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, array.offset, children)


def _zero(tree: AvroType) -> Any:
    if tree.kind in ("array", "map"):
        return []
    if tree.kind == "enum":
        return tree.symbols[0]
    return {"string": "", "bytes": b"", "boolean": False}.get(tree.kind, 0)

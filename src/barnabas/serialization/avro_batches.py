"""The conversion of Arrow tables to Avro records, for `send_arrow`.

Each field gets its values from the column of the same name. A field without a column is null or has its default.
Columns without a field are ignored. The conversion never changes a value. A value that does not fit the schema (a
forbidden null, a number out of range, an unknown enum symbol) raises an error with the column and row. In this case, no
record of the table is returned.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.errors import SerializationError
from barnabas.formats.column_types import without_large_types
from barnabas.serialization import wire_format
from barnabas.serialization.avro_codec import codec_of
from barnabas.serialization.avro_conversion import column_to_physical
from barnabas.serialization.avro_defaults import encode_default
from barnabas.serialization.avro_types import AvroType, avro_type
from barnabas.serialization.registry_client import Schema, SchemaRegistry

ROWS_AT_ONCE = 65_536
SHOWN_LETTERS_MAX = 100


class AvroBatches:
    """An encoder that converts the rows of tables to records of one schema.

    :raises SerializationError: if the schema is not a record schema.
    """

    def __init__(self, registry: SchemaRegistry, schema: Schema) -> None:
        self._tree = avro_type(registry, schema)
        if self._tree.kind != "record":
            raise SerializationError(f"a table needs the schema of a record, not one of type {self._tree.kind}")
        self._codec = codec_of(self._tree)
        self._defaults = self._tree.defaults or {}

    def encode(self, table: pa.Table, schema_id: int) -> pa.ChunkedArray:
        """Encode each row as a binary record.

        :raises SerializationError: if a column is missing, or if a value does not fit the schema.
        """
        head = pa.scalar(wire_format.header(schema_id))
        written, first = [], 0
        for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE):
            fields = [self._field(name, each, batch, first) for name, each in self._tree.inner.items()]
            records = self._codec.encode(fields, batch.num_rows)
            written.append(pc.binary_join_element_wise(head, records, b""))
            first += batch.num_rows
        return pa.chunked_array(written, pa.binary())

    def _field(self, name: str, tree: AvroType, batch: pa.RecordBatch, first: int) -> pa.Array:
        count = batch.schema.names.count(name)
        if not count:
            return self._absent(name, tree, batch.num_rows)
        if count > 1:
            raise SerializationError(f"the table has {count} columns {name!r}; rename all but one")
        given = without_large_types(batch.column(name))
        made = column_to_physical(tree, given, len(given))
        row = first_mismatch(tree, given, made)
        if row is not None:
            shown = _shown(given[row])
            shown = shown if len(shown) <= SHOWN_LETTERS_MAX else shown[:SHOWN_LETTERS_MAX] + "..."
            expected = tree.logical or tree.kind
            raise SerializationError(
                f"column {name!r}, row {first + row}: {shown} ({given.type}) does not fit the schema's {expected}"
            )
        return made

    def _absent(self, name: str, tree: AvroType, count: int) -> pa.Array:
        kind = tree.physical()
        default = self._defaults.get(name)
        if default is None and not tree.is_nullable and tree.kind != "null":
            raise SerializationError(
                f"the table has no column {name!r}; field {name!r} of schema {self._tree.name} must not be null"
            )
        try:
            return pa.array([encode_default(tree, default)] * count, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as error:
            raise SerializationError(
                f"the table has no column {name!r}, and the field's default {default!r} is invalid"
            ) from error


def _shown(value: pa.Scalar) -> str:
    try:
        return repr(value.as_py())
    except (ValueError, OverflowError):
        return "a time outside of Python's range"


def first_mismatch(tree: AvroType, given: pa.Array | None, made: pa.Array) -> int | None:
    """Return the index of the first row whose value the conversion loses, or None if it keeps all values.

    :param given: the original column; None if the table has no such column.
    :param made: the converted column.
    """
    if tree.kind == "null":
        return None
    lost = made.is_null() if not tree.is_nullable else pa.repeat(pa.scalar(False), len(made))
    if given is not None:
        lost = pc.or_(lost, pc.and_(given.is_valid(), made.is_null()))
    if lost.true_count:
        return int(pc.index(lost, True).as_py())
    if given is None or not len(made):
        return None
    return _misfit_within(tree, given, made)


def _misfit_within(tree: AvroType, given: pa.Array, made: pa.Array) -> int | None:
    rows: list[int | None] = []
    if tree.kind in ("array", "map"):
        parents = pc.list_parent_indices(_as_list(made))
        row = first_mismatch(next(iter(tree.inner.values())), _items(given), _items(made))
        rows.append(None if row is None else parents[row].as_py())
    elif tree.kind in ("record", "union"):
        there = pc.indices_nonzero(made.is_valid())
        parts = {field.name: given.field(number) for number, field in enumerate(given.type)}
        for name, inner in tree.inner.items():
            part = parts.get(name)
            own = there
            if tree.kind == "union":  # only one branch column of a union is not null
                own = there[:0] if part is None else there.filter(part.take(there).is_valid())
            row = first_mismatch(inner, None if part is None else part.take(own), made.field(name).take(own))
            rows.append(None if row is None else own[row].as_py())
    return min((row for row in rows if row is not None), default=None)


def _as_list(array: pa.Array) -> pa.Array:
    """Return a map array as a list array of its key-value pairs."""
    if not pa.types.is_map(array.type):
        return array
    pairs = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
    return pa.Array.from_buffers(
        pa.list_(pairs.type), len(array), array.buffers()[:2], array.null_count, array.offset, [pairs]
    )


def _items(array: pa.Array) -> pa.Array:
    """Return the concatenated items of lists or values of maps, without the items of null lists."""
    flat = _as_list(array).flatten()
    return flat.field("value") if pa.types.is_map(array.type) else flat

"""Arrow tables as Avro records, for `send_arrow`: strict, as what is sent is to be what was given.

A column goes to the field of its name. What does not fit the schema (a null where none may be, a number that is too
large, a name that an enum has not) is an error that names column and row, and nothing of the table is written. A field
without a column is null, or its default; other columns are left out.
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
    """Writes tables as records of one schema.

    :raises SerializationError: it is no schema of a record.
    """

    def __init__(self, registry: SchemaRegistry, schema: Schema) -> None:
        self._tree = avro_type(registry, schema)
        if self._tree.kind != "record":
            raise SerializationError(f"a table needs the schema of a record, not one of type {self._tree.kind}")
        self._codec = codec_of(self._tree)
        self._defaults = self._tree.defaults or {}

    def encode(self, table: pa.Table, schema_id: int) -> pa.ChunkedArray:
        """Return a record (binary) for each row.

        :raises SerializationError: a column is missing, or a value does not fit.
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
            raise SerializationError(f"there are {count} columns {name!r}: which one the schema means cannot be told")
        given = without_large_types(batch.column(name))
        made = column_to_physical(tree, given, len(given))
        row = first_mismatch(tree, given, made)
        if row is not None:
            shown = _shown(given[row])
            shown = shown if len(shown) <= SHOWN_LETTERS_MAX else shown[:SHOWN_LETTERS_MAX] + "..."
            told = tree.logical or tree.kind
            raise SerializationError(
                f"column {name!r}, row {first + row}: {shown} ({given.type}) does not fit the schema's {told}"
            )
        return made

    def _absent(self, name: str, tree: AvroType, count: int) -> pa.Array:
        kind = tree.physical()
        default = self._defaults.get(name)
        if default is None and not tree.is_nullable and tree.kind != "null":
            raise SerializationError(
                f"there is no column {name!r}, which the schema {self._tree.name} has and which may not be null"
            )
        try:
            return pa.array([encode_default(tree, default)] * count, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as error:
            raise SerializationError(f"there is no column {name!r}, and its default {default!r} is none") from error


def _shown(value: pa.Scalar) -> str:
    try:
        return repr(value.as_py())
    except (ValueError, OverflowError):
        return "a time that Python has not"


def first_mismatch(tree: AvroType, given: pa.Array | None, made: pa.Array) -> int | None:
    """Return the first row that is lost on the way to what is written; None where all is there.

    :param given: the column; None where there is none. `made`: what is to be written of it.
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
            if tree.kind == "union":  # all of its branches are null but one
                own = there[:0] if part is None else there.filter(part.take(there).is_valid())
            row = first_mismatch(inner, None if part is None else part.take(own), made.field(name).take(own))
            rows.append(None if row is None else own[row].as_py())
    return min((row for row in rows if row is not None), default=None)


def _as_list(array: pa.Array) -> pa.Array:
    """Return a map as a list of its pairs."""
    if not pa.types.is_map(array.type):
        return array
    pairs = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
    return pa.Array.from_buffers(
        pa.list_(pairs.type), len(array), array.buffers()[:2], array.null_count, array.offset, [pairs]
    )


def _items(array: pa.Array) -> pa.Array:
    """Return what lists hold, or the values of maps, one after the other; what stands behind a null does not count."""
    flat = _as_list(array).flatten()
    return flat.field("value") if pa.types.is_map(array.type) else flat

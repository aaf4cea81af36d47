"""The decoding of Avro values to Arrow columns of one reader's schema, for `poll_arrow`.

`record_values.py` decodes the values, as it does for loads. Avro's schema resolution then converts them to the reader's
schema: new fields get their defaults, removed fields are dropped, numbers are widened, and aliases map renamed fields.
A table with the reader's schema would have the same columns (`avro_types.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.errors import SchemaRegistryError, SerializationError
from barnabas.formats.column_types import ColumnType, arrow_type
from barnabas.formats.decoding import GuardedDecoder
from barnabas.formats.field_aliases import NO_ALIASES, Aliases
from barnabas.serialization.avro_conversion import physical_to_column
from barnabas.serialization.avro_defaults import encode_default
from barnabas.serialization.avro_types import AvroType, avro_type
from barnabas.serialization.avro_values import AvroFormat, AvroRecords, with_columns
from barnabas.serialization.column_casts import with_items
from barnabas.serialization.record_values import RecordDecoder, writers_by_id
from barnabas.serialization.registry_client import Schema, SchemaRegistry
from barnabas.serialization.wire_format import Writer

ROWS_AT_ONCE = 50_000
"""The number of records that are decoded together. It limits the size of the list of bytes objects for the compiled
codec.
"""


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """The result of decoding a column of records.

    :param batch: one column per field of the reader's schema, one row per record. All fields of a null or bad record
        are null.
    :param reasons: for each bad record, the reason as a string; null for all other records.
    :param schema_ids: the id of each record's schema; null for a record without an id.
    """

    batch: pa.RecordBatch
    reasons: pa.Array
    schema_ids: pa.Array


def decode_avro(
    column: pa.Array | pa.ChunkedArray, registry: SchemaRegistry, reader: Schema | None = None
) -> DecodedRecords:
    """Decode values with schema ids to the columns of one reader's schema. Each value is decoded with its writer's
    schema.

    :param column: binary values; null for tombstones.
    :param reader: the reader's schema. None selects the schema with the largest known id in the column.
    :raises SerializationError: if the reader's schema is not an Avro schema.
    :raises TimedOutError: if no registry responds.
    """
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    values = values.cast(pa.binary())
    groups = writers_by_id(values, {})
    tree = _newest(registry, groups) if reader is None else with_columns(avro_type(registry, reader))
    kind = ResolvedAvroFormat(tree)
    decoder = GuardedDecoder(RecordDecoder(kind, registry, with_forms=False, may_rename=False))
    chunks = [values.slice(start, ROWS_AT_ONCE) for start in range(0, max(len(values), 1), ROWS_AT_ONCE)]
    decoded = [decoder.decode(chunk, kind.fields) for chunk in chunks]
    columns = [pa.concat_arrays(parts) for parts in zip(*(each.columns for each in decoded), strict=True)]
    reasons = pa.concat_arrays([each.reasons.cast(pa.string()) for each in decoded])
    schema = pa.schema([(name, arrow_type(each)) for name, each in kind.fields.items()])
    batch = pa.RecordBatch.from_arrays(columns, schema=schema) if columns else _no_columns(len(values))
    return DecodedRecords(batch, _with_forbidden_nulls(tree, batch, values, reasons), _schema_ids(groups, len(values)))


def _newest(registry: SchemaRegistry, ids: Mapping[int, pa.Array]) -> AvroType:
    """Return the Avro schema with the largest id that the registry knows, or an empty schema if it knows none of the
    ids.
    """
    for schema_id in sorted(ids, reverse=True):
        try:
            return with_columns(avro_type(registry, registry.schema(schema_id)))
        except SchemaRegistryError as error:
            if not error.is_about_schema:
                raise
        except SerializationError:
            continue
    return AvroType("record", {"type": "record", "name": "None", "fields": []})


def _schema_ids(groups: Mapping[int, pa.Array], count: int) -> pa.Array:
    ids = pa.nulls(count, pa.int64())
    for schema_id, rows in groups.items():
        own = pc.is_in(pa.array(range(count), rows.type), rows)
        ids = pc.if_else(own, pa.scalar(schema_id, pa.int64()), ids)
    return ids


def _with_forbidden_nulls(tree: AvroType, batch: pa.RecordBatch, values: pa.Array, reasons: pa.Array) -> pa.Array:
    """Add a reason for each record that has a null in a field that is not nullable, and return all reasons."""
    for name in batch.schema.names:
        field = tree.inner[name]
        if field.is_nullable or tree.kind == "union" or tree.is_nullable or not batch.column(name).null_count:
            continue
        is_new = pc.and_(pc.and_(values.is_valid(), reasons.is_null()), batch.column(name).is_null())
        reason = f"field {name!r} is null, which the reader's schema does not allow"
        reasons = pc.if_else(is_new, reason, reasons)
    return reasons


def _no_columns(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))


class ResolvedAvroFormat:
    """The `RecordFormat` that converts Avro values of any schema to the fields of a reader's schema."""

    name = "avro"

    def __init__(self, reader: AvroType) -> None:
        self._reader = reader
        columns = {name: each.column() for name, each in reader.inner.items()}
        self.fields: Mapping[str, ColumnType] = {name: kind for name, kind in columns.items() if kind is not None}

    def rows_by_writer(self, values: pa.Array, reasons: dict[int, str]) -> dict[Writer, pa.Array]:
        return AvroFormat().rows_by_writer(values, reasons)

    def record_type(self, registry: SchemaRegistry, writer: Writer, known: Aliases) -> ResolvedRecords:
        tree = avro_type(registry, registry.schema(writer.schema_id))
        return ResolvedRecords(AvroRecords(tree, known), with_columns(tree), self._reader, self.fields)


class ResolvedRecords:
    """The `RecordType` that converts the values of one Avro schema to the fields of a reader's schema."""

    def __init__(self, own: AvroRecords, writer: AvroType, reader: AvroType, fields: Mapping[str, ColumnType]) -> None:
        self._own = own
        self._writer = writer
        self._reader = reader
        self.fields = fields
        self.aliases = NO_ALIASES
        self.is_strict = True

    def decode(self, payloads: Sequence[bytes]) -> Mapping[str, pa.Array]:
        decoded = self._own.decode(payloads)
        if not self._own.is_strict:
            for place in self._own.suspect_rows(decoded, pa.array(payloads, pa.binary())):
                if self._own.damage_reason(payloads[place]) is not None:
                    raise SerializationError("the record is damaged")
        return {
            name: _field(self._writer, decoded, self._reader, name, kind, len(payloads))
            for name, kind in self.fields.items()
        }

    def suspect_rows(self, fields: Mapping[str, pa.Array], payloads: pa.Array) -> Sequence[int]:
        return ()  # called only if records are encoded again for a comparison

    def damage_reason(self, payload: bytes) -> str | None:
        return self._own.damage_reason(payload)

    def canonical(self, payloads: pa.Array) -> pa.Array:
        return payloads

    def has_columns_for_all(self, name: str, column: ColumnType) -> bool:
        return True  # this format keeps all field names

    def to_column(self, name: str, values: pa.Array, wanted: ColumnType) -> pa.Array:
        return values

    def encode(self, columns: Mapping[str, pa.Array], count: int) -> pa.Array:
        raise AssertionError("records of a reader's schema are only decoded")


def _field(
    writer: AvroType, parts: Mapping[str, pa.Array], reader: AvroType, name: str, wanted: ColumnType, count: int
) -> pa.Array:
    """Return the column of a reader's field: the writer's field with this name or an alias of it,
    or else the default.
    """
    aliases = [old for old, new in (reader.aliases or {}).items() if new == name]
    source = next((each for each in (name, *aliases) if each in writer.inner), None)
    if source is not None:
        return resolved(writer.inner[source], parts[source], reader.inner[name], wanted)
    default = (reader.defaults or {}).get(name)
    try:
        plain = pa.array([encode_default(reader.inner[name], default)], reader.inner[name].physical())
    except (ValueError, TypeError, pa.ArrowException):  # the field has no default, or its default has the wrong type
        return pa.nulls(count, arrow_type(wanted))
    return physical_to_column(reader.inner[name], plain, wanted).take(pa.array([0] * count, pa.int64()))


def resolved(writer: AvroType, array: pa.Array, reader: AvroType, wanted: ColumnType) -> pa.Array:
    """Convert a column to the reader's type. A value that does not fit that type becomes null.

    :param array: values of the writer's physical type.
    """
    kinds = (writer.kind, reader.kind)
    if kinds == ("record", "record") and isinstance(wanted, dict):
        parts = {field.name: array.field(number) for number, field in enumerate(array.type)}
        kind = cast("pa.StructType", arrow_type(wanted))
        children = [_field(writer, parts, reader, name, each, len(array)) for name, each in wanted.items()]
        return pa.StructArray.from_arrays(
            children, fields=list(kind), mask=array.is_null() if array.null_count else None
        )
    if kinds in (("array", "array"), ("map", "map")) and isinstance(wanted, list):
        items = array.items if writer.kind == "map" else array.values
        inner = [next(iter(each.inner.values())) for each in (writer, reader)]
        return with_items(array, resolved(inner[0], items, inner[1], wanted[-1]), arrow_type(wanted))
    if writer.kind == "union" and reader.kind != "union":
        branches = [resolved(each, array.field(name), reader, wanted) for name, each in writer.inner.items()]
        return pc.coalesce(*branches) if not isinstance(wanted, dict | list) else _first_valid(branches)
    if reader.kind == "union" and writer.kind != "union" and isinstance(wanted, dict):
        return _in_branch(writer, array, reader, wanted)
    return physical_to_column(writer, array, wanted)


def _first_valid(branches: Sequence[pa.Array]) -> pa.Array:
    found = branches[0]
    for each in branches[1:]:
        found = pc.if_else(found.is_valid(), found, each)
    return found


def _in_branch(writer: AvroType, array: pa.Array, reader: AvroType, wanted: dict[str, ColumnType]) -> pa.Array:
    """Convert a column to a union of the reader. All values go to the first branch that accepts them all."""
    kind = cast("pa.StructType", arrow_type(wanted))
    children = {name: pa.nulls(len(array), arrow_type(each)) for name, each in wanted.items()}
    alike = sorted(wanted, key=lambda name: reader.inner[name].kind != writer.kind)
    for name in alike:
        made = resolved(writer, array, reader.inner[name], wanted[name])
        if made.null_count == array.null_count:
            children[name] = made
            break
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays([children[name] for name in wanted], fields=list(kind), mask=mask)

"""The columns of Avro values: the implementation of the interfaces in `record_values.py`.

record, [null, record]       one column per field; a null value is kept whole, and its columns are null
a union of several types     one column per branch, named after its type
any other type               one column, named after the type: `string`, `array`, the name of an enum
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.errors import SerializationError
from barnabas.formats.column_types import ColumnType
from barnabas.formats.field_aliases import Aliases
from barnabas.serialization.avro_codec import codec_of
from barnabas.serialization.avro_conversion import column_to_physical, physical_to_column
from barnabas.serialization.avro_python_codec import PythonCodec
from barnabas.serialization.avro_types import AvroType, avro_type
from barnabas.serialization.record_values import writers_by_id
from barnabas.serialization.registry_client import SchemaRegistry
from barnabas.serialization.wire_format import Writer


class AvroRecords:
    """The `RecordType` of one Avro schema."""

    def __init__(self, schema: AvroType, known: Aliases) -> None:
        written = with_columns(schema)
        inner = {name: each.with_column_names(known.of(known.now(name))) for name, each in written.inner.items()}
        self._tree = tree = replace(written, fields=inner)
        self._codec = codec_of(tree)
        self._strict = PythonCodec(tree)
        self.is_strict = isinstance(self._codec, PythonCodec)
        columns = {name: each.column() for name, each in tree.inner.items()}
        self.fields: Mapping[str, ColumnType] = {name: kind for name, kind in columns.items() if kind is not None}
        self.aliases = written.declared_aliases()

    def decode(self, payloads: Sequence[bytes]) -> Mapping[str, pa.Array]:
        return dict(zip(self._tree.inner, self._codec.decode(payloads), strict=True))

    def suspect_rows(self, fields: Mapping[str, pa.Array], payloads: pa.Array) -> Sequence[int]:
        # The compiled decoder accepts numbers out of range, and bytes after the record. A record is certainly valid if
        # encoding it returns the same bytes; all others are suspect.
        written = self._codec.encode(list(fields.values()), len(payloads))
        places: list[int] = pc.indices_nonzero(pc.not_equal(written, payloads)).to_pylist()
        return places

    def damage_reason(self, payload: bytes) -> str | None:
        try:
            self._strict.decode([payload])
        except SerializationError as error:
            return str(error)
        return None

    def canonical(self, payloads: pa.Array) -> pa.Array:
        return payloads

    def has_columns_for_all(self, name: str, column: ColumnType) -> bool:
        return self._tree.inner[name].has_columns_for_all(column)

    def to_column(self, name: str, values: pa.Array, wanted: ColumnType) -> pa.Array:
        return physical_to_column(self._tree.inner[name], values, wanted)

    def encode(self, columns: Mapping[str, pa.Array], count: int) -> pa.Array:
        return self._codec.encode(
            [column_to_physical(each, columns.get(name), count) for name, each in self._tree.inner.items()], count
        )


def with_columns(tree: AvroType) -> AvroType:
    """Return a schema whose nested types are the columns. Any type other than a record or union is wrapped in a record.
    This does not change the bytes, because Avro encodes a record of one field like the field itself.
    """
    if tree.kind in ("record", "union"):
        return tree
    name = tree.name.rpartition(".")[2] or tree.kind
    written = {"type": "record", "name": "Value", "fields": [{"name": name, "type": tree.written}]}
    return AvroType("record", written, fields={name: tree})


class AvroFormat:
    """The `RecordFormat` of Avro."""

    name = "avro"

    def rows_by_writer(self, values: pa.Array, reasons: dict[int, str]) -> dict[Writer, pa.Array]:
        return {Writer(schema_id): rows for schema_id, rows in writers_by_id(values, reasons).items()}

    def record_type(self, registry: SchemaRegistry, writer: Writer, known: Aliases) -> AvroRecords:
        return AvroRecords(avro_type(registry, registry.schema(writer.schema_id)), known)

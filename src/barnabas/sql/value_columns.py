"""What becomes of values in a query: a column for each field, and no more of them than the query wants.

Unlike a load, a query need not give a value back byte for byte: beside its fields it has `value` as it came. So what
cannot be decoded is null, and fields that nobody asks for are not decoded. Pure, but for the schemas that are asked of
a registry; can be pickled, so that Spark's executors do the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.formats.column_names import column_names
from barnabas.formats.column_types import ColumnType, arrow_type
from barnabas.formats.json_fields import PLAIN, JsonRules, read_fields
from barnabas.formats.lines import LineDecoder
from barnabas.serialization.avro_columns import decode_avro
from barnabas.serialization.protobuf_values import ProtobufKind
from barnabas.serialization.record_values import BYTES_MAX, RecordDecoder
from barnabas.serialization.registry_client import Schema, SchemaRegistry
from barnabas.serialization.wire_format import HEADER_BYTES


class ValueColumns(Protocol):
    """The columns that values of a topic have."""

    @property
    def format(self) -> str:
        """How it is called, for people."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """Names and types."""
        ...

    def decode(self, values: pa.Array, wanted: Sequence[str]) -> list[pa.Array]:
        """Return some of the columns of values (binary, null for tombstones), in the order in which they are wanted."""
        ...


@dataclass(frozen=True, slots=True)
class RawValues:
    """Values that nothing is known of."""

    format: str = "raw"

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([])

    def decode(self, values: pa.Array, wanted: Sequence[str]) -> list[pa.Array]:
        assert not wanted, f"raw values have no columns {wanted}"
        return []


@dataclass(frozen=True, slots=True)
class JsonColumns:
    """The fields of JSON objects.

    :param skip_bytes: what stands before each object: the id of a schema.
    """

    fields: Mapping[str, ColumnType]
    rules: JsonRules = PLAIN
    skip_bytes: int = 0

    @property
    def format(self) -> str:
        return "json with schema ids" if self.skip_bytes else "json"

    @property
    def schema(self) -> pa.Schema:
        return _schema(self.fields)

    def decode(self, values: pa.Array, wanted: Sequence[str]) -> list[pa.Array]:
        if not wanted:
            return []
        # An end must be given, as without one Arrow 26 reserves a negative number of bytes.
        texts = pc.binary_slice(values, self.skip_bytes, BYTES_MAX) if self.skip_bytes else values
        return read_fields(texts, _chosen(self.fields, wanted), self.rules)


@dataclass(frozen=True, slots=True)
class LineColumns:
    """The groups of a pattern of lines."""

    decoder: LineDecoder
    fields: Mapping[str, ColumnType]
    format: str

    @property
    def schema(self) -> pa.Schema:
        return _schema(self.fields)

    def decode(self, values: pa.Array, wanted: Sequence[str]) -> list[pa.Array]:
        if not wanted:
            return []
        return self.decoder.decode(values, _chosen(self.fields, wanted)).columns


@dataclass(frozen=True, slots=True)
class AvroColumns:
    """The fields of Avro records, by the schemas in a registry.

    :param reader: the schema that gives the columns; records of others are brought to it by Avro's rules.
    :param fields: its columns in Arrow.
    """

    registry_url: str
    reader: Schema
    fields: pa.Schema

    @property
    def format(self) -> str:
        return "avro"

    @property
    def schema(self) -> pa.Schema:
        columns = column_names(self.fields.names)
        return pa.schema([each.with_name(columns[each.name]) for each in self.fields])

    def decode(self, values: pa.Array, wanted: Sequence[str]) -> list[pa.Array]:
        if not wanted:
            return []
        names = _fields_of_columns(self.fields.names)
        decoded = decode_avro(values, registry_at(self.registry_url), self.reader)
        return [decoded.batch.column(names[column]) for column in wanted]


@dataclass(frozen=True, slots=True)
class ProtobufColumns:
    """The fields of Protobuf messages, by the schemas in a registry.

    :param fields: those of all message types that were seen; a field that a message's own type has not is null.
    """

    registry_url: str
    fields: Mapping[str, ColumnType]

    @property
    def format(self) -> str:
        return "protobuf"

    @property
    def schema(self) -> pa.Schema:
        return _schema(self.fields)

    def decode(self, values: pa.Array, wanted: Sequence[str]) -> list[pa.Array]:
        if not wanted:
            return []
        return protobuf_decoder(self.registry_url).decode(values, _chosen(self.fields, wanted)).columns


def _schema(fields: Mapping[str, ColumnType]) -> pa.Schema:
    columns = column_names(fields)
    return pa.schema([(columns[name], arrow_type(kind)) for name, kind in fields.items()])


def _chosen(fields: Mapping[str, ColumnType], columns: Sequence[str]) -> dict[str, ColumnType]:
    names = _fields_of_columns(fields)
    return {names[column]: fields[names[column]] for column in columns}


def _fields_of_columns(fields: Iterable[str]) -> dict[str, str]:
    return {column: name for name, column in column_names(fields).items()}


@lru_cache(maxsize=8)
def registry_at(url: str) -> SchemaRegistry:
    """Return the one client of a registry in this process, which remembers the schemas that it was asked for."""
    return SchemaRegistry(url)


@lru_cache(maxsize=8)
def protobuf_decoder(url: str) -> RecordDecoder:
    """Return the one decoder of Protobuf records in this process, which remembers their types.

    Threads may share it: what they remember is the same, and is found twice at the worst.
    """
    return RecordDecoder(ProtobufKind(), registry_at(url), with_forms=False)


def has_schema_ids(values: pa.Array) -> bool:
    """Whether most values begin as those do that were written with a schema of a registry."""
    filled = values.drop_null()
    heads = pc.binary_slice(filled, 0, 1)
    long_enough = pc.greater_equal(pc.binary_length(filled), HEADER_BYTES)
    return 2 * (pc.sum(pc.and_(pc.equal(heads, b"\0"), long_enough)).as_py() or 0) > len(filled)

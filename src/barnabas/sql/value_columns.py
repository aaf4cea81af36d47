"""The columns of values in a query: one for each field, decoded on demand.

Unlike a load, a query does not restore the original value from its columns: the column `value` contains it. So only the
requested fields are decoded, and a field that cannot be decoded is null. Pure except for requests to the schema
registry. The classes can be pickled for Spark's executors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.formats.column_names import column_names
from barnabas.formats.column_types import ColumnType, arrow_type
from barnabas.formats.decoding import GuardedDecoder, ValueDecoder, piecewise
from barnabas.formats.field_aliases import NO_ALIASES, Aliases
from barnabas.formats.json_fields import PLAIN, JsonRules, read_fields
from barnabas.formats.lines import LineDecoder
from barnabas.serialization.framed_json import without_schema_ids
from barnabas.serialization.registry_settings import RegistryTarget
from barnabas.serialization.value_decoders import value_decoder
from barnabas.serialization.wire_format import HEADER_BYTES


class ValueColumns(Protocol):
    """The columns of a topic's values."""

    @property
    def format(self) -> str:
        """The name of the format, for messages."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The names and types of the columns."""
        ...

    def decode(self, values: pa.Array, wanted: Sequence[str]) -> list[pa.Array]:
        """Return the requested columns of values.

        :param values: The values as binary; null for tombstones.
        :param wanted: The names of the columns, in this order.
        """
        ...


@dataclass(frozen=True, slots=True)
class RawValues:
    """Values of an unknown format, without columns."""

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

    :param is_framed: True if objects may begin with a schema id.
    """

    fields: Mapping[str, ColumnType]
    rules: JsonRules = PLAIN
    is_framed: bool = False

    @property
    def format(self) -> str:
        return "json with schema ids" if self.is_framed else "json"

    @property
    def schema(self) -> pa.Schema:
        return _schema(self.fields)

    def decode(self, values: pa.Array, wanted: Sequence[str]) -> list[pa.Array]:
        if not wanted:
            return []
        fields = _chosen(self.fields, wanted)
        parts = piecewise(
            without_schema_ids(values) if self.is_framed else values,
            lambda part: read_fields(part, fields, self.rules),
            lambda part, _error: [pa.nulls(len(part), arrow_type(kind)) for kind in fields.values()],
        )
        return parts[0] if len(parts) == 1 else [pa.concat_arrays(each) for each in zip(*parts, strict=True)]


@dataclass(frozen=True, slots=True)
class LineColumns:
    """The groups of a line pattern."""

    decoder: LineDecoder
    fields: Mapping[str, ColumnType]
    format: str

    @property
    def schema(self) -> pa.Schema:
        return _schema(self.fields)

    def decode(self, values: pa.Array, wanted: Sequence[str]) -> list[pa.Array]:
        if not wanted:
            return []
        return GuardedDecoder(self.decoder).decode(values, _chosen(self.fields, wanted)).columns


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The fields of Avro or Protobuf values, decoded with the schemas of a registry.

    As in a load, each value is decoded with its own schema.

    :param fields: The fields of all known schemas. A field that the schema of a value lacks is null.
    :param aliases: Earlier names of fields, with the current names.
    """

    format: str
    registry: RegistryTarget = field(repr=False)
    fields: Mapping[str, ColumnType]
    aliases: Aliases = NO_ALIASES

    @property
    def schema(self) -> pa.Schema:
        return _schema(self.fields)

    def decode(self, values: pa.Array, wanted: Sequence[str]) -> list[pa.Array]:
        if not wanted:
            return []
        decoder = record_decoder(self.format, self.registry, self.aliases.dump())
        return decoder.decode(values, _chosen(self.fields, wanted)).columns


def _schema(fields: Mapping[str, ColumnType]) -> pa.Schema:
    columns = column_names(fields)
    return pa.schema([(columns[name], arrow_type(kind)) for name, kind in fields.items()])


def _chosen(fields: Mapping[str, ColumnType], columns: Sequence[str]) -> dict[str, ColumnType]:
    names = _fields_of_columns(fields)
    return {names[column]: fields[names[column]] for column in columns}


def _fields_of_columns(fields: Iterable[str]) -> dict[str, str]:
    return {column: name for name, column in column_names(fields).items()}


@lru_cache(maxsize=8)
def record_decoder(value_format: str, registry: RegistryTarget, aliases: str = "{}") -> ValueDecoder:
    """Return this process's decoder for a format. It caches schemas.

    Threads may share the decoder: at worst, two threads fetch the same schema.

    :param aliases: The output of `Aliases.dump`.
    """
    made = value_decoder(value_format, registry=registry, aliases=Aliases.parse(aliases), with_forms=False)
    assert made is not None, "values with schemas are decoded"
    return made


def has_schema_ids(values: pa.Array) -> bool:
    """Return whether most values begin with the header that precedes a schema id of a registry."""
    filled = values.drop_null()
    heads = pc.binary_slice(filled, 0, 1)
    long_enough = pc.greater_equal(pc.binary_length(filled), HEADER_BYTES)
    return 2 * (pc.sum(pc.and_(pc.equal(heads, b"\0"), long_enough)).as_py() or 0) > len(filled)

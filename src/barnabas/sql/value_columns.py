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
from barnabas.formats.decoding import GuardedDecoder, ValueDecoder, piecewise
from barnabas.formats.field_aliases import NO_ALIASES, Aliases
from barnabas.formats.json_fields import PLAIN, JsonRules, read_fields
from barnabas.formats.lines import LineDecoder
from barnabas.serialization.framed_json import without_schema_ids
from barnabas.serialization.value_decoders import value_decoder
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

    :param is_framed: whether objects have the id of a schema before them; those without one are read as well.
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
        return GuardedDecoder(self.decoder).decode(values, _chosen(self.fields, wanted)).columns


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The fields of Avro values or Protobuf messages, by the schemas in a registry.

    Values are decoded as a load decodes them: each by the schema that it was written with.

    :param fields: those of all schemas that were seen; a field that a value's own schema lacks is null.
    :param aliases: names that fields had before, with those that they have here.
    """

    format: str
    registry_url: str
    fields: Mapping[str, ColumnType]
    aliases: Aliases = NO_ALIASES

    @property
    def schema(self) -> pa.Schema:
        return _schema(self.fields)

    def decode(self, values: pa.Array, wanted: Sequence[str]) -> list[pa.Array]:
        if not wanted:
            return []
        decoder = record_decoder(self.format, self.registry_url, self.aliases.dump())
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
def record_decoder(value_format: str, registry_url: str, aliases: str = "{}") -> ValueDecoder:
    """Return the one decoder of a format in this process, which remembers the schemas that it was asked for.

    Threads may share it: what they remember is the same, and is found twice at the worst.

    :param aliases: as `Aliases.dump` has them.
    """
    made = value_decoder(value_format, registry=registry_url, aliases=Aliases.parse(aliases), with_forms=False)
    assert made is not None, "values with schemas are decoded"
    return made


def has_schema_ids(values: pa.Array) -> bool:
    """Whether most values begin as those do that were written with a schema of a registry."""
    filled = values.drop_null()
    heads = pc.binary_slice(filled, 0, 1)
    long_enough = pc.greater_equal(pc.binary_length(filled), HEADER_BYTES)
    return 2 * (pc.sum(pc.and_(pc.equal(heads, b"\0"), long_enough)).as_py() or 0) > len(filled)

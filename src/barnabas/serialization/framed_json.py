"""The `ValueDecoder` of JSON values with a schema id, as JSON Schema serializers write them. The bytes after the id are
decoded like any JSON value, without use of the schema. `json:7:columns` is the form of a value with schema id 7 that
the table's columns can restore. A value is a bad record if the registry does not have its id, or if the schema is not a
JSON Schema. Values with and without an id may be mixed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.errors import SchemaRegistryError
from barnabas.formats.column_types import ColumnType, Fields
from barnabas.formats.decoding import TOMBSTONE, VALUE, Decoded
from barnabas.formats.field_aliases import NO_ALIASES, Aliases
from barnabas.formats.value_format import JsonDecoder
from barnabas.serialization import wire_format
from barnabas.serialization.record_values import BYTES_MAX, writers_by_id
from barnabas.serialization.registry_client import JSON, NO_SUCH_SCHEMA, SchemaRegistry
from barnabas.serialization.unknown_ids import UnknownIds, most_frequent_first

_FORM = r"^json:(?P<id>\d+):(?P<bare>.*)$"


@dataclass(slots=True)
class FramedJsonDecoder:
    """A decoder of JSON objects with or without a schema id. Not thread-safe."""

    json: JsonDecoder
    registry: SchemaRegistry
    _unknown: UnknownIds[int] = field(default_factory=UnknownIds)
    _known: set[int] = field(default_factory=set)

    def infer(self, values: pa.Array) -> Fields:
        return self.json.infer(without_schema_ids(values))

    def renames(self, values: pa.Array) -> Aliases:
        return NO_ALIASES

    def decode(self, values: pa.Array, fields: Mapping[str, ColumnType]) -> Decoded:
        decoded = self.json.decode(without_schema_ids(values), fields)
        is_framed = _is_framed(values)
        if not is_framed.true_count:
            return decoded
        forms, reasons = decoded.forms, decoded.reasons
        comes_back = pc.and_(is_framed, pc.invert(pc.is_in(forms, pa.array([VALUE, TOMBSTONE]))))
        framed = pc.if_else(is_framed, values, pa.scalar(None, values.type))
        rows_by_writer = writers_by_id(framed, {})
        self._unknown.begin()
        bad: dict[int, str] = {}
        for schema_id in most_frequent_first(rows_by_writer):
            rows = rows_by_writer[schema_id]
            reason = self._why_unknown(schema_id)
            if reason is not None:  # update all rows together, because the group may be as large as the batch
                bad.update(dict.fromkeys(rows.to_pylist(), reason))
                continue
            own = pc.is_in(pa.array(range(len(values)), rows.type), rows)
            prefixed = pc.binary_join_element_wise(f"json:{schema_id}", forms, ":")
            forms = pc.if_else(pc.and_(own, comes_back), prefixed, forms)
        if bad:
            whys = pa.array([bad.get(row) for row in range(len(values))], pa.string())
            reasons = pc.coalesce(whys, reasons)
            forms = pc.if_else(pc.and_(whys.is_valid(), comes_back), VALUE, forms)
        return Decoded(decoded.columns, forms, reasons, decoded.found)

    def restore(self, values: pa.Array, forms: pa.Array, columns: Mapping[str, pa.Array]) -> pa.Array:
        parts = pc.extract_regex(forms, _FORM)
        if parts.null_count == len(parts):
            return self.json.restore(values, forms, columns)
        bare = self.json.restore(values, pc.if_else(parts.is_valid(), parts.field("bare"), forms), columns)
        for number in pc.unique(parts.field("id").filter(parts.is_valid())).to_pylist():
            own = pc.and_(parts.is_valid(), pc.equal(parts.field("id"), number)).fill_null(False)
            head = pa.scalar(wire_format.header(int(number)), bare.type)
            bare = pc.if_else(own, pc.binary_join_element_wise(head, bare, pa.scalar(b"", bare.type)), bare)
        return bare

    def _why_unknown(self, schema_id: int) -> str | None:
        """Return the reason why a schema id does not belong to JSON values, or None if it does."""
        if schema_id in self._known:
            return None
        reason = self._unknown.reason(schema_id)
        if reason is not None:
            return reason
        try:
            kind = self.registry.schema(schema_id).kind
        except SchemaRegistryError as error:
            if not error.is_about_schema:
                raise
            cause = " is not known to the registry" if error.code == NO_SUCH_SCHEMA else f": {error}"
            reason = f"schema {schema_id}{cause}"
        else:
            if kind == JSON:
                self._known.add(schema_id)
                return None
            reason = f"schema {schema_id} is of type {kind}, not {JSON}"
        self._unknown.note(schema_id, reason)
        return reason


def _is_framed(values: pa.Array) -> pa.Array:
    magic = bytes([wire_format.MAGIC])
    starts = pc.equal(pc.binary_slice(values, 0, 1), pa.scalar(magic, values.type))
    return pc.and_(starts, pc.greater_equal(pc.binary_length(values), wire_format.HEADER_BYTES)).fill_null(False)


def without_schema_ids(values: pa.Array) -> pa.Array:
    """Return the values without their schema ids."""
    is_framed = _is_framed(values)
    if not is_framed.true_count:
        return values
    return pc.if_else(is_framed, pc.binary_slice(values, wire_format.HEADER_BYTES, BYTES_MAX), values)

"""The Avro serializer and deserializer. They use fastavro, and write the schema id before each record."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.errors import SerializationError
from barnabas.serialization import wire_format
from barnabas.serialization.avro_limits import VALUES_MAX, RecordLimits, check_depth
from barnabas.serialization.extras import require_schema_package
from barnabas.serialization.registry_client import AVRO, Schema, SchemaReference, SchemaRegistry
from barnabas.serialization.schema_id_resolver import SchemaIdResolver
from barnabas.serialization.subject_names import SubjectName, by_topic

if TYPE_CHECKING:
    from barnabas.serialization.avro_batches import AvroBatches


class WriterSchema:
    """The schema of written records, which reads them within limits.

    :param values_max: the maximum number of values in a record.
    :raises SerializationError: if the text is not an Avro schema, or if its records cannot be read within the limits.
    """

    def __init__(self, registry: SchemaRegistry, schema: Schema, values_max: int = VALUES_MAX) -> None:
        self._parsed, self._limits = parse_for_reading(registry, schema, values_max)
        self._read = require_schema_package("fastavro").schemaless_reader

    def read(self, data: bytes, reader: Any = None) -> Any:
        """Return a record without its header.

        :param reader: the parsed schema of the reader; None for this schema.
        :raises SerializationError: if the bytes are not a valid record.
        """
        self._limits.check(data, wire_format.HEADER_BYTES)
        stream = io.BytesIO(data)
        stream.seek(wire_format.HEADER_BYTES)
        try:
            return self._read(stream, self._parsed, reader)
        except Exception as error:  # fastavro does not document the exceptions that it raises
            raise SerializationError(f"invalid record: {error!r}") from error


def parse(registry: SchemaRegistry, schema: Schema) -> Any:
    """Parse a schema and its references with fastavro, and return the parsed schema.

    :raises SerializationError: if the text is not an Avro schema.
    """
    return _parse(registry, schema)[0]


def parse_for_reading(
    registry: SchemaRegistry, schema: Schema, values_max: int = VALUES_MAX
) -> tuple[Any, RecordLimits]:
    """Parse a schema of untrusted records. Return the parsed schema, and the limits to check before each record.

    :param values_max: the maximum number of values in a record.
    :raises SerializationError: if the text is not an Avro schema, or if its records cannot be read within the limits.
    """
    parsed, named = _parse(registry, schema)
    limits = RecordLimits(parsed, named, values_max)
    try:
        _check_sizes(parsed, named)
    except RecursionError:
        raise SerializationError("the schema is nested too deep") from None
    return parsed, limits


def _parse(registry: SchemaRegistry, schema: Schema) -> tuple[Any, dict[str, Any]]:
    """Return a parsed schema, and its named types by their full names."""
    fastavro = require_schema_package("fastavro")
    if schema.kind != AVRO:
        raise SerializationError(f"the schema is of type {schema.kind}, not AVRO")
    known: dict[str, Any] = {}
    try:
        for _, text in registry.dependencies(schema):
            fastavro.parse_schema(_decoded(text), named_schemas=known)
        parsed = fastavro.parse_schema(_decoded(schema.text), named_schemas=known)
    except (
        fastavro.schema.SchemaParseException,
        fastavro.schema.UnknownType,
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
    ) as error:
        raise SerializationError(f"invalid Avro schema: {error!r}") from error
    return parsed, known


def _decoded(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "[", '"'):
        return text.strip()
    schema = json.loads(text)
    check_depth(schema)
    return schema


def type_name(parsed: Any) -> str:
    """Return the full name of a record, enum or fixed type, or the type name of any other type."""
    if isinstance(parsed, dict):
        return str(parsed.get("name") or parsed.get("type"))
    return str(parsed) if isinstance(parsed, str) else "union"


def _check_sizes(parsed: Any, named: dict[str, Any]) -> None:
    """Check that the number of items in a record is bounded by the number of its bytes.

    :param parsed: a schema that fastavro has parsed.
    :param named: the named types by their full names.
    :raises SerializationError: if the schema has an array whose items have an empty encoding.
    """
    waiting, seen = [parsed, *named.values()], []
    known = {id(each) for each in waiting}
    while waiting:
        kind = waiting.pop()
        seen.append(kind)
        inner = kind if isinstance(kind, list) else []
        if isinstance(kind, dict):
            inner = [kind[part] for part in ("type", "items", "values") if part in kind]
            inner += [field["type"] for field in kind.get("fields", ())]
        waiting += [each for each in inner if isinstance(each, (dict, list)) and id(each) not in known]
    empty: dict[str, bool] = {}
    for kind in seen:
        if isinstance(kind, dict) and kind.get("type") == "array" and _takes_no_bytes(kind["items"], named, empty):
            raise SerializationError("cannot decode arrays whose items take no bytes: ten bytes could claim 2^60 items")


def _takes_no_bytes(kind: Any, named: dict[str, Any], known: dict[str, bool]) -> bool:
    """Return whether the encoding of a type's values is always empty.

    :param known: the results for named types, which this function adds. A record within itself is not empty.
    """
    if isinstance(kind, str):
        if kind not in named:
            return kind == "null"
        return known[kind] if kind in known else _takes_no_bytes(named[kind], named, known)
    if not isinstance(kind, dict):
        return False  # a union is never empty, because Avro writes the branch index
    if kind["type"] in ("record", "error"):
        known[kind["name"]] = False
        known[kind["name"]] = all(_takes_no_bytes(field["type"], named, known) for field in kind["fields"])
        return known[kind["name"]]
    if kind["type"] == "fixed":
        return bool(kind["size"] == 0)
    return _takes_no_bytes(kind["type"], named, known)


class AvroSerializer:
    """A serializer that encodes dicts as Avro records.

    :param schema: the schema as text or as a JSON object.
    :param references: the registered schemas that the schema refers to.
    :param to_dict: converts a value to a dict before the encoding; None if the values are dicts.
    :param subject_name: the naming strategy; see `barnabas.serialization.subject_names`.
    :param strict: True to reject a dict with fields that the schema does not have.
    The other parameters are described at `SchemaIdResolver`.
    :raises ConfigurationError: if fastavro is not installed.
    :raises SerializationError: if the text is not an Avro schema.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | dict[str, Any],
        *,
        references: tuple[SchemaReference, ...] = (),
        to_dict: Callable[[Any], Any] | None = None,
        subject_name: SubjectName = by_topic,
        auto_register: bool = True,
        use_latest: bool = False,
        normalize: bool = False,
        strict: bool = False,
    ) -> None:
        self._write = require_schema_package("fastavro").schemaless_writer
        self._schema = Schema(schema if isinstance(schema, str) else json.dumps(schema), AVRO, references)
        self._registering = SchemaIdResolver(registry, subject_name, auto_register, use_latest, normalize)
        self._to_dict = to_dict
        self._strict = strict
        self._parsed: dict[Schema, Any] = {self._schema: parse(registry, self._schema)}
        self._batches: dict[Schema, AvroBatches] = {}
        self._type_name = type_name(self._parsed[self._schema])

    def serialize_columns(self, table: Any, topic: str, is_key: bool = False) -> Any:
        """Encode each row of an Arrow table as a record, without a Python object per row. Return an array of bytes.

        :raises SerializationError: if a column is missing, or if a value does not fit the schema. The message names the
            column.
        :raises SchemaRegistryError: if the registry rejects the schema.
        :raises TimedOutError: if no registry responds.
        """
        from barnabas.serialization.avro_batches import AvroBatches  # noqa: PLC0415  `serialize` needs no pyarrow

        schema_id, schema = self._registering.resolve(topic, is_key, self._type_name, self._schema)
        if schema not in self._batches:
            self._batches[schema] = AvroBatches(self._registering.registry, schema)
        return self._batches[schema].encode(table, schema_id)

    def serialize(self, value: Any, topic: str, is_key: bool = False) -> bytes:
        """Return the encoded record with the schema id before it.

        :raises SerializationError: if the value does not fit the schema.
        :raises SchemaRegistryError: if the registry rejects the schema.
        :raises TimedOutError: if no registry responds.
        """
        schema_id, schema = self._registering.resolve(topic, is_key, self._type_name, self._schema)
        parsed = self._parsed.get(schema)
        if parsed is None:
            parsed = self._parsed[schema] = parse(self._registering.registry, schema)
        out = io.BytesIO()
        out.write(wire_format.header(schema_id))
        try:
            self._write(out, parsed, self._to_dict(value) if self._to_dict else value, strict=self._strict)
        except Exception as error:  # fastavro does not document the exceptions that it raises
            raise SerializationError(f"the value does not fit the schema {self._type_name}: {error!r}") from error
        return out.getvalue()


class AvroDeserializer:
    """A deserializer that decodes Avro records to dicts, or to the results of `from_dict`.

    :param schema: the reader's schema. Records of all versions are converted to this schema. None to return each record
        in the schema that it was written with.
    :param references: the registered schemas that the reader's schema refers to.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | dict[str, Any] | None = None,
        *,
        references: tuple[SchemaReference, ...] = (),
        from_dict: Callable[[Any], Any] | None = None,
    ) -> None:
        require_schema_package("fastavro")
        self.registry = registry
        self._from_dict = from_dict
        text = schema if schema is None or isinstance(schema, str) else json.dumps(schema)
        self.schema = None if text is None else Schema(text, AVRO, references)
        self._reader = None if self.schema is None else parse(registry, self.schema)
        self._writers: dict[int, WriterSchema] = {}

    def deserialize(self, data: bytes, topic: str = "", is_key: bool = False) -> Any:
        """Return the decoded record.

        :raises SerializationError: if the bytes are not a valid record, or if the reader's schema cannot represent it.
        :raises SchemaRegistryError: if the registry does not have the record's schema.
        :raises TimedOutError: if no registry responds.
        """
        schema_id = wire_format.schema_id(data)
        writer = self._writers.get(schema_id)
        if writer is None:
            writer = self._writers[schema_id] = WriterSchema(self.registry, self.registry.schema(schema_id))
        try:
            found = writer.read(data, self._reader)
        except SerializationError as error:
            raise SerializationError(f"schema {schema_id}: {error}") from error
        return self._from_dict(found) if self._from_dict else found

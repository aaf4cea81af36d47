"""Records with schemas as JSON values, and back: Avro, JSON and Protobuf in Confluent's wire format.

For people and scripts. Programs use the serializers; loads and SQL use the decoders of columns.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol

from barnabas.errors import ConfigurationError, SchemaRegistryError, SerializationError
from barnabas.serialization import wire_format
from barnabas.serialization.avro_json import AvroJson
from barnabas.serialization.extras import require_schema_package
from barnabas.serialization.json_schema import JsonSerializer
from barnabas.serialization.protobuf import ProtobufDeserializer, message_class
from barnabas.serialization.registry_client import AVRO, JSON, NO_SUCH_SCHEMA, PROTOBUF, Schema, SchemaRegistry

KINDS = {"avro": AVRO, "json": JSON, "protobuf": PROTOBUF}
BAD_IDS_MAX = 1_000


class JsonDecoder(Protocol):
    """Decodes records to JSON values."""

    def decode(self, data: bytes) -> Any:
        """Return a record as a value that `json.dumps` accepts.

        :raises SerializationError: the bytes are not a valid record.
        :raises SchemaRegistryError: the registry rejects the request for the schema.
        :raises TimedOutError: no registry responds.
        """
        ...


class JsonEncoder(Protocol):
    """Encodes JSON values to records."""

    def encode(self, value: Any) -> bytes:
        """Return the record.

        :raises SerializationError: the value does not fit the schema.
        """
        ...


def json_decoder(kind: str, registry: SchemaRegistry | None) -> JsonDecoder:
    """Return the decoder of `avro`, `json` or `protobuf`.

    :param registry: the registry of the schemas; JSON needs none.
    :raises ConfigurationError: a package is missing, or there is no registry.
    """
    if kind == "json":
        return _JsonReader()
    if registry is None:
        raise ConfigurationError(f"{kind} needs a schema registry: --registry URL")
    if kind == "avro":
        return _KnownIds(AvroJson(registry))
    require_schema_package("google.protobuf.json_format")
    return _KnownIds(_ProtobufReader(registry))


class _KnownIds:
    """Requests an unknown schema id once, instead of once per record."""

    def __init__(self, decoder: JsonDecoder) -> None:
        self._decoder = decoder
        self._unknown: dict[int, str] = {}

    def decode(self, data: bytes) -> Any:
        schema_id = wire_format.schema_id(data)
        if schema_id in self._unknown:
            raise SerializationError(self._unknown[schema_id])
        try:
            return self._decoder.decode(data)
        except SchemaRegistryError as error:
            if error.code != NO_SUCH_SCHEMA:
                raise
            if len(self._unknown) < BAD_IDS_MAX:
                self._unknown[schema_id] = f"the registry has no schema {schema_id}"
            raise SerializationError(f"the registry has no schema {schema_id}") from error


class _JsonReader:
    """Reads JSON with and without a schema id."""

    def decode(self, data: bytes) -> Any:
        text = data[wire_format.HEADER_BYTES :] if data[:1] == b"\0" else data
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SerializationError(f"invalid JSON: {error}") from error


class _ProtobufReader:
    def __init__(self, registry: SchemaRegistry) -> None:
        self._deserializer = ProtobufDeserializer(registry)

    def decode(self, data: bytes) -> Any:
        message = self._deserializer.deserialize(data)
        json_format = require_schema_package("google.protobuf.json_format")
        try:
            return json_format.MessageToDict(
                message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
        except (json_format.Error, TypeError, ValueError) as error:  # such as an Any with an unknown type
            raise SerializationError(f"a message of {message.DESCRIPTOR.full_name} has no JSON: {error}") from error


@dataclass(frozen=True, slots=True)
class _FixedEncoder:
    """Encodes with one schema."""

    write: Any

    def encode(self, value: Any) -> bytes:
        encoded: bytes = self.write(value)
        return encoded


def json_encoder(
    kind: str, registry: SchemaRegistry, subject: str, schema_text: str | None, message_type: str | None
) -> JsonEncoder:
    """Return the encoder of `avro`, `json` or `protobuf`.

    :param schema_text: the schema, which is registered as a version of the subject; None for the latest version.
    :param message_type: the full name of a Protobuf message; None for the first message of the schema.
    :raises ConfigurationError: a package is missing, or the schema is of another kind.
    :raises SerializationError: the schema is not valid, or has no such message.
    :raises SchemaRegistryError: the registry rejects the schema, or the subject does not exist.
    :raises TimedOutError: no registry responds.
    """
    if kind == "avro":
        require_schema_package("fastavro")
    else:
        require_schema_package("jsonschema" if kind == "json" else "google.protobuf.json_format")
    if schema_text is None:
        schema_id, schema = registry.latest(subject)
    else:
        schema = Schema(schema_text, KINDS[kind])
        schema_id = registry.register(subject, schema)
    if schema.kind != KINDS[kind]:
        raise ConfigurationError(f"the schema of subject {subject} is of type {schema.kind}, not {KINDS[kind]}")
    if kind == "avro":
        codec = AvroJson(registry)
        return _FixedEncoder(lambda value: codec.encode(value, schema_id, schema))
    if kind == "json":
        serializer = JsonSerializer(
            registry,
            schema.text,
            references=schema.references,
            subject_name=lambda *_: subject,
            use_latest=schema_text is None,
        )
        return _FixedEncoder(lambda value: serializer.serialize(value, ""))
    return _FixedEncoder(_protobuf_writer(registry, schema_id, message_type))


def _protobuf_writer(registry: SchemaRegistry, schema_id: int, message_type: str | None) -> Any:
    made = message_class(registry, schema_id, (0,))
    indexes: tuple[int, ...] = (0,)
    if message_type is not None:
        indexes = _indexes_of(made.DESCRIPTOR.file, message_type)
        made = message_class(registry, schema_id, indexes)
    prefix = wire_format.Writer(schema_id, indexes).prefix()
    json_format = require_schema_package("google.protobuf.json_format")

    def write(value: Any) -> bytes:
        try:
            content: bytes = json_format.ParseDict(value, made()).SerializeToString()
        except Exception as error:  # ParseDict raises other errors than its own for values of wrong types
            raise SerializationError(f"the value does not fit {made.DESCRIPTOR.full_name}: {error}") from error
        return prefix + content

    return write


def _indexes_of(file: Any, message_type: str) -> tuple[int, ...]:
    """Return the message indexes of a type in a file.

    :raises SerializationError: the file has no such message.
    """
    found: dict[str, tuple[int, ...]] = {}
    waiting: list[tuple[tuple[int, ...], Any]] = [
        ((at,), each) for at, each in enumerate(file.message_types_by_name.values())
    ]
    while waiting:
        indexes, descriptor = waiting.pop()
        found[descriptor.full_name] = indexes
        waiting += [((*indexes, at), each) for at, each in enumerate(descriptor.nested_types)]
    if message_type not in found:
        raise SerializationError(f"the schema has no message {message_type!r}; it has {', '.join(sorted(found))}")
    return found[message_type]

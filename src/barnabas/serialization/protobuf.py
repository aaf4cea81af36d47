"""The serializer and deserializer of Protobuf records: each message is preceded by the schema id
and message indexes.
"""

from __future__ import annotations

import base64
from typing import Any

from barnabas.errors import SerializationError
from barnabas.serialization import wire_format
from barnabas.serialization.extras import require_schema_package
from barnabas.serialization.registry_client import PROTOBUF, Schema, SchemaReference, SchemaRegistry
from barnabas.serialization.schema_id_resolver import SchemaIdResolver
from barnabas.serialization.subject_names import SubjectName, by_topic

BUILT_IN = "google/protobuf/"
"""The path prefix of the `.proto` files that every registry and every Protobuf library includes."""


class ProtobufSerializer:
    """A serializer for the messages of one generated class.

    It registers the class's `.proto` file and the imported files. The subject of an imported file is its path.

    :param message_type: the generated class.
    The other parameters are described at `AvroSerializer`.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        message_type: Any,
        *,
        subject_name: SubjectName = by_topic,
        auto_register: bool = True,
        use_latest: bool = False,
        normalize: bool = False,
    ) -> None:
        self._descriptor: Any = message_type.DESCRIPTOR
        self._registering = SchemaIdResolver(registry, subject_name, auto_register, use_latest, normalize)
        self._indexes = wire_format.encode_indexes(_indexes(self._descriptor))
        self._schema: Schema | None = None

    def serialize(self, value: Any, topic: str, is_key: bool = False) -> bytes:
        """Return the encoded record with schema id and message indexes. The errors are those of
        `AvroSerializer.serialize`.
        """
        descriptor: Any = getattr(value, "DESCRIPTOR", None)
        if descriptor is not self._descriptor:
            raise SerializationError(f"{type(value).__name__} is not a message of type {self._descriptor.full_name}")
        if self._schema is None:
            self._schema = self._of_file(self._descriptor.file)
        schema_id, _ = self._registering.resolve(topic, is_key, self._descriptor.full_name, self._schema)
        content: bytes = value.SerializeToString()
        return wire_format.header(schema_id) + self._indexes + content

    def _of_file(self, file: Any) -> Schema:
        references = []
        for imported in file.dependencies:
            if imported.name.startswith(BUILT_IN):
                continue
            registry, subject = self._registering.registry, imported.name
            schema = self._of_file(imported)
            if self._registering.auto_register:
                registry.register(subject, schema)
            references.append(SchemaReference(imported.name, subject, registry.version_of(subject, schema)))
        return Schema(base64.b64encode(file.serialized_pb).decode(), PROTOBUF, tuple(references))


class ProtobufDeserializer:
    """A deserializer that decodes Protobuf records to messages.

    :param registry: the registry of the schemas; optional if `message_type` is given.
    :param message_type: the generated class; None to create a class from the schema in the registry.
    """

    def __init__(self, registry: SchemaRegistry | None = None, message_type: Any = None) -> None:
        self._registry = registry
        self._message_type = message_type
        self._made: dict[tuple[int, tuple[int, ...]], Any] = {}

    def deserialize(self, data: bytes, topic: str = "", is_key: bool = False) -> Any:
        """Return the decoded message. The errors are those of `AvroDeserializer.deserialize`."""
        schema_id = wire_format.schema_id(data)
        indexes, position = wire_format.decode_indexes(data)
        made = self._message_type or self._class_of(schema_id, tuple(indexes))
        message = made()
        try:
            message.ParseFromString(data[position:])
        except require_schema_package("google.protobuf.message").DecodeError as error:
            raise SerializationError(f"invalid message of type {made.DESCRIPTOR.full_name}: {error}") from error
        return message

    def _class_of(self, schema_id: int, indexes: tuple[int, ...]) -> Any:
        if (schema_id, indexes) not in self._made:
            if self._registry is None:
                raise SerializationError(
                    "cannot read Protobuf records without a message class or a registry; pass message_type or registry"
                )
            self._made[schema_id, indexes] = message_class(self._registry, schema_id, indexes)
        return self._made[schema_id, indexes]


def message_class(registry: SchemaRegistry, schema_id: int, indexes: tuple[int, ...]) -> Any:
    """Create a class for one message type of a schema in the registry.

    :param indexes: the message indexes: the index of the top-level message, followed by the index of each nested
        message.
    :raises SerializationError: if the schema is not a Protobuf schema, or if it has no such message type.
    """
    return class_in_file(schema_file(registry, schema_id), schema_id, indexes)


def schema_file(registry: SchemaRegistry, schema_id: int) -> Any:
    """Return the descriptor of the file that a schema in the registry consists of.

    :raises SerializationError: if the schema is not a Protobuf schema.
    """
    pool = require_schema_package("google.protobuf.descriptor_pool").DescriptorPool()
    schema = registry.schema(schema_id, form="serialized")
    if schema.kind != PROTOBUF:
        raise SerializationError(f"schema {schema_id} is of type {schema.kind}, not PROTOBUF")
    known: set[str] = set()
    files = [*registry.dependencies(schema, form="serialized"), (f"{schema_id}.proto", schema.text)]
    try:
        for name, text in files:
            _add(pool, name, base64.b64decode(text), known)
        return pool.FindFileByName(files[-1][0])
    except (TypeError, ValueError, KeyError) as error:
        raise SerializationError(f"schema {schema_id} is no Protobuf file: {error!r}") from error


def class_in_file(file: Any, schema_id: int, indexes: tuple[int, ...]) -> Any:
    """Create a class for one message type of a file; see `message_class`."""
    try:
        descriptor = list(file.message_types_by_name.values())[indexes[0]]
        for index in indexes[1:]:
            descriptor = descriptor.nested_types[index]
    except IndexError as error:
        raise SerializationError(f"schema {schema_id} has no message at {list(indexes)}") from error
    return require_schema_package("google.protobuf.message_factory").GetMessageClass(descriptor)


def _add(pool: Any, name: str, content: bytes, known: set[str]) -> None:
    try:
        file = require_schema_package("google.protobuf.descriptor_pb2").FileDescriptorProto.FromString(content)
    except require_schema_package("google.protobuf.message").DecodeError as error:
        raise ValueError(f"{name} is not a file descriptor") from error
    file.name = name
    for imported in file.dependency:
        _add_built_in(pool, imported, known)
    if name not in known:
        pool.AddSerializedFile(file.SerializeToString())
        known.add(name)


def _add_built_in(pool: Any, name: str, known: set[str]) -> None:
    if name in known or not name.startswith(BUILT_IN):
        return
    module = name.removesuffix(".proto").replace("/", ".")
    descriptor = require_schema_package(f"{module}_pb2").DESCRIPTOR
    for imported in descriptor.dependencies:
        _add_built_in(pool, imported.name, known)
    pool.AddSerializedFile(descriptor.serialized_pb)
    known.add(name)


def _indexes(descriptor: Any) -> list[int]:
    """Return the message indexes of a type: the index of the top-level message, followed by the index of each nested
    message.
    """
    outer = descriptor.containing_type
    siblings = list(outer.nested_types if outer is not None else descriptor.file.message_types_by_name.values())
    names = [each.full_name for each in siblings]
    own = names.index(descriptor.full_name)
    return [own] if outer is None else [*_indexes(outer), own]

"""The serializer and deserializer of JSON records with a schema. They put the schema id before each record."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from barnabas.errors import SerializationError
from barnabas.serialization import wire_format
from barnabas.serialization.extras import require_schema_package
from barnabas.serialization.registry_client import JSON, Schema, SchemaReference, SchemaRegistry
from barnabas.serialization.schema_id_resolver import SchemaIdResolver
from barnabas.serialization.subject_names import SubjectName, by_topic


def _validator(registry: SchemaRegistry, schema: Schema) -> Any:
    """Return the validator of a schema. A schema without `$schema` is validated as draft 7."""
    jsonschema, referencing = require_schema_package("jsonschema"), require_schema_package("referencing")
    contents = json.loads(schema.text)
    kind = jsonschema.validators.validator_for(contents, default=jsonschema.Draft7Validator)
    specification = require_schema_package("referencing.jsonschema").DRAFT7
    resources = [
        (name, referencing.Resource.from_contents(json.loads(text), default_specification=specification))
        for name, text in registry.dependencies(schema)
    ]
    return kind(contents, registry=referencing.Registry().with_resources(resources))


def _check(validator: Any, value: Any) -> None:
    error = next(validator.iter_errors(value), None)
    if error is not None:
        raise SerializationError(f"the value does not fit its schema at {error.json_path}: {error.message}")


class JsonSerializer:
    """A serializer that encodes values as JSON with a schema id.

    :param schema: the schema as text or as a JSON object.
    :param to_dict: converts a value to an object that `json.dumps` takes; None if `json.dumps` takes the values
        themselves.
    :param validate: True to reject a value that does not fit the schema.
    The other parameters are described at `AvroSerializer`.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | dict[str, Any],
        *,
        references: tuple[SchemaReference, ...] = (),
        to_dict: Callable[[Any], Any] | None = None,
        validate: bool = True,
        subject_name: SubjectName = by_topic,
        auto_register: bool = True,
        use_latest: bool = False,
        normalize: bool = False,
    ) -> None:
        self._schema = Schema(schema if isinstance(schema, str) else json.dumps(schema), JSON, references)
        self._registering = SchemaIdResolver(registry, subject_name, auto_register, use_latest, normalize)
        self._to_dict = to_dict
        self._validate = validate
        self._validators: dict[Schema, Any] = {}
        contents = json.loads(self._schema.text)
        self._type_name = str(contents.get("title", "")) if isinstance(contents, dict) else ""

    def serialize(self, value: Any, topic: str, is_key: bool = False) -> bytes:
        """Return the encoded record with the schema id before it. The errors are those of `AvroSerializer`."""
        schema_id, schema = self._registering.resolve(topic, is_key, self._type_name, self._schema)
        plain = self._to_dict(value) if self._to_dict else value
        if self._validate:
            if schema not in self._validators:
                self._validators[schema] = _validator(self._registering.registry, schema)
            _check(self._validators[schema], plain)
        try:
            return wire_format.header(schema_id) + json.dumps(plain, ensure_ascii=False).encode()
        except (TypeError, ValueError) as error:
            raise SerializationError(f"the value cannot be encoded as JSON: {error}") from error


class JsonDeserializer:
    """A deserializer that decodes JSON records to objects.

    :param from_dict: converts the decoded JSON object to the returned value; None to return the JSON object.
    :param validate: True to validate each record with its writer's schema.
    """

    def __init__(
        self, registry: SchemaRegistry, *, from_dict: Callable[[Any], Any] | None = None, validate: bool = False
    ) -> None:
        self._registry = registry
        self._from_dict = from_dict
        self._validate = validate
        self._validators: dict[int, Any] = {}

    def deserialize(self, data: bytes, topic: str = "", is_key: bool = False) -> Any:
        """Return the decoded record. The errors are those of `AvroDeserializer.deserialize`."""
        schema_id = wire_format.schema_id(data)
        try:
            found = json.loads(data[wire_format.HEADER_BYTES :])
        except (ValueError, RecursionError) as error:
            raise SerializationError(f"invalid JSON: {error}") from error
        if self._validate:
            if schema_id not in self._validators:
                self._validators[schema_id] = _validator(self._registry, self._registry.schema(schema_id))
            _check(self._validators[schema_id], found)
        return self._from_dict(found) if self._from_dict else found

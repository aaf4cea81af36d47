"""Parses schemas by their type."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.registry.schema_types.schema import NESTING_MAX, Schema, SchemaSyntaxError
from barnabas.registry.state import AVRO, JSON, PROTOBUF, Content


def parse(content: Content, dependencies: Sequence[tuple[str, str]]) -> Schema:
    """Return the parsed schema.

    :param dependencies: name and text of all direct and indirect references, each after its own dependencies.
    :raises SchemaSyntaxError: the text is not a valid schema of its type.
    """
    # Import the library of a schema type only on demand, because most registries use only one type.
    try:
        if content.schema_type == AVRO:
            from barnabas.registry.schema_types.avro import AvroSchema  # noqa: PLC0415

            return AvroSchema(content.text, dependencies)
        if content.schema_type == JSON:
            from barnabas.registry.schema_types.json_schema import JsonSchema  # noqa: PLC0415

            return JsonSchema(content.text, dependencies)
        if content.schema_type == PROTOBUF:
            from barnabas.registry.schema_types.protobuf import ProtobufSchema  # noqa: PLC0415

            return ProtobufSchema(content.text, dependencies)
    except RecursionError as error:
        raise SchemaSyntaxError(f"the schema is nested more than {NESTING_MAX} deep") from error
    except SchemaSyntaxError:
        raise
    except Exception as error:  # any other error of a library also means an invalid schema
        raise SchemaSyntaxError(f"the schema cannot be parsed: {type(error).__name__}: {error}") from error
    raise SchemaSyntaxError(f"unknown schema type {content.schema_type}; the types are AVRO, JSON and PROTOBUF")

"""Parses the text of a schema by its type."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.registry.schema_types.schema import NESTING_MAX, Schema, SchemaSyntaxError
from barnabas.registry.state import AVRO, JSON, PROTOBUF, Content


def parse(content: Content, dependencies: Sequence[tuple[str, str]]) -> Schema:
    """Return the parsed schema.

    :param dependencies: name and text of what it refers to, directly or not; each after those that it needs itself.
    :raises SchemaSyntaxError: it is no schema of its kind.
    """
    # Each kind has a library of its own to import; most registries know one kind only.
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
        raise SchemaSyntaxError(f"it is nested more than {NESTING_MAX} deep") from error
    except SchemaSyntaxError:
        raise
    except Exception as error:  # an error of a library that its kind does not foresee
        raise SchemaSyntaxError(f"it cannot be parsed: {type(error).__name__}: {error}") from error
    raise SchemaSyntaxError(f"schemas of type {content.schema_type} are not known, but AVRO, JSON and PROTOBUF are")

"""JSON Schemas: validated against their meta-schema, and compared by the values they accept
(`json_compatibility.py`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import jsonschema
import jsonschema.validators

from barnabas.registry.records import compact_json, decode_json
from barnabas.registry.schema_types.json_compatibility import incompatibilities
from barnabas.registry.schema_types.json_references import Document
from barnabas.registry.schema_types.schema import Schema, SchemaSyntaxError


class JsonSchema:
    """A parsed JSON Schema; without `$schema` it is draft 7, as in Confluent's registry."""

    def __init__(self, text: str, dependencies: Sequence[tuple[str, str]]) -> None:
        self._data = _decode(text)
        validator = jsonschema.validators.validator_for(self._data, default=jsonschema.Draft7Validator)
        try:
            validator.check_schema(self._data)
        except jsonschema.SchemaError as error:
            raise SchemaSyntaxError(f"{error.json_path}: {error.message}") from error
        others = {name: _decode(dependency) for name, dependency in dependencies}
        self._document = Document(self._data, others)

    @cached_property
    def text(self) -> str:
        """The schema without white space, with attributes in their original order."""
        return compact_json(self._data)

    @cached_property
    def normalized(self) -> str:
        """The schema without white space, with attributes in alphabetical order."""
        return json.dumps(self._data, separators=(",", ":"), ensure_ascii=False, sort_keys=True)

    def read_incompatibilities(self, writer: Schema) -> list[str]:
        """Return the reasons why this schema may reject values that `writer` accepts."""
        assert isinstance(writer, JsonSchema)
        return incompatibilities(self._document, writer._document)


def _decode(text: str) -> Any:
    try:
        data = decode_json(text)
    except ValueError as error:
        raise SchemaSyntaxError(f"invalid JSON: {error}") from error
    if not isinstance(data, (dict, bool)):
        raise SchemaSyntaxError(f"a JSON Schema must be an object, true or false, not {data!r}")
    return data

"""A schema registry that answers from a list, for tests without sockets."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import fastavro

from barnabas.serialization import wire_format
from barnabas.serialization.registry_client import Schema, SchemaRegistry


def registry_of(*schemas: Schema | dict[str, Any]) -> SchemaRegistry:
    """Return a registry that has these schemas, with ids from 1; a dict is an Avro schema."""
    known = [each if isinstance(each, Schema) else Schema(json.dumps(each)) for each in schemas]

    def answer(
        url: str, _method: str, _body: bytes | None, _headers: Mapping[str, str], _timeout_s: float
    ) -> tuple[int, bytes, Mapping[str, str]]:
        path = url.partition("?")[0]
        number = int(path.removesuffix("/versions").rpartition("/")[2])
        if not 1 <= number <= len(known):
            return 404, b'{"error_code":40403,"message":"Schema not found"}', {}
        if path.endswith("/versions"):
            return 200, json.dumps([{"subject": f"subject-{number}", "version": 1}]).encode(), {}
        return 200, json.dumps(known[number - 1].as_json()).encode(), {}

    return SchemaRegistry("http://registry", transport=answer)


def avro_record(schema_id: int, schema: dict[str, Any], value: Any) -> bytes:
    """Return a record as a serialiser writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return wire_format.header(schema_id) + out.getvalue()

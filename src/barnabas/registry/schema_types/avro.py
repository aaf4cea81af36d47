"""Avro schemas: parsed and compared by Apache Avro's Python library, and written in the same form as by Avro's Java
library.

The form matters: Confluent's registry treats two schemas as equal if the Java library writes the same text for both.
Serializers look up schemas by this text.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import avro.compatibility
import avro.errors
import avro.name
import avro.schema

from barnabas.registry.records import compact_json, decode_json
from barnabas.registry.schema_types.schema import NESTING_MAX, Schema, SchemaSyntaxError

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED_ATTRIBUTES = {
    "record": ("doc", "fields"),
    "error": ("doc", "fields"),
    "enum": ("doc", "symbols", "default"),
    "fixed": ("doc", "size"),
}
_RESERVED = frozenset({"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"})
"""Attributes that Avro reserves for some kinds of types. The Java library drops them in other kinds of types."""
_FIELD_ATTRIBUTES = ("name", "type", "doc", "default", "order", "aliases")


class AvroSchema:
    """A parsed Avro schema."""

    def __init__(self, text: str, dependencies: Sequence[tuple[str, str]]) -> None:
        self._data = _decode(text)
        names = avro.name.Names()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the specification ignores invalid logical types
                for _name, dependency in dependencies:
                    avro.schema.make_avsc_object(_decode(dependency), names)
                self.parsed = avro.schema.make_avsc_object(self._data, names)
        except (avro.errors.AvroException, TypeError, ValueError, KeyError, AttributeError) as error:
            raise SchemaSyntaxError(str(error)) from error

    @cached_property
    def text(self) -> str:
        """The schema as the Java library writes it: with the library's order of attributes, and without redundant
        namespaces."""
        return compact_json(_written(self._data, "", lambda props: props))

    @cached_property
    def normalized(self) -> str:
        """The text with the attributes unknown to Avro in alphabetical order."""
        return compact_json(_written(self._data, "", lambda props: dict(sorted(props.items()))))

    def read_incompatibilities(self, writer: Schema) -> list[str]:
        """Return the reasons why this schema cannot read data of `writer`, by Avro's schema resolution."""
        assert isinstance(writer, AvroSchema)
        checker = avro.compatibility.ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call, unused-ignore]
        result = checker.get_compatibility(self.parsed, writer.parsed)
        if result.compatibility is avro.compatibility.SchemaCompatibilityType.compatible:
            return []
        where = ", ".join(sorted(result.locations)) or "/"
        reasons = sorted(result.messages) or [str(kind.value) for kind in result.incompatibilities]
        return [f"{reason} (at {where})" for reason in reasons]


def _decode(text: str) -> Any:
    try:
        data = decode_json(text)
    except ValueError as error:
        # A bare type name is not JSON, but Java's parser accepts it.
        if text.strip() in PRIMITIVES:
            return text.strip()
        raise SchemaSyntaxError(f"invalid JSON: {error}") from error
    _check_depth(data, 0)
    return data


def _check_depth(data: Any, depth: int) -> None:
    if depth > 2 * NESTING_MAX:
        raise RecursionError
    for each in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        _check_depth(each, depth + 1)


Arrange = Callable[[dict[str, Any]], dict[str, Any]]


def _written(data: Any, space: str, arrange: Arrange) -> Any:
    """Return a schema as the Java library writes it inside a namespace."""
    if isinstance(data, list):
        return [_written(each, space, arrange) for each in data]
    if isinstance(data, str):
        return _reference(data, space)
    kind = data.get("type")
    if kind in _NAMED_ATTRIBUTES:
        return _written_named(data, kind, space, arrange)
    if kind in ("array", "map"):
        content = "items" if kind == "array" else "values"
        known = {"type": kind, content: _written(data.get(content), space, arrange)}
        return known | arrange(_others(data, ("type", content)))
    others = arrange(_others(data, ("type",)))
    if isinstance(kind, str) and others:
        return {"type": _reference(kind, space), **others}
    return _written(kind, space, arrange)


def _reference(name: str, space: str) -> str:
    outside, dot, inside = name.rpartition(".")
    return inside if dot and outside == space else name


def _written_named(data: dict[str, Any], kind: str, space: str, arrange: Arrange) -> dict[str, Any]:
    outside, dot, name = str(data.get("name")).rpartition(".")
    own = outside if dot else data.get("namespace", space) or ""
    written: dict[str, Any] = {"type": kind, "name": name}
    if own != space:
        written["namespace"] = own
    for attribute in _NAMED_ATTRIBUTES[kind]:
        if attribute == "fields":
            written["fields"] = [_written_field(each, own, arrange) for each in data.get("fields", ())]
        elif data.get(attribute) is not None:
            written[attribute] = data[attribute]
    known = ("type", "name", "namespace", "aliases", *_NAMED_ATTRIBUTES[kind])
    written |= arrange(_others(data, known))
    if data.get("aliases"):
        written["aliases"] = data["aliases"]
    return written


def _written_field(field: dict[str, Any], space: str, arrange: Arrange) -> dict[str, Any]:
    written = {"name": field["name"], "type": _written(field["type"], space, arrange)}
    if field.get("doc") is not None:
        written["doc"] = field["doc"]
    if "default" in field:
        written["default"] = field["default"]
    if field.get("order", "ascending") != "ascending":
        written["order"] = field["order"]
    if field.get("aliases"):
        written["aliases"] = field["aliases"]
    return written | arrange({name: value for name, value in field.items() if name not in _FIELD_ATTRIBUTES})


def _others(data: dict[str, Any], known: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in known and name not in _RESERVED}

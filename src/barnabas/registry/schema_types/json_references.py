"""Resolves `$ref` in JSON Schemas: references within the document, to an `$id`, to an anchor, or to another document.

A reference is resolved against the base URI of its schema (draft 7, section 8.2; draft 2020-12, section 8.2.1). If a
document has no `$id`, its base URI is the name by which other schemas refer to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urljoin

JsonValue = Any

REFERENCES_MAX = 50
"""The maximum length of a chain of references; longer chains are regarded as circular."""
_VALUES = ("enum", "const", "default", "examples", "example")
"""Keywords that contain plain values. An `$id` in such a value does not name a schema."""


@dataclass(frozen=True, slots=True)
class Document:
    """A schema with the schemas that it refers to, by name."""

    root: JsonValue
    others: Mapping[str, JsonValue]
    _places: dict[str, tuple[JsonValue, str]] = field(default_factory=dict, compare=False, repr=False)
    """Each schema with its base URI, by its own URI. URIs of anchors end with `#name`."""

    def __post_init__(self) -> None:
        self._places[""] = (self.root, _own_base(self.root, ""))
        self._index(self.root, "")
        for name, other in self.others.items():
            base = _split(name)[0]
            self._places.setdefault(base, (other, _own_base(other, base)))
            self._index(other, base)

    def _index(self, root: JsonValue, base: str) -> None:
        for schema, outer in _subschemas(root, base):
            own = _own_base(schema, outer)
            if own != outer:
                self._places.setdefault(own, (schema, own))
            for anchor in _anchors(schema):
                self._places.setdefault(f"{own}#{anchor}", (schema, own))

    @property
    def whole(self) -> Part:
        """The root schema of the document."""
        return Part(*self._places[""], self)

    def is_same(self, other: Document) -> bool:
        """Return whether both documents are equal, ignoring the order of keywords."""
        return _written(self) == _written(other)

    def find(self, reference: str, base: str) -> Part | None:
        """Return the schema that a reference points to; None if it does not exist.

        :param base: the base URI of the schema with the reference.
        """
        name, fragment = _split(reference)
        wanted = _joined(base, name) if name else base
        if wanted not in self._places:
            wanted = name  # a reference may also contain the literal name of another document
        if name and wanted not in self._places:
            return None
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            wanted, fragment = f"{wanted}#{fragment}", ""
        found = self._places.get(wanted)
        return None if found is None else _at_pointer(Part(*found, self), fragment)


@dataclass(frozen=True, slots=True)
class Part:
    """A schema within a document, and the base URI of its references."""

    schema: JsonValue
    base: str
    document: Document

    def sub(self, schema: JsonValue) -> Part:
        """Return another schema of the same document."""
        return Part(schema, _own_base(schema, self.base), self.document)

    def changed(self, schema: JsonValue) -> Part:
        """Return a schema with changed keywords and the same base URI."""
        return Part(schema, self.base, self.document)

    def get(self, keyword: str, default: JsonValue = None) -> JsonValue:
        """Return the value of a keyword; the default if the keyword is missing, or if the schema is `true` or
        `false`."""
        return self.schema.get(keyword, default) if isinstance(self.schema, dict) else default

    def has(self, *keywords: str) -> bool:
        """Return whether the schema has one of these keywords."""
        return isinstance(self.schema, dict) and any(keyword in self.schema for keyword in keywords)

    def without(self, *keywords: str) -> dict[str, JsonValue]:
        """Return the schema without some of its keywords."""
        return {name: value for name, value in self.schema.items() if name not in keywords}

    @property
    def accepts_nothing(self) -> bool:
        """True if the schema is `false` or equivalent to it."""
        return self.schema is False or self.schema in ({"not": True}, {"not": {}})

    @property
    def accepts_all(self) -> bool:
        """True if the schema is `true` or `{}`."""
        return self.schema is True or self.schema == {}

    def resolved(self) -> Part | None:
        """Return the schema that a `$ref` points to, or this schema if it has no `$ref`; None if the target does not
        exist."""
        part, seen = self, 0
        while isinstance(part.schema, dict) and isinstance(part.schema.get("$ref"), str):
            found = part.document.find(part.schema["$ref"], part.base)
            seen += 1
            if found is None or seen > REFERENCES_MAX:
                return None
            part = found
        return part


def _written(document: Document) -> str:
    # Compare values as JSON text, because 1 and true are equal in Python.
    return json.dumps([document.root, document.others], sort_keys=True)


def _at_pointer(part: Part, pointer: str) -> Part | None:
    found, base = part.schema, part.base
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and len(key) < 10 and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
        base = _own_base(found, base)
    return Part(found, base, part.document) if isinstance(found, dict | bool) else None


def _subschemas(root: JsonValue, base: str) -> Iterator[tuple[dict[str, JsonValue], str]]:
    """Yield every object that may be a schema, with the base URI that applies there."""
    waiting = [(root, base)]
    while waiting:
        found, outer = waiting.pop()
        if isinstance(found, dict):
            yield found, outer
            own = _own_base(found, outer)
            waiting += [(each, own) for name, each in found.items() if name not in _VALUES or _is_schema_map(found)]
        elif isinstance(found, list):
            waiting += [(each, outer) for each in found]


def _is_schema_map(found: dict[str, JsonValue]) -> bool:
    """Return whether an object may map names to schemas, so that `default` is a name and not a keyword."""
    return all(isinstance(each, dict | bool) for each in found.values())


def _own_base(schema: JsonValue, outer: str) -> str:
    own = _id_of(schema)
    return outer if own is None else _joined(outer, own)


def _id_of(schema: JsonValue) -> str | None:
    """Return `$id`, or draft 4's `id`, without its fragment; None if there is none, or if it is only an anchor."""
    if not isinstance(schema, dict):
        return None
    given = schema.get("$id", schema.get("id"))
    return _split(given)[0] or None if isinstance(given, str) else None


def _anchors(schema: dict[str, JsonValue]) -> Iterator[str]:
    for keyword in ("$anchor", "$dynamicAnchor"):
        if isinstance(anchor := schema.get(keyword), str):
            yield anchor
    given = schema.get("$id", schema.get("id"))
    if isinstance(given, str) and (anchor := _split(given)[1]):
        yield anchor


def _split(uri: str) -> tuple[str, str]:
    name, _, fragment = uri.partition("#")
    return name, fragment


def _joined(base: str, name: str) -> str:
    try:
        return urljoin(base, name)
    except ValueError:  # the base or the reference is not a valid URI
        return name

"""Checks whether one JSON Schema accepts all values that another one accepts. All compatibility levels use this check.

The check compares keyword by keyword and is conservative: keywords that it cannot evaluate (`not`, `if`,
`propertyNames` and others) may stay or be removed. If a change adds or alters such a keyword, the check reports an
incompatibility.

Like Confluent's registry, the check distinguishes open and closed objects. A new property of an open object may meet
existing values of another type, so it is incompatible. With `additionalProperties` false it is compatible.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from barnabas.registry.schema_types.json_references import Document, JsonValue, Part

ALL_TYPES = frozenset({"null", "boolean", "object", "array", "number", "string"})
LOWER_BOUNDS = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains")
UPPER_BOUNDS = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains")
NOT_JUDGED = (
    "not",
    "if",
    "then",
    "else",
    "propertyNames",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedProperties",
    "unevaluatedItems",
    "$dynamicRef",
    "$recursiveRef",
)
SAME_OR_ABSENT = ("pattern", "format", "contentEncoding", "contentMediaType")
WORK_MAX = 20_000
"""The maximum number of comparisons of subschemas. If two schemas need more, they are too large to compare."""


def incompatibilities(reader: Document, writer: Document) -> list[str]:
    """Return the reasons why `reader` rejects values that `writer` accepts; empty if there are none.

    >>> closed = {"type": "object", "properties": {"page": {"type": "string"}}, "additionalProperties": False}
    >>> wider = {**closed, "properties": {"page": {"type": "string"}, "number": {"type": "integer"}}}
    >>> incompatibilities(Document(wider, {}), Document(closed, {}))
    []
    >>> incompatibilities(Document(closed, {}), Document(wider, {}))
    ['#/properties/number: the property is no longer accepted']
    """
    if reader.is_same(writer):
        return []
    try:
        return list(_Comparison().compare(reader.whole, writer.whole, "#"))
    except _NotComparedError as error:
        return [str(error)]
    except _TooMuchError:
        return ["#: the schemas are too large to be compared"]


class _TooMuchError(Exception):
    """A comparison exceeds WORK_MAX."""


class _NotComparedError(Exception):
    """A keyword has a value that cannot be compared."""


class _Comparison:
    """One comparison of two schemas."""

    def __init__(self) -> None:
        self._under_way: set[tuple[int, int]] = set()
        self._work = 0

    def compare(self, reader: Part, writer: Part, where: str) -> Iterator[str]:
        """Yield the reasons why the reader may reject values that the writer accepts."""
        self._work += 1
        if self._work > WORK_MAX:
            raise _TooMuchError
        if reader.accepts_all or writer.accepts_nothing:
            return
        found_reader, found_writer = reader.resolved(), writer.resolved()
        if found_reader is None or found_writer is None:
            if found_reader is found_writer and reader.get("$ref") == writer.get("$ref"):
                return  # both schemas refer to the same unknown schema
            yield f"{where}: a $ref points to a schema that does not exist"
            return
        pair = (id(found_reader.schema), id(found_writer.schema))
        if pair in self._under_way:  # a recursive schema: compatible if all other parts are compatible
            return
        self._under_way.add(pair)
        try:
            yield from self._compare_resolved(found_reader, found_writer, where)
        finally:
            self._under_way.discard(pair)

    def _accepts(self, reader: Part, writer: Part, where: str) -> bool:
        return next(self.compare(reader, writer, where), None) is None

    def _compare_resolved(self, reader: Part, writer: Part, where: str) -> Iterator[str]:
        if reader.accepts_all or writer.accepts_nothing:
            return
        if reader.accepts_nothing:
            yield f"{where}: no value is accepted any longer"
        elif writer.has("anyOf", "oneOf"):
            rest = writer.without("anyOf", "oneOf")
            for branch in [*writer.get("anyOf", ()), *writer.get("oneOf", ())]:
                part = writer.sub(branch)
                if isinstance(branch, dict) and not rest.keys() & branch.keys():
                    part = part.changed({**rest, **branch})
                yield from self.compare(reader, part, where)
        elif reader.has("allOf"):
            for part in _parts_of_all(reader):
                yield from self.compare(part, writer, where)
        elif writer.has("allOf"):
            if not any(self._accepts(reader, part, where) for part in _parts_of_all(writer)):
                yield f"{where}: no part of allOf accepts all values accepted before"
        elif reader.has("anyOf", "oneOf"):
            branches = [*reader.get("anyOf", ()), *reader.get("oneOf", ())]
            if not any(self._accepts(reader.sub(each), writer, where) for each in branches):
                yield f"{where}: none of {len(branches)} alternatives accepts all values accepted before"
            yield from self.compare(reader.changed(reader.without("anyOf", "oneOf")), writer, where)
        else:
            yield from self._compare_keywords(reader, writer, where)

    def _compare_keywords(self, reader: Part, writer: Part, where: str) -> Iterator[str]:
        allowed, before = _enumerated(reader), _enumerated(writer)
        if allowed is not None:
            if before is None:
                yield f"{where}: now only certain values are accepted"
            elif before - allowed:
                yield f"{where}: values are no longer accepted: {', '.join(sorted(before - allowed))}"
            return
        if narrowed := _types(writer) - _types(reader):
            yield f"{where}: values of type {', '.join(sorted(narrowed))} are no longer accepted"
            return
        yield from _compare_limits(reader, writer, where)
        if "object" in _types(writer):
            yield from self._compare_objects(reader, writer, where)
        if "array" in _types(writer):
            yield from self._compare_arrays(reader, writer, where)

    def _compare_objects(self, reader: Part, writer: Part, where: str) -> Iterator[str]:
        now, before = reader.get("properties", {}), writer.get("properties", {})
        others_now, others_before = reader.get("additionalProperties", True), writer.get("additionalProperties", True)
        for name in before:
            place = f"{where}/properties/{name}"
            if name in now:
                yield from self.compare(reader.sub(now[name]), writer.sub(before[name]), place)
            elif others_now is False and before[name] is not False:
                yield f"{place}: the property is no longer accepted"
            else:
                yield from self.compare(reader.sub(others_now), writer.sub(before[name]), place)
        for name in now.keys() - before.keys():
            if not self._accepts(reader.sub(now[name]), writer.sub(others_before), where):
                yield (
                    f"{where}/properties/{name}: the property is new, but the object was open and may have it with"
                    " another type"
                )
        yield from self.compare(reader.sub(others_now), writer.sub(others_before), f"{where}/additionalProperties")
        if reader.get("patternProperties") != writer.get("patternProperties") and (
            reader.has("patternProperties") or not reader.sub(others_now).accepts_all
        ):
            yield f"{where}/patternProperties: the keyword differs, and its effect cannot be compared"
        demanded = [name for name in reader.get("required", ()) if name not in writer.get("required", ())]
        for name in sorted(demanded):
            if not reader.sub(now.get(name)).has("default"):
                yield f"{where}/required/{name}: it was not required"

    def _compare_arrays(self, reader: Part, writer: Part, where: str) -> Iterator[str]:
        now, rest_now = _items(reader)
        before, rest_before = _items(writer)
        for index in range(max(len(now), len(before))):
            yield from self.compare(
                reader.sub(now[index] if index < len(now) else rest_now),
                writer.sub(before[index] if index < len(before) else rest_before),
                f"{where}/items/{index}",
            )
        yield from self.compare(reader.sub(rest_now), writer.sub(rest_before), f"{where}/items")


def _parts_of_all(part: Part) -> list[Part]:
    """Return the schemas of `allOf`, and a schema of the keywords next to it."""
    return [*map(part.sub, part.get("allOf")), part.changed(part.without("allOf"))]


def _enumerated(part: Part) -> set[str] | None:
    """Return the values of `const` or `enum` as JSON; None if the schema has neither."""
    if part.has("const"):
        return {json.dumps(part.get("const"), sort_keys=True)}
    return {json.dumps(each, sort_keys=True) for each in part.get("enum")} if part.has("enum") else None


def _types(part: Part) -> set[str]:
    """Return the types that a schema accepts; `number` includes `integer` as a separate type."""
    if (values := _enumerated(part)) is not None and not part.has("type"):
        return {_type_of(json.loads(each)) for each in values}
    given = part.get("type", ALL_TYPES)
    if isinstance(given, dict) or (isinstance(given, list) and not all(isinstance(each, str) for each in given)):
        raise _NotComparedError("#: types that are schemas (draft 3) are not supported")
    types = {given} if isinstance(given, str) else set(given)
    return types | {"integer"} if "number" in types else types


def _type_of(value: JsonValue) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def _items(part: Part) -> tuple[list[JsonValue], JsonValue]:
    """Return the schemas of the first items and the schema of all others, in the notation of any draft."""
    items = part.get("items", True)
    if part.has("prefixItems"):
        return part.get("prefixItems"), items
    return (items, part.get("additionalItems", True)) if isinstance(items, list) else ([], items)


def _compare_limits(reader: Part, writer: Part, where: str) -> Iterator[str]:
    for keyword in (*LOWER_BOUNDS, *UPPER_BOUNDS):
        now, before = reader.get(keyword), writer.get(keyword)
        if now is None or isinstance(now, bool) or (now == 0 and keyword.startswith("min") and keyword != "minimum"):
            continue
        if before is None or isinstance(before, bool):
            yield f"{where}/{keyword}: there was no such limit"
        elif now > before if keyword in LOWER_BOUNDS else now < before:
            yield f"{where}/{keyword}: {now} is narrower than {before} was"
    for keyword in SAME_OR_ABSENT:
        if reader.has(keyword) and reader.get(keyword) != writer.get(keyword):
            yield f"{where}/{keyword}: it differs"
    if reader.has("multipleOf"):
        before = writer.get("multipleOf")
        if not isinstance(before, (int, float)) or before % reader.get("multipleOf"):
            yield f"{where}/multipleOf: not all values are multiples"
    if reader.get("uniqueItems", False) and not writer.get("uniqueItems", False):
        yield f"{where}/uniqueItems: items were allowed to repeat"
    for keyword in NOT_JUDGED:
        if reader.has(keyword) and reader.get(keyword) != writer.get(keyword):
            yield f"{where}/{keyword}: the keyword differs, and its effect cannot be compared"

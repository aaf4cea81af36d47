"""The types of an Avro schema, with the Arrow type of the encoded value and the type of the table column.

The *physical* type is the Arrow type of the encoded value: an `int` with logical type `date` is an int32. The column
type is the type that a table shows: in this example, a date. `avro_codec.py` converts between bytes and physical types,
`avro_conversion.py` between physical and column types.

    int long float double boolean string bytes      columns of the same names; bytes and fixed are `binary`
    date, timestamp-*, local-timestamp-*            date, timestamp, timestamp_ntz; decimal to 38 digits: decimal
    enum, uuid                                      string
    record, array, map                              struct, list, map
    [null, T]                                       the column of T; all columns are nullable
    a union of several types                        a struct with one field per branch, named after its type

These have no column: null, recursive records, records without fields, types nested deeper than tables allow, and
structs whose field names differ in case only. A time of day (time-*) and a duration keep their physical types.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from barnabas.errors import SerializationError
from barnabas.formats.column_types import DECIMAL_DIGITS, STRUCT_DEPTH_MAX, ColumnType, is_good_struct
from barnabas.formats.field_aliases import Aliases
from barnabas.serialization.registry_client import AVRO, Schema, SchemaRegistry

TYPES_MAX = 5_000
"""The maximum number of types of a schema. With nested references to named types, a schema can grow exponentially."""

_PRIMITIVES: Mapping[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_LOGICAL_COLUMNS = {
    ("int", "date"): "date",
    **{("long", f"timestamp-{unit}"): "timestamp" for unit in ("millis", "micros", "nanos")},
    **{("long", f"local-timestamp-{unit}"): "timestamp_ntz" for unit in ("millis", "micros", "nanos")},
}
_COLUMNS = {"bytes": "binary", "fixed": "binary", "enum": "string"}
_UNDECIDED = object()


@dataclass(frozen=True, slots=True)
class AvroType:
    """A type of a schema.

    :param kind: a primitive, `record`, `enum`, `fixed`, `array`, `map`, `union`, or `again` for a reference to an
        enclosing record.
    :param written: the type's JSON without logical types and defaults, as the codecs need it.
    :param name: the full name of a named type.
    :param logical: the logical type; "" if the type has none.
    :param null_at: the index of null in the union that makes the type nullable; None if the type is not nullable.
    :param fields: the fields of a record; the branches of a union by their column names; `items` of an array; `values`
        of a map.
    :param aliases: the aliases of a record's fields, each with the name of its field.
    :param symbols: the symbols of an enum.
    :param size: the size of a fixed, in bytes.
    :param decimal: the precision and scale of a decimal, in digits.
    :param is_hidden: True if the field of this type has no column, because another field already uses the column's
        name.
    :param defaults: the defaults of a record's fields as JSON values.
    """

    kind: str
    written: Any
    name: str = ""
    logical: str = ""
    null_at: int | None = None
    fields: Mapping[str, AvroType] | None = None
    aliases: Mapping[str, str] | None = None
    symbols: tuple[str, ...] = ()
    size: int = 0
    decimal: tuple[int, int] | None = None
    is_hidden: bool = False
    defaults: Mapping[str, Any] | None = None

    @property
    def inner(self) -> Mapping[str, AvroType]:
        """The nested types by name."""
        return self.fields or {}

    @property
    def is_nullable(self) -> bool:
        return self.null_at is not None

    def walk(self) -> Iterator[AvroType]:
        """Yield this type and all nested types."""
        yield self
        for each in self.inner.values():
            yield from each.walk()

    def physical(self) -> pa.DataType:
        """Return the Arrow type of the encoded value. All parts of it are nullable."""
        if self.kind in ("record", "union"):
            return pa.struct([pa.field(name, each.physical()) for name, each in self.inner.items()])
        if self.kind == "array":
            return pa.list_(pa.field("item", self.inner["items"].physical()))
        if self.kind == "map":
            return pa.map_(pa.string(), self.inner["values"].physical())
        if self.kind == "fixed":
            return pa.binary()
        return pa.string() if self.kind == "enum" else _PRIMITIVES.get(self.kind, pa.null())

    def column(self, depth: int = 0) -> ColumnType | None:
        """Return the type of the column, or None if this type has no column."""
        if depth > STRUCT_DEPTH_MAX or self.kind in ("null", "again") or self.is_hidden:
            return None
        if self.kind in ("record", "union"):
            found = {name: column for name, each in self.inner.items() if (column := each.column(depth + 1))}
            return found if is_good_struct(found) else None
        if self.kind in ("array", "map"):
            item = next(iter(self.inner.values())).column(depth + 1)
            if item is None:
                return None
            return [item] if self.kind == "array" else ["string", item]
        if self.decimal:
            return f"decimal({self.decimal[0]},{self.decimal[1]})"
        return _LOGICAL_COLUMNS.get((self.kind, self.logical)) or _COLUMNS.get(self.kind, self.kind)

    def declared_aliases(self) -> Aliases:
        """Return the aliases that the schema declares."""
        if self.kind in ("array", "map"):
            return next(iter(self.inner.values())).declared_aliases()
        within = {name: inner for name, each in self.inner.items() if (inner := each.declared_aliases())}
        return Aliases(self.aliases or {}, within)

    def with_column_names(self, aliases: Aliases, depth: int = 0) -> AvroType:
        """Return the type with the field names of the table's column. The encoding stays the same.

        :param aliases: the table's aliases for fields within this column.
        """
        if not aliases:
            return self
        if self.kind in ("array", "map"):
            return replace(
                self, fields={part: each.with_column_names(aliases, depth + 1) for part, each in self.inner.items()}
            )
        names = aliases.targets([name for name, each in self.inner.items() if each.column(depth + 1)])
        taken = set(names.values())
        fields: dict[str, AvroType] = {}
        for name, each in self.inner.items():
            now = names.get(name)
            if now is not None:
                fields[now] = each.with_column_names(aliases.of(now), depth + 1)
                continue
            free = name
            while free in taken or free in fields:
                free = f".{free}"
            fields[free] = replace(each, is_hidden=each.column(depth + 1) is not None)
        return replace(self, fields=fields)

    def has_columns_for_all(self, column: ColumnType, depth: int = 0) -> bool:
        """Return whether a column type has a separate field for each nested field."""
        if self.kind in ("array", "map"):
            return not isinstance(column, list) or next(iter(self.inner.values())).has_columns_for_all(
                column[-1], depth + 1
            )
        if not isinstance(column, dict):
            return True
        return all(
            not each.is_hidden
            and (
                each.column(depth + 1) is None or (name in column and each.has_columns_for_all(column[name], depth + 1))
            )
            for name, each in self.inner.items()
        )


def avro_type(registry: SchemaRegistry, schema: Schema) -> AvroType:
    """Parse a schema into a tree of types, with all references resolved.

    :raises SerializationError: if the schema is not an Avro schema, or if it has too many types.
    :raises TimedOutError: if no registry responds.
    """
    if schema.kind != AVRO:
        raise SerializationError(f"the schema is of type {schema.kind}, not AVRO")
    try:
        reading = _Reading()
        for _, text in registry.dependencies(schema):
            reading.note(_parsed(text), "")
        parsed = _parsed(schema.text)
        reading.note(parsed, "")
        tree = reading.tree(parsed, "", ())
        _check_sizes(tree)
    except RecursionError as error:
        raise SerializationError("the schema is nested too deep") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SerializationError(f"invalid Avro schema: {error!r}") from error
    return tree


def _parsed(text: str) -> Any:
    return json.loads(text) if text.lstrip()[:1] in ("{", "[", '"') else text.strip()


class _Reading:
    """The parser of one schema. It tracks the named types, and which of them are already defined in its output."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Any, str]] = {}
        self._written: set[str] = set()
        self._count = 0

    def note(self, data: Any, space: str) -> None:
        """Record the named types of a schema."""
        if isinstance(data, list):
            for each in data:
                self.note(each, space)
        elif isinstance(data, dict):
            kind = data.get("type")
            if kind in ("record", "error", "enum", "fixed"):
                name = full_name(data, space)
                self._known[name] = (data, space)
                space = name.rpartition(".")[0]
            for each in data.get("fields", ()):
                self.note(each["type"], space)
            for part in ("items", "values", "type"):
                if isinstance(data.get(part), dict | list):
                    self.note(data[part], space)

    def tree(self, data: Any, space: str, within: tuple[str, ...]) -> AvroType:
        """Return the tree of a type.

        :param space: the enclosing namespace.
        :param within: the full names of the enclosing records.
        """
        self._count += 1
        if self._count > TYPES_MAX:
            raise ValueError(f"the schema has more than {TYPES_MAX} types")
        if isinstance(data, str):
            return self._named(data, space, within)
        if isinstance(data, list):
            return self._union(data, space, within)
        kind = data["type"]
        if isinstance(kind, dict | list):
            return self.tree(kind, space, within)
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            inner = self.tree(data[part], space, within)
            return AvroType(kind, {"type": kind, part: inner.written}, fields={part: inner})
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(data, space, within)
        plain = self._named(kind, space, within)
        return _with_logical(plain, data) if kind in _PRIMITIVES else plain

    def _named(self, name: str, space: str, within: tuple[str, ...]) -> AvroType:
        if name in _PRIMITIVES:
            return AvroType(name, name)
        whole = name if "." in name or f"{space}.{name}" not in self._known else f"{space}.{name}"
        if whole in within:
            return AvroType("again", whole, whole)
        data, outer = self._known[whole]
        return self._definition(data, outer, within)

    def _definition(self, data: Mapping[str, Any], space: str, within: tuple[str, ...]) -> AvroType:
        name = full_name(data, space)
        if name in within:
            raise ValueError(f"{name} is defined within itself")
        is_first = name not in self._written
        self._written.add(name)
        if data["type"] == "fixed":
            size = int(data["size"])
            plain = AvroType("fixed", {"type": "fixed", "name": name, "size": size}, name, size=size)
            return _as_reference(_with_logical(plain, data), is_first)
        if data["type"] == "enum":
            symbols = tuple(map(str, data["symbols"]))
            choice = {"type": "enum", "name": name, "symbols": list(symbols)}
            return _as_reference(AvroType("enum", choice, name, symbols=symbols), is_first)
        inner = name.rpartition(".")[0]
        fields = {str(each["name"]): self.tree(each["type"], inner, (*within, name)) for each in data["fields"]}
        aliases = {
            str(alias): str(each["name"])
            for each in data["fields"]
            for alias in each.get("aliases", ())
            if alias not in fields
        }
        if len(fields) != len(data["fields"]):
            raise ValueError(f"{name} has two fields of the same name")
        plain_fields = [{"name": field, "type": each.written} for field, each in fields.items()]
        written = {"type": "record", "name": name, "fields": plain_fields}
        defaults = {str(each["name"]): each["default"] for each in data["fields"] if "default" in each}
        record = AvroType("record", written, name, fields=fields, aliases=aliases, defaults=defaults)
        return _as_reference(record, is_first)

    def _union(self, branches: list[Any], space: str, within: tuple[str, ...]) -> AvroType:
        trees = [self.tree(each, space, within) for each in branches]
        written = [each.written for each in trees]
        null_at = next((number for number, each in enumerate(trees) if each.kind == "null"), None)
        others = [each for each in trees if each.kind != "null"]
        if not others:
            return AvroType("null", written)
        if len(others) == 1:
            return replace(others[0], written=written, null_at=null_at)
        return AvroType("union", written, null_at=null_at, fields=_named_branches(others))


def full_name(data: Mapping[str, Any], space: str) -> str:
    """Return the full name of a type."""
    name = str(data["name"])
    own = data.get("namespace", space)
    return name if "." in name or not own else f"{own}.{name}"


def _named_branches(branches: list[AvroType]) -> dict[str, AvroType]:
    """Return the branches of a union by their column names. The namespace is omitted if the names are distinct without
    it.
    """
    short = [each.name.rpartition(".")[2] or each.kind for each in branches]
    names = short if len(set(short)) == len(short) else [each.name.replace(".", "_") or each.kind for each in branches]
    if len(set(names)) < len(branches):
        raise ValueError("a union has two branches of the same type")
    return dict(zip(names, branches, strict=True))


def _with_logical(plain: AvroType, data: Mapping[str, Any]) -> AvroType:
    logical = data.get("logicalType")
    if not isinstance(logical, str):
        return plain
    decimal = None
    if logical == "decimal" and plain.kind in ("bytes", "fixed"):
        precision, scale = data.get("precision"), data.get("scale", 0)
        if isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision <= DECIMAL_DIGITS:
            decimal = (precision, scale) if precision else None
    return AvroType(
        plain.kind, plain.written, plain.name, logical, size=plain.size, symbols=plain.symbols, decimal=decimal
    )


def _as_reference(tree: AvroType, is_first: bool) -> AvroType:
    """Return the definition of a named type at its first use, and its name at later uses."""
    return tree if is_first else replace(tree, written=tree.name)


def is_empty_on_wire(tree: AvroType) -> bool:
    """Return whether the encoding of a type's values is always empty."""
    if tree.kind == "fixed":
        return tree.size == 0
    return tree.kind == "null" or (tree.kind == "record" and all(map(is_empty_on_wire, tree.inner.values())))


def _check_sizes(tree: AvroType) -> None:
    """Reject arrays whose items have an empty encoding, because a record of ten bytes could declare 2^60 items."""
    for each in tree.walk():
        if each.kind == "array" and not each.inner["items"].is_nullable and is_empty_on_wire(each.inner["items"]):
            raise SerializationError("cannot decode arrays whose items take no bytes")

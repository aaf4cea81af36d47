"""Limits for the records that fastavro decodes.

fastavro reads nested values in C without a limit. A record of a recursive schema could overflow the stack, which ends
the process, and with a schema of many nulls a few bytes could claim more values than fit into memory. `RecordLimits`
walks through such a record before fastavro reads it. Other records cost nothing: the schema alone bounds their values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.errors import SerializationError

DEPTH_MAX = 400
"""The maximum depth of nested types in a schema, and of nested values in a record."""
VALUES_MAX = 10_000_000
"""The maximum number of values in a record."""
_WIDTHS = {"boolean": 1, "float": 4, "double": 8}
_TOO_DEEP = f"the schema has more than {DEPTH_MAX} levels of nested types"
_TOO_DEEP_VALUES = f"the record has more than {DEPTH_MAX} levels of nested values"


def check_depth(schema: Any) -> None:
    """Check the depth of a schema's JSON before fastavro parses it, which is recursive.

    :raises SerializationError: the schema is nested too deep.
    """
    level, depth = [schema], 0
    while level:
        depth += 1
        if depth > 2 * DEPTH_MAX:  # a nested field takes two levels: a list of fields, and the field
            raise SerializationError(_TOO_DEEP)
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]


class RecordLimits:
    """The limits for the records of one schema.

    :param parsed: the schema as fastavro has parsed it.
    :param named: the named types by their full names.
    :param values_max: the maximum number of values in a record.
    :raises SerializationError: the schema has too many levels, or no finite record.
    """

    def __init__(self, parsed: Any, named: Mapping[str, Any], values_max: int = VALUES_MAX) -> None:
        self._parsed = parsed
        self._named = named
        self._values_max = values_max
        self._known: dict[str, tuple[int, int]] = {}
        self._is_recursive = False
        self._item_size = 0
        try:
            self._size, height = self._extent(parsed, {})
        except RecursionError:
            height = DEPTH_MAX + 1
        if height > DEPTH_MAX:
            raise SerializationError(_TOO_DEEP)

    def check(self, data: bytes, position: int) -> None:
        """Check a record, if the schema alone does not bound it.

        :param position: the position of the first byte after the header.
        :raises SerializationError: the record has too many values or levels, or ends early.
        """
        most = self._size + self._item_size * max(len(data) - position, 0)
        if self._is_recursive or most > self._values_max:
            try:
                _Walk(data, self._named, self._values_max).skip(self._parsed, position, 0)
            except IndexError:
                raise SerializationError("the record ends before its last field") from None
            except RecursionError:
                raise SerializationError(_TOO_DEEP_VALUES) from None

    def _extent(self, kind: Any, within: Mapping[str, bool]) -> tuple[int, int]:
        """Return the number of values and of levels in a value of a type, without the items of arrays and maps.

        :param within: the records around the type. True if a record occurs again only in some of its values.
        """
        if isinstance(kind, str):
            return self._named_extent(kind, within)
        if isinstance(kind, list):
            return self._most(kind, dict.fromkeys(within, True))
        if kind["type"] in ("record", "error"):
            name = str(kind["name"])
            inner = {**within, name: False}
            size, height = 1, 0
            for field in kind["fields"]:
                of_field = self._extent(field["type"], inner)
                size, height = size + of_field[0], max(height, of_field[1])
            self._known[name] = size, height + 1
            return size, height + 1
        if kind["type"] in ("array", "map"):
            item, height = self._most(
                [kind["items" if kind["type"] == "array" else "values"]], dict.fromkeys(within, True)
            )
            self._item_size = max(self._item_size, item)
            return 1, height
        if isinstance(kind["type"], dict | list) or kind["type"] in self._named:
            return self._extent(kind["type"], within)
        return 1, 1

    def _named_extent(self, name: str, within: Mapping[str, bool]) -> tuple[int, int]:
        if name not in self._named:
            return 1, 1
        if name in within:
            if not within[name]:
                raise SerializationError(f"each record of {name} would contain another one")
            self._is_recursive = True
            return 1, 1
        if name not in self._known:
            self._known[name] = self._extent(self._named[name], within)
        return self._known[name]

    def _most(self, kinds: list[Any], within: Mapping[str, bool]) -> tuple[int, int]:
        size = height = 1
        for each in kinds:
            of_kind = self._extent(each, within)
            size, height = max(size, of_kind[0]), max(height, of_kind[1])
        return size, height + 1


class _Walk:
    """A walk through the bytes of a record. It checks only what the limits need; fastavro checks the values."""

    def __init__(self, data: bytes, named: Mapping[str, Any], values_max: int) -> None:
        self._data = data
        self._named = named
        self._left = values_max

    def skip(self, kind: Any, position: int, depth: int) -> int:
        """Return the position after a value.

        :raises SerializationError: the value exceeds a limit, or its bytes are invalid.
        :raises IndexError: the record ends early.
        """
        self._left -= 1
        if self._left < 0:
            raise SerializationError("the record has too many values")
        if depth > DEPTH_MAX:
            raise SerializationError(_TOO_DEEP_VALUES)
        while isinstance(kind, str) and kind in self._named:
            kind = self._named[kind]
        if isinstance(kind, list):
            index, position = self._number(position)
            if not 0 <= index < len(kind):
                raise SerializationError("a union's index is out of range")
            return self.skip(kind[index], position, depth + 1)
        name = kind if isinstance(kind, str) else kind["type"]
        if isinstance(name, dict | list) or name in self._named:
            return self.skip(name, position, depth + 1)
        if name in ("record", "error"):
            for field in kind["fields"]:
                position = self.skip(field["type"], position, depth + 1)
            return position
        if name in ("array", "map"):
            return self._skip_items(kind, position, depth)
        return self._skip_plain(kind, name, position)

    def _skip_items(self, kind: Any, position: int, depth: int) -> int:
        while True:
            count, position = self._number(position)
            if count == 0:
                return position
            if count < 0:
                count = -count
                _, position = self._number(position)
            for _ in range(count):
                if kind["type"] == "map":
                    position = self._skip_plain("string", "string", position)
                    position = self.skip(kind["values"], position, depth + 1)
                else:
                    position = self.skip(kind["items"], position, depth + 1)

    def _skip_plain(self, kind: Any, name: str, position: int) -> int:
        if name == "null":
            return position
        if name in ("int", "long", "enum"):
            return self._number(position)[1]
        if name in ("string", "bytes"):
            size, position = self._number(position)
            if size < 0:
                raise SerializationError("a length is negative")
        else:
            size = int(kind["size"]) if name == "fixed" else _WIDTHS.get(name, 0)
        if size > len(self._data) - position:
            raise IndexError
        return position + size

    def _number(self, position: int) -> tuple[int, int]:
        value = shift = 0
        while shift < 70:
            byte = self._data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), position
            shift += 7
        raise SerializationError("a number has more than 10 bytes")

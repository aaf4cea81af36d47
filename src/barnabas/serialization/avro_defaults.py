"""The conversion of field defaults from JSON to Avro values. This module does no I/O.

A default of type bytes has one character per byte. In Avro 1.12, the default of a union may belong to any branch;
earlier versions require the first branch. The first branch that accepts the default is used. The default of a record
contains all of its fields.
"""

from __future__ import annotations

from typing import Any

from barnabas.serialization.avro_types import AvroType

_OF_JSON: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("int", "long"), int),
    **dict.fromkeys(("float", "double"), (int, float)),
    **dict.fromkeys(("string", "enum", "bytes", "fixed"), str),
    **dict.fromkeys(("record", "map"), dict),
    "array": list,
    "boolean": bool,
}
_BITS = {"int": 32, "long": 64}


def encode_default(tree: AvroType, default: Any) -> Any:
    """Return a default as the Python value from which Arrow builds the physical type.

    :raises ValueError: if the default does not fit the type.

    >>> encode_default(AvroType("bytes", "bytes"), "\u00ff"), encode_default(AvroType("long", "long"), 7)
    (b'\xff', 7)
    """
    if default is None and (tree.is_nullable or tree.kind == "null"):
        return None
    if tree.kind == "union":
        for name, branch in tree.inner.items():
            if _takes(branch, default):
                return {name: encode_default(branch, default)}
        raise ValueError("no branch of the union accepts the default")
    if not _takes(tree, default):
        raise ValueError(f"the default is not of type {tree.kind}")
    return _within(tree, default)


def _within(tree: AvroType, default: Any) -> Any:
    """Convert a default and its nested values. The default must fit the type."""
    if tree.kind in ("bytes", "fixed"):
        return default.encode("latin-1")
    if tree.kind == "array":
        return [encode_default(tree.inner["items"], each) for each in default]
    if tree.kind == "map":
        return [(key, encode_default(tree.inner["values"], each)) for key, each in default.items()]
    if tree.kind == "record":
        return {name: encode_default(each, default.get(name)) for name, each in tree.inner.items()}
    return default


def _takes(tree: AvroType, default: Any) -> bool:
    """Return whether a default has the JSON type that the Avro type requires, and is within its limits. Nested values
    are not checked.
    """
    if isinstance(default, bool) and tree.kind != "boolean":
        return False
    if not isinstance(default, _OF_JSON.get(tree.kind, ())):
        return False
    if isinstance(default, int) and tree.kind in _BITS:
        return bool(-(2 ** (_BITS[tree.kind] - 1)) <= default < 2 ** (_BITS[tree.kind] - 1))
    if not isinstance(default, str) or tree.kind == "string":
        return True
    if tree.kind == "enum":
        return default in tree.symbols
    has_size = tree.kind == "bytes" or len(default) == tree.size
    return has_size and all(ord(letter) < 256 for letter in default)

"""Records as text for people: JSON and decoded values as a tree, all else as text with visible control characters.

A record is untrusted. The templates escape all of it; this module makes characters visible that change how other text
looks, and bounds the size of what a page shows.
"""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from datetime import date, time
from typing import Any

from barnabas.console.record_decoding import Decoded

SHOWN_CHARACTERS_MAX = 2_000
TREE_BYTES_MAX = 64 * 1024
TREE_NODES_MAX = 500
TREE_DEPTH_MAX = 20

_VISIBLE = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
"""The Unicode categories of characters that have no shape, or that change the direction of text."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A key or a value as a page shows it.

    :ivar text: a part of the text, with visible control characters.
    :ivar tree: the JSON of the value, or None if it is not JSON, or too large.
    :ivar is_cut: True if `text` is only the beginning.
    :ivar decoded: the value as decoded with a schema, or the reason why it was not; None without a schema id.
    """

    text: str
    size: int
    tree: Branch | None = None
    is_cut: bool = False
    is_null: bool = False
    decoded: Decoded | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    """A node of a JSON value.

    :ivar text: a scalar, or the number of entries.
    """

    name: str
    text: str
    children: tuple[Branch, ...] = ()


def shown(data: bytes | None, decoded: Decoded | None = None, *, characters_max: int = SHOWN_CHARACTERS_MAX) -> Shown:
    """Return a key or a value for a page.

    :param decoded: the result of decoding; None for data without a schema id.

    >>> shown(b"caf\\xc3\\xa9").text, shown(b"\\xff").text, shown(None).is_null
    ('café', '\\\\xff', True)
    """
    if data is None:
        return Shown("null", 0, is_null=True)
    if decoded is not None and not decoded.problem:
        text, is_cut = _json_text(decoded.value, characters_max)
        tree = _Tree().branch("", decoded.value, 0) if isinstance(decoded.value, dict | list) else None
        return Shown(text, len(data), tree, is_cut, decoded=decoded)
    part = bytes(data[: 4 * characters_max])
    text = visible(part.decode("utf-8", "backslashreplace"))
    is_cut = len(text) > characters_max or len(part) < len(data)
    return Shown(text[:characters_max], len(data), tree_of(data), is_cut, decoded=decoded)


def visible(text: str) -> str:
    """Return a text in which characters without a shape are escaped. Line ends and tabs stay.

    >>> visible("a\\u202eb\\x00")
    'a\\\\u202eb\\\\x00'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(each) if unicodedata.category(each) in _VISIBLE else each for each in text)


def _escaped(character: str) -> str:
    if character in "\n\t":
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def tree_of(data: bytes) -> Branch | None:
    """Return a JSON object or array as a tree of at most `TREE_NODES_MAX` nodes; None for anything else."""
    if len(data) > TREE_BYTES_MAX or data[:1] not in (b"{", b"["):
        return None
    try:
        value = json.loads(bytes(data))
    except (ValueError, RecursionError):
        return None
    return _Tree().branch("", value, 0)


class _Tree:
    def __init__(self) -> None:
        self._left = TREE_NODES_MAX

    def branch(self, name: str, value: Any, depth: int) -> Branch:
        self._left -= 1
        if not isinstance(value, dict | list):
            return Branch(name, visible(scalar_text(value))[:SHOWN_CHARACTERS_MAX])
        entries = list(value.items() if isinstance(value, dict) else enumerate(value))
        children: list[Branch] = []
        if depth < TREE_DEPTH_MAX:
            for key, each in entries:
                if self._left <= 0:
                    break
                children.append(self.branch(visible(str(key))[:200], each, depth + 1))
        kind = "{}" if isinstance(value, dict) else "[]"
        more = "" if len(children) == len(entries) else f", {len(entries) - len(children)} not shown"
        return Branch(name, f"{kind[0]}{len(entries)}{kind[1]}{more}", tuple(children))


def _json_text(value: Any, characters_max: int) -> tuple[str, bool]:
    """Return the beginning of a decoded value as JSON, and whether it is only the beginning."""
    parts: list[str] = []
    left = characters_max
    try:
        for part in _ENCODER.iterencode(value):
            parts.append(part[: left + 1])
            left -= len(part)
            if left < 0:
                break
    except RecursionError:
        left = -1
    return visible("".join(parts))[:characters_max], left < 0


def scalar_text(value: Any) -> str:
    """Return a scalar as JSON. Avro has further types: bytes, decimals, and times.

    >>> scalar_text(True), scalar_text("a"), scalar_text(b"\\xff\\x00"), scalar_text(b"a")
    ('true', '"a"', '"0xff00"', '"a"')
    """
    return _ENCODER.encode(value)


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return f"0x{value.hex()}"
        return text if text.isprintable() else f"0x{value.hex()}"
    return str(value.isoformat()) if isinstance(value, date | time) else str(value)


_ENCODER = json.JSONEncoder(ensure_ascii=False, default=_as_text)


def equals_text(value: Any, text: str) -> bool:
    """Return whether a value has a text, as Python or as JSON writes it.

    >>> equals_text(7, "7"), equals_text(True, "true"), equals_text("a", "a"), equals_text(None, "null")
    (True, True, True, False)
    """
    try:
        return value is not None and text in (str(value), scalar_text(value).strip('"'))
    except RecursionError:
        return False


def json_of(data: bytes | None) -> Any:
    """Return the value of a JSON text; None if the data is no JSON."""
    try:
        return json.loads(bytes(data or b""))
    except (ValueError, RecursionError):
        return None


def at_path(value: Any, path: str) -> Any:
    """Return the value at a path such as `user.ids.0`; None if there is none.

    >>> at_path({"user": {"ids": [7]}}, "user.ids.0")
    7
    """
    found = value
    try:
        for part in path.split("."):
            found = found[int(part)] if isinstance(found, list) else found[part]
    except (ValueError, LookupError, TypeError):
        return None
    return found

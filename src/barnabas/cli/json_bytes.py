"""Bytes in JSON, whose strings are text: as text where they are UTF-8, and as base64 under a name that says so."""

from __future__ import annotations

from base64 import b64encode


def bytes_field(name: str, data: bytes | None) -> dict[str, str | None]:
    r"""Return `name` with the bytes as text; where they are not UTF-8, `name` with `_base64` and their base64.

    >>> bytes_field("key", b"member-42"), bytes_field("key", None), bytes_field("key", b"\xff\x00")
    ({'key': 'member-42'}, {'key': None}, {'key_base64': '/wA='})
    """
    try:
        return {name: None if data is None else data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": _base64(data or b"")}


def bytes_value(data: bytes | None) -> str | dict[str, str] | None:
    r"""Return the bytes for a place that has no name, such as a header's value; an object where they are not UTF-8.

    >>> bytes_value(b"web"), bytes_value(None), bytes_value(b"\xff\x00")
    ('web', None, {'base64': '/wA='})
    """
    try:
        return None if data is None else data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": _base64(data or b"")}


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")

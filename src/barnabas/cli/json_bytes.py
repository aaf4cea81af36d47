"""Bytes as JSON: a string if the bytes are UTF-8, otherwise base64 in a field with another name."""

from __future__ import annotations

from base64 import b64encode


def bytes_field(name: str, data: bytes | None) -> dict[str, str | None]:
    r"""Return `name` with the bytes as text, or `name` with the suffix `_base64` if they are not UTF-8.

    >>> bytes_field("key", b"member-42"), bytes_field("key", None), bytes_field("key", b"\xff\x00")
    ({'key': 'member-42'}, {'key': None}, {'key_base64': '/wA='})
    """
    try:
        return {name: None if data is None else data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": _base64(data or b"")}


def bytes_value(data: bytes | None) -> str | dict[str, str] | None:
    r"""Return the bytes as a JSON value without a name, such as a header's value: text, or an object with base64.

    >>> bytes_value(b"web"), bytes_value(None), bytes_value(b"\xff\x00")
    ('web', None, {'base64': '/wA='})
    """
    try:
        return None if data is None else data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": _base64(data or b"")}


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")

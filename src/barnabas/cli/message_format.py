"""The output formats of `barnabas consume`: kcat's format strings (`-f`), or one JSON object per line (`-J`).

A format is compiled once into a list of parts, which render each record to bytes. The module does no I/O. Keys, values
and header values are printed as raw bytes.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from barnabas.cli.escapes import ESCAPES
from barnabas.cli.json_bytes import bytes_field, bytes_value
from barnabas.cli.terminal_text import escaped_bytes, escaped_json
from barnabas.model import Headers, TimestampType
from barnabas.records import Record

DEFAULT_FORMAT = r"%s\n"

FORMAT_HELP = (
    "%t topic, %p partition, %o offset, %T timestamp in ms, %k key, %s value, %h headers, "
    r"%K and %S the lengths of key and value (-1: null), %R that of the value as 4 bytes, "
    r"%% a percent sign, \n, \t, \r, \0, \xHH"
)

NULL = b"NULL"
"""The output for a null key or value, to distinguish it from an empty one."""

Part = bytes | Callable[[Record], bytes]

_TOKEN = re.compile(r"%(?P<field>.?)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.?)|(?P<text>[^%\\]+)", re.DOTALL)
_BINARY_LENGTH = struct.Struct(">i")


def _length(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


def _headers_text(headers: Headers) -> bytes:
    return b",".join(name.encode() + b"=" + (NULL if value is None else value) for name, value in headers)


_FIELDS: dict[str, Part] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp_ms,
    "k": lambda record: record.key or b"",
    "K": lambda record: _length(record.key),
    "s": lambda record: record.value or b"",
    "S": lambda record: _length(record.value),
    "R": lambda record: _BINARY_LENGTH.pack(-1 if record.value is None else len(record.value)),
    "h": lambda record: _headers_text(record.headers),
    "%": b"%",
}

_FIELDS_WITH_NULL: dict[str, Part] = {
    **_FIELDS,
    "k": lambda record: NULL if record.key is None else record.key,
    "s": lambda record: NULL if record.value is None else record.value,
}


_FROM_RECORDS = ("k", "s", "h", "R")


def _for_terminal(part: Part) -> Part:
    return escaped_bytes(part) if isinstance(part, bytes) else lambda record: escaped_bytes(part(record))


def compile_format(text: str, *, show_null: bool = False, for_terminal: bool = False) -> Callable[[Record], bytes]:
    r"""Return the function that renders a record in the format `text` (see FORMAT_HELP).

    :param show_null: print a null key or value as NULL instead of nothing.
    :param for_terminal: escape control characters in keys, values and headers (see `terminal_text`).
    :raises ValueError: `text` has an unknown field or escape.

    >>> record = Record("clicks", 1, 7, 1700, TimestampType.CREATE_TIME, b"k", None, ())
    >>> compile_format(r"%t[%p]@%o %k=%s (%S)\n")(record)
    b'clicks[1]@7 k= (-1)\n'
    """
    fields = _FIELDS_WITH_NULL if show_null else _FIELDS
    if for_terminal:
        fields = {**fields, **{name: _for_terminal(fields[name]) for name in _FROM_RECORDS}}
    parts = [_part(match, fields) for match in _TOKEN.finditer(text)]
    return lambda record: b"".join([part if isinstance(part, bytes) else part(record) for part in parts])


def plain_format(key_delimiter: str | None, delimiter: str) -> str:
    r"""Return the format that prints values, preceded by their keys if a key delimiter is given.

    >>> plain_format(":", r"\n")
    '%k:%s\\n'
    """
    key = "" if key_delimiter is None else "%k" + key_delimiter.replace("%", "%%")
    return f"{key}%s{delimiter.replace('%', '%%')}"


def _part(match: re.Match[str], fields: Mapping[str, Part]) -> Part:
    if (field := match["field"]) is not None:
        if field not in fields:
            raise ValueError(f"unknown field %{field} in the format; the fields are {FORMAT_HELP}")
        return fields[field]
    if (code := match["hex"]) is not None:
        return bytes([int(code, 16)])
    if (escape := match["escape"]) is not None:
        if escape not in ESCAPES:
            raise ValueError(rf"unknown escape \{escape} in the format; the format has {FORMAT_HELP}")
        return ESCAPES[escape]
    return match["text"].encode()


def json_line(record: Record, decoded: Mapping[str, Any] = MappingProxyType({})) -> bytes:
    r"""Return the record as one line of JSON with the field names of `kcat -J`.

    :param decoded: decoded JSON values, which replace the fields `key` and `payload`.

    A key or value that is not UTF-8 has the field `key_base64` or `payload_base64` instead; such a header value is an
    object, `{"base64": ...}`. So the output loses no data, and a JSON null always means a null in the record.
    """
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "tstype": "create" if record.timestamp_type == TimestampType.CREATE_TIME else "logappend",
        "ts": record.timestamp_ms,
        "headers": [item for name, value in record.headers for item in (name, bytes_value(value))],
        **({"key": decoded["key"]} if "key" in decoded else bytes_field("key", record.key)),
        **({"payload": decoded["payload"]} if "payload" in decoded else bytes_field("payload", record.value)),
    }
    return escaped_json(json.dumps(fields, ensure_ascii=False, separators=(",", ":"))).encode() + b"\n"

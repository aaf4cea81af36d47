"""How `barnabas consume` prints a record: kcat's format strings (`-f`), or one JSON object a line (`-J`).

Pure: a format is compiled once into a list of parts, and each record is rendered to bytes. Keys, values and
header values pass through as the bytes they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from barnabas.model import Headers, TimestampType
from barnabas.records import Record

DEFAULT_FORMAT = r"%s\n"

FORMAT_HELP = (
    "%t topic, %p partition, %o offset, %T timestamp in ms, %k key, %s value, %h headers, "
    r"%K and %S the lengths of key and value (-1: null), %% a percent sign, \n, \t, \r, \xHH"
)

Part = bytes | Callable[[Record], bytes]

_TOKEN = re.compile(r"%(?P<field>.?)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.?)|(?P<text>[^%\\]+)", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def _length(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


def _headers_text(headers: Headers) -> bytes:
    return b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in headers)


_FIELDS: dict[str, Part] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp_ms,
    "k": lambda record: record.key or b"",
    "K": lambda record: _length(record.key),
    "s": lambda record: record.value or b"",
    "S": lambda record: _length(record.value),
    "h": lambda record: _headers_text(record.headers),
    "%": b"%",
}


def compile_format(text: str) -> Callable[[Record], bytes]:
    r"""Return the function that renders a record as the format `text` says (see FORMAT_HELP).

    :raises ValueError: `text` has a field or an escape that does not exist.

    >>> record = Record("clicks", 1, 7, 1700, TimestampType.CREATE_TIME, b"k", None, ())
    >>> compile_format(r"%t[%p]@%o %k=%s (%S)\n")(record)
    b'clicks[1]@7 k= (-1)\n'
    """
    parts = [_part(match) for match in _TOKEN.finditer(text)]
    return lambda record: b"".join([part if isinstance(part, bytes) else part(record) for part in parts])


def _part(match: re.Match[str]) -> Part:
    if (field := match["field"]) is not None:
        if field not in _FIELDS:
            raise ValueError(f"the format has no field %{field}; it has {FORMAT_HELP}")
        return _FIELDS[field]
    if (code := match["hex"]) is not None:
        return bytes([int(code, 16)])
    if (escape := match["escape"]) is not None:
        if escape not in _ESCAPES:
            raise ValueError(rf"the format has no escape \{escape}; it has {FORMAT_HELP}")
        return _ESCAPES[escape]
    return match["text"].encode()


def json_line(record: Record) -> bytes:
    r"""Return the record as one line of JSON, with the names that `kcat -J` uses.

    Bytes that are not UTF-8 come out as the escapes \udc80 to \udcff, one a byte (Python's surrogateescape),
    so nothing is lost on the way.
    """
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "tstype": "create" if record.timestamp_type == TimestampType.CREATE_TIME else "logappend",
        "ts": record.timestamp_ms,
        "headers": [item for name, value in record.headers for item in (name, _text(value))],
        "key": _text(record.key),
        "payload": _text(record.value),
    }
    line = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    return line.encode("utf-8", "backslashreplace") + b"\n"


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "surrogateescape")

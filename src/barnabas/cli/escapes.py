r"""Escapes for special bytes on the command line: `\n`, `\t`, `\r`, `\0`, `\\`, `\xHH`."""

from __future__ import annotations

import re

ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}

ESCAPE_HELP = r"\n, \t, \r, \0, \\ and \xHH"

_TOKEN = re.compile(r"\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.?)|(?P<text>[^\\]+)", re.DOTALL)


def unescape(text: str) -> bytes:
    r"""Return the bytes of `text` with its escapes replaced.

    :raises ValueError: an unknown escape.

    >>> unescape(r"a\t\x00")
    b'a\t\x00'
    """
    return b"".join(_piece(match) for match in _TOKEN.finditer(text))


def _piece(match: re.Match[str]) -> bytes:
    if (code := match["hex"]) is not None:
        return bytes([int(code, 16)])
    if (escape := match["escape"]) is not None:
        if escape not in ESCAPES:
            raise ValueError(rf"unknown escape \{escape}; the escapes are {ESCAPE_HELP}")
        return ESCAPES[escape]
    return match["text"].encode()

r"""Parses Java's properties files, the format of Kafka's `server.properties`.

The rules are those of `java.util.Properties.load`: comments begin with # or !, a line that ends with an odd number of
backslashes continues on the next line, and `=`, `:` or white space separates name and value. `\t`, `\n`, `\r`, `\f` and
`\uXXXX` are escapes, and a backslash before any other character stands for this character.
"""

from __future__ import annotations

import re

from barnabas.errors import ConfigurationError

_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_ENTRY = re.compile(r"(?P<name>(?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(?:u(?P<code>.{0,4})|(?P<letter>.?))", re.DOTALL)
_CODE = re.compile(r"[0-9A-Fa-f]{4}")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def decode_properties(data: bytes) -> str:
    """Return the text of a file: UTF-8, or ISO 8859-1 as in Java."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def parse_properties(text: str) -> dict[str, str]:
    r"""Return the values by name. As in Java, the last value of a name counts.

    :raises ConfigurationError: an escape is malformed. The message contains the line number, but no value.

    >>> parse_properties("# the broker\nbroker.id=1\nlog.dirs = /a,\\\n  /b\nrack=\\u0065ast\n")
    {'broker.id': '1', 'log.dirs': '/a,/b', 'rack': 'east'}
    """
    found: dict[str, str] = {}
    lines = iter(enumerate(_LINE_END.split(text), 1))
    for number, first in lines:
        line = first.lstrip(_BLANKS)
        if line.startswith(("#", "!")):
            continue
        parts = [line]
        while _continues(parts[-1]):
            parts[-1] = parts[-1][:-1]
            parts.append(next(lines, (0, ""))[1].lstrip(_BLANKS))
        match = _ENTRY.fullmatch("".join(parts))
        assert match is not None, "each part of the pattern may be empty"
        if match["name"]:
            found[_unescaped(match["name"], number)] = _unescaped(match["value"].rstrip(), number)
    return found


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str, line_number: int) -> str:
    def replace(match: re.Match[str]) -> str:
        code = match["code"]
        if code is None:
            return _ESCAPES.get(match["letter"], match["letter"])
        if not _CODE.fullmatch(code):
            raise ConfigurationError(rf"line {line_number}: \u needs four hexadecimal digits")
        return chr(int(code, 16))

    unescaped = _ESCAPED.sub(replace, text)
    # Java's characters are UTF-16 code units: two escapes may form one character.
    return unescaped.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")

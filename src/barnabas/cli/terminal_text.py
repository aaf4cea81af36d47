r"""Text for a terminal, with control characters as escapes.

Records, names and messages come from any client of the broker. Escape sequences in them could move the cursor, hide
lines, or type input. So all terminal output passes through this module. Output to files and programs stays unchanged.
"""

from __future__ import annotations

import re

_OTHERS = r"\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
"""Control characters above the first 32 of ASCII, and characters that change the text direction."""

_CONTROL = re.compile(rf"[\x00-\x1f{_OTHERS}]")
_CONTROL_IN_LINES = re.compile(rf"[\x00-\x08\x0b-\x1f{_OTHERS}]")
_CONTROL_IN_JSON = re.compile(rf"[{_OTHERS}]")


def with_noun(count: int, noun: str) -> str:
    """Return a count with its noun in singular or plural.

    >>> with_noun(1, "file"), with_noun(1_200, "file")
    ('1 file', '1,200 files')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def escaped(text: str) -> str:
    r"""Return one line of text with its control characters escaped.

    >>> print(escaped("a\x1b[2J\nb"))
    a\x1b[2J\nb
    """
    return text if text.isprintable() else _CONTROL.sub(_escape, text)


def escaped_lines(text: str) -> str:
    r"""Return several lines of text with control characters escaped, except line feeds and tabs.

    >>> print(escaped_lines("a\x1b[2J\nb"))
    a\x1b[2J
    b
    """
    return text if text.isprintable() else _CONTROL_IN_LINES.sub(_escape, text)


def escaped_bytes(data: bytes) -> bytes:
    r"""Return UTF-8 bytes of several lines with control characters and invalid bytes escaped.

    >>> print(escaped_bytes(b"\xc5\xbc\xff\x1b[2J").decode())
    ż\xff\x1b[2J
    """
    return escaped_lines(data.decode(errors="backslashreplace")).encode()


def escaped_json(text: str) -> str:
    r"""Return the same JSON with control characters escaped, except white space between tokens.

    >>> print(escaped_json('{"a": "\x9b2J"}'))
    {"a": "\u009b2J"}
    """
    return text if text.isprintable() else _CONTROL_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()

r"""What strangers wrote, as it may be shown on a terminal: with control characters, which it would obey, written out.

Records, names and messages come from anybody who reaches a broker. Escape sequences in them could move the cursor, hide
lines, or give the terminal other answers than a person's. So all that goes to a terminal goes through here; what goes
to a file or to another program stays as it is.
"""

from __future__ import annotations

import re

_OTHERS = r"\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
"""Control characters beyond ASCII's first ones, and those that change the direction of what follows."""

_CONTROL = re.compile(rf"[\x00-\x1f{_OTHERS}]")
_CONTROL_IN_LINES = re.compile(rf"[\x00-\x08\x0b-\x1f{_OTHERS}]")
_CONTROL_IN_JSON = re.compile(rf"[{_OTHERS}]")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural where that fits.

    >>> counted(1, "file"), counted(1_200, "file")
    ('1 file', '1,200 files')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def written_out(text: str) -> str:
    r"""Return a text of one line without control characters.

    >>> print(written_out("a\x1b[2J\nb"))
    a\x1b[2J\nb
    """
    return text if text.isprintable() else _CONTROL.sub(_escape, text)


def lines_written_out(text: str) -> str:
    r"""Do the same with what may have several lines, and tabs in them.

    >>> print(lines_written_out("a\x1b[2J\nb"))
    a\x1b[2J
    b
    """
    return text if text.isprintable() else _CONTROL_IN_LINES.sub(_escape, text)


def bytes_written_out(data: bytes) -> bytes:
    r"""Do the same with bytes, which should be UTF-8.

    >>> print(bytes_written_out(b"\xc5\xbc\xff\x1b[2J").decode())
    ż\xff\x1b[2J
    """
    return lines_written_out(data.decode(errors="backslashreplace")).encode()


def json_written_out(text: str) -> str:
    r"""Return JSON that means the same, in which no control character stands but the blanks between its tokens.

    >>> print(json_written_out('{"a": "\x9b2J"}'))
    {"a": "\u009b2J"}
    """
    return text if text.isprintable() else _CONTROL_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()

r"""The patterns of log lines: common formats by name, others as regular expressions with named groups.

Each group of a pattern is a column. Patterns run in RE2, whose time is linear in the length of the line, so no pattern
can block a load. RE2 rejects look-around and back references with an error.

A table does not keep a line that its columns can restore. So a pattern also has `Piece` objects, from which a line can
be composed. The pieces of a user's pattern are derived if there is only literal text between the groups; otherwise the
table keeps the lines. A composed line is always compared with the original.

The pieces of a named pattern never change, because existing tables depend on them. A changed notation gets a new name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.errors import ConfigurationError
from barnabas.formats.column_types import ColumnType

PATTERN_LETTERS_MAX = 10_000
TIME_GROUP = "time"
"""The name of the group that contains the line's time."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A group with the literal text around it.

    :param before: the text before the group.
    :param group: the name of the group.
    :param after: the text after the group.
    :param if_null: the text that replaces a null group; None if `before` and `after` are absent, too.
    """

    before: str
    group: str
    after: str = ""
    if_null: str | None = ""


@dataclass(frozen=True, slots=True)
class LinePattern:
    """A pattern of lines.

    :param expression: the regular expression.
    :param types: the known types of groups.
    :param pieces: the pieces that compose a line; None if they are unknown.
    """

    expression: str
    types: Mapping[str, ColumnType] = field(default_factory=dict)
    pieces: tuple[Piece, ...] | None = None

    @property
    def whole_line(self) -> str:
        """The RE2 expression that matches a whole line. A dot matches any character, including line breaks."""
        return f"(?s)^(?:{self.expression})$"

    @property
    def groups(self) -> list[str]:
        """The names of the groups in order."""
        return [part.name for part in pc.extract_regex(pa.array([""]), self.whole_line).type]


_QUOTED = r'[^"\\]*(?:\\.[^"\\]*)*'
_REQUEST = (
    r'"(?:(?P<method>[A-Z]+) (?P<path>[^ "\\]*(?:\\.[^ "\\]*)*) (?P<protocol>HTTP/[0-9.]+)'
    rf'|(?P<request>{_QUOTED}))"'
)
_COMMON = rf"(?P<host>\S+) (?P<ident>\S+) (?P<user>.+?) \[(?P<time>[^\]]+)\] {_REQUEST} (?P<status>\d+) (?P<size>\d+|-)"
_COMMON_PIECES = (
    Piece("", "host"),
    Piece(" ", "ident"),
    Piece(" ", "user"),
    Piece(" [", "time", '] "'),
    Piece("", "method", " ", None),
    Piece("", "path", " ", None),
    Piece("", "protocol", "", None),
    Piece("", "request"),
    Piece('" ', "status"),
    Piece(" ", "size", if_null="-"),
)
_STATUS_AND_SIZE: Mapping[str, ColumnType] = {"status": "long", "size": "long"}
_DAY_AND_CLOCK = r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"

NAMED_PATTERNS: Mapping[str, LinePattern] = {
    "common": LinePattern(_COMMON, _STATUS_AND_SIZE, _COMMON_PIECES),
    "combined": LinePattern(
        rf'{_COMMON} "(?P<referer>{_QUOTED})" "(?P<agent>{_QUOTED})"',
        _STATUS_AND_SIZE,
        (*_COMMON_PIECES, Piece(' "', "referer", '"'), Piece(' "', "agent", '"')),
    ),
    "syslog": LinePattern(
        rf"(?:<(?P<priority>\d{{1,3}})>)?(?P<time>{_DAY_AND_CLOCK}|\d{{4}}-\d\d-\d\dT\S+) (?P<host>\S+) "
        r"(?P<program>[^\s:\[]+)(?:\[(?P<pid>[^\]]*)\])?: (?P<message>.*)",
        {"priority": "long"},
        (
            Piece("<", "priority", ">", None),
            Piece("", "time"),
            Piece(" ", "host"),
            Piece(" ", "program"),
            Piece("[", "pid", "]", None),
            Piece(": ", "message"),
        ),
    ),
    "syslog5424": LinePattern(
        r"<(?P<priority>\d{1,3})>(?P<version>\d+) (?P<time>\S+) (?P<host>\S+) (?P<program>\S+) (?P<pid>\S+) "
        r'(?P<message_id>\S+) (?P<data>-|(?:\[(?:[^\]"\\]|"(?:[^"\\]|\\.)*"|\\.)*\])+)(?: (?P<message>.*))?',
        {"priority": "long", "version": "long", "pid": "string"},
        (
            Piece("<", "priority"),
            Piece(">", "version"),
            Piece(" ", "time"),
            Piece(" ", "host"),
            Piece(" ", "program"),
            Piece(" ", "pid"),
            Piece(" ", "message_id"),
            Piece(" ", "data"),
            Piece(" ", "message", "", None),
        ),
    ),
    "nginx-error": LinePattern(
        r"(?P<time>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d) \[(?P<level>\w+)\] (?P<pid>\d+)#(?P<tid>\d+): "
        r"(?:\*(?P<connection>\d+) )?(?P<message>.*)",
        {"pid": "long", "tid": "long", "connection": "long"},
        (
            Piece("", "time"),
            Piece(" [", "level"),
            Piece("] ", "pid"),
            Piece("#", "tid", ": "),
            Piece("*", "connection", " ", None),
            Piece("", "message"),
        ),
    ),
    "apache-error": LinePattern(
        r"\[(?P<time>[^\]]+)\] \[(?P<level>[^\]]+)\] (?:\[pid (?P<pid>\d+)(?::tid (?P<tid>\d+))?\] )?"
        r"(?:\[client (?P<client>[^\]]+)\] )?(?P<message>.*)",
        {"pid": "long", "tid": "long"},
        (
            Piece("[", "time"),
            Piece("] [", "level", "] "),
            Piece("[pid ", "pid", "", None),
            Piece(":tid ", "tid", "] ", None),
            Piece("[client ", "client", "] ", None),
            Piece("", "message"),
        ),
    ),
}


def line_pattern(text: str) -> LinePattern:
    r"""Return a named pattern, or the pattern of a regular expression with named groups.

    :raises ConfigurationError: if the text is neither a named pattern nor such an expression. The message contains the
        reason.

    >>> line_pattern(r"(?P<level>[A-Z]+) (?P<message>.*)").pieces
    (Piece(before='', group='level', after='', if_null='-'), Piece(before=' ', group='message', after='', if_null='-'))
    """
    if text in NAMED_PATTERNS:
        return NAMED_PATTERNS[text]
    names = ", ".join(NAMED_PATTERNS)
    if len(text) > PATTERN_LETTERS_MAX:
        raise ConfigurationError(f"lines: the pattern has {len(text)} characters; the maximum is {PATTERN_LETTERS_MAX}")
    expression = re.sub(r"\(\?<(?=[A-Za-z_])", "(?P<", text)
    if "(?P<" not in expression:
        raise ConfigurationError(
            f"lines: {text!r} is not a pattern: use {names}, or a regular expression with named groups such as "
            r"'lines:(?P<level>[A-Z]+) (?P<message>.*)'"
        )
    pattern = LinePattern(expression, {}, _pieces(expression))
    try:
        groups = pattern.groups
    except pa.ArrowInvalid as error:
        raise ConfigurationError(_pattern_error(text, str(error))) from error
    twice = sorted({name for name in groups if groups.count(name) > 1})
    if twice:
        raise ConfigurationError(f"lines: the pattern has two groups with the name {twice[0]!r}")
    return pattern


def _pattern_error(text: str, error: str) -> str:
    if "unnamed groups" in error:
        error = "each group needs a name, (?P<name>...); write (?:...) for a group without a column"
    elif "perl operator" in error or "escape sequence" in error:
        error += " (patterns run in RE2, which has no look-around and no back references)"
    return f"lines: {text!r} is not a pattern: {error}"


def _pieces(expression: str) -> tuple[Piece, ...] | None:
    """Return the pieces of an expression; None if there is anything but literal text between the groups."""
    pieces: list[Piece] = []
    before, at = "", 0
    rest = expression.removeprefix("^")
    rest = rest.removesuffix("$") if not rest.endswith(r"\$") else rest
    while at < len(rest):
        if rest.startswith("(?P<", at):
            end = _group_end(rest, at)
            if end is None or rest[end : end + 1] in ("?", "*", "+", "{"):
                return None
            pieces.append(Piece(before, rest[at + 4 : rest.index(">", at)], if_null="-"))
            before, at = "", end
            continue
        is_escape = rest[at] == "\\"
        letter = rest[at + 1 : at + 2] if is_escape else rest[at]
        at += 2 if is_escape else 1
        is_literal = bool(letter) and (not letter.isalnum() if is_escape else letter not in r".*+?[](){}|^$")
        if not is_literal or rest[at : at + 1] in ("?", "*", "+", "{"):
            return None
        before += letter
    if not pieces:
        return None
    last = pieces[-1]
    return (*pieces[:-1], replace(last, after=before))


def _group_end(text: str, start: int) -> int | None:
    """Return the index after the parenthesis that closes the one at `start`; None if it is not closed."""
    depth, at = 0, start
    while at < len(text):
        letter = text[at]
        if letter == "\\":
            at += 1
        elif letter == "[":
            closing = text.find("]", at + (3 if text.startswith("[^", at) else 2))
            while closing > 0 and _is_escaped(text, closing):
                closing = text.find("]", closing + 1)
            if closing < 0:
                return None
            at = closing
        elif letter in "()":
            depth += 1 if letter == "(" else -1
            if not depth:
                return at + 1
        at += 1
    return None


def _is_escaped(text: str, at: int) -> bool:
    before = text[:at]
    return bool((len(before) - len(before.rstrip("\\"))) % 2)

"""The words of a .proto file: names, numbers, strings and signs; comments are left out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from barnabas.registry.kinds.schema import SchemaSyntaxError

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<number>[+-]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?|inf\b|nan\b))
    |(?P<name>\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
    |(?P<sign>[{}()\[\]<>;=,:/-])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


class Tokens:
    """The words one after the other, and where each stands."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = list(_split(text))
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        """Whether all words were taken."""
        return self._at >= len(self._words)

    def peek(self) -> str:
        """Return the next word, empty at the end."""
        return "" if self.is_at_end else self._words[self._at][1]

    def take(self) -> str:
        """Take the next word."""
        if self.is_at_end:
            raise SchemaSyntaxError("it ends in the middle of a definition")
        self._at += 1
        return self._words[self._at - 1][1]

    def take_if(self, *words: str) -> str:
        """Take the next word if it is one of these; return it, or nothing."""
        return self.take() if self.peek() in words and not self.is_at_end else ""

    def expect(self, word: str) -> None:
        """Take this word."""
        if (found := self.take()) != word:
            raise self.error(f"{word!r} is expected instead of {found!r}")

    def name(self) -> str:
        """Take a name, perhaps with dots."""
        kind = "" if self.is_at_end else self._words[self._at][0]
        word = self.take()
        if kind != "name" and word not in ("inf", "nan"):
            raise self.error(f"a name is expected instead of {word!r}")
        return word

    def string(self) -> str:
        """Take a string, or several that stand side by side."""
        parts = []
        while not self.is_at_end and self._words[self._at][0] == "string":
            parts.append(_unquoted(self.take()))
        if not parts:
            raise self.error(f"a string is expected instead of {self.peek()!r}")
        return "".join(parts)

    def integer(self) -> int:
        """Take a whole number, in decimal, hexadecimal or octal notation."""
        word = self.take()
        sign, digits = (-1, word[1:]) if word.startswith("-") else (1, word)
        if word == "-":
            sign, digits = -1, self.take()
        try:
            octal = len(digits) > 1 and digits[0] == "0" and digits[1:].isdecimal()
            return sign * int(digits, 8 if octal else 0)
        except ValueError:
            raise self.error(f"a whole number is expected instead of {word!r}") from None

    def is_string(self) -> bool:
        """Whether the next word is a string."""
        return not self.is_at_end and self._words[self._at][0] == "string"

    def error(self, reason: str) -> SchemaSyntaxError:
        """Return an error that says in which line."""
        position = self._words[max(self._at - 1, 0)][2] if self._words else 0
        line = self._text.count("\n", 0, position) + 1
        return SchemaSyntaxError(f"line {line}: {reason}")


def _split(text: str) -> Iterator[tuple[str, str, int]]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None or found.lastgroup is None:
            line = text.count("\n", 0, position) + 1
            raise SchemaSyntaxError(f"line {line}: {text[position : position + 20]!r} is no part of a .proto file")
        if found.lastgroup != "space":
            yield found.lastgroup, found[0], position
        position = found.end()


def _unquoted(word: str) -> str:
    def character(found: re.Match[str]) -> str:
        escape = found[1]
        if escape[0] in "xX":
            return chr(int(escape[1:], 16))
        if escape[0].isdecimal():
            return chr(int(escape, 8))
        return _ESCAPES.get(escape, escape)

    return re.sub(r"\\([xX][0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", character, word[1:-1], flags=re.DOTALL)

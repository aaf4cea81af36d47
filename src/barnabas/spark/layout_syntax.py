"""The syntax of `--partition-by` and `--sort-by`: columns, and Iceberg's transforms of columns. Pure.

    hour(event_time), bucket(16, user_id), country
    user_id, event_time desc nulls last

The names of structs and their fields are separated with dots. Names with other characters than letters, digits and
underscores are quoted with double quotes or backquotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from barnabas.errors import ConfigurationError
from barnabas.formats.field_aliases import Path
from barnabas.spark.partition_transforms import Kind, Transform

TERMS_MAX = 100
LETTERS_MAX = 10_000
WIDTH_MAX = 2**31 - 1
_KINDS: Mapping[str, Kind] = {
    "identity": "identity",
    **dict.fromkeys(("year", "years"), "year"),
    **dict.fromkeys(("month", "months"), "month"),
    **dict.fromkeys(("day", "days", "date"), "day"),
    **dict.fromkeys(("hour", "hours", "date_hour"), "hour"),
    "bucket": "bucket",
    **dict.fromkeys(("truncate", "trunc"), "truncate"),
}
_WITH_WIDTH: frozenset[Kind] = frozenset({"bucket", "truncate"})
_TOKEN = re.compile(r"""\s*(?:(?P<quoted>"(?:[^"]|"")+"|`[^`]+`)|(?P<word>\w+)|(?P<sign>[(),.])|(?P<other>\S))""")
_FORMS = "use columns, or year(C), month(C), day(C), hour(C), bucket(N, C), truncate(W, C), separated by commas"


@dataclass(frozen=True, slots=True)
class Term:
    """A column, or a transform of a column, with the order of its values."""

    transform: Transform
    path: Path
    is_descending: bool = False
    nulls_first: bool = True

    def __str__(self) -> str:
        return self.transform.of(".".join(self.path))


def parse_partition(text: str | Sequence[str]) -> tuple[Term, ...]:
    """Parse the choice of partitions; an empty one means no partitions.

    :raises ConfigurationError: The text is not valid.

    >>> [str(term) for term in parse_partition("hours(event_time), bucket(16, user.id)")]
    ['hour(event_time)', 'bucket(16, user.id)']
    """
    return _Parser("partition_by (--partition-by)", text).terms(is_sort=False)


def parse_sort(text: str | Sequence[str]) -> tuple[Term, ...]:
    """Parse a sort order. As in Spark, nulls are first by default, and last in descending order.

    :raises ConfigurationError: The text is not valid.

    >>> (term,) = parse_sort("event_time desc")
    >>> term.is_descending, term.nulls_first
    (True, False)
    """
    return _Parser("sort_by (--sort-by)", text).terms(is_sort=True)


class _Parser:
    def __init__(self, option: str, text: str | Sequence[str]) -> None:
        self._option = option
        self._text = text if isinstance(text, str) else ", ".join(text)
        if len(self._text) > LETTERS_MAX:
            raise ConfigurationError(f"{option}: {len(self._text)} characters, more than {LETTERS_MAX}")
        self._tokens = list(_tokens(self._text))
        self._at = 0

    def terms(self, *, is_sort: bool) -> tuple[Term, ...]:
        if not self._tokens:
            return ()
        found = [self._term(is_sort=is_sort)]
        while self._next_is("sign", ","):
            self._at += 1
            found.append(self._term(is_sort=is_sort))
        if self._at < len(self._tokens):
            raise self._unexpected("a comma")
        if len(found) > TERMS_MAX:
            raise ConfigurationError(f"{self._option}: {len(found)} columns, more than {TERMS_MAX}")
        repeated = [term for number, term in enumerate(found) if str(term) in map(str, found[:number])]
        if repeated:
            raise ConfigurationError(f"{self._option}: {repeated[0]} occurs twice")
        return tuple(found)

    def _term(self, *, is_sort: bool) -> Term:
        transform, path = self._column()
        is_descending = False
        if is_sort and self._word() in ("asc", "desc"):
            is_descending = self._word() == "desc"
            self._at += 1
        nulls_first = not is_descending
        if is_sort and self._word() == "nulls":
            self._at += 1
            if self._word() not in ("first", "last"):
                raise self._unexpected("first or last")
            nulls_first = self._word() == "first"
            self._at += 1
        return Term(transform, path, is_descending, nulls_first)

    def _column(self) -> tuple[Transform, Path]:
        is_function = self._kind() == "word" and self._next_is("sign", "(", 1)
        if not is_function:
            return Transform("identity"), self._path()
        word = self._tokens[self._at][1]
        kind = _KINDS.get(word.lower())
        if kind is None:
            raise ConfigurationError(f"{self._option}: unknown transform {word!r} in {self._text!r}; {_FORMS}")
        self._at += 2
        width = self._width(kind) if kind in _WITH_WIDTH else None
        path = self._path()
        self._expect(")")
        return Transform(kind, width), path

    def _width(self, kind: Kind) -> int:
        form = "the number of buckets: bucket(16, C)" if kind == "bucket" else "the width: truncate(10, C)"
        word = self._tokens[self._at][1] if self._kind() == "word" else ""
        if not (word.isascii() and word.isdecimal()):
            raise self._unexpected(form)
        if len(word) > 10 or not 1 <= int(word) <= WIDTH_MAX:
            raise ConfigurationError(f"{self._option}: {kind}({word}, ...) needs a number from 1 to {WIDTH_MAX}")
        self._at += 1
        self._expect(",")
        return int(word)

    def _path(self) -> Path:
        names = [self._name()]
        while self._next_is("sign", "."):
            self._at += 1
            names.append(self._name())
        return tuple(names)

    def _name(self) -> str:
        if self._kind() not in ("word", "quoted"):
            raise self._unexpected("a column")
        kind, text = self._tokens[self._at]
        self._at += 1
        if kind == "word":
            return text
        return text[1:-1].replace('""', '"') if text[0] == '"' else text[1:-1]

    def _kind(self) -> str | None:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else None

    def _word(self) -> str | None:
        """Return the next token in lower case if it is a word."""
        return self._tokens[self._at][1].lower() if self._kind() == "word" else None

    def _next_is(self, kind: str, text: str, further: int = 0) -> bool:
        at = self._at + further
        return at < len(self._tokens) and self._tokens[at] == (kind, text)

    def _expect(self, sign: str) -> None:
        if not self._next_is("sign", sign):
            raise self._unexpected(repr(sign))
        self._at += 1

    def _unexpected(self, wanted: str) -> ConfigurationError:
        found = repr(self._tokens[self._at][1]) if self._at < len(self._tokens) else "the end"
        return ConfigurationError(f"{self._option}: {wanted} expected, not {found}, in {self._text!r}; {_FORMS}")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(text):
        assert match.lastgroup is not None, "each alternative has a name"
        yield match.lastgroup, match[match.lastgroup]

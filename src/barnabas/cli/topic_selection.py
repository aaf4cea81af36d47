"""The topics that a command line selects: names, and regular expressions such as `^clicks\\..*`, as in kcat."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.options import require_topics

if TYPE_CHECKING:
    from barnabas import Admin

TOPICS_HELP = "a TOPIC that begins with ^ is a regular expression"


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Names of topics, and regular expressions that match the beginning of names.

    As in kcat, `^clicks` selects each topic whose name begins with `clicks`, and `^clicks$` only the topic `clicks`.
    """

    names: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> TopicSelection:
        """Return the selection of some arguments.

        :raises ValueError: a text that begins with ^ is not a regular expression.

        >>> TopicSelection.parse(["views", "^clicks"]).matching(["clicks.eu", "old-clicks", "views"])
        ['clicks.eu']
        """
        names, patterns = [], []
        for text in dict.fromkeys(texts):
            if not text.startswith("^"):
                names.append(text)
                continue
            try:
                patterns.append(re.compile(text))
            except (re.error, OverflowError, RecursionError) as error:
                raise ValueError(f"{text!r} is not a regular expression: {error}") from None
        return cls(tuple(names), tuple(patterns))

    @property
    def has_patterns(self) -> bool:
        return bool(self.patterns)

    def matching(self, known: Iterable[str]) -> list[str]:
        """Return the known topics that a regular expression matches."""
        return [name for name in known if any(each.match(name) for each in self.patterns)]

    def selected(self, known: Sequence[str]) -> list[str]:
        """Return the names, and the known topics that match."""
        return list(dict.fromkeys([*self.names, *self.matching(known)]))

    def full_pattern(self) -> str:
        """Return one regular expression that matches the whole names of all selected topics.

        >>> TopicSelection.parse(["a.b", "^clicks"]).full_pattern()
        '(?:^clicks).*|a\\\\.b'
        """
        return "|".join([*(f"(?:{each.pattern}).*" for each in self.patterns), *map(re.escape, self.names)])

    def __str__(self) -> str:
        return ", ".join([*self.names, *(each.pattern for each in self.patterns)])


def parse_topics(texts: Iterable[str]) -> TopicSelection:
    """Return the selection of a command line.

    :raises click.UsageError: a text that begins with ^ is not a regular expression.
    """
    try:
        return TopicSelection.parse(texts)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def existing_topics(admin: Admin, selection: TopicSelection, *, may_be_empty: bool = False) -> list[str]:
    """Return the selected topics of a cluster, after a check that each named topic exists.

    :param may_be_empty: return an empty list if no topic matches the regular expressions.
    :raises click.ClickException: a named topic does not exist, or no topic matches.
    :raises ApiError: the user may not describe a named topic.
    """
    require_topics(admin, selection.names)
    chosen = selection.selected(admin.list_topics() if selection.has_patterns else [])
    if not chosen and not may_be_empty:
        raise click.ClickException(f"no topic matches {selection}; see: barnabas topic list")
    return chosen

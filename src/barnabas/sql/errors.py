"""What a query ends with that cannot be carried out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from barnabas.errors import BarnabasError

NAMES_ALIKE = 0.6


class SqlError(BarnabasError):
    """A statement that cannot be understood or carried out. The message is one line, for whoever wrote it."""


class UnknownTopicError(SqlError):
    """A statement names a table that is no topic.

    >>> print(UnknownTopicError("clikcs", ["clicks", "views"]))
    no topic 'clikcs'; did you mean 'clicks'?
    """

    def __init__(self, name: str, known: Iterable[str]) -> None:
        topics = list(known)
        same = [topic for topic in topics if topic.lower() == name.lower()]
        near = same or difflib.get_close_matches(name, topics, n=3, cutoff=NAMES_ALIKE)
        if near:
            advice = f"did you mean {' or '.join(map(repr, near))}?"
        else:
            advice = "tables are the topics of the cluster, see: barnabas topic list"
        super().__init__(f"no topic {name!r}; {advice}")


class InterruptedQueryError(SqlError):
    """A query that was ended before it was done."""

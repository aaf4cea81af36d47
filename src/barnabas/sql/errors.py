"""The errors of queries on topics."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from barnabas.errors import BarnabasError

NAMES_ALIKE = 0.6


class SqlError(BarnabasError):
    """A statement is invalid, or its query failed. The message has one line."""


class UnknownTopicError(SqlError):
    """A statement names a table that is not a topic.

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
    """A query was interrupted before it finished."""

"""Selects topics and groups by patterns that match whole names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from barnabas.errors import ConfigurationError
from barnabas.mirror.ledger import LEDGER_TOPIC

NEVER = frozenset({LEDGER_TOPIC, "_audit", "__consumer_offsets", "__transaction_state"})
"""Topics about the cluster itself, which are never mirrored."""


class NameFilter:
    """Selects the names that match one of several patterns completely.

    A name with a leading underscore needs a pattern with a leading underscore, because such topics belong to services.

    >>> chosen = NameFilter(["clicks", "shop-.*"])
    >>> [name for name in ("clicks", "clicks2", "shop-eu", "_schemas") if chosen.matches(name)]
    ['clicks', 'shop-eu']
    >>> NameFilter([".*"]).matches("_schemas"), NameFilter(["_schemas"]).matches("_schemas")
    (False, True)

    :raises ConfigurationError: a pattern is not a valid regular expression.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns: list[tuple[bool, re.Pattern[str]]] = []
        for pattern in patterns:
            try:
                self._patterns.append((pattern.startswith("_"), re.compile(pattern)))
            except re.error as error:
                raise ConfigurationError(f"{pattern!r} is not a valid regular expression: {error}") from error

    def matches(self, name: str) -> bool:
        """Return whether a name is selected."""
        own = name.startswith("_")
        return any(pattern.fullmatch(name) for is_for_own, pattern in self._patterns if is_for_own or not own)

    def topics(self, names: Iterable[str]) -> list[str]:
        """Return the selected topic names, sorted."""
        return sorted(name for name in names if name not in NEVER and self.matches(name))

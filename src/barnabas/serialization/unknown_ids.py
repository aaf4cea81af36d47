"""A cache of schema ids that the registry does not have, with a limit on requests for such ids. This module does no
I/O.

Values of another format can look like many different schema ids, and each would cost a registry request. The limit
applies to one batch of records, because the next batch may have valid ids. Callers look up the most frequent ids first,
to find the valid ids of a mixed batch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, TypeVar

import pyarrow as pa

KeyT = TypeVar("KeyT", bound=Hashable)

UNKNOWN_IDS_MAX = 100
"""The maximum number of unknown ids that are requested from the registry per batch of records."""
REMEMBERED_MAX = 10_000


class UnknownIds(Generic[KeyT]):
    """A cache of unknown ids, with the reason for each. Not thread-safe."""

    def __init__(self) -> None:
        self._reasons: dict[KeyT, str] = {}
        self._left = UNKNOWN_IDS_MAX

    def begin(self) -> None:
        """Start a new batch of records."""
        self._left = UNKNOWN_IDS_MAX
        if len(self._reasons) > REMEMBERED_MAX:
            self._reasons = {}

    def reason(self, key: KeyT) -> str | None:
        """Return the reason why an id must not be requested, or None if the caller may request it."""
        known = self._reasons.get(key)
        if known is None and self._left <= 0:
            return f"the batch has more than {UNKNOWN_IDS_MAX} schema ids that the registry does not know"
        return known

    def note(self, key: KeyT, reason: str) -> None:
        """Record that the registry does not have an id."""
        self._left -= 1
        self._reasons[key] = reason


def most_frequent_first(rows: Mapping[KeyT, pa.Array]) -> Iterator[KeyT]:
    """Yield the ids by their number of records, largest first; ids with equal numbers are sorted by id.

    >>> list(most_frequent_first({9: [0], 7: [1, 2], 8: [3]}))
    [7, 8, 9]
    """
    yield from sorted(rows, key=lambda key: (-len(rows[key]), key))

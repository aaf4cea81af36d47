"""Ids that a registry does not know: why not, and how many of them it is asked for. Pure.

Data of another kind may look like any number of ids, and to ask for each would take as many calls. So there is a limit
for a batch of records; the next batch begins anew, as it may have ids that are known. Whoever asks for the most
frequent ids of a batch first finds those that are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, TypeVar

import pyarrow as pa

KeyT = TypeVar("KeyT", bound=Hashable)

UNKNOWN_IDS_MAX = 100
"""For so many ids that it does not know the registry is asked in one batch of records."""
REMEMBERED_MAX = 10_000


class UnknownIds(Generic[KeyT]):
    """Remembers which ids are unknown, and why. Not thread-safe."""

    def __init__(self) -> None:
        self._reasons: dict[KeyT, str] = {}
        self._left = UNKNOWN_IDS_MAX

    def begin(self) -> None:
        """Begin a batch of records."""
        self._left = UNKNOWN_IDS_MAX
        if len(self._reasons) > REMEMBERED_MAX:
            self._reasons = {}

    def reason(self, key: KeyT) -> str | None:
        """Return why an id is not to be asked for; None where it is."""
        known = self._reasons.get(key)
        if known is None and self._left <= 0:
            return f"more than {UNKNOWN_IDS_MAX} ids of schemas that the registry does not know"
        return known

    def note(self, key: KeyT, reason: str) -> None:
        """Remember that an id that was asked for is unknown."""
        self._left -= 1
        self._reasons[key] = reason


def most_frequent_first(rows: Mapping[KeyT, pa.Array]) -> Iterator[KeyT]:
    """Yield ids in the order in which they are to be asked for: those of most records first, then the least.

    >>> list(most_frequent_first({9: [0], 7: [1, 2], 8: [3]}))
    [7, 8, 9]
    """
    yield from sorted(rows, key=lambda key: (-len(rows[key]), key))

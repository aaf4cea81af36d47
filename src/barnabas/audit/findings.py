"""What an audit has found: which records of whom are not as they should be, at which tier, and where they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from barnabas.audit.events import LOADED
from barnabas.audit.identities import Producer

STORED = "stored"
"""Tier: in the log."""

RANGES_MAX = 1_000
"""So many ranges of offsets or sequence numbers are named; what is beyond is counted."""


class Kind(StrEnum):
    """What is the matter with records."""

    LOST = "lost"
    """They were in the tier before, and are not here."""
    DOUBLED = "doubled"
    """They are there more than once."""
    EXCHANGED = "exchanged"
    """As many are there as should be, but not the same ones."""
    EXTRA = "extra"
    """They are there, and their producer, which has ended, knows nothing of them; in a table: they are of no log."""
    LATE = "late"
    """They came to the log when the table had been complete up to their time already, and are not loaded."""
    OPEN = "open"
    """They are there, and their producer has not told of them yet, or never will: it was killed; in a table: they are
    not loaded yet."""

    AGAIN = "again"
    """A group was handed them more than once, as it may be. Nothing is wrong with that."""


WRONG = frozenset({Kind.LOST, Kind.DOUBLED, Kind.EXCHANGED, Kind.EXTRA, Kind.LATE})


@dataclass(frozen=True, slots=True)
class Finding:
    """Records of one producer, window and partition of which something is the matter.

    :param tier: where that is.
    """

    kind: Kind
    window_ms: int
    producer: Producer
    records: int
    host: str = ""
    application: str = ""
    offset: int | None = None
    """Where they begin: of second copies in the log, and of what a table lacks or has more than once."""
    missing: tuple[tuple[int, int], ...] = ()
    """Sequence numbers of the producer that are missing in the partition, as first and count."""
    tier: str = STORED
    offsets: tuple[tuple[int, int], ...] = ()
    """Of a table: which offsets it is about, as first and count."""
    is_by_log: bool = False
    """The producer tells nothing; the log has counted in its place."""
    earlier_topic_id: str = ""
    """Of a deleted topic that had the same name, in hex; empty for the topic that has the name now."""


@dataclass(slots=True)
class Findings:
    """Findings about a table, those of a producer and window together."""

    tier: str = LOADED
    _found: dict[tuple[Kind, int, Producer], Finding] = field(default_factory=dict)

    def note(
        self, kind: Kind, window_ms: int, producer: Producer, offset: int, records: int, offsets: int | None = None
    ) -> None:
        """Note what is the matter with records that begin at an offset.

        :param offsets: how many offsets these are; None: as many as records.
        """
        place = (kind, window_ms, producer)
        before = self._found.get(place)
        length = records if offsets is None else offsets
        if before is None:
            self._found[place] = Finding(
                kind, window_ms, producer, records, offset=offset, tier=self.tier, offsets=((offset, length),)
            )
            return
        ranges = before.offsets
        first, count = ranges[-1]
        if first + count == offset:
            ranges = (*ranges[:-1], (first, count + length))
        elif len(ranges) < RANGES_MAX:
            ranges = (*ranges, (offset, length))
        self._found[place] = replace(before, records=before.records + records, offsets=ranges)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._found.values())

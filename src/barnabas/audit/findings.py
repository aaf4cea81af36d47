"""Findings of an audit: records that are lost, duplicated or different, with their producer, tier and offsets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from barnabas.audit.events import LOADED
from barnabas.audit.identities import Producer

STORED = "stored"
"""Tier: records in the log."""

RANGES_MAX = 1_000
"""The maximum number of ranges listed in a finding. The records of further ranges are only counted."""


class Kind(StrEnum):
    """The kind of a finding."""

    LOST = "lost"
    """The previous tier has the records, but this tier does not."""
    DOUBLED = "doubled"
    """The tier has the records more than once."""
    EXCHANGED = "exchanged"
    """The tier has the right number of records, but different ones."""
    EXTRA = "extra"
    """The tier has records that their producer did not report before it closed. In a table: rows without records in the
    log.
    """
    LATE = "late"
    """Records that arrived after the table's watermark had passed their event time, and that are not loaded."""
    OPEN = "open"
    """Records that their producer has not reported yet, or never will because it was killed. In a table: records not
    loaded yet.
    """

    AGAIN = "again"
    """Records delivered to a group more than once, which at-least-once delivery permits."""


WRONG = frozenset({Kind.LOST, Kind.DOUBLED, Kind.EXCHANGED, Kind.EXTRA, Kind.LATE})


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem with the records of one producer in one window and partition.

    :param tier: the tier that has the problem.
    """

    kind: Kind
    window_ms: int
    producer: Producer
    records: int
    host: str = ""
    application: str = ""
    offset: int | None = None
    """The first offset of the affected records: duplicates in the log, or records that a table lacks or has more than
    once.
    """
    missing: tuple[tuple[int, int], ...] = ()
    """The missing sequence numbers of the producer in the partition, as pairs of first number and count."""
    tier: str = STORED
    offsets: tuple[tuple[int, int], ...] = ()
    """The affected offsets in a table, as pairs of first offset and count."""
    is_by_log: bool = False
    """True if the log itself shows the loss, because the producer sends no audit events."""
    earlier_topic_id: str = ""
    """The id in hex of a deleted topic with the same name; empty for the current topic."""


@dataclass(slots=True)
class Findings:
    """Findings about a table, merged by kind, window and producer."""

    tier: str = LOADED
    _found: dict[tuple[Kind, int, Producer], Finding] = field(default_factory=dict)

    def note(
        self, kind: Kind, window_ms: int, producer: Producer, offset: int, records: int, offsets: int | None = None
    ) -> None:
        """Add a finding about records that start at an offset.

        :param offsets: the number of affected offsets; None if it equals the number of records.
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

"""The position of a finding in words, for the command line and for the console."""

from __future__ import annotations

from barnabas.audit.findings import STORED, Finding, Kind

RANGES_SHOWN_MAX = 5

_PLACES = {Kind.LOST: "missing offsets", Kind.OPEN: "to be loaded: offsets", Kind.LATE: "to be loaded: offsets"}


def place_of(finding: Finding) -> str | None:
    """Return the position of the records of a finding; None if the finding has no position."""
    if finding.earlier_topic_id:
        return f"in the deleted topic of this name, id {finding.earlier_topic_id}"
    if finding.offsets:
        return f"{_PLACES.get(finding.kind, 'offsets')} {ranges_text(finding.offsets)}"
    if finding.tier == STORED and finding.offset is not None:
        return f"again at offset {finding.offset}"
    numbers = "source offsets" if finding.producer.is_mirror else "sequence numbers"
    by_log = ", according to the log: the producer sends no audit events" if finding.is_by_log else ""
    return f"missing {numbers} {ranges_text(finding.missing)}{by_log}" if finding.missing else None


def ranges_text(ranges: tuple[tuple[int, int], ...]) -> str:
    """Return ranges, given as pairs of first number and count.

    >>> ranges_text(((7, 1), (10, 3)))
    '7, 10 to 12'
    """
    shown = [str(first) if count == 1 else f"{first} to {first + count - 1}" for first, count in ranges]
    more = len(shown) - RANGES_SHOWN_MAX
    return ", ".join(shown[:RANGES_SHOWN_MAX]) + (f" and {more} more gaps" if more > 0 else "")

"""Compares the log with the producers' reports: each acknowledged record must be in the log.

Retention removes the oldest records of a partition, and therefore the oldest records of each producer there. The first
remaining sequence number of a producer shows the number of removed records. That many missing records are not lost, in
any window. Further missing records are lost, even in expired windows. If a producer has no records left in a partition,
all windows up to the window of the partition's first record may have expired.

A table must have the records removed by retention too (`missing_records.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.audit.findings import Finding, Kind
from barnabas.audit.identities import Producer
from barnabas.audit.reported_counts import ReportedCounts
from barnabas.audit.stored_log import StoredLog
from barnabas.audit.windows import NOTHING, Tally

Place = tuple[int, Producer]
"""The start of a window in ms, and a producer."""


def differences(
    reported: ReportedCounts, produced: dict[Place, Tally], stored: StoredLog
) -> tuple[list[Finding], set[tuple[int, int]]]:
    """Return the findings, and the windows and partitions from which retention removed records."""
    there = {
        (window_ms, producer): found
        for window_ms, of_window in stored.counted.items()
        for producer, found in of_window.items()
    }
    findings: list[Finding] = []
    taken: set[tuple[int, int]] = set()
    to_take: dict[Producer, int] = {}
    for window_ms, producer in sorted(produced.keys() | there.keys()):
        event = reported.instance_of.get(producer.producer_id)
        if event is None:
            continue
        place = (window_ms, producer)
        sent, found = produced.get(place, NOTHING), there.get(place, NOTHING)
        kind, records = _difference(reported, producer, sent, found, _doubtful(reported, stored, place))
        if kind is Kind.LOST:
            if producer not in to_take:
                begin, left_out = reported.begins.get(producer, 0), reported.left_out.get(producer, 0)
                to_take[producer] = stored.taken_of(producer, begin, 0 if producer.is_mirror else left_out)
            by_retention = min(records, to_take[producer])
            to_take[producer] -= by_retention
            records -= by_retention
            if by_retention:
                taken.add((window_ms, producer.partition))
        if kind is None or not records:
            continue
        is_known_beyond_retention = kind is Kind.LOST and not producer.is_mirror and stored.has_any_of(producer)
        if stored.is_expired(producer.partition, window_ms) and not is_known_beyond_retention:
            continue
        missing = tuple(stored.gaps_of(producer)) if kind in (Kind.LOST, Kind.EXCHANGED) else ()
        findings.append(Finding(kind, window_ms, producer, records, event.host, event.application, missing=missing))
    return findings, taken


def gaps_by_log(reported: ReportedCounts, stored: StoredLog) -> Iterator[Finding]:
    """Yield the losses that the log itself shows for producers without audit events.

    A producer numbers its records without gaps, and brokers reject a batch that does not follow the previous one
    (KIP-98). So a record whose number is missing was once stored. A loss at the end of a producer's records leaves no
    gap. Retention leaves no gap either, because it removes the oldest records of a log.
    """
    for window_ms, producer, first, records in stored.gaps():
        if producer.producer_id in reported.instance_of:
            continue
        yield Finding(Kind.LOST, window_ms, producer, records, missing=((first, records),), is_by_log=True)


def _difference(
    reported: ReportedCounts, producer: Producer, sent: Tally, found: Tally, doubtful: int
) -> tuple[Kind | None, int]:
    more = found.records - doubtful - sent.records
    if more < 0:
        return Kind.LOST, -more
    if more > 0:
        return (Kind.EXTRA if producer.producer_id in reported.ended else Kind.OPEN), more
    if not doubtful and found.fingerprint != sent.fingerprint:
        return Kind.EXCHANGED, 1
    return None, 0


def _doubtful(reported: ReportedCounts, stored: StoredLog, place: Place) -> int:
    """Return the number of stored records from a producer's unacknowledged batches."""
    _window_ms, producer = place
    return sum(stored.count_of(producer, doubt.first, doubt.records) for doubt in reported.doubts.get(place, ()))

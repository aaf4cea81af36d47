"""Compares the records produced to a topic of the source cluster with the records that mirrors report.

Mirrors report each record under two identities. The first is the identity of its producer: this module compares it with
the producer's reports in the source cluster. The second is its source offset: `balance` compares it with the target's
log. This module reads neither log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from barnabas.audit.events import MIRRORED, MonitoringEvent
from barnabas.audit.findings import Finding, Kind
from barnabas.audit.identities import Producer
from barnabas.audit.reported_counts import ReportedCounts
from barnabas.audit.windows import NO_WINDOW_MS, NOTHING, Tally, window_of

Place = tuple[int, Producer]
"""The start of a window in ms, and a producer."""


@dataclass(slots=True)
class SourceSide:
    """The state of a mirrored topic in its source cluster.

    :param events: the audit events in the source cluster.
    :param topic_id: the topic id in the source, in hex.
    :param ends: log end offsets by partition, read after the events of both clusters.
    """

    events: list[MonitoringEvent]
    topic_id: str
    ends: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class MirroredTopic:
    """The produced records of the source cluster and the mirrored records, both by window and producer, and the
    findings.
    """

    produced: Mapping[Place, Tally]
    mirrored: Mapping[Place, Tally]
    senders: Mapping[int, MonitoringEvent]
    """One audit event of each producer in the source cluster, by producer id."""
    findings: list[Finding] = field(default_factory=list)


def source_topic_of(events: Iterable[MonitoringEvent]) -> str | None:
    """Return the topic's name in the source cluster; None if no mirror has reported the name."""
    names = [event.upstream.topic for event in events if event.upstream is not None]
    return names[-1] if names else None


def account_begins(events: Iterable[MonitoringEvent], width_ms: int) -> dict[int, int]:
    """Return the window in which a mirror started to count, for each partition that it did not count from the
    beginning.

    The audit cannot detect missing records up to that window.
    """
    begins: dict[int, tuple[int, int]] = {}
    for event in events:
        for partition, reach in ({} if event.upstream is None else event.upstream.reached).items():
            begin = (reach.first, window_of(event.window_ms, width_ms))
            begins[partition] = min(begin, begins.get(partition, begin))
    return {partition: window_ms for partition, (first, window_ms) in begins.items() if first}


def compare_with_source(source: SourceSide, reported: ReportedCounts, width_ms: int) -> MirroredTopic:
    """Compare the reports of producers in the source with the reports of mirrors in the target.

    The comparison reads no log, so it detects losses even if retention has removed records in the target.

    :param width_ms: width of a window in ms; a multiple of the events' widths.
    """
    upstream = ReportedCounts(source.events, source.topic_id, width_ms)
    produced, mirrored = upstream.produced(), _mirrored(reported, width_ms)
    begins = account_begins(reported.events, width_ms)
    lag = _lag(source, reported)
    findings: list[Finding] = []
    # Start with the newest windows: records that are not mirrored yet have the highest offsets, and nearly always the
    # latest times.
    for place in sorted(produced.keys() | mirrored.keys(), reverse=True):
        window_ms, producer = place
        event = upstream.instance_of.get(producer.producer_id)
        if event is None or window_ms <= begins.get(producer.partition, NO_WINDOW_MS - 1):
            continue
        differences = _differences(upstream, place, produced.get(place, NOTHING), mirrored.get(place, NOTHING), lag)
        findings += [
            Finding(kind, window_ms, producer, records, event.host, event.application, tier=MIRRORED)
            for kind, records in differences
            if records
        ]
    return MirroredTopic(produced, mirrored, upstream.instance_of, findings)


def _mirrored(reported: ReportedCounts, width_ms: int) -> dict[Place, Tally]:
    mirrored: dict[Place, Tally] = {}
    for event in reported.events:
        for producer, counted in ({} if event.upstream is None else event.upstream.counted).items():
            place = (window_of(event.window_ms, width_ms), producer)
            mirrored[place] = mirrored.get(place, NOTHING).plus(counted)
    return mirrored


def _lag(source: SourceSide, reported: ReportedCounts) -> dict[int, int]:
    """Return the number of source offsets in each partition that no mirror has reported yet."""
    reached = dict.fromkeys(source.ends, 0)
    for event in reported.events:
        for partition, reach in ({} if event.upstream is None else event.upstream.reached).items():
            reached[partition] = max(reached.get(partition, 0), reach.next)
    return {partition: max(0, end - reached[partition]) for partition, end in source.ends.items()}


def _differences(
    upstream: ReportedCounts, place: Place, sent: Tally, found: Tally, lag: dict[int, int]
) -> Iterable[tuple[Kind, int]]:
    producer = place[1]
    doubtful = sum(doubt.records for doubt in upstream.doubts.get(place, ()))
    more = found.records - sent.records
    if more < 0:
        waiting = min(-more, lag.get(producer.partition, 0))
        lag[producer.partition] = lag.get(producer.partition, 0) - waiting
        return [(Kind.OPEN, waiting), (Kind.LOST, -more - waiting)]
    if more > doubtful:
        return [(Kind.EXTRA if producer.producer_id in upstream.ended else Kind.OPEN, more - doubtful)]
    if not doubtful and found.fingerprint != sent.fingerprint:
        return [(Kind.EXCHANGED, 1)]
    return []

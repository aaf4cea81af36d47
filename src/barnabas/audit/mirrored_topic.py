"""What was produced to a topic in another cluster against what mirrors say they have brought.

Mirrors tell each record under both identities: its producer's, which is compared here with what that producer has told
in the source, and its source offset, which the target's log still has (`balance`). Neither log is needed for this.
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
"""A window and a producer."""


@dataclass(slots=True)
class SourceSide:
    """What is known of the topic in the cluster that it is mirrored from.

    :param events: what was told there.
    :param topic_id: of the topic there, in hex.
    :param ends: by partition, where the log ended after the events were read, and after the target's were.
    """

    events: list[MonitoringEvent]
    topic_id: str
    ends: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class MirroredTopic:
    """What was produced in the source, what of it was mirrored, by window and producer, and what is the matter."""

    produced: Mapping[Place, Tally]
    mirrored: Mapping[Place, Tally]
    senders: Mapping[int, MonitoringEvent]
    """By producer id: an event of who sent it."""
    findings: list[Finding] = field(default_factory=list)


def source_topic_of(events: Iterable[MonitoringEvent]) -> str | None:
    """Return what the topic is called where it is mirrored from; None where no mirror has told."""
    names = [event.upstream.topic for event in events if event.upstream is not None]
    return names[-1] if names else None


def account_begins(events: Iterable[MonitoringEvent], width_ms: int) -> dict[int, int]:
    """Return for each partition of which mirrors have not counted the beginning the window in which they began.

    Up to there it cannot be told what is missing.
    """
    begins: dict[int, tuple[int, int]] = {}
    for event in events:
        for partition, reach in ({} if event.upstream is None else event.upstream.reached).items():
            begin = (reach.first, window_of(event.window_ms, width_ms))
            begins[partition] = min(begin, begins.get(partition, begin))
    return {partition: window_ms for partition, (first, window_ms) in begins.items() if first}


def compare_with_source(source: SourceSide, reported: ReportedCounts, width_ms: int) -> MirroredTopic:
    """Compare what was told in the source with what mirrors have told here.

    Neither log is needed for this, so what retention takes from the target's log hides nothing.

    :param width_ms: of a window, into which those of the events fit.
    """
    upstream = ReportedCounts(source.events, source.topic_id, width_ms)
    produced, mirrored = upstream.produced(), _mirrored(reported, width_ms)
    begins = account_begins(reported.events, width_ms)
    lag = _lag(source, reported)
    findings: list[Finding] = []
    # What is not mirrored yet is what came last; so is its time, nearly always.
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
    """Return how many offsets of each partition mirrors have not told of yet."""
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

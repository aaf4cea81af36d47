"""What was produced against what is stored: window by window, and producer by producer.

A count alone cannot tell one lost and one doubled record from none; the fingerprints can. What is stored by producers
that tell nothing is counted apart, and never balances anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from barnabas.audit.events import Doubt, MonitoringEvent
from barnabas.audit.identities import Producer
from barnabas.audit.stored import StoredLog
from barnabas.audit.windows import NOTHING, Tally


class Kind(StrEnum):
    """What is the matter with records."""

    LOST = "lost"
    """They were acknowledged, and are not there."""
    DOUBLED = "doubled"
    """They are there more than once."""
    EXCHANGED = "exchanged"
    """As many are there as were acknowledged, but not the same ones."""
    EXTRA = "extra"
    """They are there, and their producer, which has ended, knows nothing of them."""
    OPEN = "open"
    """They are there, and their producer has not told of them yet, or never will: it was killed."""


WRONG = frozenset({Kind.LOST, Kind.DOUBLED, Kind.EXCHANGED, Kind.EXTRA})


@dataclass(frozen=True, slots=True)
class Finding:
    """Records of one producer, window and partition of which something is the matter."""

    kind: Kind
    window_ms: int
    producer: Producer
    records: int
    host: str = ""
    application: str = ""
    offset: int | None = None
    """Where the second copies begin; for lost ones, None."""
    missing: tuple[tuple[int, int], ...] = ()
    """Sequence numbers of the producer that are missing in the partition, as first and count."""


@dataclass(slots=True)
class WindowBalance:
    """One window of event time."""

    window_ms: int
    produced: int = 0
    stored: int = 0
    """With second copies, and with what was not audited."""
    late: int = 0
    unaudited: int = 0
    """Stored by producers that tell nothing."""
    is_expired: bool = False
    """Some of its records may be gone by retention, or by request."""
    wrong: dict[Kind, int] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether all that is known to have been produced is there, once."""
        return not self.wrong and not self.is_expired

    @property
    def status(self) -> str:
        """In words: complete, or what is the matter."""
        if self.wrong:
            return ", ".join(f"{kind} {records}" for kind, records in sorted(self.wrong.items()))
        return "expired" if self.is_expired else "complete" if self.produced else "not audited"


@dataclass(frozen=True, slots=True)
class Balance:
    """All windows, in order, and what is the matter in them."""

    windows: list[WindowBalance]
    findings: list[Finding]
    width_ms: int

    @property
    def is_wrong(self) -> bool:
        """Whether anything is lost, doubled, or not what it should be."""
        return any(finding.kind in WRONG for finding in self.findings)

    @property
    def complete_until_ms(self) -> int | None:
        """The end of the last window up to which all windows are complete; None if the first is not.

        Windows at the beginning that have expired are passed over: a topic with retention always has some.
        """
        until = None
        for window in self.windows:
            if window.window_ms < 0 or (until is None and window.is_expired and not window.wrong):
                continue
            if not window.is_complete or not window.produced:
                break
            until = window.window_ms + self.width_ms
        return until


class _Told:
    """What the instances have told: the last word of each."""

    def __init__(self, events: Iterable[MonitoringEvent], topic_id: str) -> None:
        latest: dict[bytes, MonitoringEvent] = {}
        ended: set[str] = set()
        for event in events:
            if event.is_last:
                ended.add(event.instance)
            before = latest.get(event.key)
            if before is None or before.number < event.number:
                latest[event.key] = event
        self.events: list[MonitoringEvent] = []
        self.instance_of: dict[int, MonitoringEvent] = {}
        """By producer id: an event of an instance that has it."""
        self.ended: set[int] = set()
        """Ids of producers that have ended, and have told everything."""
        self.doubts: dict[tuple[int, Producer], set[Doubt]] = {}
        """By window and producer."""
        earlier: set[int] = set()
        for event in latest.values():
            producer_ids = {each.producer_id for each in (*event.counted, *(doubt.producer for doubt in event.doubts))}
            if not _is_of(event, topic_id):
                # It may have learned late that the topic is another one, and have told of that what belongs to this.
                earlier |= producer_ids
                continue
            self.events.append(event)
            for producer_id in producer_ids:
                self.instance_of[producer_id] = event
            if event.instance in ended:
                self.ended |= producer_ids
            for doubt in event.doubts:
                self.doubts.setdefault((doubt.window_ms, doubt.producer), set()).add(doubt)
        self.ended -= earlier


def _is_of(event: MonitoringEvent, topic_id: str) -> bool:
    """Whether an event is of the topic that has this id, as far as anybody knows."""
    return not event.topic_id or not topic_id or event.topic_id == topic_id


def balance(events: Iterable[MonitoringEvent], stored: StoredLog, topic_id: str = "") -> Balance:
    """Compare what producers have told with what a log holds.

    :param events: of one topic, and of windows as wide as those of `stored`, in any order; repeated ones do no harm.
    :param topic_id: of the topic, in hex: events of another topic that had its name are left out. Empty: of all.
    """
    told = _Told(events, topic_id)
    windows: dict[int, WindowBalance] = {}
    partitions: dict[int, set[int]] = {}
    produced: dict[tuple[int, Producer], Tally] = {}
    for event in told.events:
        window = windows.setdefault(event.window_ms, WindowBalance(event.window_ms))
        window.late += event.late
        partitions.setdefault(event.window_ms, set()).update(each.partition for each in event.counted)
        for producer, counted in event.counted.items():
            window.produced += counted.records
            place = (event.window_ms, producer)
            produced[place] = produced.get(place, NOTHING).plus(counted)
    findings = [*_repeats(told, stored), *_differences(told, produced, stored)]
    for window_ms, of_window in stored.counted.items():
        window = windows.setdefault(window_ms, WindowBalance(window_ms))
        partitions.setdefault(window_ms, set()).update(each.partition for each in of_window)
        for producer, counted in of_window.items():
            window.stored += counted.records
            if producer.producer_id not in told.instance_of:
                window.unaudited += counted.records
    for repeat in stored.repeats:
        windows[repeat.window_ms].stored += repeat.records
    for window_ms, window in windows.items():
        window.is_expired = any(stored.is_expired(each, window_ms) for each in partitions.get(window_ms, ()))
    for finding in findings:
        wrong = windows[finding.window_ms].wrong
        wrong[finding.kind] = wrong.get(finding.kind, 0) + finding.records
    in_order = [windows[begin] for begin in sorted(windows)]
    return Balance(in_order, sorted(findings, key=_place), stored.width_ms)


def _place(finding: Finding) -> tuple[int, Producer, Kind]:
    return finding.window_ms, finding.producer, finding.kind


def _repeats(told: _Told, stored: StoredLog) -> Iterable[Finding]:
    for repeat in stored.repeats:
        event = told.instance_of.get(repeat.producer.producer_id)
        host, application = (event.host, event.application) if event else ("", "")
        yield Finding(Kind.DOUBLED, repeat.window_ms, repeat.producer, repeat.records, host, application, repeat.offset)


def _differences(told: _Told, produced: dict[tuple[int, Producer], Tally], stored: StoredLog) -> Iterable[Finding]:
    there = {
        (window_ms, producer): found
        for window_ms, of_window in stored.counted.items()
        for producer, found in of_window.items()
    }
    for place in produced.keys() | there.keys():
        window_ms, producer = place
        event = told.instance_of.get(producer.producer_id)
        if event is None or stored.is_expired(producer.partition, window_ms):
            continue
        sent, found = produced.get(place, NOTHING), there.get(place, NOTHING)
        kind, records = _difference(told, producer, sent, found, _doubtful(told, stored, place))
        if kind is not None:
            missing = tuple(stored.gaps_of(producer)) if kind in (Kind.LOST, Kind.EXCHANGED) else ()
            yield Finding(kind, window_ms, producer, records, event.host, event.application, missing=missing)


def _difference(told: _Told, producer: Producer, sent: Tally, found: Tally, doubtful: int) -> tuple[Kind | None, int]:
    more = found.records - doubtful - sent.records
    if more < 0:
        return Kind.LOST, -more
    if more > 0:
        return (Kind.EXTRA if producer.producer_id in told.ended else Kind.OPEN), more
    if not doubtful and found.fingerprint != sent.fingerprint:
        return Kind.EXCHANGED, 1
    return None, 0


def _doubtful(told: _Told, stored: StoredLog, place: tuple[int, Producer]) -> int:
    """Return how many of the records that a producer does not know the fate of are there."""
    _window_ms, producer = place
    return sum(stored.count_of(producer, doubt.first, doubt.records) for doubt in told.doubts.get(place, ()))

"""Compares the produced or mirrored records with the log, and the log with a table, per window and producer.

If one record is lost and another one is duplicated, the counts agree, but the fingerprints differ. Records of producers
that send no audit events are counted separately. They never compensate for missing records, but the table must have
them too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from barnabas.audit.consumed_group import ConsumedGroup
from barnabas.audit.differences import differences, gaps_by_log
from barnabas.audit.events import MonitoringEvent
from barnabas.audit.findings import WRONG, Finding, Kind
from barnabas.audit.identities import Producer
from barnabas.audit.loaded_table import LoadedTable, expired_rows
from barnabas.audit.mirrored_topic import MirroredTopic, SourceSide, compare_with_source
from barnabas.audit.missing_records import MissingRecords, before_the_first_row, lost_with_earlier_topics
from barnabas.audit.reported_counts import ReportedCounts
from barnabas.audit.stored_log import StoredLog
from barnabas.audit.windows import Tally, window_of


@dataclass(slots=True)
class WindowBalance:
    """The counts of one window of event time."""

    window_ms: int
    produced: int = 0
    """The number of produced records. For a mirrored topic, they were produced in the source cluster."""
    mirrored: int = 0
    stored: int = 0
    """The number of stored records, including duplicates and unaudited records."""
    loaded: int = 0
    """The number of rows in the table, including duplicates."""
    consumed: int = 0
    """The number of records delivered to a group, including repeated deliveries."""
    late: int = 0
    unaudited: int = 0
    """The number of stored records whose producers send no audit events."""
    counted_by_log: int = 0
    """The number of unaudited records with sequence numbers. The log itself shows losses and duplicates among them."""
    is_expired: bool = False
    """True if retention or DeleteRecords may have removed records, and no account of a table covers them."""
    wrong: dict[Kind, int] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """True if all reported records are stored exactly once."""
        return not self.wrong.keys() - {Kind.AGAIN} and not self.is_expired

    @property
    def status(self) -> str:
        """The state in words: `complete`, or the kinds of problems with their record counts."""
        reported = [f"{kind} {records}" for kind, records in sorted(self.wrong.items())]
        if not self.wrong.keys() - {Kind.AGAIN}:
            reported.insert(0, "expired" if self.is_expired else "complete" if self.is_audited else "not audited")
        return ", ".join(reported)

    @property
    def is_audited(self) -> bool:
        """True if any producer or mirror has reported records of the window."""
        return bool(self.produced or self.mirrored)

    def records_of(self, kind: Kind) -> int:
        """Return the number of records with this kind of problem, over all tiers."""
        return self.wrong.get(kind, 0)


@dataclass(slots=True)
class ApplicationBalance:
    """The counts of one application over all windows."""

    produced: int = 0
    stored: int = 0
    """The number of stored records, including duplicates."""
    loaded: int = 0
    """The number of table rows, including duplicates, whose records are still in the log."""
    mirrored: int = 0


@dataclass(frozen=True, slots=True)
class Balance:
    """The result of an audit: all windows in order, and the findings in them."""

    windows: list[WindowBalance]
    findings: list[Finding]
    width_ms: int
    applications: dict[str, ApplicationBalance] = field(default_factory=dict)
    """The counts of applications that send audit events, by application name."""

    @property
    def is_wrong(self) -> bool:
        """True if the audit found a lost, duplicated or different record."""
        return any(finding.kind in WRONG for finding in self.findings)

    @property
    def complete_until_ms(self) -> int | None:
        """The end in ms of the last window before which all windows are complete; None if the first window is
        incomplete.

        Expired windows at the beginning are ignored, because a topic with retention always has some.
        """
        until = None
        for window in self.windows:
            is_passed_over = until is None and window.is_expired and not window.wrong.keys() - {Kind.AGAIN}
            if window.window_ms < 0 or is_passed_over:
                continue
            if not window.is_complete or not window.is_audited:
                break
            until = window.window_ms + self.width_ms
        return until


def balance(
    events: Iterable[MonitoringEvent],
    stored: StoredLog,
    topic_id: str = "",
    table: LoadedTable | None = None,
    source: SourceSide | None = None,
    group: ConsumedGroup | None = None,
    since_ms: int | None = None,
) -> Balance:
    """Compare the counts reported by producers and mirrors with a log, and the log with a table.

    :param events: audit events of one topic, in any order and possibly repeated. The window width of `stored` is a
        multiple of their width.
    :param topic_id: the topic id in hex; events with another id are ignored. Empty: no event is ignored.
    :param table: the rows of the table, already compared with the log.
    :param source: the source cluster's counts of a mirrored topic, which are compared with the mirror's counts.
    :param group: the deliveries to a consumer group, already compared with the log.
    :param since_ms: ignore windows before this time in ms. Only `events` may contain earlier windows; the other
        arguments must not.
    """
    everything = list(events)
    reported = ReportedCounts(everything, topic_id, stored.width_ms, since_ms)
    windows = _Windows(stored)
    produced = windows.add_reported(reported)
    windows.add_stored(reported)
    of_log, taken = differences(reported, produced, stored)
    findings = [*_repeats(reported, stored), *of_log, *gaps_by_log(reported, stored)]
    mirrored: MirroredTopic | None = None
    if source is not None:
        mirrored = compare_with_source(source, reported, stored.width_ms)
        windows.add_source(mirrored)
        findings += mirrored.findings
    if group is not None:
        windows.add_handed(group)
        findings += [
            each for each in group.findings() if not stored.is_expired(each.producer.partition, each.window_ms)
        ]
    vouched: set[tuple[int, int]] = set()
    if table is not None:
        windows.add_rows(table)
        of_expired, vouched = expired_rows(table, stored)
        of_expired = [_with_sender(reported, each) for each in of_expired]
        findings += [*(_with_sender(reported, each) for each in table.rows.findings), *of_expired]
        missing = [*MissingRecords(reported, produced, stored, table, taken, vouched, findings).findings()]
        if since_ms is None:  # offsets have no event time, so they cannot be assigned to a limited range of windows
            missing += before_the_first_row(table, [*of_expired, *missing])
        findings += [*missing, *lost_with_earlier_topics(everything, topic_id, produced, stored, since_ms)]
    in_order = windows.closed(findings, vouched, taken)
    applications = _applications(reported, produced, stored, table)
    if mirrored is not None:
        _add_senders(applications, mirrored)
    return Balance(in_order, sorted(findings, key=_place), stored.width_ms, applications)


def _applications(
    reported: ReportedCounts, produced: dict[tuple[int, Producer], Tally], stored: StoredLog, table: LoadedTable | None
) -> dict[str, ApplicationBalance]:
    found: dict[str, ApplicationBalance] = {}

    def of(producer: Producer) -> ApplicationBalance:
        event = reported.instance_of.get(producer.producer_id)
        return ApplicationBalance() if event is None else found.setdefault(event.application, ApplicationBalance())

    for (_window_ms, producer), sent in produced.items():
        if producer.is_mirror:
            of(producer).mirrored += sent.records
        else:
            of(producer).produced += sent.records
    for of_window in stored.counted.values():
        for producer, counted in of_window.items():
            of(producer).stored += counted.records
    for repeat in stored.repeats:
        of(repeat.producer).stored += repeat.records
    for producer, rows in ({} if table is None else table.rows.loaded).items():
        of(producer).loaded += rows
    return found


def _add_senders(applications: dict[str, ApplicationBalance], mirrored: MirroredTopic) -> None:
    """Add the counts of the applications that produced the mirrored records in the source cluster."""
    for (_window_ms, producer), sent in mirrored.produced.items():
        sender = mirrored.senders[producer.producer_id].application
        applications.setdefault(sender, ApplicationBalance()).produced += sent.records
    for (_window_ms, producer), found in mirrored.mirrored.items():
        event = mirrored.senders.get(producer.producer_id)
        if event is not None:
            applications.setdefault(event.application, ApplicationBalance()).mirrored += found.records


class _Windows:
    """Builds the windows of a balance from the counts of each tier."""

    def __init__(self, stored: StoredLog) -> None:
        self._stored = stored
        self._windows: dict[int, WindowBalance] = {}
        self._partitions: dict[int, set[int]] = {}

    def _of(self, window_ms: int, partitions: Iterable[int] = ()) -> WindowBalance:
        self._partitions.setdefault(window_ms, set()).update(partitions)
        return self._windows.setdefault(window_ms, WindowBalance(window_ms))

    def add_reported(self, reported: ReportedCounts) -> dict[tuple[int, Producer], Tally]:
        """Add the counts that producers and mirrors have reported, and return them by window and producer."""
        for event in reported.events:
            self._of(window_of(event.window_ms, self._stored.width_ms)).late += event.late
        produced = reported.produced()
        for (window_ms, producer), counted in produced.items():
            window = self._of(window_ms, [producer.partition])
            if producer.is_mirror:
                window.mirrored += counted.records
            else:
                window.produced += counted.records
        return produced

    def add_source(self, mirrored: MirroredTopic) -> None:
        """Add the counts of records produced in the source cluster."""
        for (window_ms, producer), sent in mirrored.produced.items():
            self._of(window_ms, [producer.partition]).produced += sent.records

    def add_stored(self, reported: ReportedCounts) -> None:
        """Add the counts of records in the log."""
        for window_ms, of_window in self._stored.counted.items():
            window = self._of(window_ms, (each.partition for each in of_window))
            for producer, counted in of_window.items():
                window.stored += counted.records
                if producer.producer_id not in reported.instance_of:
                    window.unaudited += counted.records
                    window.counted_by_log += counted.records if producer.is_known else 0
        for repeat in self._stored.repeats:
            self._windows[repeat.window_ms].stored += repeat.records

    def add_handed(self, group: ConsumedGroup) -> None:
        """Add the counts of records delivered to a group."""
        for (window_ms, partition), found in group.handed.items():
            self._of(window_ms, [partition]).consumed += found.records

    def add_rows(self, table: LoadedTable) -> None:
        """Add the counts of rows in the table."""
        for window_ms, of_partition in table.rows.tallies.items():
            window = self._of(window_ms, of_partition)
            window.loaded += sum(found.records for found in of_partition.values())

    def closed(
        self, findings: Iterable[Finding], vouched: set[tuple[int, int]], taken: set[tuple[int, int]]
    ) -> list[WindowBalance]:
        """Return the windows in order, with the records of each kind of finding.

        :param vouched: the windows and partitions that an account of a table covers.
        :param taken: the windows and partitions from which retention removed records.
        """
        for finding in findings:
            wrong = self._of(finding.window_ms).wrong
            wrong[finding.kind] = wrong.get(finding.kind, 0) + finding.records
        for window_ms, window in self._windows.items():
            window.is_expired = any(
                (self._stored.is_expired(each, window_ms) or (window_ms, each) in taken)
                and (window_ms, each) not in vouched
                for each in self._partitions[window_ms]
            )
        return [self._windows[begin] for begin in sorted(self._windows)]


def _with_sender(reported: ReportedCounts, finding: Finding) -> Finding:
    event = reported.instance_of.get(finding.producer.producer_id)
    return finding if event is None else replace(finding, host=event.host, application=event.application)


def _place(finding: Finding) -> tuple[int, Producer, str, Kind]:
    return finding.window_ms, finding.producer, finding.tier, finding.kind


def _repeats(reported: ReportedCounts, stored: StoredLog) -> Iterable[Finding]:
    for repeat in stored.repeats:
        event = reported.instance_of.get(repeat.producer.producer_id)
        host, application = (event.host, event.application) if event else ("", "")
        yield Finding(Kind.DOUBLED, repeat.window_ms, repeat.producer, repeat.records, host, application, repeat.offset)

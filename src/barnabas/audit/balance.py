"""What was produced or mirrored against what is stored, and that against a table: by windows, producer by producer.

A count alone cannot tell one lost and one doubled record from none; the fingerprints can. What is stored by producers
that tell nothing is counted apart, and never balances what is produced; that it is loaded is seen all the same.
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
    """One window of event time."""

    window_ms: int
    produced: int = 0
    """In the source, where one is compared."""
    mirrored: int = 0
    stored: int = 0
    """With second copies, and with what was not audited."""
    loaded: int = 0
    """Rows of the table, with second copies."""
    consumed: int = 0
    """Handed to a group, as often as they were."""
    late: int = 0
    unaudited: int = 0
    """Stored by producers that tell nothing."""
    counted_by_log: int = 0
    """Of these, the ones that their producers have numbered: what is lost between them, and doubled, the log shows."""
    is_expired: bool = False
    """Some of its records may be gone by retention, or by request, and no account of a table vouches for them."""
    wrong: dict[Kind, int] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether all that is known to have been produced is there, once."""
        return not self.wrong.keys() - {Kind.AGAIN} and not self.is_expired

    @property
    def status(self) -> str:
        """In words: complete, or what is the matter."""
        reported = [f"{kind} {records}" for kind, records in sorted(self.wrong.items())]
        if not self.wrong.keys() - {Kind.AGAIN}:
            reported.insert(0, "expired" if self.is_expired else "complete" if self.is_audited else "not audited")
        return ", ".join(reported)

    @property
    def is_audited(self) -> bool:
        """Whether anybody has told of records."""
        return bool(self.produced or self.mirrored)

    def records_of(self, kind: Kind) -> int:
        """Return of how many records this is the matter, at all tiers."""
        return self.wrong.get(kind, 0)


@dataclass(slots=True)
class ApplicationBalance:
    """What one application has sent, in all windows."""

    produced: int = 0
    stored: int = 0
    """With second copies."""
    loaded: int = 0
    """Of what the log still has; rows of the table, with second copies."""
    mirrored: int = 0


@dataclass(frozen=True, slots=True)
class Balance:
    """All windows, in order, and what is the matter in them."""

    windows: list[WindowBalance]
    findings: list[Finding]
    width_ms: int
    applications: dict[str, ApplicationBalance] = field(default_factory=dict)
    """Of those that tell."""

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
    """Compare what producers and mirrors have told with what a log holds, and that with a table.

    :param events: of one topic, in any order; repeated ones do no harm. Their windows are as wide as those of `stored`,
        or these are whole multiples of them.
    :param topic_id: of the topic, in hex: events of another topic that had its name are left out. Empty: of all.
    :param table: with what was found in it while the log was read.
    :param group: with what was found of it while the log was read.
    :param source: of a mirrored topic: what was produced there is compared with what was mirrored.
    :param since_ms: earlier windows are left out of the rest; of events they are left out here.
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
        if since_ms is None:  # offsets say nothing of times
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
    """Add those that have sent to the source what was mirrored."""
    for (_window_ms, producer), sent in mirrored.produced.items():
        sender = mirrored.senders[producer.producer_id].application
        applications.setdefault(sender, ApplicationBalance()).produced += sent.records
    for (_window_ms, producer), found in mirrored.mirrored.items():
        event = mirrored.senders.get(producer.producer_id)
        if event is not None:
            applications.setdefault(event.application, ApplicationBalance()).mirrored += found.records


class _Windows:
    """The windows while they are put together."""

    def __init__(self, stored: StoredLog) -> None:
        self._stored = stored
        self._windows: dict[int, WindowBalance] = {}
        self._partitions: dict[int, set[int]] = {}

    def _of(self, window_ms: int, partitions: Iterable[int] = ()) -> WindowBalance:
        self._partitions.setdefault(window_ms, set()).update(partitions)
        return self._windows.setdefault(window_ms, WindowBalance(window_ms))

    def add_reported(self, reported: ReportedCounts) -> dict[tuple[int, Producer], Tally]:
        """Add what was told, and return it by window and producer."""
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
        """Add what was produced in the source."""
        for (window_ms, producer), sent in mirrored.produced.items():
            self._of(window_ms, [producer.partition]).produced += sent.records

    def add_stored(self, reported: ReportedCounts) -> None:
        """Add what the log holds."""
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
        """Add what a group was handed."""
        for (window_ms, partition), found in group.handed.items():
            self._of(window_ms, [partition]).consumed += found.records

    def add_rows(self, table: LoadedTable) -> None:
        """Add what the table holds."""
        for window_ms, of_partition in table.rows.tallies.items():
            window = self._of(window_ms, of_partition)
            window.loaded += sum(found.records for found in of_partition.values())

    def closed(
        self, findings: Iterable[Finding], vouched: set[tuple[int, int]], taken: set[tuple[int, int]]
    ) -> list[WindowBalance]:
        """Return the windows in order, with what is the matter in them.

        :param vouched: windows and partitions that an account vouches for; `taken`: of which retention took records.
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

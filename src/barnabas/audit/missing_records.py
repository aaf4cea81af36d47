"""Finds acknowledged records that are in neither the log nor the table, regardless of the cause.

Retention, DeleteRecords or the deletion of a topic can remove records before a load reads them, or a load can start
after the first records. The reports of producers prove that the records existed. The log and the accounts of loads
prove which of them still exist:

- **Exact.** A load reports the records that it read, by producer and window. If all loads of a table reported, the
  table must have all records that producers reported, except those that wait in the log for the next load.
- **At least.** If some loads did not report, the rows of a window and partition are counted instead. Rows from
  producers without audit events may hide a loss, but a reported loss is certain.
- **Before the first row.** Offsets before both the log start and the table's first row had records too. If no producer
  reported these records, they are counted by their offsets.
- **An earlier topic of the same name.** No log contains its records any more, so the accounts of all tables are used.

A record that expires after its load is in an account and is not reported as lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from barnabas.audit.account import offsets_of
from barnabas.audit.events import COMMITTED, LOADED, MonitoringEvent
from barnabas.audit.findings import Finding, Kind
from barnabas.audit.identities import Producer
from barnabas.audit.loaded_table import LoadedTable, accounts_of
from barnabas.audit.reported_counts import ReportedCounts
from barnabas.audit.stored_log import StoredLog
from barnabas.audit.windows import NO_WINDOW_MS, NOTHING, Tally

Place = tuple[int, Producer]
"""The start of a window in ms, and a producer."""


@dataclass(slots=True)
class MissingRecords:
    """Compares the producers' reports with both the log and the table, to find missing records that the log alone
    cannot show.

    :param taken: windows and partitions from which retention removed records, in addition to expired windows.
    :param vouched: windows and partitions whose accounts agree with the table's rows.
    :param known: the findings already made about the same log and table.
    """

    reported: ReportedCounts
    produced: Mapping[Place, Tally]
    stored: StoredLog
    table: LoadedTable
    taken: set[tuple[int, int]]
    vouched: set[tuple[int, int]]
    known: Iterable[Finding]
    _known: dict[Place, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for finding in self.known:
            if finding.kind is Kind.LOST:
                place = (finding.window_ms, finding.producer)
                self._known[place] = self._known.get(place, 0) + finding.records

    def findings(self) -> Iterator[Finding]:
        """Yield the records that producers reported and that are in neither the log nor the table."""
        unaccounted: dict[tuple[int, int], list[Producer]] = {}
        for (window_ms, producer), sent in self.produced.items():
            where = (window_ms, producer.partition)
            if not self.stored.is_expired(producer.partition, window_ms) and where not in self.taken:
                continue
            if self.table.is_whole or where in self.vouched:
                yield from self._by_accounts(window_ms, producer, sent)
            else:
                unaccounted.setdefault(where, []).append(producer)
        for (window_ms, _partition), producers in unaccounted.items():
            yield from self._by_rows(window_ms, producers)

    def _by_accounts(self, window_ms: int, producer: Producer, sent: Tally) -> Iterator[Finding]:
        place = (window_ms, producer)
        loaded = self.table.account_of(window_ms).counted.get(producer, NOTHING)
        waiting = self.table.rows.waiting_of.get(place, 0)
        doubts = self.reported.doubts.get(place, ())
        more = loaded.records + waiting - sent.records
        if more < 0:
            lost = -more - self._known.get(place, 0)
            if lost > 0:
                yield self._of_sender(Kind.LOST, window_ms, producer, lost)
        elif (window_ms, producer.partition) not in self.vouched:
            return
        elif more > sum(doubt.records for doubt in doubts):
            kind = Kind.EXTRA if producer.producer_id in self.reported.ended else Kind.OPEN
            yield self._of_sender(kind, window_ms, producer, more)
        elif not doubts and not waiting and loaded.fingerprint != sent.fingerprint:
            yield self._of_sender(Kind.EXCHANGED, window_ms, producer, 1)

    def _by_rows(self, window_ms: int, producers: list[Producer]) -> Iterator[Finding]:
        partition = producers[0].partition
        rows = self.table.rows.tallies.get(window_ms, {}).get(partition, NOTHING)
        account = self.table.account_of(window_ms).offsets.get(partition, NOTHING)
        waiting = sum(self.table.rows.waiting_of.get((window_ms, each), 0) for each in producers)
        sent = sum(self.produced[window_ms, each].records for each in producers)
        known = sum(self._known.get((window_ms, each), 0) for each in producers)
        lost = sent - max(rows.records, account.records) - waiting - known
        if lost > 0:
            whose = producers[0] if len(producers) == 1 else offsets_of(partition)
            yield self._of_sender(Kind.LOST, window_ms, whose, lost)

    def _of_sender(self, kind: Kind, window_ms: int, producer: Producer, records: int) -> Finding:
        event = self.reported.instance_of.get(producer.producer_id)
        host, application = (event.host, event.application) if event else ("", "")
        return Finding(kind, window_ms, producer, records, host, application, tier=LOADED)


def before_the_first_row(table: LoadedTable, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings for the offsets before the log start and the table's first row, without records that other
    findings already report.

    :param findings: findings about records that are missing in the log.
    """
    reported: dict[int, int] = {}
    for finding in findings:
        if finding.kind is Kind.LOST and finding.tier == LOADED:
            partition = finding.producer.partition
            reported[partition] = reported.get(partition, 0) + finding.records
    for partition, begin in table.rows.begins.items():
        first = min(begin, table.rows.first_offsets.get(partition, begin))
        records = first - reported.get(partition, 0)
        if records > 0:
            whose = offsets_of(partition)
            yield Finding(
                Kind.LOST, NO_WINDOW_MS, whose, records, offset=0, offsets=((0, first),), tier=LOADED, is_by_log=True
            )


def lost_with_earlier_topics(
    events: Iterable[MonitoringEvent],
    topic_id: str,
    produced: Mapping[Place, Tally],
    stored: StoredLog,
    since_ms: int | None = None,
) -> Iterator[Finding]:
    """Yield the lost records of earlier topics that had the same name and were deleted.

    A record is lost if no load into any table has read it.

    A producer with outdated metadata may report records of the new topic under the old topic id. The new log then has
    more records of that producer than it reported for the new topic. The surplus is not lost.

    :param produced: the counts reported for the topic that currently has the name.
    """
    by_topic: dict[str, list[MonitoringEvent]] = {}
    for event in events:
        if topic_id and event.topic_id not in ("", topic_id):
            by_topic.setdefault(event.topic_id, []).append(event)
    for earlier_id, of_topic in sorted(by_topic.items()):
        reported = ReportedCounts(of_topic, earlier_id, stored.width_ms, since_ms)
        loaded = _loaded_anywhere(of_topic, stored.width_ms)
        for place, sent in reported.produced().items():
            window_ms, producer = place
            here = stored.counted.get(window_ms, {}).get(producer, NOTHING).records
            unreported = max(0, here - produced.get(place, NOTHING).records)
            lost = sent.records - loaded.get(place, 0) - unreported
            if lost > 0:
                sender = reported.instance_of[producer.producer_id]
                finding = Finding(Kind.LOST, window_ms, producer, lost, sender.host, sender.application, tier=LOADED)
                yield replace(finding, earlier_topic_id=earlier_id)


def _loaded_anywhere(events: list[MonitoringEvent], width_ms: int) -> dict[Place, int]:
    """Return the number of loaded records by window and producer. Each number comes from the table with the most
    records.
    """
    tables = {event.instance.split(".")[0] for event in events if event.tier == COMMITTED}
    loaded: dict[Place, int] = {}
    for audit_id in tables:
        for window_ms, account in accounts_of(events, audit_id, [], width_ms).items():
            for producer, found in account.counted.items():
                place = (window_ms, producer)
                loaded[place] = max(loaded.get(place, 0), found.records)
    return loaded

"""Audits one run of the demo. The audit counts the records of each tier separately."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from barnabas import Admin
from barnabas.audit.balance import ApplicationBalance, Balance
from barnabas.audit.events import LOADED
from barnabas.audit.findings import Finding, Kind
from barnabas.client.audit.topic_audit import audit_topic
from barnabas.model import TopicPartition
from barnabas.spark.table_audit import TableAudit
from barnabas.spark.table_place import TablePlace

_LOST = (Kind.LOST, Kind.EXCHANGED)
_DUPLICATED = (Kind.DOUBLED, Kind.EXTRA)
_NOT_LOADED = (Kind.LATE, Kind.OPEN)


@dataclass(frozen=True, slots=True)
class Audit:
    """The counts of one run.

    :param expected: the number of events of the input.
    :param produced: the number of records that the producer reports as acknowledged.
    :param stored: the number of the run's records in the log.
    :param consumed: the number of records that the consumer group has read.
    :param loaded: the number of rows in the table.
    :param lost: the number of records that are in a tier but not in the next tier.
    :param duplicated: the number of records that a tier has twice.
    :param late: the number of records that arrived after the load.
    """

    expected: int
    produced: int
    stored: int
    consumed: int
    loaded: int
    lost: int
    duplicated: int
    late: int = 0
    findings: tuple[Finding, ...] = ()

    @property
    def balances(self) -> bool:
        """True if every event of the input is in every tier exactly once."""
        counts = (self.produced, self.stored, self.consumed, self.loaded)
        return all(count == self.expected for count in counts) and not (self.lost or self.duplicated or self.late)

    def line(self) -> str:
        """Return the last line of the demo.

        >>> Audit(3, 3, 3, 3, 3, 0, 0).line()
        'audit: produced=3 stored=3 consumed=3 loaded=3 lost=0 duplicated=0'
        """
        late = f" late={self.late}" if self.late else ""
        return (
            f"audit: produced={self.produced} stored={self.stored} consumed={self.consumed} loaded={self.loaded} "
            f"lost={self.lost} duplicated={self.duplicated}{late}"
        )


def application_of(run: str) -> str:
    """Return the application name under which the audit counts the producer of a run."""
    return f"demo-{run}"


def audit_run(bootstrap: str, topic: str, folder: Path, table: str, run: str, expected: int, consumed: int) -> Audit:
    """Audit the topic and return the counts of one run. Earlier runs in the topic may be incomplete."""
    place = TablePlace.of(folder / "warehouse")
    with Admin(bootstrap) as admin:
        found = audit_topic(
            bootstrap, admin, topic, table_side=lambda topic_id: TableAudit(place, table, topic, topic_id)
        )
    return books_of(found, run, expected, consumed)


def books_of(found: Balance, run: str, expected: int, consumed: int) -> Audit:
    """Return the counts of one run from an audit."""
    counts = found.applications.get(application_of(run), ApplicationBalance())
    findings = tuple(each for each in found.findings if each.application == application_of(run))
    return Audit(
        expected=expected,
        produced=counts.produced,
        stored=counts.stored,
        consumed=consumed,
        loaded=counts.loaded,
        lost=sum(each.records for each in findings if each.kind in _LOST),
        duplicated=sum(each.records for each in findings if each.kind in _DUPLICATED),
        late=sum(each.records for each in findings if each.tier == LOADED and each.kind in _NOT_LOADED),
        findings=findings,
    )


def where_it_is(finding: Finding) -> str:
    """Return a description of a finding and its position."""
    tier = "the table" if finding.tier == LOADED else "the log"
    place = f"partition {finding.producer.partition}"
    if finding.offset is not None:
        place += f", offset {finding.offset}"
    elif finding.missing:
        place += f", sequence number {finding.missing[0][0]}"
    sender = f", sent by {finding.application} on {finding.host}" if finding.application else ""
    return f"{finding.records} {finding.kind} in {tier}: {place}{sender}"


def since(before: Mapping[TopicPartition, int]) -> str:
    """Return a table filter for the records that were stored after the given end offsets.

    With the filter, the query need not read the files of earlier runs. The ids of the records show whether they belong
    to this run.
    """
    return " or ".join(
        f"(partition = {partition.partition} and offset >= {offset})" for partition, offset in before.items()
    )

"""The books: what the audit says of one run, each tier counted at its own place."""

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

    `produced`: what the producer told that was acknowledged. `stored`: its records in the log. `consumed`: those that
    the group saw. `loaded`: their rows in the table. `lost`: records that a tier has and the next one has not;
    `duplicated`: those that are there a second time; `late`: those that came when the table had been loaded.
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
        """Whether every event of the input came through every place, once."""
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
    """Return under which name a run's producer is known to the audit."""
    return f"demo-{run}"


def audit_run(bootstrap: str, topic: str, folder: Path, table: str, run: str, expected: int, consumed: int) -> Audit:
    """Audit the topic, and return what is about one run: runs before it may have been stopped anywhere."""
    place = TablePlace.of(folder / "warehouse")
    with Admin(bootstrap) as admin:
        found = audit_topic(
            bootstrap, admin, topic, table_side=lambda topic_id: TableAudit(place, table, topic, topic_id)
        )
    return books_of(found, run, expected, consumed)


def books_of(found: Balance, run: str, expected: int, consumed: int) -> Audit:
    """Return what an audit says of one run."""
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
    """Return in words what is the matter and where, for people."""
    tier = "the table" if finding.tier == LOADED else "the log"
    place = f"partition {finding.producer.partition}"
    if finding.offset is not None:
        place += f", offset {finding.offset}"
    elif finding.missing:
        place += f", sequence number {finding.missing[0][0]}"
    sender = f", sent by {finding.application} on {finding.host}" if finding.application else ""
    return f"{finding.records} {finding.kind} in {tier}: {place}{sender}"


def since(before: Mapping[TopicPartition, int]) -> str:
    """Return the filter of a table for what was stored after a look at where the logs end.

    It saves reading the files of earlier runs. Which records are of this run is decided by their ids.
    """
    return " or ".join(
        f"(partition = {partition.partition} and offset >= {offset})" for partition, offset in before.items()
    )

"""The metrics of `barnabas audit TOPIC --watch SECONDS`: the results of the last comparison.

`AuditMetrics.note` replaces all values after each comparison. So the numbers of windows and records are gauges: an open
record may be complete at the next comparison, and expired windows disappear.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from barnabas.audit.balance import Balance, WindowBalance
from barnabas.audit.events import CONSUMED, LOADED, MIRRORED, PRODUCED
from barnabas.audit.findings import STORED, WRONG, Kind
from barnabas.metrics.metric import Sample, counter, gauge

RUNS = counter("barnabas_audit_runs_total", "Completed comparisons.", "topic")
LAST_RUN = gauge(
    "barnabas_audit_last_run_timestamp_seconds", "End of the last comparison, in seconds since 1970.", "topic"
)
LAST_DURATION = gauge("barnabas_audit_last_run_seconds", "Duration of the last comparison.", "topic")
COMPLETE_UNTIL = gauge(
    "barnabas_audit_complete_until_timestamp_seconds",
    "Event time up to which all windows are complete, in seconds since 1970. Absent if the first window is not.",
    "topic",
)
WINDOWS = gauge(
    "barnabas_audit_windows",
    "Windows by status: complete, incomplete, expired, not_audited. An incomplete window has records that are"
    " lost, duplicated, or not reported or loaded yet.",
    "topic",
    "status",
)
RECORDS = gauge(
    "barnabas_audit_records",
    "Records in all windows by tier. produced: records reported by producers. Others: stored records, including"
    " duplicates.",
    "topic",
    "tier",
)
FINDINGS = gauge(
    "barnabas_audit_findings",
    "Records with problems, by tier and kind. open: not reported or not loaded yet.",
    "topic",
    "tier",
    "kind",
)
LATE = gauge(
    "barnabas_audit_late_records",
    "Records acknowledged 5 minutes or more after the end of their window.",
    "topic",
)
NOT_AUDITED = gauge("barnabas_audit_not_audited_records", "Records of producers without audit.", "topic")

STATUSES = COMPLETE, INCOMPLETE, EXPIRED, NONE_AUDITED = ("complete", "incomplete", "expired", "not_audited")
KINDS = (*sorted(WRONG), Kind.OPEN)


@dataclass(frozen=True, slots=True)
class _Run:
    """A completed comparison."""

    number: int
    ended_s: float
    took_s: float
    found: Balance


class AuditMetrics:
    """The results of the last comparison. One thread writes the results; any thread may read them.

    :param tiers: the compared tiers other than `PRODUCED` and `STORED`.
    """

    def __init__(self, topic: str, tiers: Sequence[str] = ()) -> None:
        self._topic = topic
        self._tiers = (PRODUCED, STORED, *tiers)
        self._last: _Run | None = None

    def not_ready(self) -> list[str]:
        """Return the reason why there are no results yet, or an empty string if results exist. Thread-safe."""
        return ["the first comparison has not ended"] if self._last is None else []

    def note(self, found: Balance, ended_s: float, took_s: float) -> None:
        """Store the result of a comparison.

        :param ended_s: end of the comparison, in seconds since the epoch.
        """
        number = 1 if self._last is None else self._last.number + 1
        self._last = _Run(number, ended_s, took_s, found)

    def collect(self) -> Iterator[Sample]:
        """Yield the metrics. Thread-safe."""
        topic, last = self._topic, self._last
        yield RUNS.sample(0 if last is None else last.number, topic)
        if last is None:
            return
        yield LAST_RUN.sample(last.ended_s, topic)
        yield LAST_DURATION.sample(last.took_s, topic)
        if (until_ms := last.found.complete_until_ms) is not None:
            yield COMPLETE_UNTIL.sample(until_ms / 1000, topic)
        windows = last.found.windows
        statuses = Counter(map(_status, windows))
        for status in STATUSES:
            yield WINDOWS.sample(statuses[status], topic, status)
        for tier in self._tiers:
            yield RECORDS.sample(sum(getattr(window, tier) for window in windows), topic, tier)
        yield from self._found(last.found)
        yield LATE.sample(sum(window.late for window in windows), topic)
        yield NOT_AUDITED.sample(sum(window.unaudited for window in windows), topic)

    def _found(self, found: Balance) -> Iterator[Sample]:
        """Yield a sample for each kind of wrong record, even if there are none, because alerts need a series that
        starts at 0."""
        records: Counter[tuple[str, Kind]] = Counter()
        for finding in found.findings:
            records[finding.tier, finding.kind] += finding.records
        for tier in self._tiers[1:]:
            for kind in KINDS:
                yield FINDINGS.sample(records[tier, kind], self._topic, tier, kind)


def tiers_of(*, has_source: bool, has_group: bool, has_table: bool) -> tuple[str, ...]:
    """Return the compared tiers other than `PRODUCED` and `STORED`."""
    given = ((MIRRORED, has_source), (CONSUMED, has_group), (LOADED, has_table))
    return tuple(tier for tier, is_compared in given if is_compared)


def _status(window: WindowBalance) -> str:
    if window.wrong.keys() - {Kind.AGAIN}:
        return INCOMPLETE
    if window.is_expired:
        return EXPIRED
    return COMPLETE if window.is_audited else NONE_AUDITED

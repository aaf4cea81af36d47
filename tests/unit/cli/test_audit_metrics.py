"""The metrics of an audit that goes on: what the last comparison found, with zeros for what it did not find."""

from __future__ import annotations

from barnabas.audit.balance import Balance, WindowBalance
from barnabas.audit.findings import Finding, Kind
from barnabas.audit.identities import Producer
from barnabas.cli.audit_metrics import AuditMetrics, tiers_of

ONE = Producer(7, 0, 0)
MINUTE_MS = 60_000


def windows(*changes: dict[str, object]) -> list[WindowBalance]:
    """Return a window for each change, the first one of minute 0."""
    made = []
    for minute, changed in enumerate(changes):
        window = WindowBalance(minute * MINUTE_MS, produced=100, stored=100, loaded=90)
        for name, value in changed.items():
            setattr(window, name, value)
        made.append(window)
    return made


def values(metrics: AuditMetrics) -> dict[tuple[str, ...], object]:
    """Return the metrics of the topic by name and further labels."""
    found = {}
    for metric, value, labels in metrics.collect():
        assert labels[0] == "clicks"
        assert (metric.name, *labels[1:]) not in found
        found[metric.name, *labels[1:]] = value
    return found


def test_there_are_no_figures_before_the_first_comparison() -> None:
    metrics = AuditMetrics("clicks")
    assert values(metrics) == {("barnabas_audit_runs_total",): 0}
    assert metrics.not_ready() == ["the first comparison has not ended"]


def test_windows_count_by_status_and_records_by_tier() -> None:
    metrics = AuditMetrics("clicks", tiers_of(has_source=False, has_group=False, has_table=True))
    found = Balance(
        windows(
            {},
            {"wrong": {Kind.AGAIN: 3}},
            {"wrong": {Kind.LOST: 10, Kind.OPEN: 5}, "is_expired": True, "late": 4},
            {"is_expired": True},
            {"produced": 0, "unaudited": 100},
        ),
        [],
        MINUTE_MS,
    )
    metrics.note(found, ended_s=1_000.0, took_s=2.5)
    metrics.note(found, ended_s=1_060.0, took_s=1.5)
    shown = values(metrics)
    expected = {
        ("barnabas_audit_runs_total",): 2,
        ("barnabas_audit_last_run_timestamp_seconds",): 1_060.0,
        ("barnabas_audit_last_run_seconds",): 1.5,
        ("barnabas_audit_complete_until_timestamp_seconds",): 120.0,
        ("barnabas_audit_windows", "complete"): 2,
        ("barnabas_audit_windows", "incomplete"): 1,
        ("barnabas_audit_windows", "expired"): 1,
        ("barnabas_audit_windows", "not_audited"): 1,
        ("barnabas_audit_records", "produced"): 400,
        ("barnabas_audit_records", "stored"): 500,
        ("barnabas_audit_records", "loaded"): 450,
        ("barnabas_audit_late_records",): 4,
        ("barnabas_audit_not_audited_records",): 100,
    }
    assert {series: shown[series] for series in expected} == expected
    assert metrics.not_ready() == []


def test_findings_count_by_tier_and_kind_and_leave_with_the_next_comparison() -> None:
    metrics = AuditMetrics("clicks", tiers_of(has_source=True, has_group=True, has_table=False))
    lost = [Finding(Kind.LOST, minute, ONE, 3, tier="mirrored") for minute in range(2)]
    again = Finding(Kind.AGAIN, 0, ONE, 9, tier="consumed")
    metrics.note(Balance(windows({}), [*lost, Finding(Kind.DOUBLED, 0, ONE, 1), again], MINUTE_MS), 0.0, 0.0)
    shown = {series[1:]: value for series, value in values(metrics).items() if series[0] == "barnabas_audit_findings"}
    assert {series: value for series, value in shown.items() if value} == {
        ("mirrored", "lost"): 6,
        ("stored", "doubled"): 1,
    }
    assert {tier for tier, _ in shown} == {"stored", "mirrored", "consumed"}
    assert {kind for _, kind in shown} == {"lost", "doubled", "exchanged", "extra", "late", "open"}
    metrics.note(Balance(windows({}), [], MINUTE_MS), 1.0, 0.0)
    assert {value for series, value in values(metrics).items() if series[0] == "barnabas_audit_findings"} == {0}


def test_watermark_is_absent_while_the_first_window_is_incomplete() -> None:
    metrics = AuditMetrics("clicks")
    metrics.note(Balance(windows({"wrong": {Kind.OPEN: 1}}), [], MINUTE_MS), 0.0, 0.0)
    assert ("barnabas_audit_complete_until_timestamp_seconds",) not in values(metrics)

"""Prints the results of an audit, windows or findings, as tables for users or as JSON for programs."""

from __future__ import annotations

from typing import Any, NamedTuple

import click

from barnabas.audit.balance import Balance, WindowBalance
from barnabas.audit.finding_text import place_of
from barnabas.audit.findings import Finding, Kind
from barnabas.audit.watermark import AuditState
from barnabas.cli.table_output import show_json, show_table
from barnabas.cli.times import show_time_ms


class AuditedTable(NamedTuple):
    """The table that an audit compares, and the audit state stored by its last load."""

    name: str
    state: AuditState | None


def show_windows(
    topic: str, found: Balance, table: AuditedTable | None, group: str | None = None, *, as_json: bool
) -> None:
    """Print the windows of a topic, with the counts of the table and the consumer group if the audit compared them."""
    loaded_until = None if table is None or table.state is None else table.state.complete_until_ms
    if as_json:
        of_table = {} if table is None else {"table": table.name, "table_complete_until": loaded_until}
        show_json(
            {
                "topic": topic,
                "complete_until": found.complete_until_ms,
                "is_wrong": found.is_wrong,
                **of_table,
                **({} if group is None else {"group": group}),
                "applications": {
                    name: {
                        "produced": each.produced,
                        "mirrored": each.mirrored,
                        "stored": each.stored,
                        **({"loaded": each.loaded} if table else {}),
                    }
                    for name, each in sorted(found.applications.items())
                },
                "windows": [
                    _as_json(window, has_table=table is not None, has_group=group is not None)
                    for window in found.windows
                ],
            }
        )
        return
    if not found.windows:
        click.echo(f"topic {topic} has no records, and no producer has reported any", err=True)
        return
    mirrored = ["mirrored"] if any(each.mirrored for each in found.windows) else []
    consumed = [] if group is None else ["consumed"]
    loaded = [] if table is None else ["loaded"]
    show_table(
        ["window", "produced", *mirrored, "stored", *consumed, *loaded, "late", "not audited", "status"],
        [
            [
                _time(each.window_ms), each.produced, *([each.mirrored] if mirrored else []), each.stored,
                *([each.consumed] if consumed else []), *([each.loaded] if loaded else []), each.late,
                each.unaudited, each.status,
            ]
            for each in found.windows
        ],
    )  # fmt: skip
    click.echo(f"complete until {_until(found.complete_until_ms)}")
    if table is not None:
        click.echo(f"table {table.name} at its last load: complete until {_until(loaded_until)}")


def _until(time_ms: int | None) -> str:
    return "-" if time_ms is None else show_time_ms(time_ms)


def _as_json(window: WindowBalance, *, has_table: bool, has_group: bool) -> dict[str, Any]:
    kinds = {str(kind): window.records_of(kind) for kind in Kind if kind is not Kind.LATE}
    of_table = {"loaded": window.loaded, "late_for_table": window.records_of(Kind.LATE)} if has_table else {}
    return {
        "window": window.window_ms,
        "produced": window.produced,
        "mirrored": window.mirrored,
        "stored": window.stored,
        **kinds,
        **of_table,
        **({"consumed": window.consumed} if has_group else {}),
        "late": window.late,
        "not_audited": window.unaudited,
        "counted_by_log": window.counted_by_log,
        "status": window.status,
    }


def show_why(topic: str, found: Balance, *, as_json: bool) -> None:
    """Print the findings about a topic: the senders of the records and their positions."""
    if as_json:
        show_json([_finding_as_json(each) for each in found.findings])
        return
    if not found.findings:
        click.echo(f"no problems found in {topic}")
        return
    show_table(
        ["window", "tier", "what", "records", "partition", "host", "application", "where"],
        [
            [
                _time(each.window_ms), each.tier, str(each.kind), each.records, str(each.producer.partition),
                each.host or None, each.application or None, place_of(each),
            ]
            for each in found.findings
        ],
    )  # fmt: skip


def _finding_as_json(finding: Finding) -> dict[str, Any]:
    return {
        "window": finding.window_ms,
        "tier": finding.tier,
        "kind": str(finding.kind),
        "records": finding.records,
        "partition": finding.producer.partition,
        "producer_id": finding.producer.producer_id,
        "producer_epoch": finding.producer.producer_epoch,
        "host": finding.host,
        "application": finding.application,
        "offset": finding.offset,
        "by_log": finding.is_by_log,
        "missing_sequences": [list(each) for each in finding.missing],
        "offsets": [list(each) for each in finding.offsets],
        **({"earlier_topic_id": finding.earlier_topic_id} if finding.earlier_topic_id else {}),
    }


def _time(window_ms: int) -> str:
    return "no timestamp" if window_ms < 0 else show_time_ms(window_ms)

"""`barnabas audit`: whether all that was produced to a topic is there, once; and if not, what is the matter."""

from __future__ import annotations

import sys
from typing import Any

import click

from barnabas.audit.balance import Balance, Finding, Kind, WindowBalance, balance
from barnabas.cli.broker_names import complete_topics
from barnabas.cli.options import bootstrap_option, connect, json_option
from barnabas.cli.progress import record_progress
from barnabas.cli.tables import show_json, show_table
from barnabas.cli.timestamps import show_time_ms
from barnabas.client.audited import count_stored, read_events, topic_ranges
from barnabas.clock import SYSTEM_CLOCK

WHY = "why"
MISSING_SHOWN_MAX = 5


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[why] TOPIC", shell_complete=complete_topics)
@click.option(
    "--watch", "watch_s", type=click.FloatRange(min=0.1), metavar="SECONDS", help="Do it again and again, until Ctrl-C."
)
@json_option
@bootstrap_option
def audit(words: tuple[str, ...], watch_s: float | None, as_json: bool, bootstrap: str) -> None:
    """Compare what producers say was acknowledged with what the log of TOPIC holds, minute by minute of event time.

    Producers tell it that have the setting audit=True; for ship and produce, -X audit=true. `audit why TOPIC` says of
    what is lost or doubled who sent it, and where it is. The exit code is 1 when something is wrong.

    \b
    barnabas audit clicks
    barnabas audit why clicks --json
    """
    is_why = len(words) == 2 and words[0] == WHY
    if len(words) != 1 and not is_why:
        raise click.UsageError("say one topic: barnabas audit TOPIC, or barnabas audit why TOPIC")
    topic = words[-1]
    while True:
        found = _audit(bootstrap, topic)
        show = _show_why if is_why else _show_windows
        show(topic, found, as_json=as_json)
        if watch_s is None:
            break
        sys.stdout.flush()
        SYSTEM_CLOCK.sleep(watch_s)
    if found.is_wrong:
        sys.exit(1)


def _audit(bootstrap: str, topic: str) -> Balance:
    with connect(bootstrap) as admin:
        # Events first: what is acknowledged later is in the log, and open until it is told.
        events = read_events(bootstrap, admin, topic)
        topic_id = admin.describe_topics([topic])[0].id
        ranges = topic_ranges(admin, topic)
        total = sum(end - begin for begin, end in ranges.values())
        with record_progress(f"reading {topic}", total) as advance:
            return balance(events, count_stored(bootstrap, ranges, advance), topic_id)


def _show_windows(topic: str, found: Balance, *, as_json: bool) -> None:
    if as_json:
        show_json(
            {
                "topic": topic,
                "complete_until": found.complete_until_ms,
                "is_wrong": found.is_wrong,
                "windows": [_as_json(window) for window in found.windows],
            }
        )
        return
    if not found.windows:
        click.echo(f"there is nothing in {topic}, and nobody has told of anything", err=True)
        return
    show_table(
        ["window", "produced", "stored", "late", "not audited", "status"],
        [
            [_time(each.window_ms), each.produced, each.stored, each.late, each.unaudited, each.status]
            for each in found.windows
        ],
    )
    until = found.complete_until_ms
    click.echo(f"complete until {'-' if until is None else show_time_ms(until)}")


def _as_json(window: WindowBalance) -> dict[str, Any]:
    return {
        "window": window.window_ms,
        "produced": window.produced,
        "stored": window.stored,
        **{str(kind): window.wrong.get(kind, 0) for kind in Kind},
        "late": window.late,
        "not_audited": window.unaudited,
        "status": window.status,
    }


def _show_why(topic: str, found: Balance, *, as_json: bool) -> None:
    if as_json:
        show_json([_finding_as_json(each) for each in found.findings])
        return
    if not found.findings:
        click.echo(f"nothing is the matter with {topic}")
        return
    show_table(
        ["window", "what", "records", "partition", "host", "application", "where"],
        [
            [
                _time(each.window_ms), str(each.kind), each.records, str(each.producer.partition), each.host or None,
                each.application or None, _where(each),
            ]
            for each in found.findings
        ],
    )  # fmt: skip


def _finding_as_json(finding: Finding) -> dict[str, Any]:
    return {
        "window": finding.window_ms,
        "kind": str(finding.kind),
        "records": finding.records,
        "partition": finding.producer.partition,
        "producer_id": finding.producer.producer_id,
        "producer_epoch": finding.producer.producer_epoch,
        "host": finding.host,
        "application": finding.application,
        "offset": finding.offset,
        "missing_sequences": [list(each) for each in finding.missing],
    }


def _where(finding: Finding) -> str | None:
    if finding.offset is not None:
        return f"again at offset {finding.offset}"
    if not finding.missing:
        return None
    shown = [f"{first} to {first + count - 1}" for first, count in finding.missing[:MISSING_SHOWN_MAX]]
    more = len(finding.missing) - len(shown)
    return f"missing sequence numbers {', '.join(shown)}{f' and {more} more gaps' if more else ''}"


def _time(window_ms: int) -> str:
    return "no timestamp" if window_ms < 0 else show_time_ms(window_ms)

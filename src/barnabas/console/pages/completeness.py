"""Completeness: the strips of audited topics, the audit of one topic, and the neighbours of a lost record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.responses import Response

from barnabas.audit.finding_text import place_of
from barnabas.audit.findings import WRONG, Finding
from barnabas.audit.identities import Producer
from barnabas.audit.strip import CELLS_MAX, Cell, CellState, Strip, is_within, strip_of
from barnabas.console.audits import AuditResult, TopicAudit
from barnabas.console.cluster_view import TopicRow
from barnabas.console.context import Context
from barnabas.console.pages.fields import whole_number
from barnabas.console.pages.listing import listing
from barnabas.model import TopicPartition

SOON_S = 0.5
"""The time that a page waits for a new audit. Later it shows the progress of the audit."""
FINDINGS_SHOWN_MAX = 200
RANGES_SHOWN_MAX = 20
AROUND = 3
"""The number of records that a page shows before and after a record."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A range of affected records of a finding.

    :ivar text: the offsets or the sequence numbers.
    :ivar link: the page of the record, or of the neighbours of the lost record; None if the log cannot have either.
    :ivar around: the page of the records around it; None if its offset is not known.
    """

    text: str
    link: str | None
    around: str | None = None


@dataclass(frozen=True, slots=True)
class FindingRow:
    """A finding, with its ranges.

    :ivar numbers: the name of the numbers in the ranges.
    """

    finding: Finding
    is_wrong: bool
    numbers: str
    gaps: Sequence[Gap]
    more_gaps: int
    place: str | None


async def completeness(context: Context) -> Response:
    """Show the topics about which producers have reported, and the names of all others."""
    rows, known = await context.view.rows(), await context.view.within(context.audits.reported_topics())
    reported = known or frozenset()
    audited = [row for row in rows if row.name in reported]
    found = listing(context, audited, _name_of, {"name": _name_of, "records": lambda row: row.records})
    return context.page(
        "_completeness.html" if context.is_partial else "completeness.html",
        title="Completeness",
        list=found,
        is_known=known is not None,
        others=[row.name for row in rows if row.name not in reported and not row.name.startswith("_")],
    )


async def strip(context: Context) -> Response:
    """Return the strip of a topic, or the progress of its audit."""
    name = await topic_of(context)
    audit = context.audits.ask(name)
    if audit.result is None:
        await context.audits.wait(audit, SOON_S)
    return context.page("_strip.html", audit=audit, **_strip_values(audit, None, None))


async def topic(context: Context) -> Response:
    """Show the audit of a topic, or of a range of event time."""
    name = await topic_of(context)
    begin_ms, end_ms = _time(context, "from"), _time(context, "until")
    audit = context.audits.ask(name)
    if audit.result is None:
        await context.audits.wait(audit, SOON_S)
    result = audit.result
    findings = [] if result is None else [
        each for each in result.balance.findings if is_within(each.window_ms, begin_ms, end_ms)
    ]  # fmt: skip
    return context.page(
        "_completeness_topic.html" if context.is_partial else "completeness_topic.html",
        title=f"Completeness of {name}",
        audit=audit,
        begin_ms=begin_ms,
        end_ms=end_ms,
        here="/completeness/topic?" + urlencode({"topic": name, **_range_query(begin_ms, end_ms)}),
        findings=[_row_of(name, each) for each in findings[:FINDINGS_SHOWN_MAX]],
        finding_count=len(findings),
        wrong=sum(each.records for each in findings if each.kind in WRONG),
        has_tables=context.audits.has_tables,
        **_strip_values(audit, begin_ms, end_ms),
    )


async def neighbours(context: Context) -> Response:
    """Show the records that a producer sent before and after lost ones."""
    name = await topic_of(context)
    number = {
        each: whole_number(context.query(each), each) for each in ("partition", "producer", "epoch", "first", "count")
    }
    window_ms = _time(context, "window") or 0
    (described,) = await context.view.within(context.view.admin.describe_topics([name]))
    if number["partition"] not in [each.partition for each in described.partitions]:
        raise HTTPException(404, f"topic {name} has no partition {number['partition']}")
    where = TopicPartition(name, number["partition"])
    producer = Producer(number["producer"], number["epoch"], where.partition)
    missing = (number["first"], number["count"])
    found = await context.view.within(context.audits.neighbours(where, window_ms, producer, missing))
    return context.page(
        "neighbours.html",
        title=f"Lost records of {where}",
        topic=name,
        partition=where.partition,
        producer=producer,
        first=missing[0],
        last=missing[0] + missing[1] - 1,
        found=found,
        before=None if found.before is None else _record_link(name, where.partition, found.before),
        after=None if found.after is None else _record_link(name, where.partition, found.after),
        window_ms=window_ms,
    )


async def topic_of(context: Context) -> str:
    """Return the topic that a request names.

    :raises HTTPException: the user cannot see the topic. An audit of a missing topic would wait for it.
    """
    name = context.query("topic")
    if name not in await context.view.topics():
        raise HTTPException(404, f"there is no topic {name}, or you may not describe it")
    return name


def _name_of(row: TopicRow) -> str:
    return row.name


def _time(context: Context, name: str) -> int | None:
    text = context.query(name)
    return whole_number(text, name) if text else None


def _range_query(begin_ms: int | None, end_ms: int | None) -> dict[str, int]:
    given = {"from": begin_ms, "until": end_ms}
    return {name: value for name, value in given.items() if value is not None}


def _strip_values(audit: TopicAudit, begin_ms: int | None, end_ms: int | None) -> dict[str, Any]:
    if audit.result is None:
        return {"strip": None, "wide": [], "links": {}, "span": ""}
    found = strip_of(
        audit.result.balance, has_table=audit.result.has_table, begin_ms=begin_ms, end_ms=end_ms, cells_max=CELLS_MAX
    )
    return {
        "strip": found,
        "wide": [any(cell.state is CellState.WRONG for cell in column) for column in found.columns],
        "links": dict(_links(audit.topic, found, audit.result)),
        "span": _span_text(found.span_ms),
    }


def _links(topic: str, found: Strip, result: AuditResult) -> Iterator[tuple[int, str]]:
    """Yield the begin of each cell, and the page of its range of event time."""
    for column in found.columns:
        cell: Cell = column[0]
        begin_ms = None if cell.begin_ms < 0 else cell.begin_ms
        query = urlencode({"topic": topic, **_range_query(begin_ms, cell.end_ms)})
        anchor = "#findings" if found.span_ms == result.balance.width_ms or begin_ms is None else ""
        yield cell.begin_ms, f"/completeness/topic?{query}{anchor}"


def _span_text(span_ms: int) -> str:
    """Return a length of time in words.

    >>> _span_text(60_000), _span_text(3 * 3_600_000), _span_text(7 * 86_400_000), _span_text(500)
    ('1 minute', '3 hours', '7 days', '0.5 seconds')
    """
    for name, unit_ms in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000)):
        if span_ms % unit_ms == 0:
            count = span_ms // unit_ms
            return f"{count} {name}" + ("s" if count != 1 else "")
    return f"{span_ms / 1000:g} seconds"


def _row_of(topic: str, finding: Finding) -> FindingRow:
    ranges = finding.offsets or ([(finding.offset, finding.records)] if finding.offset is not None else [])
    if ranges:
        numbers = "offset"
        gaps = [_offsets_gap(topic, finding.producer.partition, *each) for each in ranges[:RANGES_SHOWN_MAX]]
    else:
        ranges = finding.missing
        numbers = "source offset" if finding.producer.is_mirror else "sequence number"
        gaps = [_sequence_gap(topic, finding, *each) for each in ranges[:RANGES_SHOWN_MAX]]
    numbers += "" if len(ranges) == 1 and ranges[0][1] == 1 else "s"
    return FindingRow(finding, finding.kind in WRONG, numbers, gaps, len(ranges) - len(gaps), place_of(finding))


def _offsets_gap(topic: str, partition: int, first: int, count: int) -> Gap:
    around = {"topic": topic, "partition": partition, "from": "offset", "offset": max(0, first - AROUND)}
    return Gap(
        _range_text(first, count),
        _record_link(topic, partition, first),
        "/records?" + urlencode({**around, "limit": min(count, 100) + 2 * AROUND}),
    )


def _sequence_gap(topic: str, finding: Finding, first: int, count: int) -> Gap:
    producer = finding.producer
    query = {
        "topic": topic,
        "partition": producer.partition,
        "producer": producer.producer_id,
        "epoch": producer.producer_epoch,
        "first": first,
        "count": count,
        **({"window": finding.window_ms} if finding.window_ms >= 0 else {}),
    }
    can_search = producer.is_known and not producer.is_mirror and not finding.earlier_topic_id
    return Gap(_range_text(first, count), "/completeness/neighbours?" + urlencode(query) if can_search else None)


def _record_link(topic: str, partition: int, offset: int) -> str:
    return "/record?" + urlencode({"topic": topic, "partition": partition, "offset": offset})


def _range_text(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first} to {first + count - 1}"

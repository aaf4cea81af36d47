"""Formats the result of a history check as text."""

from __future__ import annotations

from barnabas.laboratory.history.checker import Finding, Moment, Report
from barnabas.laboratory.history.history_file import Outcome

EVENT = "*"


def text(report: Report) -> str:
    """Return a report as lines: the numbers of operations, and each anomaly with its example and timeline."""
    sends = report.sends
    lines = [
        f"{sum(sends.values())} sends ({sends[Outcome.OK]} acknowledged, {sends[Outcome.FAIL]} failed, "
        f"{sends[Outcome.INFO]} unknown), {report.polls} polls of {report.records} records"
    ]
    if report.unread:
        lines.append(f"possibly incomplete, because never read to the end: {', '.join(report.unread)}")
    if not report.findings:
        lines.append("no anomaly")
    for finding in report.findings:
        lines += ["", *_finding(finding)]
    return "\n".join(lines)


def _finding(finding: Finding) -> list[str]:
    times = "once" if finding.count == 1 else f"{finding.count} times"
    width = max((len(moment.process) for moment in finding.timeline), default=0)
    return [
        f"{finding.anomaly}, {times}: {finding.example}",
        *(_line(moment, width) for moment in finding.timeline),
    ]


def _line(moment: Moment, width: int) -> str:
    """Return a line of the timeline as text, with times in seconds since the start of the history."""
    ended = f"- {moment.ended:9.4f}" if moment.ended is not None else " " * 11
    return f"  {moment.started:9.4f} {ended}  {moment.process or EVENT:{width}}  {moment.what}"

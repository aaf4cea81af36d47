"""Draws the timeline of an example: one lane per process, one bar per operation, one line per event."""

from __future__ import annotations

from html import escape

from barnabas.laboratory.history.checker import Finding, Moment, Report

WIDTH, LEFT, TOP = 1200, 180, 40
LANE, ROW, BAR = 14, 16, 10
"""Heights in pixels: the space between two lanes, a row within a lane, and a bar."""
TEXT_WIDTH = 6.2
"""The approximate width of a character, in pixels."""
STYLE = (
    "text{font:11px sans-serif;fill:#222}.title{font-weight:bold}.bar{fill:#4878a8}.read{fill:#6a9955}"
    ".lane{stroke:#ddd}.event{stroke:#c0392b;stroke-dasharray:3 3}.note{fill:#c0392b}"
)


def picture(report: Report) -> str:
    """Return the examples of a report as an SVG document with the operations of each process and the events."""
    parts: list[str] = []
    top = 0.0
    for finding in report.findings:
        drawn, height = _drawing(finding, top)
        parts += drawn
        top += height
    if not report.findings:
        parts.append(f'<text x="10" y="20" class="title">no anomaly in {sum(report.sends.values())} sends</text>')
        top = 30
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top:.0f}" viewBox="0 0 {WIDTH} {top:.0f}">'
        f'<style>{STYLE}</style><rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>'
    )


def _drawing(finding: Finding, top: float) -> tuple[list[str], float]:
    """Return the drawing of one example, which begins at `top`, and the height of the drawing."""
    times = f"{finding.anomaly} ({finding.count}): {finding.example}"
    parts = [f'<text x="10" y="{top + 20:.0f}" class="title">{escape(times)}</text>']
    operations = [moment for moment in finding.timeline if moment.process]
    events = [moment for moment in finding.timeline if not moment.process]
    # Omit much earlier events, because the drawing would have to compress everything else.
    first = min((moment.started for moment in operations), default=0.0)
    last = max((moment.ended or moment.started for moment in operations), default=1.0)
    margin = max((last - first) * 0.1, 1e-4)
    events = [event for event in events if event.started >= first - margin]

    def across(seconds: float) -> float:
        return LEFT + (seconds - first + margin) / (last - first + 2 * margin) * (WIDTH - LEFT - 20)

    down = top + TOP + ROW * len(events)
    for process in dict.fromkeys(moment.process for moment in operations):
        parts.append(f'<text x="10" y="{down + BAR:.1f}">{escape(process)}</text>')
        for moment in (each for each in operations if each.process == process):
            parts.append(_bar(moment, across(moment.started), across(moment.ended or last + margin), down))
            down += ROW
        down += LANE
        parts.append(
            f'<line x1="10" x2="{WIDTH - 10}" y1="{down - LANE / 2:.1f}" y2="{down - LANE / 2:.1f}" class="lane"/>'
        )
    for row, event in enumerate(events):
        x, y = across(event.started), top + TOP + ROW * row
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{down:.1f}" class="event"/>')
        parts.append(_text(event.what, x, y, "note"))
    return parts, down - top


def _bar(moment: Moment, start: float, end: float, top: float) -> str:
    kind = "read" if moment.what.startswith("reads") else "bar"
    width = max(end - start, 2.0)
    bar = f'<rect x="{start:.1f}" y="{top:.1f}" width="{width:.1f}" height="{BAR}" class="{kind}"/>'
    return bar + _text(moment.what, start + width + 4, top + BAR - 1, "")


def _text(text: str, x: float, y: float, kind: str) -> str:
    """Return a text element at `x`, or further left if the text would otherwise extend beyond the picture."""
    x = max(10.0, min(x, WIDTH - 10 - len(text) * TEXT_WIDTH))
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>'

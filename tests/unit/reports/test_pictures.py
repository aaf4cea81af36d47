"""Pictures of reports: drawn whole, whatever the names in them are."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.reports.pictures import draw
from barnabas.reports.report import Bars, Column, Kind, Lines, Report, shown

HOUR_MS = 3_600_000
LINES = Lines("Rate", {"a $x": [(0, 0.1), (HOUR_MS, 0.2)], "b": [(HOUR_MS, 0.4)]}, percent=True)
BARS = Bars("Most", [("/" + "long" * 40, 12), ("$5$", 3.5)], mark=10.0, mark_name="threshold 10")


@pytest.mark.parametrize("panels", [(LINES, BARS), (BARS,), (LINES,), (Bars("None", []), Lines("None", {}))])
def test_a_report_becomes_a_picture(tmp_path: Path, panels: tuple[Bars | Lines, ...]) -> None:
    draw(Report("popularity", "100 $ events", (), (), panels=panels), tmp_path / "report.png")
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["report.png"]


def test_programs_get_all_figures_and_people_rounded_ones() -> None:
    columns = (Column("from", Kind.TIME), Column("ctr", Kind.SHARE))
    report = Report("ctr", "", columns, [(HOUR_MS, 0.12345), (0, None)], figures={"impressions": 7})
    assert report.to_json() == {
        "report": "ctr",
        "impressions": 7,
        "rows": [{"from": HOUR_MS, "ctr": 0.12345}, {"from": 0, "ctr": None}],
    }
    assert [shown(cell, column.kind) for cell, column in zip(report.rows[0], columns, strict=True)] == [
        "1970-01-01 01:00",
        "12.35 %",
    ]

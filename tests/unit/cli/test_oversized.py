"""Lines that are larger than a record may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.file_marks import FileMark
from barnabas.cli.oversized import REPORTS_MAX, OversizedLineError, OversizedLines
from barnabas.cli.tailing import Piece

LINES = [b"one", b"x" * 25, b"two"]


def piece(lines: list[bytes], first_line: int = 7) -> Piece:
    size = sum(map(len, lines)) + len(lines)
    return Piece(lines, FileMark(1, 2, 0, "", 100 + size), size, Path("/logs/app.log"), 100, first_line)


@pytest.mark.parametrize(
    ("mode", "values", "whole", "outcome"),
    [
        ("skip", [b"one", b"two"], [b"one", b"two"], "skipped"),
        ("split", [b"one", b"x" * 10, b"x" * 10, b"x" * 5, b"two"], [b"one", *[b"x" * 25] * 3, b"two"], "split into 3"),
    ],
)
def test_line_is_reported_with_file_line_and_byte(
    mode: str, values: list[bytes], whole: list[bytes], outcome: str
) -> None:
    reports: list[str] = []
    lines = OversizedLines(10, mode, reports.append)
    assert lines.fitting(piece(LINES), LINES) == (values, whole)
    (report,) = reports
    assert report.startswith("/logs/app.log: line 8 at byte 104 has 25 bytes, more than the 10 ")
    assert outcome in report
    assert lines.count == 1


def test_fail_names_the_line_and_what_to_do() -> None:
    with pytest.raises(OversizedLineError, match=r"app\.log: line 8 at byte 104 .* --oversized skip or split"):
        OversizedLines(10, "fail", print).fitting(piece(LINES), LINES)


def test_lines_that_fit_are_sent_as_they_are() -> None:
    assert OversizedLines(25, "fail", print).fitting(piece(LINES), LINES) == (LINES, None)


def test_a_flood_of_lines_is_only_counted() -> None:
    reports: list[str] = []
    lines = OversizedLines(1, "skip", reports.append)
    many = [b"xx"] * (REPORTS_MAX + 50)
    assert lines.fitting(piece(many, first_line=0), many) == ([], [])
    assert (len(reports), lines.count) == (REPORTS_MAX, REPORTS_MAX + 50)

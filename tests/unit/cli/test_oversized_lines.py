"""Lines that are larger than a record may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.file_marks import FileMark
from barnabas.cli.file_tail import Piece
from barnabas.cli.oversized_lines import (
    HEADER_OVERHEAD_BYTES,
    OVERHEAD_BYTES,
    REPORTS_MAX,
    OversizedLineError,
    OversizedLines,
    record_bytes_max,
)

LINES = [b"one", b"x" * 25, b"two"]


def piece(lines: list[bytes], first_line: int = 7) -> Piece:
    size = sum(map(len, lines)) + len(lines)
    return Piece(lines, FileMark(1, 2, 0, "", 100 + size), size, Path("/logs/app.log"), 100, first_line)


@pytest.mark.parametrize(
    ("mode", "values", "places", "outcome"),
    [
        ("skip", [b"one", b"two"], [0, 2], "skipped"),
        ("split", [b"one", b"x" * 10, b"x" * 10, b"x" * 5, b"two"], [0, 1, 1, 1, 2], "split into 3"),
    ],
)
def test_line_is_reported_with_file_line_and_byte(
    mode: str, values: list[bytes], places: list[int], outcome: str
) -> None:
    reports: list[str] = []
    lines = OversizedLines(10, mode, reports.append)
    assert lines.fitting(piece(LINES), LINES) == (values, places)
    (report,) = reports
    assert report.startswith("/logs/app.log: line 8 at byte 104 has 25 bytes, more than the 10 bytes ")
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


def test_parts_fit_into_what_the_broker_takes_uncompressed() -> None:
    lines = OversizedLines(20, "split", print, 10)
    assert lines.fitting(piece(LINES), LINES) == ([b"one", b"x" * 10, b"x" * 10, b"x" * 5, b"two"], [0, 1, 1, 1, 2])


class Settings:
    def __init__(self, max_message_bytes: str) -> None:
        self.value = max_message_bytes

    def describe_config(self, _topic: str) -> dict[str, Settings]:
        return {"max.message.bytes": self}


@pytest.mark.parametrize(
    ("properties", "limits"),
    [
        ({}, (10_000, 10_000)),
        ({"compression.type": "zstd"}, (1_048_576, 10_000)),
        ({"compression.type": "zstd", "max.request.size": "20000"}, (20_000, 10_000)),
        ({"max.request.size": "5000"}, (5_000, 5_000)),
    ],
)
def test_limits_are_those_of_the_producer_and_of_the_topic(properties: dict[str, str], limits: tuple[int, int]) -> None:
    admin: Any = Settings("10000")
    found = record_bytes_max(admin, "logs", properties, "key", [("name", b"value")])
    assert found == tuple(limit - OVERHEAD_BYTES - 3 - HEADER_OVERHEAD_BYTES - 9 for limit in limits)

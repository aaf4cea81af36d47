"""The lines that broker and cleaner exchange."""

from __future__ import annotations

import pytest

from barnabas.storage.cleaner.job import (
    PROGRESS,
    CleanedGroup,
    CleaningFailedError,
    CleaningJob,
    CleaningPlan,
    SegmentRef,
    UncleanableError,
    decode,
    encode,
)

JOB = CleaningJob(
    folder="/data/clicks-0",
    segments=(SegmentRef(0, 10, 100), SegmentRef(10, 20, 200)),
    first_dirty_offset=10,
    now_ms=1,
    delete_retention_ms=2,
    last_of_producers={7: 19},
    segment_bytes=3,
    segment_index_bytes=4,
    index_interval_bytes=5,
    map_bytes=6,
    buffer_bytes=7,
    bytes_per_second=1.7976931348623157e308,
)


@pytest.mark.parametrize("message", [JOB, CleaningPlan(20, 3), CleanedGroup((0, 10), 1, 2, 3, 4), None])
def test_what_is_said_is_understood(message: CleaningJob | CleaningPlan | CleanedGroup | None) -> None:
    line = encode(message)
    assert line.count(b"\n") == 1
    assert decode(line) == message
    assert type(decode(line)) is type(message)


@pytest.mark.parametrize("kind", [UncleanableError, CleaningFailedError])
def test_errors_are_told(kind: type[UncleanableError | CleaningFailedError]) -> None:
    told = decode(encode(kind("the disk is full")))
    assert type(told) is kind
    assert str(told) == "the disk is full"


@pytest.mark.parametrize(
    "line", [PROGRESS, b"", b"[]\n", b"7\n", b'{"Job": {}}\n', b'{"CleaningJob": {"folder": 1}}\n']
)
def test_other_lines_are_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(line)


def test_a_job_ends_where_its_last_segment_does() -> None:
    assert JOB.end_offset == 20

"""Which segments go, by time and by size."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from barnabas.storage import LogConfig
from barnabas.storage.retention import count_deletable

NOW_MS = 1_000_000


class Extent(NamedTuple):
    size: int
    next_offset: int
    newest_ms: int


SEGMENTS = [Extent(100, 10, NOW_MS - 900), Extent(100, 20, NOW_MS - 500), Extent(50, 25, NOW_MS - 100)]


def count(high_watermark: int = 25, segments: list[Extent] = SEGMENTS, **settings: Any) -> int:
    config = LogConfig(**{"retention_ms": -1, "retention_bytes": -1, **settings})
    return count_deletable(segments, config, NOW_MS, high_watermark, lambda segment: segment.newest_ms)


def test_nothing_goes_without_limits() -> None:
    assert count() == 0


@pytest.mark.parametrize(("retention_ms", "gone"), [(900, 0), (899, 1), (500, 1), (499, 2), (99, 3), (0, 3)])
def test_segments_go_when_their_newest_record_is_too_old(retention_ms: int, gone: int) -> None:
    assert count(retention_ms=retention_ms) == gone


@pytest.mark.parametrize(("retention_bytes", "gone"), [(151, 0), (150, 1), (51, 1), (50, 2), (1, 2), (0, 3)])
def test_segments_go_while_the_rest_is_large_enough(retention_bytes: int, gone: int) -> None:
    assert count(retention_bytes=retention_bytes) == gone


def test_young_segment_keeps_older_ones_after_it() -> None:
    young_first = [Extent(10, 10, NOW_MS), *SEGMENTS]
    assert count(segments=young_first, retention_ms=0) == 0


def test_records_that_are_not_exposed_stay() -> None:
    assert count(high_watermark=19, retention_ms=0) == 1


def test_empty_segment_stays() -> None:
    assert count(segments=[*SEGMENTS, Extent(0, 25, -1)], retention_ms=0, retention_bytes=0) == 3


@pytest.mark.parametrize(("policies", "gone"), [("", 0), ("compact", 0), ("delete", 3), ("compact,delete", 3)])
def test_without_the_policy_delete_nothing_goes_by_time_or_size(policies: str, gone: int) -> None:
    policy = LogConfig().override({"cleanup.policy": policies}).cleanup_policy
    assert count(retention_ms=0, retention_bytes=0, cleanup_policy=policy) == gone

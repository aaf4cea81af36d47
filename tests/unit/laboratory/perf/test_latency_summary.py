"""Percentiles are exact, and histograms leave nothing out."""

from __future__ import annotations

import itertools
import random
from array import array

import pytest

from barnabas.laboratory.perf.latency_summary import NOTHING, histogram_ms, percentile, summarise


def test_percentile_is_the_smallest_value_that_so_many_do_not_exceed() -> None:
    values = sorted(random.Random(1).sample(range(100_000), 9_999))
    for share in (0.5, 0.9, 0.99, 0.999, 1.0):
        found = percentile(values, share)
        assert sum(value <= found for value in values) >= share * len(values)
        assert sum(value < found for value in values) < share * len(values)


def test_summary_of_a_known_sample() -> None:
    summary = summarise(array("d", [number / 1000 for number in range(1000, 0, -1)]))
    assert (summary.count, summary.p50_ms, summary.p90_ms) == (1000, 500.0, 900.0)
    assert (summary.p99_ms, summary.p999_ms, summary.max_ms) == (990.0, 999.0, 1000.0)
    assert summary.mean_ms == pytest.approx(500.5)


def test_one_stall_is_the_maximum_and_not_the_median() -> None:
    summary = summarise(array("d", [0.0002] * 99_999 + [2.0]))
    assert (summary.p50_ms, summary.p999_ms, summary.max_ms) == (0.2, 0.2, 2000.0)


def test_no_sample_has_no_percentiles() -> None:
    assert summarise(array("d")) is NOTHING


@pytest.mark.parametrize("seed", range(5))
def test_histogram_counts_each_value_in_its_bucket(seed: int) -> None:
    generator = random.Random(seed)
    values = sorted(10 ** generator.uniform(-7, 1.5) for _ in range(2_000))
    buckets = histogram_ms(values)
    lower_ms = -1.0
    for upper_ms, count in buckets:
        assert count == sum(lower_ms / 1e3 < value <= upper_ms / 1e3 for value in values)
        lower_ms = upper_ms
    assert sum(count for _, count in buckets) == len(values)
    assert buckets[0][1] > 0
    assert buckets[-1][1] > 0


def test_histogram_has_no_holes_between_its_buckets() -> None:
    bounds = [upper_ms for upper_ms, _ in histogram_ms([0.0001, 0.1])]
    assert (bounds[0], bounds[-1]) == (0.1, 100.0)
    assert len(bounds) == 61
    assert all(1.1 < after / before < 1.15 for before, after in itertools.pairwise(bounds))

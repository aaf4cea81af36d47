"""Metrics and their samples.

The component that does the work counts in its own plain integers, so a hot path pays only for an increment. A collector
reads these integers on request and yields a `Sample` for each. `barnabas.metrics.exposition` renders the samples.

    RECORDS = counter("barnabas_mirror_records_total", "Records written to the target.", "topic", "partition")

    def collect(links: Iterable[Link]) -> Iterator[Sample]:
        for link in links:
            yield RECORDS.sample(link.counts.records, link.source.topic, str(link.source.partition))
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

COUNTER_SUFFIX = "_total"


class Kind(StrEnum):
    """The kind of a metric."""

    COUNTER = "counter"
    """A value that only grows, from zero at the start of the process."""
    GAUGE = "gauge"
    """A value that may grow and shrink."""
    HISTOGRAM = "histogram"
    """The numbers of observations in buckets, by value."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, declared once.

    :param name: the name in the exposition; the name of a counter ends with `_total`.
    :param help: one sentence that describes the metric.
    :param labels: the names of the labels.
    :param bounds: for a histogram, the upper bounds of all buckets except the last one, in ascending order.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if (self.kind is Kind.COUNTER) is not self.name.endswith(COUNTER_SUFFIX):
            raise ValueError(
                f"{self.name}: only the name of a counter ends with {COUNTER_SUFFIX}, and each counter has this suffix"
            )
        if (self.kind is Kind.HISTOGRAM) is not bool(self.bounds):
            raise ValueError(f"{self.name}: a histogram needs bucket bounds, and other metrics must not have them")

    def sample(self, value: float | Observations, *labels: str) -> Sample:
        """Return a sample of this metric.

        :param labels: a value for each label of the metric, in order.
        """
        if len(labels) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {len(labels)} values")
        return Sample(self, value, labels)


class Sample(NamedTuple):
    """The current value of a metric, for one combination of label values."""

    metric: Metric
    value: float | Observations
    labels: tuple[str, ...]


class Observations(NamedTuple):
    """The counts of a histogram.

    :param counts: the number of observations in each bucket. There is one bucket more than bounds.
    :param total: the sum of all observations.
    """

    counts: Sequence[int]
    total: float


class Histogram:
    """Counts observations in buckets. One thread may call `observe`; any thread may read.

    :param bounds: the bounds of the metric.

    >>> histogram = Histogram((1.0, 10.0))
    >>> histogram.observe(0.5)
    >>> histogram.observe(10.0, times=2)
    >>> histogram.observe(11.0)
    >>> histogram.read()
    Observations(counts=(1, 2, 1), total=31.5)
    """

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count `times` observations of a value."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._total += value * times

    def read(self) -> Observations:
        """Return the current counts."""
        return Observations(tuple(self._counts), self._total)


Collect: TypeAlias = Callable[[], Iterable[Sample | None]]
"""A function that yields the samples of a component. Any thread may call it and iterate over the samples."""


def counter(name: str, help_text: str, *labels: str) -> Metric:
    """Declare a metric that only grows."""
    return Metric(name, Kind.COUNTER, help_text, labels)


def gauge(name: str, help_text: str, *labels: str) -> Metric:
    """Declare a metric that may grow and shrink."""
    return Metric(name, Kind.GAUGE, help_text, labels)


def histogram(name: str, help_text: str, bounds: tuple[float, ...], *labels: str) -> Metric:
    """Declare a metric that counts observations in buckets."""
    return Metric(name, Kind.HISTOGRAM, help_text, labels, bounds)

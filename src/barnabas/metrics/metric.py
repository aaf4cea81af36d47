"""Metrics and their samples.

The part that does the work counts in plain integers of its own: an increment is all that a hot path pays. A collector
reads these integers on request and yields a `Sample` for each. `barnabas.metrics.exposition` renders the samples.

    RECORDS = counter("barnabas_mirror_records_total", "Records written to the target.", "topic", "partition")

    def collect(links: Iterable[Link]) -> Iterator[Sample]:
        for link in links:
            yield RECORDS.sample(link.counts.records, link.source.topic, str(link.source.partition))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

COUNTER_SUFFIX = "_total"


class Kind(StrEnum):
    """How a metric's value moves."""

    COUNTER = "counter"
    """It only grows, from zero at the start of the process."""
    GAUGE = "gauge"
    """It may grow and shrink."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, declared once.

    :param name: in the exposition; a counter's name ends with `_total`.
    :param help: one sentence.
    :param labels: the names of the labels that each sample has values for.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.kind is Kind.COUNTER) is not self.name.endswith(COUNTER_SUFFIX):
            raise ValueError(f"{self.name}: the name of a counter, and of nothing else, ends with {COUNTER_SUFFIX}")

    def sample(self, value: float, *labels: str) -> Sample:
        """Return a sample of this metric.

        :param labels: a value for each of the metric's labels, in their order.
        """
        if len(labels) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {len(labels)} values")
        return Sample(self, value, labels)


class Sample(NamedTuple):
    """The value of a metric now, for one combination of label values."""

    metric: Metric
    value: float
    labels: tuple[str, ...]


Collect: TypeAlias = Callable[[], Iterable[Sample]]
"""Reads the integers of a part. Any thread may call it."""


def counter(name: str, help_text: str, *labels: str) -> Metric:
    """Declare a metric that only grows."""
    return Metric(name, Kind.COUNTER, help_text, labels)


def gauge(name: str, help_text: str, *labels: str) -> Metric:
    """Declare a metric that may grow and shrink."""
    return Metric(name, Kind.GAUGE, help_text, labels)

"""Renders samples in Prometheus' text format, by prometheus_client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from barnabas.metrics.metric import COUNTER_SUFFIX, Kind, Metric, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The text format that every Prometheus reads."""


def exposition(samples: Iterable[Sample]) -> bytes:
    """Return samples in Prometheus' text format, grouped by metric, in UTF-8.

    >>> from barnabas.metrics.metric import gauge
    >>> lag = gauge("barnabas_mirror_lag", "Source offsets that are not mirrored yet.", "topic")
    >>> print(exposition([lag.sample(5, "clicks")]).decode(), end="")
    # HELP barnabas_mirror_lag Source offsets that are not mirrored yet.
    # TYPE barnabas_mirror_lag gauge
    barnabas_mirror_lag{topic="clicks"} 5.0
    """
    return generate_latest(_Collected(samples))


class _Collected(Collector):
    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Family]:
        families: dict[Metric, CounterMetricFamily | GaugeMetricFamily] = {}
        for metric, value, labels in self._samples:
            if (family := families.get(metric)) is None:
                family = families[metric] = _family(metric)
            family.add_metric(labels, value)
        yield from families.values()


def _family(metric: Metric) -> CounterMetricFamily | GaugeMetricFamily:
    if metric.kind is Kind.COUNTER:
        return CounterMetricFamily(metric.name.removesuffix(COUNTER_SUFFIX), metric.help, labels=metric.labels)
    return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)

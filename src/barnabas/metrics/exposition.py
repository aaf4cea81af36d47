"""Renders samples in Prometheus' text format, with prometheus_client."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample as Line

from barnabas.clock import Clock
from barnabas.metrics.metric import COUNTER_SUFFIX, Collect, Kind, Metric, Observations, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of the text format. Every Prometheus version reads this format."""

SNAPSHOT_AGE_S_MAX = 1.0
"""The maximum age in seconds of a snapshot that is used for several requests. Rendering a snapshot takes time."""

LINES_PER_REST = 100
"""The number of samples or lines after which the rendering thread pauses. They take about half a millisecond."""

REST_S = 0.0005
"""The duration of a pause in seconds. During a pause, the event loop can acquire the interpreter lock."""

PIECE_BYTES_MIN = 64 * 1024
"""The minimum size in bytes of a chunk of a snapshot. Smaller chunks are joined, because each chunk costs a system call
per response.
"""


def exposition(samples: Iterable[Sample | None]) -> bytes:
    """Return samples in Prometheus' text format, grouped by metric, in UTF-8.

    >>> from barnabas.metrics.metric import gauge
    >>> lag = gauge("barnabas_mirror_lag", "Source offsets that are not mirrored yet.", "topic")
    >>> print(exposition([lag.sample(5, "clicks")]).decode(), end="")
    # HELP barnabas_mirror_lag Source offsets that are not mirrored yet.
    # TYPE barnabas_mirror_lag gauge
    barnabas_mirror_lag{topic="clicks"} 5.0
    """
    return b"".join(pieces_of(samples))


def pieces_of(samples: Iterable[Sample | None], rest: Callable[[], object] = lambda: None) -> Iterator[bytes]:
    """Yield the text of `exposition` in chunks, one for each metric.

    All samples are read before the first chunk. Joining all lines of a large broker, or freeing all samples at once,
    would hold the interpreter lock for milliseconds.

    :param samples: the samples of a `Collect` function.
    :param rest: called after every `LINES_PER_REST` collected samples, and after every `LINES_PER_REST` rendered lines.
    """
    read = _read(samples, rest)
    for metric in [*read]:
        yield generate_latest(_OneMetric(metric, read.pop(metric), rest))


class Snapshots:
    """The text of all metrics. All threads share a snapshot, which is rendered at most once per `SNAPSHOT_AGE_S_MAX`.

    :param sleep: waits for a number of seconds.
    """

    def __init__(self, collect: Collect, clock: Clock, sleep: Callable[[float], object]) -> None:
        self._collect = collect
        self._clock = clock
        self._sleep = sleep
        self._process = ProcessCollector(registry=None)
        """The operating system's metrics of this process, under the names that all Prometheus clients use."""
        self._rendering = threading.Lock()
        self._pieces: tuple[bytes, ...] = ()
        self._taken_s = float("-inf")

    def pieces(self) -> tuple[bytes, ...]:
        """Return the text of a snapshot, in chunks. It is at most `SNAPSHOT_AGE_S_MAX` old."""
        asked_s = self._clock.monotonic()
        with self._rendering:
            if self._taken_s < asked_s - SNAPSHOT_AGE_S_MAX:
                taken_s = self._clock.monotonic()
                own = pieces_of(self._collect(), lambda: self._sleep(REST_S))
                self._pieces = tuple(_joined((*own, generate_latest(self._process))))
                self._taken_s = taken_s
            return self._pieces


def _joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in chunks of at least `PIECE_BYTES_MIN`, except for the last chunk."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= PIECE_BYTES_MIN:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


class _Series:
    """All samples of one metric.

    Two lists take less memory than a list of samples. Freeing or garbage-collecting 10,000 sample objects would take
    milliseconds.
    """

    __slots__ = ("label_values", "values")

    def __init__(self) -> None:
        self.values: list[float | Observations] = []
        self.label_values: list[tuple[str, ...]] = []


def _read(samples: Iterable[Sample | None], rest: Callable[[], object]) -> dict[Metric, _Series]:
    """Collect the samples of each metric."""
    read: dict[Metric, _Series] = {}
    known: dict[int, tuple[Metric, _Series]] = {}
    """The metrics by identity, because the hash of a metric takes more time than a sample."""
    for number, sample in enumerate(samples, start=1):
        if sample is not None:
            metric, value, label_values = sample
            if id(metric) not in known:
                known[id(metric)] = metric, read.setdefault(metric, _Series())
            _, series = known[id(metric)]
            series.values.append(value)
            series.label_values.append(label_values)
        if not number % LINES_PER_REST:
            rest()
    return read


class _OneMetric(Collector):
    def __init__(self, metric: Metric, series: _Series, rest: Callable[[], object]) -> None:
        self._metric = metric
        self._series = series
        self._rest = rest

    def collect(self) -> Iterator[Family]:
        metric = self._metric
        name = metric.name.removesuffix(COUNTER_SUFFIX) if metric.kind is Kind.COUNTER else metric.name
        family = Family(name, metric.help, metric.kind)
        # Render lazily: a list of all lines would take much more memory than the samples.
        family.samples = cast("Any", self._lines())
        yield family

    def _lines(self) -> Iterator[Line]:
        metric, series = self._metric, self._series
        for number, (value, label_values) in enumerate(zip(series.values, series.label_values, strict=True), start=1):
            labels = dict(zip(metric.labels, label_values, strict=True))
            if isinstance(value, Observations):
                yield from _lines_of_histogram(metric, labels, value)
            else:
                yield Line(metric.name, labels, value)
            if not number % LINES_PER_REST:
                self._rest()


def _lines_of_histogram(metric: Metric, labels: dict[str, str], found: Observations) -> Iterator[Line]:
    count = 0
    for bound, of_bucket in zip((*metric.bounds, float("inf")), found.counts, strict=True):
        count += of_bucket
        yield Line(f"{metric.name}_bucket", {**labels, "le": "+Inf" if bound == float("inf") else repr(bound)}, count)
    yield Line(f"{metric.name}_count", labels, count)
    yield Line(f"{metric.name}_sum", labels, found.total)

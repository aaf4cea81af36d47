"""What a client is asked to do, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bench.processes import ClientError

Action = Literal["produce", "consume", "both", "latency"]
PERCENTILES = ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms")
SAMPLES_MAX = 60


@dataclass(frozen=True, slots=True)
class Job:
    """A workload for one client.

    :param size: bytes of each value.
    :param batch_records: so many records a request, or what the client finds best.
    :param fetch_bytes: the largest answer to ask for, or what the client finds best.
    :param rate: records per second of an open loop.
    :param consumers: how many consume at once.
    :param producers: how many produce at once, each its share of the records.
    """

    action: Action
    records: int
    size: int = 100
    partitions: int = 6
    acks: str = "1"
    batch_records: int | None = None
    fetch_bytes: int | None = None
    rate: float | None = None
    consumers: int = 1
    producers: int = 1
    topic: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of a client measured.

    :param latency: percentiles in milliseconds, by the names in `PERCENTILES`.
    :param histogram: (upper bound in ms, count) of latencies, where the client tells it.
    :param samples: (seconds since the start, records done), where the client tells them.
    :param uncounted: records that warmed the client up beforehand; the broker's CPU time is for them as well.
    """

    records: int
    seconds: float
    cpu_client_s: float
    latency: Mapping[str, float] = field(default_factory=dict)
    histogram: tuple[tuple[float, int], ...] = ()
    samples: tuple[tuple[float, int], ...] = ()
    uncounted: int = 0

    @property
    def records_per_s(self) -> float:
        """Throughput."""
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def counted_share(self) -> float:
        """Which share of the records that the broker saw is counted."""
        return self.records / (self.records + self.uncounted) if self.records else 1.0


def parse_report(output: str) -> Outcome:
    """Read the line of JSON that `barnabas perf --json` and the programs in `bench.clients` print.

    :raises ClientError: there is none.
    """
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            try:
                return _outcome(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise ClientError(f"its report is not as expected: {error!r}") from error
    raise ClientError("it printed no report")


def _outcome(report: Mapping[str, Any]) -> Outcome:
    rate = float(report["records_per_s"])
    records = int(report["records"])
    return Outcome(
        records=records,
        seconds=records / rate if rate else 0.0,
        cpu_client_s=float(report["cpu_client_s"]),
        latency={name: float(report[name]) for name in PERCENTILES if report.get(name) is not None},
        histogram=tuple((float(upper), int(count)) for upper, count in report.get("histogram") or ()),
        samples=_samples(report.get("samples") or ()),
    )


def _samples(samples: Any) -> tuple[tuple[float, int], ...]:
    return thinned(tuple((float(sample[0]), int(sample[1])) for sample in samples if sample[0] > 0))


def thinned(samples: tuple[tuple[float, int], ...]) -> tuple[tuple[float, int], ...]:
    """Return every n-th sample, so that no more than `SAMPLES_MAX` are left.

    >>> len(thinned(tuple((float(n), n) for n in range(200))))
    50
    """
    step = -(-len(samples) // SAMPLES_MAX) or 1
    return samples[step - 1 :: step]

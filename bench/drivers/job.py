"""The job of a client and its result."""

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
    """The job of one client in a workload.

    :param size: the size of each value in bytes.
    :param batch_records: the number of records per request; None for the client's own choice.
    :param fetch_bytes: the maximum size of a fetch response in bytes; None for the client's own choice.
    :param rate: the records per second of an open loop.
    :param consumers: the number of concurrent consumers.
    :param producers: the number of concurrent producers, which share the records.
    :param topic_settings: pairs (name, value) of settings of the topic.
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
    topic_settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one run of a client.

    :param latency: percentiles in milliseconds, by the names in `PERCENTILES`.
    :param histogram: pairs (upper bound in ms, count) of latencies, if the client reports them.
    :param samples: pairs (seconds since the start, records done), if the client reports them.
    :param uncounted: the number of warm-up records, whose CPU time is included in the broker's CPU time.
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
        """The throughput."""
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def counted_share(self) -> float:
        """The share of counted records among all records that the broker got, including the warm-up."""
        return self.records / (self.records + self.uncounted) if self.records else 1.0


def parse_report(output: str) -> Outcome:
    """Parse the line of JSON that `barnabas perf --json` or a program in `bench.clients` prints.

    :raises ClientError: if there is no such line.
    """
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            try:
                return _outcome(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise ClientError(f"the report of the client is invalid: {error!r}") from error
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
    """Return every n-th sample, so that at most `SAMPLES_MAX` are left.

    >>> len(thinned(tuple((float(n), n) for n in range(200))))
    50
    """
    step = -(-len(samples) // SAMPLES_MAX) or 1
    return samples[step - 1 :: step]

"""Counts what a consumer hands out and fetches, in all and in the last half minute."""

from __future__ import annotations

from barnabas.clock import Clock
from barnabas.metrics.rolling_sum import RollingSum


class Meter:
    """All that is counted of one consumer."""

    def __init__(self, clock: Clock) -> None:
        self.records = RollingSum(clock)
        self.bytes = RollingSum(clock)
        self.fetch_latency_ms = RollingSum(clock)

    def figures(self) -> dict[str, float]:
        """Return them by name."""
        return {
            "records_total": int(self.records.total),
            "records_per_s": self.records.per_s(),
            "bytes_total": int(self.bytes.total),
            "bytes_per_s": self.bytes.per_s(),
            "fetches_total": self.fetch_latency_ms.count,
            "fetch_latency_avg_ms": self.fetch_latency_ms.mean(),
            "fetch_latency_max_ms": self.fetch_latency_ms.greatest(),
        }

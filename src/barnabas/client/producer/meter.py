"""Counts what a producer delivers, in all and in the last half minute: once for each batch or request, not record."""

from __future__ import annotations

from barnabas.clock import Clock
from barnabas.metrics.rolling_sum import RollingSum


class Meter:
    """All that is counted of one producer."""

    def __init__(self, clock: Clock) -> None:
        self._records = RollingSum(clock)
        self._bytes = RollingSum(clock)
        self._latency_ms = RollingSum(clock)
        self._failed_records = 0
        self._retries = 0

    def delivered(self, records: int, size_bytes: int) -> None:
        """Count a batch that was acknowledged."""
        self._records.add(records)
        self._bytes.add(size_bytes)

    def failed(self, records: int) -> None:
        """Count a batch that was given up."""
        self._failed_records += records

    def retried(self) -> None:
        """Count a batch that has to be sent again."""
        self._retries += 1

    def answered(self, latency_s: float) -> None:
        """Count a request whose answer came after so long."""
        self._latency_ms.add(latency_s * 1000)

    def figures(self) -> dict[str, float]:
        """Return them by name."""
        return {
            "records_total": int(self._records.total),
            "records_per_s": self._records.per_s(),
            "bytes_total": int(self._bytes.total),
            "bytes_per_s": self._bytes.per_s(),
            "records_per_batch_avg": self._records.mean(),
            "failed_records_total": self._failed_records,
            "retries_total": self._retries,
            "requests_total": self._latency_ms.count,
            "request_latency_avg_ms": self._latency_ms.mean(),
            "request_latency_max_ms": self._latency_ms.greatest(),
        }

"""The meter of a workload: records, bytes, time, CPU time, and samples of its progress.

A workload counts chunks of records instead of single records, so the counting costs almost no time. One thread uses
the meter; any thread may call `stop`.

Times are seconds of the monotonic clock. On Linux all processes of a machine share this clock, so figures of several
processes can be combined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.clock import Clock
from barnabas.portable import cpu_s

SAMPLE_INTERVAL_S = 0.25
CHUNK_S = 0.01
"""The duration of a chunk: too short for a user to notice, but long compared with a clock call."""


class Sample(NamedTuple):
    """The progress of a workload at one moment."""

    at_s: float
    records: int
    bytes: int


Listener = Callable[[Sample], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of one process between the start and the end of its clock."""

    started_s: float
    ended_s: float
    records: int
    bytes: int
    cpu_s: float
    samples: tuple[Sample, ...] = ()

    @property
    def elapsed_s(self) -> float:
        return self.ended_s - self.started_s

    def records_at(self, at_s: float) -> float:
        """Return the number of records counted up to a time, interpolated between two samples."""
        last = Sample(self.ended_s, self.records, self.bytes)
        before = Sample(self.started_s, 0, 0)
        for sample in (*self.samples, last):
            if sample.at_s >= at_s:
                span_s = sample.at_s - before.at_s
                share = (at_s - before.at_s) / span_s if span_s > 0 else 1.0
                return before.records + max(0.0, share) * (sample.records - before.records)
            before = sample
        return float(self.records)


def combined(parts: Sequence[Measured]) -> Measured:
    """Return the combined result of several processes: from the first start to the last end.

    The result has no samples, because the processes took their samples at different times.
    """
    return Measured(
        started_s=min(part.started_s for part in parts),
        ended_s=max(part.ended_s for part in parts),
        records=sum(part.records for part in parts),
        bytes=sum(part.bytes for part in parts),
        cpu_s=sum(part.cpu_s for part in parts),
    )


def process_cpu_s() -> float:
    """Return the CPU seconds, user and system, of this process with all its threads."""
    return cpu_s()


class Meter:
    """A meter of one workload in one process.

    :param cpu_s: returns the CPU seconds used so far.
    :param listener: called with a sample, at most every `interval_s`.
    :param seconds_max: the time limit of the workload.

    >>> from barnabas.clock import ManualClock
    >>> clock = ManualClock()
    >>> meter = Meter(clock, cpu_s=lambda: 0.0)
    >>> meter.begin()
    >>> clock.advance(2)
    >>> meter.add(1_000, 100_000)
    >>> meter.end().elapsed_s
    2.0
    """

    def __init__(
        self,
        clock: Clock,
        cpu_s: Callable[[], float] = process_cpu_s,
        *,
        listener: Listener | None = None,
        interval_s: float = SAMPLE_INTERVAL_S,
        seconds_max: float | None = None,
    ) -> None:
        self.records = 0
        self.bytes = 0
        self.clock = clock
        self._cpu_s = cpu_s
        self._listener = listener
        self._interval_s = interval_s
        self._seconds_max = seconds_max
        self._deadline_s = float("inf")
        self._started_s: float | None = None
        self._cpu_started_s = 0.0
        self._sample_due_s = float("inf")
        self._samples: list[Sample] = []
        self._measured: Measured | None = None
        self._stopped = False

    def begin(self) -> None:
        """Start the clock, and reset the counts after the warm-up."""
        self.records = self.bytes = 0
        self._samples.clear()
        self._cpu_started_s = self._cpu_s()
        self._started_s = now_s = self.clock.monotonic()
        self._sample_due_s = now_s + self._interval_s
        if self._seconds_max is not None:
            self._deadline_s = now_s + self._seconds_max

    def add(self, records: int, size_bytes: int) -> None:
        """Count a chunk of records."""
        self.records += records
        self.bytes += size_bytes
        now_s = self.clock.monotonic()
        if now_s >= self._sample_due_s:
            self._sample_due_s = now_s + self._interval_s
            sample = Sample(now_s, self.records, self.bytes)
            self._samples.append(sample)
            if self._listener is not None:
                self._listener(sample)
        if now_s >= self._deadline_s:
            self._stopped = True

    def stop(self) -> None:
        """Ask the workload to stop."""
        self._stopped = True

    @property
    def is_running(self) -> bool:
        """Return whether the workload should continue."""
        return not self._stopped

    @property
    def overdue(self) -> bool:
        """Return whether the time limit has passed, even if no records were counted since then."""
        return self.clock.monotonic() >= self._deadline_s

    def end(self) -> Measured:
        """Stop the clock at the first call, and return the result."""
        if self._measured is None:
            now_s = self.clock.monotonic()
            began = self._started_s is not None
            self._measured = Measured(
                started_s=now_s if self._started_s is None else self._started_s,
                ended_s=now_s,
                records=self.records if began else 0,
                bytes=self.bytes if began else 0,
                cpu_s=self._cpu_s() - self._cpu_started_s if began else 0.0,
                samples=tuple(self._samples),
            )
        return self._measured


def next_chunk_records(records: int, took_s: float, records_max: int) -> int:
    """Return the number of records of the next chunk, so that the chunk takes about `CHUNK_S`.

    >>> [next_chunk_records(100, took_s, 10_000) for took_s in (0.0001, 1.0, 0.01)]
    [200, 50, 100]
    """
    if took_s < CHUNK_S / 2:
        return min(records * 2, records_max)
    if took_s > CHUNK_S * 2:
        return max(records // 2, 1)
    return records

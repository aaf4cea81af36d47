"""Counters of the coordinator runtime: plain integers, which a collector of metrics reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CoordinatorCounters:
    """The counts since the start of the broker, over all its shards of one topic. `queue_bytes` is the present size."""

    loads: int = 0
    failed_loads: int = 0
    load_ms: int = 0
    """The sum of the times of all loads."""
    records_replayed: int = 0
    records_damaged: int = 0
    """Records and batches that loading skipped."""
    appends: int = 0
    failed_appends: int = 0
    rolled_back: int = 0
    """Failed appends, and the appends that failed because an earlier append failed."""
    timeouts: int = 0
    queue_bytes: int = 0
    ticks_due: int = 0
    """Ticks of shards whose deadline had passed; a tick may do several due things."""

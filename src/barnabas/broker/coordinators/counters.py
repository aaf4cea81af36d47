"""What the runtime counts: plain integers, which a collector of metrics reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CoordinatorCounters:
    """Of all shards of one topic on this broker, since its start; `queue_bytes` is of now."""

    loads: int = 0
    failed_loads: int = 0
    load_ms: int = 0
    """How long all loads took together."""
    records_replayed: int = 0
    records_damaged: int = 0
    """Records and batches that loading skipped."""
    appends: int = 0
    failed_appends: int = 0
    rolled_back: int = 0
    """Failed appends, and those that failed because an append before them did."""
    timeouts: int = 0
    queue_bytes: int = 0
    ticks_due: int = 0
    """Ticks of shards whose deadline had passed; a tick may do several due things."""

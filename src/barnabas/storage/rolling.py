"""When the active segment is closed and another one begun. Pure.

Before an append: if the segment would become too large, its index is full, its offsets would not fit the index, or
its records would span more than `segment.ms`. Without appends: when it has been active for `segment.ms`.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.model import NO_TIMESTAMP, TimestampType
from barnabas.storage.batch_scan import PlacedBatch
from barnabas.storage.config import LogConfig
from barnabas.storage.segment import RELATIVE_OFFSET_MAX, ActiveSegment


def must_roll(
    active: ActiveSegment,
    config: LogConfig,
    size: int,
    batches: Sequence[PlacedBatch],
    now_ms: int,
    active_since_ms: int,
) -> bool:
    """Return whether these batches, of `size` bytes together, must not be appended to this segment."""
    if not active.size:
        return False
    return (
        active.size + size > config.segment_bytes
        or active.index_bytes >= config.segment_index_bytes
        or active.next_offset + _offset_count(batches) - active.base_offset > RELATIVE_OFFSET_MAX
        or _age_ms(active, config, batches, now_ms, active_since_ms) > config.segment_ms
    )


def _offset_count(batches: Sequence[PlacedBatch]) -> int:
    if len(batches) == 1:
        return batches[0].header.last_offset_delta + 1
    return sum(batch.header.last_offset_delta + 1 for batch in batches)


def _age_ms(
    active: ActiveSegment, config: LogConfig, batches: Sequence[PlacedBatch], now_ms: int, active_since_ms: int
) -> int:
    """Return the time that the segment would span in records, or has existed if they have none."""
    first_ms = active.first_timestamp_ms
    if first_ms is None or first_ms == NO_TIMESTAMP:
        return now_ms - active_since_ms
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        return now_ms - first_ms
    if len(batches) == 1:
        return batches[0].header.max_timestamp_ms - first_ms
    return max(batch.header.max_timestamp_ms for batch in batches) - first_ms

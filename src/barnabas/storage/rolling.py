"""When the active segment is closed and another one begun. Pure.

Before an append: if the segment would become too large, its index is full, its offsets would not fit the index, or
its records would span more than `segment.ms`. Without appends: when it has been active for `segment.ms`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from barnabas.model import NO_TIMESTAMP, TimestampType
from barnabas.storage.append import Placed
from barnabas.storage.config import LogConfig
from barnabas.storage.segment import RELATIVE_OFFSET_MAX


class SegmentEnd(Protocol):
    """What counts of a segment, together with what is on its way into it."""

    base_offset: int
    next_offset: int
    size: int
    index_bytes: int
    first_timestamp_ms: int | None


def must_roll(
    end: SegmentEnd, config: LogConfig, size: int, batches: Sequence[Placed], now_ms: int, active_since_ms: int
) -> bool:
    """Return whether these batches, of `size` bytes together, must not be appended to this segment."""
    if not end.size:
        return False
    return (
        end.size + size > config.segment_bytes
        or end.index_bytes >= config.segment_index_bytes
        or end.next_offset + _offset_count(batches) - end.base_offset > RELATIVE_OFFSET_MAX
        or _age_ms(end, config, batches, now_ms, active_since_ms) > config.segment_ms
    )


def _offset_count(batches: Sequence[Placed]) -> int:
    return sum(header.last_offset_delta + 1 for _, header in batches)


def _age_ms(end: SegmentEnd, config: LogConfig, batches: Sequence[Placed], now_ms: int, active_since_ms: int) -> int:
    """Return the time that the segment would span in records, or has existed if they have none."""
    first_ms = end.first_timestamp_ms
    if first_ms is None or first_ms == NO_TIMESTAMP:
        return now_ms - active_since_ms
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        return now_ms - first_ms
    return max(header.max_timestamp_ms for _, header in batches) - first_ms

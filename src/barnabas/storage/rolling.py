"""When the active segment is closed and another one begun. Pure.

Before an append: if the segment would become too large, its index is full, its offsets would not fit the index, or
its records would span more than `segment.ms`. Without appends: when it has been active for `segment.ms`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from barnabas.model import NO_TIMESTAMP
from barnabas.records.scan import RELATIVE_OFFSET_MAX
from barnabas.storage.append import Placed
from barnabas.storage.log_config import LogConfig


class SegmentEnd(Protocol):
    """What counts of a segment, perhaps together with what is on its way into it."""

    base_offset: int
    size: int
    first_timestamp_ms: int | None

    @property
    def index_bytes(self) -> int: ...


class SegmentEndOfGroup(SegmentEnd, Protocol):
    """The same, and what counts of the batches that come next."""

    append_time_ms: int
    """The time that the broker gives the batches, or -1 if the producer's timestamps count."""


def must_roll(
    end: SegmentEndOfGroup,
    config: LogConfig,
    size: int,
    batches: Sequence[Placed],
    last_offset: int,
    now_ms: int,
    active_since_ms: int,
) -> bool:
    """Return whether these batches, of `size` bytes together, must not be appended to this segment.

    :param last_offset: that the last of their records has, or will have.
    """
    if last_offset - end.base_offset > RELATIVE_OFFSET_MAX:
        return True
    if not end.size:
        return False
    if end.size + size > config.segment_bytes or end.index_bytes >= config.segment_index_bytes:
        return True
    latest_ms = NO_TIMESTAMP
    for _, header in batches:
        if header.max_timestamp_ms > latest_ms:  # noqa: PLR1730 - max() takes longer
            latest_ms = header.max_timestamp_ms
    first_ms = end.first_timestamp_ms
    if first_ms is None or first_ms == NO_TIMESTAMP:
        # Records without time: what counts is how long the segment has existed.
        first_ms, latest_ms = active_since_ms, now_ms
    elif end.append_time_ms != NO_TIMESTAMP:
        latest_ms = end.append_time_ms
    return latest_ms - first_ms > config.roll_ms

"""Which segments a log's settings let go. Pure: segments are looked at by size and time only.

As in Kafka, segments go from the oldest on, whole, and only if all of their records are below the high watermark:

- by time: while the newest record of the segment is older than `retention.ms`;
- by size: while the log without the segment still has `retention.bytes`.

The active segment may be among them; an empty one never is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from barnabas.storage.config import LogConfig

UNLIMITED = -1
"""What `retention.ms` and `retention.bytes` are where nothing is to go."""


class SegmentExtent(Protocol):
    """What retention wants to know of a segment."""

    size: int
    next_offset: int


S = TypeVar("S", bound=SegmentExtent)


def count_deletable(
    segments: Sequence[S], config: LogConfig, now_ms: int, high_watermark: int, newest_ms: Callable[[S], int]
) -> int:
    """Return how many of the segments, from the first on, are to go.

    :param segments: all of the log's, oldest first.
    :param newest_ms: returns the time of a segment's newest record. Only asked where it matters, since it may have
        to open a file.
    """
    excess_bytes = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for segment in segments:
        if not segment.size or segment.next_offset > high_watermark:
            break
        too_much = config.retention_bytes != UNLIMITED and excess_bytes >= segment.size
        if not too_much and not _is_expired(config.retention_ms, now_ms, segment, newest_ms):
            break
        excess_bytes -= segment.size
        count += 1
    return count


def _is_expired(retention_ms: int, now_ms: int, segment: S, newest_ms: Callable[[S], int]) -> bool:
    return retention_ms != UNLIMITED and now_ms - newest_ms(segment) > retention_ms

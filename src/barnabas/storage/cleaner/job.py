"""The messages between a broker and its cleaner process. Each message is one line of JSON of limited length.

The broker sends a job. The cleaner reads the keys of the dirty part and responds with its plan. Then the broker
requests the groups of segments one by one, and swaps the files of each group before the next request. The cleaner may
send progress lines at any time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from barnabas.errors import BarnabasError

LINE_BYTES_MAX = 64 * 1024 * 1024
"""The maximum length of a line in bytes. Each active producer in a job takes about 30 bytes."""


class SegmentRef(NamedTuple):
    """A segment of a job."""

    base_offset: int
    next_offset: int
    size: int


class CleaningJob(NamedTuple):
    """A cleaning job: the segments of a log to clean, and the settings."""

    folder: str
    segments: tuple[SegmentRef, ...]
    """All segments from the first segment of the log to the end of the cleanable part."""
    first_dirty_offset: int
    now_ms: int
    delete_retention_ms: int
    last_of_producers: Mapping[int, int]
    """For each active producer id, the last offset of its newest batch, if the segments of this job contain this batch.
    """
    segment_bytes: int
    """The maximum size of a merged segment."""
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    """The memory for the map of keys, in bytes.

    If it is too small, this job cleans only a part of the log, and the next job continues.
    """
    buffer_bytes: int
    """The size of a read in bytes. It is increased if a batch is larger."""
    bytes_per_second: float
    """The maximum rate of reads and writes together."""

    @property
    def end_offset(self) -> int:
        """The end offset of the cleanable part."""
        return self.segments[-1].next_offset


class CleaningPlan(NamedTuple):
    """The response to a job: the part of the log that will be cleaned."""

    end_offset: int
    """The first dirty offset after the job."""
    key_count: int


class CleanedGroup(NamedTuple):
    """A new segment that the cleaner made from one or more segments.

    Its files are durable and have the suffix `.cleaned`.
    """

    base_offsets: tuple[int, ...]
    """The base offsets of the segments to replace. The first of them is also the base offset of the new segment."""
    size: int
    """The size of the new segment in bytes. It may be 0."""
    bytes_read: int
    records_read: int
    records_kept: int


class UncleanableError(BarnabasError):
    """The log cannot be cleaned in its current state. Another attempt would also fail."""


class CleaningFailedError(BarnabasError):
    """A job failed for a temporary reason. Another attempt may succeed."""


Message = CleaningJob | CleaningPlan | CleanedGroup | UncleanableError | CleaningFailedError | None
"""A decoded line.

None from the cleaner means that there are no more groups. None from the broker requests the next group.
"""

PROGRESS = b"{}\n"
"""A progress line. It shows that the cleaner is alive."""


def encode(message: Message) -> bytes:
    """Return the line of a message."""
    return json.dumps(_encoded(message), separators=(",", ":")).encode() + b"\n"


def _encoded(message: Message) -> Any:
    if message is None:
        return None
    if isinstance(message, BarnabasError):
        return {type(message).__name__: str(message)}
    return {type(message).__name__: message._asdict()}


def decode(line: bytes) -> Message:
    """Decode a line.

    :raises ValueError: the line is not a valid message.
    """
    found = json.loads(line)
    if found is None:
        return None
    try:
        ((kind, content),) = found.items()
        message: Message = _DECODERS[kind](content)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"invalid message of the cleaner protocol: {line[:100]!r}") from error
    return message


def _decode_job(content: dict[str, Any]) -> CleaningJob:
    content["segments"] = tuple(SegmentRef(*each) for each in content["segments"])
    content["last_of_producers"] = {int(key): offset for key, offset in content["last_of_producers"].items()}
    return CleaningJob(**content)


def _decode_group(content: dict[str, Any]) -> CleanedGroup:
    content["base_offsets"] = tuple(content["base_offsets"])
    return CleanedGroup(**content)


_DECODERS: dict[str, Any] = {
    "CleaningJob": _decode_job,
    "CleaningPlan": lambda content: CleaningPlan(**content),
    "CleanedGroup": _decode_group,
    "UncleanableError": UncleanableError,
    "CleaningFailedError": CleaningFailedError,
}

"""The messages between a broker and its cleaner process: one line of JSON each, of bounded length.

The broker sends a job. The cleaner reads the keys of the dirty part and answers with its plan. Then the broker asks for
one group of segments after the other, and swaps each before it asks for the next one. Lines about progress may come at
any time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from barnabas.errors import BarnabasError

LINE_BYTES_MAX = 64 * 1024 * 1024
"""The longest line. A producer takes some 30 bytes of it."""


class SegmentRef(NamedTuple):
    """A segment of a job."""

    base_offset: int
    next_offset: int
    size: int


class CleaningJob(NamedTuple):
    """What is to be cleaned, and how."""

    folder: str
    segments: tuple[SegmentRef, ...]
    """All from the first one of the log to the end of the cleanable part."""
    first_dirty_offset: int
    now_ms: int
    delete_retention_ms: int
    last_of_producers: Mapping[int, int]
    """Of each active producer, by its id, the last offset of its newest batch, if that is among what is cleaned."""
    segment_bytes: int
    """How large a segment may become by merging."""
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    """The memory for keys. If it does not suffice, a part is cleaned, and the rest with the next job."""
    buffer_bytes: int
    """How much is read at once, if batches are not larger."""
    bytes_per_second: float
    """How fast it may read and write, in sum."""

    @property
    def end_offset(self) -> int:
        """Where the cleanable part ends."""
        return self.segments[-1].next_offset


class CleaningPlan(NamedTuple):
    """What a job will do."""

    end_offset: int
    """The log is clean up to here when it is done."""
    key_count: int


class CleanedGroup(NamedTuple):
    """Segments that were rewritten as one, whose files are there, durable, with the suffix `.cleaned`."""

    base_offsets: tuple[int, ...]
    """Of the segments that it is to take the place of; the first one is its own."""
    size: int
    """In bytes; may be 0."""
    bytes_read: int
    records_read: int
    records_kept: int


class UncleanableError(BarnabasError):
    """The log cannot be cleaned as it is: to try again would end the same way."""


class CleaningFailedError(BarnabasError):
    """A job failed for a reason that may pass."""


Message = CleaningJob | CleaningPlan | CleanedGroup | UncleanableError | CleaningFailedError | None
"""What a line can say. None: there is no further group; or, from the broker: go on with the next group."""

PROGRESS = b"{}\n"
"""The line that says that the cleaner is at work."""


def encode(message: Message) -> bytes:
    """Return the line that says something."""
    return json.dumps(_encoded(message), separators=(",", ":")).encode() + b"\n"


def _encoded(message: Message) -> Any:
    if message is None:
        return None
    if isinstance(message, BarnabasError):
        return {type(message).__name__: str(message)}
    return {type(message).__name__: message._asdict()}


def decode(line: bytes) -> Message:
    """Read a line.

    :raises ValueError: it says nothing that can be understood.
    """
    found = json.loads(line)
    if found is None:
        return None
    try:
        ((kind, content),) = found.items()
        message: Message = _DECODERS[kind](content)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a line that cannot be understood: {line[:100]!r}") from error
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

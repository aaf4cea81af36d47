"""The limits of the batch format, and checks of the values that users pass."""

from __future__ import annotations

from typing import Any

OFFSET_MAX = 2**63 - 1
"""No record has a greater offset."""

BATCH_BYTES_MAX = 2**31 - 1
"""Lengths in a batch are 32-bit numbers."""

RECORD_OVERHEAD_MAX = 32
"""What a record without headers takes beside its key and value, at most."""

BATCH_TOO_LARGE = "a batch cannot be larger than 2 GiB"
BAD_TIMESTAMP = "a timestamp must be between -2**61 and 2**61 ms"
BAD_COLUMN = "the offsets of an Arrow column do not lie within its data"

RECORD_SIZE_MIN = 7
"""Bytes of a record with neither key nor value nor headers."""

TIMESTAMP_LIMIT = 2**62
"""Timestamps and their deltas beyond this are damage: their sum might not fit 64 bits."""

WRITTEN_TIMESTAMP_LIMIT = 2**61
"""Timestamps beyond this are not written: two of them could be further apart than readers accept."""


def as_bytes(given: Any) -> bytes:
    """Return what a bytes-like object holds now.

    :raises TypeError: it is none.
    """
    return given if type(given) is bytes else bytes(memoryview(given))


def checked_timestamp(timestamp_ms: object) -> int:
    """Return a timestamp that readers will accept.

    :raises TypeError: it is no int.
    :raises ValueError: it is out of range.
    """
    if not isinstance(timestamp_ms, int):
        raise TypeError(f"a timestamp is an int (ms since the epoch), not {type(timestamp_ms).__name__}")
    if not -WRITTEN_TIMESTAMP_LIMIT < timestamp_ms < WRITTEN_TIMESTAMP_LIMIT:
        raise ValueError(BAD_TIMESTAMP)
    return timestamp_ms

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
BAD_TIMESTAMP = "a timestamp must be between -2**63 and 2**63 - 1 ms"
BAD_COLUMN = "the offsets of an Arrow column do not lie within its data"

RECORD_SIZE_MIN = 7
"""Bytes of a record with neither key nor value nor headers."""

HEADERS_MAX = 1_000_000
"""A record with more headers is damage: two bytes of a decompressed batch could else become a hundred in memory."""

TIMESTAMP_MIN = -(2**63)
TIMESTAMP_MAX = 2**63 - 1
"""Timestamps are signed 64-bit numbers. The broker stores any of them."""

NEAR_TIMESTAMP_LIMIT = 2**62
"""A base timestamp and a delta below this limit have a sum that fits 64 bits."""


def wrapped_timestamp(timestamp_ms: int) -> int:
    """Return a sum or difference of timestamps as 64-bit arithmetic has it, which wraps around as in Kafka's clients.

    >>> wrapped_timestamp(2**63 - 1 + 1) == -(2**63)
    True
    """
    return (timestamp_ms + 2**63) % 2**64 - 2**63


def as_bytes(given: Any) -> bytes:
    """Return what a bytes-like object holds now.

    :raises TypeError: it is none.
    """
    return given if type(given) is bytes else bytes(memoryview(given))


def checked_timestamp(timestamp_ms: object) -> int:
    """Return a timestamp that fits its field.

    :raises TypeError: it is no int.
    :raises ValueError: it is out of range.
    """
    if not isinstance(timestamp_ms, int):
        raise TypeError(f"a timestamp is an int (ms since the epoch), not {type(timestamp_ms).__name__}")
    if not TIMESTAMP_MIN <= timestamp_ms <= TIMESTAMP_MAX:
        raise ValueError(BAD_TIMESTAMP)
    return timestamp_ms

"""The limits of the batch format, and checks of values that applications pass."""

from __future__ import annotations

from typing import Any

OFFSET_MAX = 2**63 - 1
"""The greatest offset of a record."""

BATCH_BYTES_MAX = 2**31 - 1
"""The maximum size of a batch, because its lengths are 32-bit numbers."""

RECORD_OVERHEAD_MAX = 32
"""The maximum size of a record without headers, in addition to its key and value."""

BATCH_TOO_LARGE = "a batch cannot be larger than 2 GiB"
BAD_TIMESTAMP = "a timestamp must be between -2**63 and 2**63 - 1 ms"
BAD_COLUMN = "the offsets of an Arrow column do not lie within its data"

RECORD_SIZE_MIN = 7
"""The size of a record without key, value and headers, in bytes."""

HEADERS_MAX = 1_000_000
"""The maximum number of headers of a record.

Without this limit, two bytes of a decompressed batch could take a hundred bytes of memory.
"""

TIMESTAMP_MIN = -(2**63)
TIMESTAMP_MAX = 2**63 - 1
"""The range of timestamps. The broker stores all signed 64-bit numbers."""

NEAR_TIMESTAMP_LIMIT = 2**62
"""If a base timestamp is below this limit, its sum with a delta fits into 64 bits."""


def wrapped_timestamp(timestamp_ms: int) -> int:
    """Return a sum or difference of timestamps with 64-bit wraparound, as in Kafka's clients.

    >>> wrapped_timestamp(2**63 - 1 + 1) == -(2**63)
    True
    """
    return (timestamp_ms + 2**63) % 2**64 - 2**63


def as_bytes(given: Any) -> bytes:
    """Return the current content of a bytes-like object.

    :raises TypeError: `given` is not bytes-like.
    """
    return given if type(given) is bytes else bytes(memoryview(given))


def checked_timestamp(timestamp_ms: object) -> int:
    """Return a timestamp that fits into a signed 64-bit field.

    :raises TypeError: the timestamp is not an int.
    :raises ValueError: the timestamp is out of range.
    """
    if not isinstance(timestamp_ms, int):
        raise TypeError(f"a timestamp is an int (ms since the epoch), not {type(timestamp_ms).__name__}")
    if not TIMESTAMP_MIN <= timestamp_ms <= TIMESTAMP_MAX:
        raise ValueError(BAD_TIMESTAMP)
    return timestamp_ms

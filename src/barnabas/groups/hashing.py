"""Computes the partition of `__consumer_offsets` for a group.

The result is the same as in Kafka, so that Kafka's tools find the same coordinator.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable

_REMEMBERED = 16_384


@functools.lru_cache(maxsize=_REMEMBERED)
def partition_of(group_id: str, partition_count: int) -> int:
    """Return the partition that contains a group's records. The leader of this partition is the group coordinator.

    The formula is Kafka's `Utils.abs(groupId.hashCode()) % partitionCount`, where `abs` of the smallest integer is 0.

    >>> partition_of("clicks", 50)
    3
    """
    number = java_hash(group_id)
    return 0 if number == -(2**31) else abs(number) % partition_count


def java_hash(text: str) -> int:
    """Return the result of Java's `String.hashCode`, computed from UTF-16 code units as a signed 32-bit integer.

    >>> java_hash("polygenelubricants")
    -2147483648
    """
    units: Iterable[int] = text.encode("ascii") if text.isascii() else _utf16_units(text)
    number = 0
    for unit in units:
        number = (31 * number + unit) & 0xFFFFFFFF
    return number - 2**32 if number >= 2**31 else number


def _utf16_units(text: str) -> tuple[int, ...]:
    encoded = text.encode("utf-16-le", "surrogatepass")
    return struct.unpack(f"<{len(encoded) // 2}H", encoded)

"""Which partition of `__consumer_offsets` a group belongs to: the same one as in Kafka, so that tools agree."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable

_REMEMBERED = 16_384


@functools.lru_cache(maxsize=_REMEMBERED)
def partition_of(group_id: str, partition_count: int) -> int:
    """Return the partition that holds a group's records; its leader coordinates the group.

    It is Kafka's `Utils.abs(groupId.hashCode()) % partitionCount`, where the `abs` of the least int is 0.

    >>> partition_of("clicks", 50)
    3
    """
    number = java_hash(group_id)
    return 0 if number == -(2**31) else abs(number) % partition_count


def java_hash(text: str) -> int:
    """Return what Java's `String.hashCode` does: a sum over the units of UTF-16, in 32 bits with a sign.

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

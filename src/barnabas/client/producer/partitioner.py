"""Which partition a record goes to (paper, 3.2: random, or by a key and a partition function).

With a key: murmur2 of the key modulo the number of partitions, bit for bit as Kafka's Java client does it, so
that producers in other languages put the same key into the same partition. Without one: the sticky choice of
KIP-480, a random partition that is kept until its batch is complete, because a few large batches cost less
than many small ones; over time the records are spread evenly.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
POSITIVE_MASK = 0x7FFFFFFF

CACHED_KEYS_MAX = 4096


def murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 hash of `data`, unsigned, with the seed that Kafka uses.

    >>> hex(murmur2(b"kafka"))
    '0xd067cf64'
    """
    length = len(data)
    whole = length & ~3
    h = _SEED ^ length
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        k = (k * _M) & _MASK  # noqa: PLW2901  the mixing steps read like the algorithm's definition
        k ^= k >> 24  # noqa: PLW2901
        h = ((h * _M) & _MASK) ^ ((k * _M) & _MASK)
    if whole != length:
        h ^= int.from_bytes(data[whole:], "little")
        h = (h * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


@lru_cache(maxsize=CACHED_KEYS_MAX)
def key_hash(key: bytes) -> int:
    """Return the non-negative hash of a key. Keys tend to come back, so the last few thousand are remembered."""
    return murmur2(key) & POSITIVE_MASK


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of `key` in a topic of `partition_count` partitions.

    >>> partition_for_key(b"member-42", 6)
    0
    """
    return key_hash(key) % partition_count


def next_sticky(choices: Sequence[int], current: int, random: Callable[[], float]) -> int:
    """Return the partition that records without a key go to next: a random one, other than `current` if possible.

    :param choices: the partitions that may be taken, at least one.
    :param random: returns a number in [0, 1).

    >>> next_sticky([0, 1, 2], 1, lambda: 0.99)
    2
    """
    others = [partition for partition in choices if partition != current] or list(choices)
    return others[int(random() * len(others))]

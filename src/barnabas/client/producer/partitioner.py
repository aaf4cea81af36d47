"""Which partition a record goes to (paper, 3.2: random, or by a key and a partition function).

With a key: murmur2 of the key modulo the number of partitions, bit for bit as Kafka's Java client does it, so
that producers in other languages put the same key into the same partition. Without one: the sticky choice of
KIP-480, a random partition that is kept until its batch is complete, because a few large batches cost less
than many small ones; over time the records are spread evenly.
"""

from __future__ import annotations

from barnabas.records import murmur2
from barnabas.records.codec_pure.appending import POSITIVE_MASK


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of `key` in a topic of `partition_count` partitions.

    >>> partition_for_key(b"member-42", 6)
    0
    """
    if type(key) is not bytes:
        if not isinstance(key, (bytes, bytearray, memoryview)):
            raise TypeError(f"key must be bytes or None, not {type(key).__name__}; encode it first")
        key = bytes(key)
    return (murmur2(key) & POSITIVE_MASK) % partition_count

"""Records for a compacted log: each key occurs about ten times, at random positions. All brokers get the same
records.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.records import BatchBuilder, Compression

KEY_BYTES = 16
RECORDS_PER_KEY = 10
MEGABYTE = 1_000_000


class Kind(NamedTuple):
    """The size and compression of records, and their number per batch."""

    record_bytes: int
    """The size of key and value."""
    batch_records: int
    compression: Compression

    def record_count(self, megabytes: int) -> int:
        """Return the number of records, in whole batches, that together have the given size."""
        return megabytes * MEGABYTE // (self.record_bytes * self.batch_records) * self.batch_records


def batches(kind: Kind, megabytes: int, timestamp_ms: int) -> Iterator[bytes]:
    """Yield batches of equal size. Half of each value is compressible."""
    choose = random.Random(kind.record_bytes)
    value_bytes = kind.record_bytes - KEY_BYTES
    noise = choose.randbytes(MEGABYTE)
    record_count = kind.record_count(megabytes)
    for _ in range(0, record_count, kind.batch_records):
        builder = BatchBuilder(kind.compression)
        for _ in range(kind.batch_records):
            start = choose.randrange(len(noise) - value_bytes)
            value = noise[start : start + value_bytes // 2].ljust(value_bytes, b".")
            builder.append(timestamp_ms, b"key-%012d" % choose.randrange(1 + record_count // RECORDS_PER_KEY), value)
        yield bytes(builder.build())

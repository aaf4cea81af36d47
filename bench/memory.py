"""Memory that is at hand before a run begins.

A virtual machine's host may take free memory back, and give it again page by page: the first touch of a page then
costs many times what writing it does (measured here: 2 to 4 s a gigabyte). Whoever runs first after a pause would pay
for what the next one finds at hand. So as much as a run will write is touched and freed just before the run, for all
contenders alike; the kernel gives out first what was freed last.
"""

from __future__ import annotations

import mmap

PAGE_BYTES = 4096
BYTES_MAX = 4 * 1024**3
"""For longer runs this no longer matters: they write more than could be kept at hand."""
SHARE = 1.5
"""Of what is written: records take more room in a log, and clients buffer."""
LEAST_BYTES = 256 * 1024**2


def bytes_for(records: int, record_bytes: int) -> int:
    """Return how much a run needs.

    >>> bytes_for(10_000_000, 100) == 1_500_000_000
    True
    """
    return min(BYTES_MAX, max(LEAST_BYTES, int(records * record_bytes * SHARE)))


def touch(size_bytes: int) -> None:
    """Write to `size_bytes` of memory and give them back."""
    with mmap.mmap(-1, size_bytes) as memory:
        for position in range(0, size_bytes, PAGE_BYTES):
            memory[position] = 1

"""Memory that is at hand before a run begins.

A virtual machine's host may take free memory back, and give it again page by page: the first touch of a page then
costs many times what writing it does (measured here: 2 to 4 s a gigabyte). Whoever runs first after a pause would pay
for what the next one finds at hand. So between the runs that write, for all contenders alike, several times the memory
that they need is held, and freed just before each of them: the kernel gives out first what was freed last.
"""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

GIB = 1024**3
LEAST_BYTES = 5 * GIB
"""Less is not enough: the kernel takes from small stretches of free memory before it splits large ones, so all of the
small ones must be at hand."""
SMALL_BYTES = GIB // 20
"""A run that writes no more than this spends its time on other things than on memory."""
MOST_BYTES = 8 * GIB
SHARE = 4
"""Of the payload."""
SHARE_OF_AVAILABLE = 0.5


def bytes_for(records: int, record_bytes: int) -> int:
    """Return how much is to be held for a run.

    >>> bytes_for(15_000_000, 100) == 6_000_000_000
    True
    >>> bytes_for(10_000, 100)
    0
    """
    if records * record_bytes < SMALL_BYTES:
        return 0
    return min(MOST_BYTES, max(LEAST_BYTES, records * record_bytes * SHARE))


def available_bytes() -> int:
    """Return how much memory can be had, what caches would give back included."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo does not tell how much memory is available")


class Reserve:
    """Memory that is held between runs."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._asked_bytes = 0

    def hold(self, size_bytes: int) -> None:
        """Hold at least so much (but no more than half of what can be had), every page of it touched."""
        if size_bytes <= self._asked_bytes:
            return
        self.release()
        self._asked_bytes = size_bytes
        size_bytes = min(size_bytes, int(available_bytes() * SHARE_OF_AVAILABLE))
        self._memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # Huge pages would come from other free lists than the ones that the page cache takes from.
        self._memory.madvise(mmap.MADV_NOHUGEPAGE)
        start = ctypes.c_char.from_buffer(self._memory)
        ctypes.memset(ctypes.addressof(start), 1, size_bytes)

    def release(self) -> None:
        """Free it, for the run that begins now."""
        if self._memory is not None:
            self._memory.close()
            self._memory, self._asked_bytes = None, 0

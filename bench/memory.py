"""Memory that is at hand before a run begins.

A virtual machine's host may take free memory back, and give it again page by page: the first touch of a page then
costs many times what writing it does (measured here: 2 to 4 s a gigabyte). Whoever runs first after a pause would pay
for what the next one finds at hand. So before each run that writes, for all contenders alike, several times what it
will need is touched and freed, and once more if that was slow: the kernel gives out first what was freed last.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time

GIB = 1024**3
LEAST_BYTES = 3 * GIB
"""Less is not enough: the kernel spreads what it gives out over more free pages than are asked for."""
SMALL_BYTES = GIB // 10
"""A run that writes no more than this spends its time on other things than on memory."""
MOST_BYTES = 8 * GIB
SHARE = 4
"""Of the payload."""
SHARE_OF_FREE = 0.5
TRIES = 4
AT_HAND_S_PER_GIB = 0.7
"""What touching a gibibyte in pages of 4 KiB costs if the host has nothing to do with it, and some more."""


def bytes_for(records: int, record_bytes: int) -> int:
    """Return how much is to be touched for a run.

    >>> bytes_for(10_000_000, 100) == 4_000_000_000
    True
    >>> bytes_for(10_000, 100)
    0
    """
    if records * record_bytes < SMALL_BYTES:
        return 0
    return min(MOST_BYTES, max(LEAST_BYTES, records * record_bytes * SHARE))


def touch(size_bytes: int) -> None:
    """Write to `size_bytes` of memory (at most half of what is free) and give them back, until that is quick."""
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    size_bytes = min(size_bytes, int(free_bytes * SHARE_OF_FREE))
    for _ in range(TRIES if size_bytes else 0):
        started_s = time.monotonic()
        with mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            # Huge pages would come from other free lists than the ones that the page cache takes from.
            memory.madvise(mmap.MADV_NOHUGEPAGE)
            start = ctypes.c_char.from_buffer(memory)
            ctypes.memset(ctypes.addressof(start), 1, size_bytes)
            del start
        if time.monotonic() - started_s < AT_HAND_S_PER_GIB * size_bytes / GIB:
            return

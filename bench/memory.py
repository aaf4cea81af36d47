"""Prepares memory for fast use before a run starts.

A virtual machine's host may take free memory back, and return it page by page. The first write to such a page is many
times slower than usual (2 to 4 s per gigabyte on the machine of the results). The first run after a pause would pay
this cost, and the next run would not. So between writing runs of all contenders, this module holds several times the
memory that a run needs, and frees it just before the run. The kernel first allocates the memory that was freed last.
"""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

GIB = 1024**3
LEAST_BYTES = 5 * GIB
"""The minimum size of the reserve. The kernel first allocates from small areas of free memory, so all of these areas
must be ready."""
SMALL_BYTES = GIB // 20
"""The maximum payload of a run that needs no reserve: the duration of such a run does not depend on memory."""
MOST_BYTES = 8 * GIB
SHARE = 4
"""The reserve as a multiple of the payload."""
SHARE_OF_AVAILABLE = 0.5


def bytes_for(records: int, record_bytes: int) -> int:
    """Return the size of the reserve for a run.

    >>> bytes_for(15_000_000, 100) == 6_000_000_000
    True
    >>> bytes_for(10_000, 100)
    0
    """
    if records * record_bytes < SMALL_BYTES:
        return 0
    return min(MOST_BYTES, max(LEAST_BYTES, records * record_bytes * SHARE))


def available_bytes() -> int:
    """Return the available memory, including caches that the kernel can free."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo has no line MemAvailable")


class Reserve:
    """Memory that is held between runs."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._asked_bytes = 0

    def hold(self, size_bytes: int) -> None:
        """Hold at least this much memory, but at most half of the available memory, and write to every page."""
        if size_bytes <= self._asked_bytes:
            return
        self.release()
        self._asked_bytes = size_bytes
        size_bytes = min(size_bytes, int(available_bytes() * SHARE_OF_AVAILABLE))
        self._memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # Use no huge pages, because the kernel takes them from other free lists than pages of the page cache.
        self._memory.madvise(mmap.MADV_NOHUGEPAGE)
        start = ctypes.c_char.from_buffer(self._memory)
        ctypes.memset(ctypes.addressof(start), 1, size_bytes)

    def release(self) -> None:
        """Free the memory that the previous run used, before the next run starts."""
        if self._memory is not None:
            self._memory.close()
            self._memory, self._asked_bytes = None, 0

"""Settings of the process for little memory, in place of speed: a console reads tables rarely, and lives long.

By default each thread allocates in an arena of its own, and Arrow's allocator keeps freed memory. The memory of one
audit then stays with the process.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable

ARENAS_MAX = 1
KEPT_BYTES_MAX = 128 * 1024
"""Freed memory above this size goes back to the operating system."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"


def use_little_memory() -> None:
    """Let the allocators keep little freed memory. Call this before the import of pyarrow."""
    os.environ.setdefault(_ARROW_POOL, "system")
    mallopt = _function_of_glibc("mallopt")
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, ARENAS_MAX)
        mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES_MAX)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX)


def return_freed_memory() -> None:
    """Collect cyclic garbage, and give freed memory back to the operating system."""
    gc.collect()
    malloc_trim = _function_of_glibc("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def _function_of_glibc(name: str) -> Callable[..., int] | None:
    """Return a function of glibc; None with another C library."""
    try:
        found: Callable[..., int] | None = getattr(ctypes.CDLL(None), name, None)
    except (OSError, TypeError):
        return None
    return found

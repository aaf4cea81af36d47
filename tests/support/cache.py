"""What tests bring or make once and keep, in `~/.cache/barnabas` (or `$XDG_CACHE_HOME/barnabas`)."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas"


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Keep the other processes out that would make the same thing."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def cached(name: str, fill: Callable[[Path], None]) -> Path:
    """Return a folder of the cache, made and filled once by whichever process comes first; the others wait for it."""
    folder = CACHE / name
    with locked(name):
        if not folder.exists():
            incomplete = CACHE / f"{name}.{os.getpid()}"
            shutil.rmtree(incomplete, ignore_errors=True)
            fill(incomplete)
            incomplete.rename(folder)
    return folder

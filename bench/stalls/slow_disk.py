"""`python -m bench.stalls.slow_disk SECONDS up ...` runs `barnabas up` as if the disk had a slow fsync."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from barnabas.storage import OsFileSystem


def later(operation: Callable[..., Any], delay_s: float) -> Callable[..., Any]:
    """Return a function that delays an operation and then runs it."""

    def delayed(*arguments: Any) -> Any:
        time.sleep(delay_s)
        return operation(*arguments)

    return delayed


def slow_down(delay_s: float) -> None:
    """Delay every fsync of this process. Other operations are not delayed."""
    for name in ("fsync", "fsync_folder"):
        setattr(OsFileSystem, name, later(getattr(OsFileSystem, name), delay_s))


if __name__ == "__main__":
    from barnabas.cli.main import main

    slow_down(float(sys.argv.pop(1)))
    sys.exit(main())

"""One-line errors of this package in Spark's Python workers.

A wrong option or an unreachable broker is not a defect, so its traceback is of no use. Other errors keep their
traceback.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.errors import BarnabasError

_HIDE = "SPARK_HIDE_TRACEBACK"


@contextmanager
def hide_traceback() -> Iterator[None]:
    """Make Spark show an error of this package without a traceback.

    Spark's worker reads the variable when it sends the exception to the driver, and then ends. So no other error of the
    worker loses its traceback. Other processes are not affected.
    """
    try:
        yield
    except BarnabasError:
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
            os.environ[_HIDE] = "1"
        raise

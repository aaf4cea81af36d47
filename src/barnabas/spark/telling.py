"""How an error of this package comes out of one of Spark's Python workers: as one line, not as a traceback.

What a user did wrong, or a broker that is down, is no defect whose place in the code anybody needs. A defect keeps
its traceback.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.errors import BarnabasError

_HIDE = "SPARK_HIDE_TRACEBACK"


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Have Spark show an error of this package without a traceback.

    Spark's worker reads this variable when it hands on the exception, and ends after that; so nothing else that runs
    in it loses its tracebacks. In any other process nothing changes.
    """
    try:
        yield
    except BarnabasError:
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
            os.environ[_HIDE] = "1"
        raise

"""Keeps imported modules out of the garbage collections that PySpark runs after each task.

PySpark collects garbage whenever a worker has done a task, to have little memory between two of them. With PySpark,
pyarrow and this package imported that takes 30 ms of CPU time a task, as long as reading 300,000 records does, and
finds nothing: modules, classes and functions stay for as long as the worker lives. `gc.freeze` says so.
"""

from __future__ import annotations

import gc
import os
from functools import cache

IS_USED_AGAIN = "SPARK_REUSE_WORKER"
"""The variable that PySpark goes by: only in the workers that it has are there such collections."""


@cache
def freeze_imports() -> None:
    """Keep what is there now out of the collections from now on; once a process, and only in Spark's workers."""
    if os.environ.get(IS_USED_AGAIN):
        gc.freeze()

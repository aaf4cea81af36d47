"""The choice of the Python that Spark's workers run. This package must be installed there.

When a session starts, PySpark takes PYSPARK_PYTHON, or the first `python3` on the PATH. In a virtual environment that
is not activated (`venv/bin/python job.py`), that is not the Python of the driver.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas.errors import ConfigurationError
from barnabas.spark.fast_worker_start import SCRIPT, environment_set, fast_worker_python, worker_environment

CHECK_TIMEOUT_S = 60.0


@contextmanager
def worker_python(spark: SparkSession) -> Iterator[None]:
    """Make Spark jobs within the context run a Python that has this package.

    If the workers run on this machine and the user has not chosen a Python for them, the workers use the driver's
    Python. Other jobs of the session keep their Python.

    :raises ConfigurationError: The chosen Python lacks this package.
    """
    context = context_of(spark)
    if context is None:
        yield
        return
    before = context.pythonExec
    context.pythonExec = choose_python(before, context.master or "", _chosen(os.environ, context))
    try:
        with environment_set(context.environment, worker_environment() if context.pythonExec == str(SCRIPT) else {}):
            yield
    finally:
        context.pythonExec = before


def choose_python(default: str, master: str, chosen: str | None) -> str:
    """Return the Python of the workers.

    :param default: The Python of the session.
    :param chosen: The Python that the user has set; None if not set.
    :raises ConfigurationError: The Python lacks this package. A Python that is not on this machine is not checked.
    """
    if default == str(SCRIPT):
        return default
    if master.startswith("local") and chosen in (None, sys.executable):
        return fast_worker_python()
    found = shutil.which(default)
    if found is not None and not has_package(found):
        raise ConfigurationError(
            f"Spark's workers run the Python {default!r} ({found}), which cannot import barnabas: before the session "
            f"is made, set PYSPARK_PYTHON to one that has barnabas[spark] on every machine (here: {sys.executable})"
        )
    return default


@cache
def has_package(python: str) -> bool:
    """Return whether a Python of this machine can import this package and the dependencies of its tasks."""
    if python == sys.executable:
        return True
    command = [python, "-c", "import barnabas.spark, pyarrow"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=CHECK_TIMEOUT_S)
    return done.returncode == 0


def context_of(spark: SparkSession) -> SparkContext | None:
    """Return the session's SparkContext; None for Spark Connect, whose server has the workers."""
    try:
        return spark.sparkContext
    except PySparkException:
        return None


def cores_of(spark: SparkSession) -> int | None:
    """Return the number of tasks that run at a time; None on a cluster, whose number of executors may change."""
    context = context_of(spark)
    is_local = context is not None and re.fullmatch(r"local(\[.*\])?", context.master or "")
    return context.defaultParallelism if context is not None and is_local else None


def _chosen(environ: Mapping[str, str], context: SparkContext) -> str | None:
    return environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")

"""A faster start of Python workers on this machine: they import PySpark from its directory, not from an archive.

Spark puts the archive `pyspark.zip` first on the path of each worker, so that workers need no PySpark. Python does not
cache compiled modules of an archive, so each worker compiles all modules that it imports, and a first query starts four
workers. If PySpark is installed in the workers' Python, its directory has the same modules with compiled caches. The
script `run_worker.sh` removes the archive from the path and executes that Python. Workers then start in a third of the
time.

The script is used only for workers on this machine that run the driver's Python, and only if Spark itself runs from
that directory. Workers of a cluster, shipped environments and other Pythons are not changed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path

import pyspark

from barnabas.spark.spark_home import spark_home

SCRIPT = Path(__file__).with_name("run_worker.sh")
PYTHON, PYSPARK = "_BARNABAS_WORKER_PYTHON", "_BARNABAS_WORKER_PYSPARK"


def fast_worker_python(environ: Mapping[str, str] = os.environ) -> str:
    """Return the command of workers on this machine: the script, or this Python if the script cannot be used."""
    folder, home = Path(pyspark.__file__).parent, spark_home(environ)
    runs_from_folder = folder.is_dir() and home.is_dir() and home.samefile(folder)
    # The script is not executable if an installer dropped its mode, or if the file system is mounted with noexec.
    return str(SCRIPT) if runs_from_folder and os.access(SCRIPT, os.X_OK) else sys.executable


def worker_environment() -> dict[str, str]:
    """Return the environment variables that the script needs."""
    return {PYTHON: sys.executable, PYSPARK: str(Path(pyspark.__file__).parent)}


@contextmanager
def environment_set(environment: MutableMapping[str, str], names: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables within the context."""
    before = {name: environment.get(name) for name in names}
    environment.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value

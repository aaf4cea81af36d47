"""Makes Python workers on this machine import PySpark from its folder: they start in a third of the time.

Spark puts the archive `pyspark.zip` first on the path of each worker, so that a worker needs no PySpark of its own.
Python keeps nothing that it has compiled from an archive: each start compiles all that it imports once more, and a
first query starts four workers. Where PySpark is installed in the Python that the workers run, its folder has the
same modules, compiled. `run_worker.sh` takes the archive off the path and becomes that Python.

It is used for workers on this machine that run the Python of the driver, and only if Spark itself runs from that
folder. A cluster's workers, shipped environments and Pythons that somebody chose are left as they are.
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
    """Return what workers on this machine are to run: the script, or this Python itself where that cannot be."""
    folder, home = Path(pyspark.__file__).parent, spark_home(environ)
    runs_from_folder = folder.is_dir() and home.is_dir() and home.samefile(folder)
    # Not so where an installer dropped the mode, or the file system starts no programs.
    return str(SCRIPT) if runs_from_folder and os.access(SCRIPT, os.X_OK) else sys.executable


def worker_environment() -> dict[str, str]:
    """Return the environment variables that the script needs."""
    return {PYTHON: sys.executable, PYSPARK: str(Path(pyspark.__file__).parent)}


@contextmanager
def environment_set(environment: MutableMapping[str, str], names: Mapping[str, str]) -> Iterator[None]:
    """Have the variables in an environment as long as the context lasts."""
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

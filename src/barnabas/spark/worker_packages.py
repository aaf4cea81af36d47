"""A check of the Python installation of a cluster's workers. It runs as a Spark task before all other tasks.

A worker without a package, or without Python, fails while Spark deserializes the task, with pages of Java stack traces.
So `register` asks one worker of a cluster first. Spark pickles the function of this task by value; it imports this
package only to test the import. A worker with another release of this package has all packages but fails later, because
tasks refer to functions of this release by name. The check therefore compares releases, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from threading import Timer
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas import __version__
from barnabas.errors import ConfigurationError
from barnabas.spark.lost_interrupts import raise_lost_interrupt
from barnabas.spark.worker_python import context_of

NEEDED = ("pyarrow", "cramjam", "crc32c", "pyiceberg", "barnabas.spark")
"""The modules that tasks import. This package is last, because it cannot be imported without the others."""
CHECK_TIMEOUT_S = 60.0
_LACKS, _HAS = "lacks", "has"

_MISSING = re.compile(r"No module named '([\w.]+)'|\b(P)yArrow\b[^\n]*must be installed")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"\n]+)"')
_OTHER_PYTHON = re.compile(r"Python in worker has different version: (\S+) than that in driver: (\d+(?:\.\d+)*)")
_FIX = (
    "every worker needs a Python with barnabas[spark]: ship an environment (--archives), as --py-files alone brings no "
    "compiled packages; see 'On a cluster' in docs/how-to/pipeline.md"
)
_checked: set[str] = set()


def explain_workers(text: str) -> str | None:
    """Return a one-line explanation of a Spark error about the workers' Python; None for other errors.

    >>> explain_workers("pages of Java")
    >>> explain_workers("...\\nModuleNotFoundError: No module named 'pyarrow'\\n\\tat ...").partition(":")[0]
    "Spark's workers lack the package pyarrow"
    """
    if found := _MISSING.search(text):
        return _missing_packages_message([(found[1] or "pyarrow").partition(".")[0]])
    if found := _NO_PROGRAM.search(text):
        return f"Spark's workers cannot run the Python {found[1]!r}, which PYSPARK_PYTHON names: {_FIX}"
    if found := _OTHER_PYTHON.search(text):
        return f"Spark's workers run Python {found[1]}, and the driver {found[2]}; the versions must be equal: {_FIX}"
    return None


def check_workers(spark: SparkSession) -> None:
    """Check the packages of a cluster's workers, once per application.

    If no worker answers within `CHECK_TIMEOUT_S`, the check passes, and the query reports the problem.

    :raises ConfigurationError: Packages are missing or of another release, or no Python runs.
    """
    context = context_of(spark)
    if context is None or (context.master or "local").startswith("local") or context.applicationId in _checked:
        return
    found = _ask_worker(context)
    if found is None:
        return
    lacking = [name for what, name in found if what == _LACKS]
    if lacking:
        raise ConfigurationError(_missing_packages_message(lacking))
    for _what, release in found:
        if release != __version__:
            raise ConfigurationError(f"Spark's workers have Barnabas {release}, and the driver {__version__}: {_FIX}")
    _checked.add(context.applicationId)


def _ask_worker(context: SparkContext) -> list[tuple[str, str]] | None:
    """Return the result of `_finder` on a worker; None without an answer in time.

    :raises ConfigurationError: The task cannot run because of the worker's Python.
    """
    group = f"barnabas-check-{context.applicationId}"
    context.setJobGroup(group, "check the packages of the workers", interruptOnCancel=True)
    timer = Timer(CHECK_TIMEOUT_S, context.cancelJobGroup, (group,))
    timer.daemon = True
    timer.start()
    try:
        return context.parallelize([0], 1).mapPartitions(_finder(NEEDED)).collect()
    except (Py4JError, PySparkException) as error:
        raise_lost_interrupt(error)
        explained = explain_workers(str(error))
        if explained is not None:
            raise ConfigurationError(explained) from None
        return None
    finally:
        timer.cancel()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def _finder(names: Sequence[str]) -> Callable[[Any], Iterator[tuple[str, str]]]:
    """Return a function that yields missing packages, and the release of this package.

    Spark pickles a nested function by value, so the worker does not import this module.
    """
    lacks, has = _LACKS, _HAS

    def find(_items: Any) -> Iterator[tuple[str, str]]:
        from importlib import import_module  # noqa: PLC0415  # the worker has no globals of this module

        for name in names:
            try:
                import_module(name)
            except ImportError as error:
                yield lacks, getattr(error, "name", None) or name
        if "barnabas.spark" in names:
            try:
                yield has, import_module("barnabas").__version__
            except ImportError:
                return  # the loop above has already reported this error

    return find


def _missing_packages_message(missing: Sequence[str]) -> str:
    names = list(dict.fromkeys(name.partition(".")[0] for name in missing))
    return f"Spark's workers lack the package{'s' * (len(names) > 1)} {', '.join(names)}: {_FIX}"

"""What is wrong with the Python of a cluster's workers, found out by a task before anything else runs there.

A worker that lacks a package, or the Python itself, fails while Spark hands it what it is to do: pages of Java with a
name in the middle. So `register` asks one worker of a cluster first. What it runs is sent whole, and imports nothing of
this package but to try it. A worker with another release of this package has everything and fails in other places, as
what is sent to it are names of this release; so it is asked for its release as well.
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
"""What tasks import; the package itself last, as it lacks what the others bring."""
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
    """Return in one line what a Spark error says about the workers' Python; None if it is about something else.

    >>> explain_workers("pages of Java")
    >>> explain_workers("...\\nModuleNotFoundError: No module named 'pyarrow'\\n\\tat ...").partition(":")[0]
    "Spark's workers lack the package pyarrow"
    """
    if found := _MISSING.search(text):
        return _missing_packages_message([(found[1] or "pyarrow").partition(".")[0]])
    if found := _NO_PROGRAM.search(text):
        return f"Spark's workers cannot run the Python {found[1]!r}, which PYSPARK_PYTHON names: {_FIX}"
    if found := _OTHER_PYTHON.search(text):
        return f"Spark's workers run Python {found[1]}, and the driver {found[2]}: they must be the same; {_FIX}"
    return None


def check_workers(spark: SparkSession) -> None:
    """Have a worker of a cluster look what it lacks, once for each application.

    Where none answers in a minute, nobody knows, and the query finds out.

    :raises ConfigurationError: packages are missing, or are of another release, or no Python runs; the message names
        what is wrong, and says what to do.
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
            raise ConfigurationError(f"Spark's workers have Barnabas {release}, and this program {__version__}: {_FIX}")
    _checked.add(context.applicationId)


def _ask_worker(context: SparkContext) -> list[tuple[str, str]] | None:
    """Return what `_finder` finds on a worker; None where nobody answers in time.

    :raises ConfigurationError: it cannot run, for a reason that has to do with its Python.
    """
    group = f"barnabas-check-{context.applicationId}"
    context.setJobGroup(group, "which packages do the workers have?", interruptOnCancel=True)
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
    """Return a function that yields which packages are missing, and the release of this one.

    Spark sends it whole, as it has no name of its own.
    """
    lacks, has = _LACKS, _HAS

    def find(_items: Any) -> Iterator[tuple[str, str]]:
        from importlib import import_module  # noqa: PLC0415  # on the worker, which has nothing of this module

        for name in names:
            try:
                import_module(name)
            except ImportError as error:
                yield lacks, getattr(error, "name", None) or name
        if "barnabas.spark" in names:
            try:
                yield has, import_module("barnabas").__version__
            except ImportError:
                return  # it was named above

    return find


def _missing_packages_message(missing: Sequence[str]) -> str:
    names = list(dict.fromkeys(name.partition(".")[0] for name in missing))
    return f"Spark's workers lack the package{'s' * (len(names) > 1)} {', '.join(names)}: {_FIX}"

"""Which packages a cluster's Python workers lack, found out by a task before anything else runs there.

A worker that lacks one fails while Spark hands it what it is to do: pages of Java with a package's name in the middle.
So `register` asks one worker of a cluster first. What it runs is sent whole, and imports nothing of this package but to
try it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from threading import Timer
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas.errors import ConfigurationError
from barnabas.spark.worker_python import context_of

NEEDED = ("pyarrow", "cramjam", "crc32c", "pyiceberg", "barnabas.spark")
"""What tasks import; the package itself last, as it lacks what the others bring."""
CHECK_TIMEOUT_S = 60.0

_MISSING = re.compile(r"No module named '([\w.]+)'|\b(P)yArrow\b[^\n]*must be installed")
_FIX = (
    "every worker needs a Python with barnabas[spark]: ship an environment (--archives), as --py-files alone brings no "
    "compiled packages; see 'On a cluster' in docs/pipeline.md"
)
_checked: set[str] = set()


def explain_missing(text: str) -> str | None:
    """Return in one line what a Spark error says about a package that a worker lacks; None if it is about others.

    >>> explain_missing("pages of Java")
    >>> explain_missing("...\\nModuleNotFoundError: No module named 'pyarrow'\\n\\tat ...").partition(":")[0]
    "Spark's workers lack the package pyarrow"
    """
    found = _MISSING.search(text)
    if found is None:
        return None
    return _told([(found[1] or "pyarrow").partition(".")[0]])


def check_workers(spark: SparkSession) -> None:
    """Have a worker of a cluster look what it lacks, once for each application.

    Where none answers in a minute, nobody knows, and the query finds out.

    :raises ConfigurationError: packages are missing; the message names them and says what to do.
    """
    context = context_of(spark)
    if context is None or (context.master or "local").startswith("local") or context.applicationId in _checked:
        return
    group = f"barnabas-check-{context.applicationId}"
    context.setJobGroup(group, "which packages do the workers have?", interruptOnCancel=True)
    timer = Timer(CHECK_TIMEOUT_S, context.cancelJobGroup, (group,))
    timer.daemon = True
    timer.start()
    try:
        missing = context.parallelize([0], 1).mapPartitions(_finder(NEEDED)).collect()
    except (Py4JError, PySparkException):
        return
    finally:
        timer.cancel()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    if missing:
        raise ConfigurationError(_told(missing))
    _checked.add(context.applicationId)


def _finder(names: Sequence[str]) -> Callable[[Any], Iterator[str]]:
    """Return a function that yields which packages are missing. Spark sends it whole, as it has no name of its own."""

    def find(_items: Any) -> Iterator[str]:
        from importlib import import_module  # noqa: PLC0415  # on the worker, which has nothing of this module

        for name in names:
            try:
                import_module(name)
            except ImportError as error:
                yield getattr(error, "name", None) or name

    return find


def _told(missing: Sequence[str]) -> str:
    names = list(dict.fromkeys(name.partition(".")[0] for name in missing))
    return f"Spark's workers lack the package{'s' * (len(names) > 1)} {', '.join(names)}: {_FIX}"

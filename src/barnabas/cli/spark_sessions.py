"""Spark in a command: it fails in one line, and ends with Ctrl-C without a word, as all commands do."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any


def silence_py4j_log() -> None:
    """Keep from people what Py4J logs with tracebacks, to the root logger too (0.10.9): it raises all of that as well.

    It does so when Ctrl-C comes while it waits for Java, and when Java is gone.
    """
    logging.getLogger().addFilter(_is_of_others)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


def _is_of_others(record: logging.LogRecord) -> bool:
    return PurePath(record.pathname).parent.name != "py4j"


@contextmanager
def spark_session(name: str, master: str) -> Iterator[Any]:
    """Run a session.

    :param name: of the command. `master`: as for `spark-submit --master`.
    :raises JavaNotFoundError: no Java runtime that Spark can use.
    :raises SparkFailedError: Spark did not start, or has failed at work.
    """
    from barnabas.spark import local_session, stop_session
    from barnabas.spark.errors import SparkFailedError
    from barnabas.spark.java_errors import gateway_of, spark_errors_as

    silence_py4j_log()
    session = local_session(f"barnabas {name}", master=master)
    try:
        with spark_errors_as(SparkFailedError, gateway_of(session)):
            yield session
    finally:
        stop_session(session)

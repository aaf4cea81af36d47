"""Spark sessions of commands: errors are printed in one line, and Ctrl-C ends the command without a traceback."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any


def silence_py4j_log() -> None:
    """Hide the tracebacks that Py4J 0.10.9 logs, even to the root logger.

    Py4J logs them when Ctrl-C interrupts a wait for Java, and when Java has ended. It also raises these errors, so no
    error is lost.
    """
    logging.getLogger().addFilter(_is_of_others)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


def _is_of_others(record: logging.LogRecord) -> bool:
    return PurePath(record.pathname).parent.name != "py4j"


@contextmanager
def spark_session(name: str, master: str) -> Iterator[Any]:
    """Run a Spark session.

    :param name: name of the command.
    :param master: Spark master, as for `spark-submit --master`.
    :raises JavaNotFoundError: there is no Java runtime for Spark.
    :raises SparkFailedError: Spark failed to start or failed later.
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

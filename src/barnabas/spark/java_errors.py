"""Errors of Spark and its JVM, in one line. The line says so where the Java process has ended.

`spark_errors_as` surrounds every call of Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from subprocess import TimeoutExpired

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas.errors import BarnabasError
from barnabas.exit_codes import how_it_ended
from barnabas.spark.lost_interrupts import raise_lost_interrupt
from barnabas.spark.worker_packages import explain_workers
from barnabas.spark.worker_python import context_of

_CONNECTION_ERRORS = (ConnectionRefusedError, ConnectionResetError, EOFError)
"""What is raised where the JVM is gone."""
SPARK_ERRORS = (Py4JError, PySparkException, *_CONNECTION_ERRORS)
"""What calls of Spark raise."""
STOPPED_BY_ITSELF = "Cannot call methods on a stopped SparkContext"
"""What Spark complains of after it has waited for a master that does not answer, or has gone, for a minute."""
END_WAIT_S = 1.0
"""How soon after the connection to a JVM that ends its process has ended."""


def gateway_of(spark: SparkSession) -> JavaGateway | None:
    """Return how the JVM of a session is reached; None with Spark Connect, where it is no concern of this process."""
    context = context_of(spark)
    return None if context is None else context._gateway


def short_message(error: Exception, gateway: JavaGateway | None) -> str:
    """Return what an error of Spark's says, in one line.

    :param gateway: to the JVM that it came from.
    """
    ended = _how_java_ended(error, gateway)
    if ended is not None:
        return ended
    try:
        text = str(error)  # Py4J asks the JVM for it
    except SPARK_ERRORS as gone:
        return short_message(gone, gateway)
    if STOPPED_BY_ITSELF in text:
        return "Spark has given its master up; does that run?"
    return explain_workers(text) or main_line(text)


@contextmanager
def spark_errors_as(kind: type[BarnabasError], gateway: JavaGateway | None, what: str = "") -> Iterator[None]:
    """Raise each error of Spark as an error of one kind, with a message of one line.

    :param gateway: to the JVM that Spark runs in. `what`: the beginning of the message.
    :raises BarnabasError: Spark raised an error; this one is of that kind.
    """
    try:
        yield
    except SPARK_ERRORS as error:
        raise_lost_interrupt(error)
        if isinstance(error, _CONNECTION_ERRORS) and _how_java_ended(error, gateway) is None:
            raise  # it has to do with something else
        raise kind(f"{what}{short_message(error, gateway)}") from error


def _how_java_ended(error: Exception, gateway: JavaGateway | None) -> str | None:
    """Return how a JVM ended, as far as it is a process of this one; None where it runs, or nobody knows."""
    process = None if gateway is None else gateway.proc
    if process is None:
        return None
    with suppress(TimeoutExpired):
        # What the JVM itself has told of is no sign that it ends.
        is_told = isinstance(error, Py4JJavaError | PySparkException)
        return f"Spark's Java process {how_it_ended(process.wait(0 if is_told else END_WAIT_S))}"
    return None


def main_line(text: str) -> str:
    """Return the line that says what went wrong: the last one of a Python traceback in it, or what Java's begins with.

    >>> main_line("An error occurred while calling o1.\\n: java.io.IOException: no room\\n\\tat a.B.c(B.java:1)\\n")
    'java.io.IOException: no room'
    >>> main_line('WARNING: new\\nException in thread "main" a.Bad: no such master\\n\\tat a.B.c(B.java:1)\\n')
    'a.Bad: no such master'
    """
    lines = [line for each in text.splitlines() if (line := each.strip()) and not line.startswith(("at ", "... "))]
    python = [line for line in lines if "Error: " in line and not line.startswith(("org.", "Caused", "java", ":"))]
    java = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    return (python or java[:1] or lines or ["no message"])[-1].removeprefix('Exception in thread "main" ')

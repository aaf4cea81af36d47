"""One-line messages for errors of Spark and its JVM. They also say if the Java process has ended.

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
"""The errors of Py4J when the JVM has ended."""
SPARK_ERRORS = (Py4JError, PySparkException, *_CONNECTION_ERRORS)
"""The errors that calls of Spark raise."""
STOPPED_BY_ITSELF = "Cannot call methods on a stopped SparkContext"
"""The error of Spark after it has waited a minute for a master that does not answer or has ended."""
END_WAIT_S = 1.0
"""The time between the loss of the connection and the end of the JVM's process, in seconds."""


def gateway_of(spark: SparkSession) -> JavaGateway | None:
    """Return the Py4J gateway to a session's JVM; None for Spark Connect, whose JVM runs elsewhere."""
    context = context_of(spark)
    return None if context is None else context._gateway


def short_message(error: Exception, gateway: JavaGateway | None) -> str:
    """Return the message of a Spark error in one line.

    :param gateway: The gateway to the JVM that raised the error.
    """
    ended = _how_java_ended(error, gateway)
    if ended is not None:
        return ended
    try:
        text = str(error)  # Py4J reads the text from the JVM
    except SPARK_ERRORS as gone:
        return short_message(gone, gateway)
    if STOPPED_BY_ITSELF in text:
        return "Spark has given up its master; check that the master runs"
    return explain_workers(text) or main_line(text)


@contextmanager
def spark_errors_as(kind: type[BarnabasError], gateway: JavaGateway | None, what: str = "") -> Iterator[None]:
    """Convert each error of Spark to an error of one class, with a one-line message.

    :param gateway: The gateway to the JVM that Spark runs in.
    :param what: The beginning of the message.
    :raises BarnabasError: Spark raised an error; the class is `kind`.
    """
    try:
        yield
    except SPARK_ERRORS as error:
        raise_lost_interrupt(error)
        if isinstance(error, _CONNECTION_ERRORS) and _how_java_ended(error, gateway) is None:
            raise  # a connection error, but not of the connection to the JVM
        raise kind(f"{what}{short_message(error, gateway)}") from error


def _how_java_ended(error: Exception, gateway: JavaGateway | None) -> str | None:
    """Return a description of the end of the JVM process; None if it is still running or is not a child process."""
    process = None if gateway is None else gateway.proc
    if process is None:
        return None
    with suppress(TimeoutExpired):
        # If the JVM itself reported the error, it is probably still running, so do not wait for its end.
        is_reported = isinstance(error, Py4JJavaError | PySparkException)
        return f"Spark's Java process {how_it_ended(process.wait(0 if is_reported else END_WAIT_S))}"
    return None


def main_line(text: str) -> str:
    """Return the line of an error text with the reason: the last one of a Python traceback, or the first one of Java.

    >>> main_line("An error occurred while calling o1.\\n: java.io.IOException: no room\\n\\tat a.B.c(B.java:1)\\n")
    'java.io.IOException: no room'
    >>> main_line('WARNING: new\\nException in thread "main" a.Bad: no such master\\n\\tat a.B.c(B.java:1)\\n')
    'a.Bad: no such master'
    """
    lines = [line for each in text.splitlines() if (line := each.strip()) and not line.startswith(("at ", "... "))]
    python = [line for line in lines if "Error: " in line and not line.startswith(("org.", "Caused", "java", ":"))]
    java = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    return (python or java[:1] or lines or ["no message"])[-1].removeprefix('Exception in thread "main" ')

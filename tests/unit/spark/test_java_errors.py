"""What is told of Spark's errors: that its JVM has ended, and how, where that is what has happened."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import AnalysisException

from barnabas.spark import java_errors
from barnabas.spark.errors import SparkFailedError
from barnabas.spark.java_errors import short_message, spark_errors_as


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process in place of a JVM, which runs until it is killed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as running:
        yield running
        running.kill()


def gateway(process: object) -> Any:
    return SimpleNamespace(proc=process)


def test_how_java_ended_is_told(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    for error in (Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError("refused")):
        assert short_message(error, gateway(process)) == "Spark's Java process was ended by SIGKILL"


def test_what_java_says_is_told_while_it_runs(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java_errors, "END_WAIT_S", 0.0)
    assert short_message(Py4JError("no such method"), gateway(process)) == "no such method"


def test_java_may_be_gone_before_it_has_said_what_went_wrong(process: subprocess.Popen[bytes]) -> None:
    class UnsaidError(Py4JJavaError):  # type: ignore[misc]
        def __init__(self) -> None:
            """Py4J's own wants an exception of Java's."""

        def __str__(self) -> str:
            raise ConnectionRefusedError

    process.kill()
    assert short_message(UnsaidError(), gateway(process)) == "Spark's Java process was ended by SIGKILL"


def test_what_spark_raises_is_told_as_one_error(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java_errors, "END_WAIT_S", 0.0)
    java = gateway(process)
    for error in (Py4JError("no room"), AnalysisException("no room")):
        with (
            pytest.raises(SparkFailedError, match=r"^load: no room$"),
            spark_errors_as(SparkFailedError, java, "load: "),
        ):
            raise error
    for other in (ValueError("mine"), BrokenPipeError(), ConnectionRefusedError(), KeyboardInterrupt()):
        with pytest.raises(type(other)), spark_errors_as(SparkFailedError, java):
            raise other
    process.kill()
    process.wait()
    for gone in (Py4JNetworkError("empty"), ConnectionRefusedError(), EOFError()):
        with pytest.raises(SparkFailedError, match=r"was ended by SIGKILL$"), spark_errors_as(SparkFailedError, java):
            raise gone
    with pytest.raises(BrokenPipeError), spark_errors_as(SparkFailedError, java):
        raise BrokenPipeError


def lose(interrupt: BaseException) -> None:
    """Do as PySpark does: what leaves its blocks fails, too, as Py4J has given the connection up."""
    try:
        raise interrupt
    finally:
        raise Py4JNetworkError("Answer from Java side is empty")


@pytest.mark.parametrize("came", [KeyboardInterrupt(), SystemExit(143)])
def test_an_interrupt_that_pyspark_has_lost_is_raised_again(came: BaseException) -> None:
    with pytest.raises(type(came)) as raised, spark_errors_as(SparkFailedError, None):
        lose(came)
    assert raised.value.args == came.args

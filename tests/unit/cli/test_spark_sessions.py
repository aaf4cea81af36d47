"""Py4J raises what goes wrong, and commands tell it: its own words about that, with tracebacks, are kept back."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from py4j.clientserver import JavaClient, JavaParameters, PythonParameters
from py4j.protocol import ERROR, Py4JNetworkError

from barnabas.cli.spark_sessions import silence_py4j_log


class Waiting:
    """A connection to a JVM, on whose answer somebody waits when something happens."""

    socket = None

    def __init__(self, happens: BaseException) -> None:
        self._happens = happens

    def send_command(self, _command: str) -> str:
        raise self._happens

    def close(self, _reset: bool) -> None:
        """Py4J does so with a connection that has broken."""

    def shutdown_socket(self, *_address: object) -> None:
        """Py4J does so with a connection that it gives up."""


class Client(JavaClient):  # type: ignore[misc]
    """Py4J's client, with one connection."""

    def __init__(self, happens: BaseException) -> None:
        super().__init__(JavaParameters(), PythonParameters())
        self._connection = Waiting(happens)

    def _get_connection(self) -> Waiting:
        return self._connection


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root, py4j = logging.getLogger(), logging.getLogger("py4j")
    before = list(root.filters), py4j.level
    silence_py4j_log()
    yield
    root.filters[:] = before[0]
    py4j.setLevel(before[1])


def test_ctrl_c_while_java_is_at_work_is_raised_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeyboardInterrupt):
        Client(KeyboardInterrupt()).send_command("c\n")
    assert not caplog.records


def test_java_that_is_gone_is_told_by_who_asked_it(caplog: pytest.LogCaptureFixture) -> None:
    assert Client(Py4JNetworkError("gone")).send_command("c\n") == ERROR
    logging.getLogger("py4j.clientserver").error("gone")
    assert not caplog.records


def test_what_others_log_is_told(caplog: pytest.LogCaptureFixture) -> None:
    logging.error("a broker is gone")
    assert [record.getMessage() for record in caplog.records] == ["a broker is gone"]

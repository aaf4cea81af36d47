"""What is read after a write that got no answer; with a client that does what the test says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss
from kazoo.handlers.threading import KazooTimeoutError

from barnabas.coordination.metadata_store import Set
from barnabas.coordination.zookeeper.session import Deadline, NoAnswerError, Session, UnknownOutcomeError


class Request:
    """A request that was sent."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def get(self, timeout: float) -> Any:
        del timeout
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class Client:
    """Notes what is sent; the next requests are answered as `answers` says, the others with "well"."""

    connected = True
    chroot = ""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.answers: list[Any] = []

    def _send(self, what: str) -> Request:
        self.sent.append(what)
        return Request(self.answers.pop(0) if self.answers else ["well"])

    def get_async(self, path: str) -> Request:
        return self._send(f"get {path}")

    def sync_async(self, path: str) -> Request:
        return self._send(f"sync {path}")

    def transaction(self) -> Any:
        return SimpleNamespace(operations=[], commit_async=lambda: self._send("write"))


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def session(client: Client) -> Session:
    made = Session.__new__(Session)
    made._client = client
    made._connection_changed = threading.Condition()
    made._is_closed = made._is_lost = False
    made._name = "here"
    made.writes = made._doubts = made._settled = 0
    return made


def get(client: Any) -> Any:
    return client.get_async("/a")


READS: dict[str, Callable[[Session], object]] = {
    "one": lambda session: session.read(get, Deadline(9)),
    "many": lambda session: session.read_all([get], Deadline(9)),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize(
    ("error", "told"), [(KazooTimeoutError(), UnknownOutcomeError), (ConnectionLoss(), NoAnswerError)]
)
def test_server_that_is_read_from_after_a_write_without_answer_catches_up_first(
    session: Session, client: Client, read: Callable[[Session], object], error: Exception, told: type[Exception]
) -> None:
    client.answers = [error]
    with pytest.raises(told):
        session.write([Set("/a", b"1")], Deadline(9))
    read(session)
    read(session)
    assert client.sent == ["write", "sync /", "get /a", "get /a"]


def test_connection_that_is_lost_before_the_server_has_caught_up_is_followed_by_another_try(
    session: Session, client: Client
) -> None:
    client.answers = [ConnectionLoss(), ConnectionLoss()]
    with pytest.raises(NoAnswerError):
        session.write([Set("/a", b"1")], Deadline(9))
    session.read(get, Deadline(9))
    assert client.sent == ["write", "sync /", "sync /", "get /a"]


def test_answered_writes_need_no_more(session: Session, client: Client) -> None:
    session.write([Set("/a", b"1")], Deadline(9))
    session.read(get, Deadline(9))
    assert client.sent == ["write", "get /a"]

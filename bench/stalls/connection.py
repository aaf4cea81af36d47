"""A client that sends what frames it likes, and gives up in time."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from barnabas.errors import BarnabasError, ErrorCode
from barnabas.net.stream import FrameReader
from barnabas.protocol.codec import decode_response, request_frame

T = TypeVar("T")
ANSWER_BYTES_MAX = 2**31 - 1
DECODED_BYTES_MAX = 4 * 1024 * 1024
"""A larger answer is not looked into: that would take longer than its making."""
RECEIVE_BYTES = 1024 * 1024


class DeadlineError(Exception):
    """There was no time left."""


class ClosedError(Exception):
    """The broker closed the connection."""


class Deadline:
    """A moment, which can be moved."""

    def __init__(self, seconds: float) -> None:
        self.set(seconds)

    def set(self, seconds: float) -> None:
        """Let it be so many seconds from now."""
        self._at_s = time.monotonic() + seconds

    def left_s(self) -> float:
        """Return how much time is left.

        :raises DeadlineError: none.
        """
        left_s = self._at_s - time.monotonic()
        if left_s <= 0:
            raise DeadlineError
        return left_s


def frame(message: object, version: int) -> bytes:
    """Return a request as it goes over the wire."""
    return b"".join(bytes(memoryview(chunk)) for chunk in request_frame(message, version, 1, "bench"))  # type: ignore[arg-type]


def first_error(answer: object) -> int:
    """Return the first error code in an answer that is not 0, or 0."""
    if isinstance(answer, list):
        return next((code for each in answer if (code := first_error(each))), 0)
    if not is_dataclass(answer):
        return 0
    own: int = getattr(answer, "error_code", 0)
    return own or first_error([getattr(answer, each.name) for each in fields(answer)])


class Connection:
    """One connection to a broker on this machine; requests on it are answered in their order.

    All that waits raises DeadlineError when the time is up, and ClosedError when the broker hung up.
    """

    def __init__(self, port: int, deadline: Deadline) -> None:
        self._deadline = deadline
        self._sock = socket.create_connection(("127.0.0.1", port), timeout=deadline.left_s())
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader(ANSWER_BYTES_MAX)
        self._answers: list[bytes | bytearray] = []

    def close(self) -> None:
        """Hang up."""
        self._sock.close()

    def send(self, request: bytes) -> None:
        """Send a frame, or several."""
        self._sock.settimeout(self._deadline.left_s())
        try:
            self._sock.sendall(request)
        except TimeoutError:
            raise DeadlineError from None
        except ConnectionError:
            raise ClosedError from None

    def receive(self) -> bytes | bytearray:
        """Return the next answer."""
        while not self._answers:
            self._sock.settimeout(self._deadline.left_s())
            self._receive_some()
        return self._answers.pop(0)

    def _receive_some(self) -> None:
        try:
            data = self._sock.recv(RECEIVE_BYTES)
        except TimeoutError:
            raise DeadlineError from None
        except ConnectionError:
            raise ClosedError from None
        if not data:
            raise ClosedError
        self._answers += self._reader.feed(data)

    def pipeline(self, requests: bytes, answers: int) -> None:
        """Send frames while answers come in, until so many have come; they are not looked at."""
        left = memoryview(requests)
        self._sock.setblocking(False)
        while answers:
            sending = [self._sock] if left else []
            readable, writable, _ = select.select([self._sock], sending, [], self._deadline.left_s())
            if writable:
                try:
                    left = left[self._sock.send(left[:RECEIVE_BYTES]) :]
                except ConnectionError:
                    raise ClosedError from None
            if readable:
                self._receive_some()
                answers -= len(self._answers)
                self._answers.clear()

    def ask(self, message: object, version: int, response: type[T]) -> T:
        """Send a request that is expected to succeed, and return its answer.

        :raises RuntimeError: the broker refused.
        """
        self.send(frame(message, version))
        return self.answer(response, version)

    def answer(self, response: type[T], version: int) -> T:
        """Wait for the answer to a request that is expected to succeed.

        :raises RuntimeError: the broker refused.
        """
        answer = decode_response(response, version, self.receive())
        if code := first_error(answer):
            raise RuntimeError(f"{response.__name__}: {_error_name(code)}")
        return answer

    def told(self, response: type[Any], version: int) -> str:
        """Wait for an answer and tell what it is like: its size, and its first error."""
        return told_of(self.receive(), response, version)

    def attack(self, request: bytes, response: type[Any], version: int) -> str:
        """Send a frame and tell what the answer is like."""
        self.send(request)
        return self.told(response, version)


def told_of(answer: bytes | bytearray, response: type[Any], version: int) -> str:
    """Return what an answer is like, in a few words."""
    size = "answered, " + (f"{len(answer) / 1e6:.1f} MB" if len(answer) >= 100_000 else f"{len(answer):,} B")
    if len(answer) > DECODED_BYTES_MAX:
        return size
    try:
        code = first_error(decode_response(response, version, answer))
    except BarnabasError as error:
        return f"{size}, not understood: {error}"
    return f"{size}, {_error_name(code)}" if code else size


def _error_name(code: int) -> str:
    return ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"


def told_of_all(told: Sequence[str]) -> str:
    """Return several such tales as one.

    >>> told_of_all(["answered, 5 B", "answered, 5 B", "answered, 7 B"])
    '3 times answered, 5 B; answered, 7 B'
    """
    kinds = list(dict.fromkeys(told))
    more = f" and {len(kinds) - 2} more" if len(kinds) > 2 else ""
    return f"{len(told):,} times {'; '.join(kinds[:2])}{more}"

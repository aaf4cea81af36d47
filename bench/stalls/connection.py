"""A client that sends arbitrary frames and has a deadline."""

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
"""Responses above this size are not decoded. Decoding a larger response would take longer than the broker's work."""
RECEIVE_BYTES = 1024 * 1024


class DeadlineError(Exception):
    """The deadline has passed."""


class ClosedError(Exception):
    """The broker closed the connection."""


class Deadline:
    """A deadline that can be moved."""

    def __init__(self, seconds: float) -> None:
        self.set(seconds)

    def set(self, seconds: float) -> None:
        """Set the deadline to a number of seconds from now."""
        self._at_s = time.monotonic() + seconds

    def left_s(self) -> float:
        """Return the remaining time in seconds.

        :raises DeadlineError: if the deadline has passed.
        """
        left_s = self._at_s - time.monotonic()
        if left_s <= 0:
            raise DeadlineError
        return left_s


def frame(message: object, version: int) -> bytes:
    """Return the frame of a request."""
    return b"".join(bytes(memoryview(chunk)) for chunk in request_frame(message, version, 1, "bench"))  # type: ignore[arg-type]


def first_error(answer: object) -> int:
    """Return the first non-zero error code of a response, or 0."""
    if isinstance(answer, list):
        return next((code for each in answer if (code := first_error(each))), 0)
    if not is_dataclass(answer):
        return 0
    own: int = getattr(answer, "error_code", 0)
    return own or first_error([getattr(answer, each.name) for each in fields(answer)])


class Connection:
    """A connection to a local broker, which responds in the order of the requests.

    All waiting methods raise DeadlineError after the deadline, and ClosedError if the broker closes the connection.
    """

    def __init__(self, port: int, deadline: Deadline) -> None:
        self._deadline = deadline
        self._sock = socket.create_connection(("127.0.0.1", port), timeout=deadline.left_s())
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader(ANSWER_BYTES_MAX)
        self._answers: list[bytes | bytearray] = []

    def close(self) -> None:
        self._sock.close()

    def send(self, request: bytes) -> None:
        """Send one or more frames."""
        self._sock.settimeout(self._deadline.left_s())
        try:
            self._sock.sendall(request)
        except TimeoutError:
            raise DeadlineError from None
        except ConnectionError:
            raise ClosedError from None

    def receive(self) -> bytes | bytearray:
        """Return the next response."""
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
        """Send frames while receiving responses, until a number of responses has arrived. The responses are not
        decoded.
        """
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
        """Send a request that must succeed. Return the response.

        :raises RuntimeError: if the broker returns an error.
        """
        self.send(frame(message, version))
        return self.answer(response, version)

    def answer(self, response: type[T], version: int) -> T:
        """Wait for the response to a request that must succeed.

        :raises RuntimeError: if the broker returns an error.
        """
        answer = decode_response(response, version, self.receive())
        if code := first_error(answer):
            raise RuntimeError(f"{response.__name__}: {_error_name(code)}")
        return answer

    def summary(self, response: type[Any], version: int) -> str:
        """Wait for a response. Return a description of its size and its first error."""
        return summary_of(self.receive(), response, version)

    def attack(self, request: bytes, response: type[Any], version: int) -> str:
        """Send a frame. Return a description of the response."""
        self.send(request)
        return self.summary(response, version)


def summary_of(answer: bytes | bytearray, response: type[Any], version: int) -> str:
    """Return a text with the size and the first error of a response."""
    size = "answered, " + (f"{len(answer) / 1e6:.1f} MB" if len(answer) >= 100_000 else f"{len(answer):,} B")
    if len(answer) > DECODED_BYTES_MAX:
        return size
    try:
        code = first_error(decode_response(response, version, answer))
    except BarnabasError as error:
        return f"{size}, cannot be decoded: {error}"
    return f"{size}, {_error_name(code)}" if code else size


def _error_name(code: int) -> str:
    return ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"


def summary_of_all(summaries: Sequence[str]) -> str:
    """Combine descriptions of responses.

    >>> summary_of_all(["answered, 5 B", "answered, 5 B", "answered, 7 B"])
    '3 times answered, 5 B; answered, 7 B'
    """
    kinds = list(dict.fromkeys(summaries))
    more = f" and {len(kinds) - 2} more" if len(kinds) > 2 else ""
    return f"{len(summaries):,} times {'; '.join(kinds[:2])}{more}"

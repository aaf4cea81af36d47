"""Jute, the encoding of ZooKeeper's messages: big-endian numbers, and a length before each variable-length value.

The reader accepts untrusted bytes: it returns the decoded values or raises `MalformedMessageError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import TypeVar

from barnabas.errors import MalformedMessageError

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")

T = TypeVar("T")


class JuteReader:
    """A reader of consecutive Jute values.

    >>> reader = JuteReader(int_(7) + string("/a") + vector(string(each) for each in ("x", "y")))
    >>> reader.integer(), reader.string(), reader.vector(reader.string), reader.left
    (7, '/a', ['x', 'y'], 0)
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def left(self) -> int:
        """The number of unread bytes."""
        return len(self._data) - self._position

    def integer(self) -> int:
        """Read a signed 32-bit integer."""
        (value,) = _INT.unpack(self._take(_INT.size))
        return int(value)

    def long(self) -> int:
        """Read a signed 64-bit integer."""
        (value,) = _LONG.unpack(self._take(_LONG.size))
        return int(value)

    def boolean(self) -> bool:
        """Read a boolean from one byte."""
        return self._take(1) != b"\0"

    def buffer(self) -> bytes:
        """Read bytes; empty for null."""
        size = self.integer()
        return self._take(size) if size > 0 else b""

    def string(self) -> str:
        """Read a UTF-8 string; empty for null."""
        try:
            return self.buffer().decode()
        except UnicodeDecodeError as error:
            raise MalformedMessageError(f"invalid UTF-8 in a string: {error}") from None

    def vector(self, element: Callable[[], T], count_max: int = 2**31 - 1) -> list[T]:
        """Read a list of elements with the given reader function; empty for null."""
        count = self.integer()
        if count > count_max:
            raise MalformedMessageError(f"a vector has {count} elements, more than the limit of {count_max}")
        if count > self.left:  # Each element has at least one byte.
            raise MalformedMessageError(f"a vector of {count} elements has only {self.left} bytes")
        return [element() for _ in range(count)]

    def _take(self, size: int) -> bytes:
        begin = self._position
        self._position += size
        if self._position > len(self._data):
            raise MalformedMessageError(f"a request ends {self._position - len(self._data)} bytes too early")
        return self._data[begin : self._position]


def int_(value: int) -> bytes:
    """Encode a signed 32-bit integer."""
    return _INT.pack(value)


def long(value: int) -> bytes:
    """Encode a signed 64-bit integer."""
    return _LONG.pack(value)


def boolean(value: bool) -> bytes:
    """Encode a boolean as one byte."""
    return b"\1" if value else b"\0"


def buffer(value: bytes) -> bytes:
    """Encode bytes with their length."""
    return _INT.pack(len(value)) + value


def string(value: str) -> bytes:
    """Encode a string as UTF-8 with its length in bytes."""
    return buffer(value.encode())


def vector(elements: Iterable[bytes]) -> bytes:
    """Encode a list of elements with its length. The elements are already encoded."""
    written = list(elements)
    return b"".join((_INT.pack(len(written)), *written))

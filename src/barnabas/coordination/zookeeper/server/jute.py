"""Jute, in which ZooKeeper's messages are written: big-endian numbers, and lengths before all that varies.

The reader takes a stranger's bytes: whatever they are, it returns what they say, or raises `MalformedMessageError`.
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
    """Reads one record after the other.

    >>> reader = JuteReader(int_(7) + string("/a") + vector(string(each) for each in ("x", "y")))
    >>> reader.integer(), reader.string(), reader.vector(reader.string), reader.left
    (7, '/a', ['x', 'y'], 0)
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def left(self) -> int:
        """How many bytes have not been read."""
        return len(self._data) - self._position

    def integer(self) -> int:
        """Read four bytes, signed."""
        (value,) = _INT.unpack(self._take(_INT.size))
        return int(value)

    def long(self) -> int:
        """Read eight bytes, signed."""
        (value,) = _LONG.unpack(self._take(_LONG.size))
        return int(value)

    def boolean(self) -> bool:
        """Read a byte."""
        return self._take(1) != b"\0"

    def buffer(self) -> bytes:
        """Read bytes; none where there is null."""
        size = self.integer()
        return self._take(size) if size > 0 else b""

    def string(self) -> str:
        """Read text; empty where there is null."""
        try:
            return self.buffer().decode()
        except UnicodeDecodeError as error:
            raise MalformedMessageError(f"text that is no UTF-8: {error}") from None

    def vector(self, element: Callable[[], T], count_max: int = 2**31 - 1) -> list[T]:
        """Read what `element` reads, as many times as it says; none where there is null."""
        count = self.integer()
        if count > count_max:
            raise MalformedMessageError(f"{count} elements (at most {count_max} are allowed)")
        if count > self.left:  # no element takes less than a byte
            raise MalformedMessageError(f"{count} elements in {self.left} bytes")
        return [element() for _ in range(count)]

    def _take(self, size: int) -> bytes:
        begin = self._position
        self._position += size
        if self._position > len(self._data):
            raise MalformedMessageError(f"a request ends {self._position - len(self._data)} bytes too early")
        return self._data[begin : self._position]


def int_(value: int) -> bytes:
    """Write four bytes."""
    return _INT.pack(value)


def long(value: int) -> bytes:
    """Write eight bytes."""
    return _LONG.pack(value)


def boolean(value: bool) -> bytes:
    """Write a byte."""
    return b"\1" if value else b"\0"


def buffer(value: bytes) -> bytes:
    """Write bytes behind their number."""
    return _INT.pack(len(value)) + value


def string(value: str) -> bytes:
    """Write text behind the number of its bytes."""
    return buffer(value.encode())


def vector(elements: Iterable[bytes]) -> bytes:
    """Write elements, which are written already, behind their number."""
    written = list(elements)
    return b"".join((_INT.pack(len(written)), *written))

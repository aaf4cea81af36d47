"""Splits a byte stream into lines without waiting for further input."""

from __future__ import annotations

from collections.abc import Callable, Iterator

READ_BYTES = 256 * 1024


class LineSplitter:
    r"""Splits chunks of bytes into lines; keeps an incomplete last line until the rest of the line arrives.

    >>> splitter = LineSplitter()
    >>> splitter.feed(b"one\ntw"), splitter.feed(b"o\n\nthr"), splitter.rest()
    ([b'one'], [b'two', b''], b'thr')
    """

    def __init__(self, delimiter: bytes = b"\n") -> None:
        assert delimiter, "the delimiter must not be empty"
        self._delimiter = delimiter
        self._unfinished: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes, without their delimiters."""
        if len(self._delimiter) > 1:  # a delimiter may begin in the previous chunk
            chunk = self.rest() + chunk
        head, *tail = chunk.split(self._delimiter)
        self._unfinished.append(head)
        if not tail:
            return []
        lines = [b"".join(self._unfinished), *tail]
        self._unfinished = [lines.pop()]
        return lines

    def rest(self) -> bytes:
        """Return the incomplete last line, and remove it from the buffer."""
        rest = b"".join(self._unfinished)
        self._unfinished = []
        return rest

    @property
    def pending_bytes(self) -> int:
        """The size in bytes of the incomplete line."""
        return sum(map(len, self._unfinished))


def read_lines(read: Callable[[int], bytes], delimiter: bytes = b"\n") -> Iterator[list[bytes]]:
    """Yield the lines of a stream in lists as they arrive; the last line is yielded even if it is incomplete.

    :param read: a function such as `sys.stdin.buffer.read1`. It takes the maximum number of bytes, and returns the
    available bytes, or no bytes at the end of the stream.
    :param delimiter: the line delimiter, not empty.
    """
    splitter = LineSplitter(delimiter)
    while chunk := read(READ_BYTES):
        if lines := splitter.feed(chunk):
            yield lines
    if rest := splitter.rest():
        yield [rest]

"""Splits a stream of bytes into lines, and hands out as many as there are without waiting for more."""

from __future__ import annotations

from collections.abc import Callable, Iterator

READ_BYTES = 256 * 1024


class LineSplitter:
    r"""Cuts chunks of bytes into lines; keeps the unfinished last line until the rest of it comes.

    >>> splitter = LineSplitter()
    >>> splitter.feed(b"one\ntw"), splitter.feed(b"o\n\nthr"), splitter.rest()
    ([b'one'], [b'two', b''], b'thr')
    """

    def __init__(self, delimiter: bytes = b"\n") -> None:
        assert delimiter, "an empty delimiter ends nothing"
        self._delimiter = delimiter
        self._unfinished: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes, without their delimiters."""
        if len(self._delimiter) > 1:  # it may have begun in the chunk before
            chunk = self.rest() + chunk
        head, *tail = chunk.split(self._delimiter)
        self._unfinished.append(head)
        if not tail:
            return []
        lines = [b"".join(self._unfinished), *tail]
        self._unfinished = [lines.pop()]
        return lines

    def rest(self) -> bytes:
        """Return what has come of the last line, and forget it."""
        rest = b"".join(self._unfinished)
        self._unfinished = []
        return rest

    @property
    def pending_bytes(self) -> int:
        """How many bytes of an unfinished line are held."""
        return sum(map(len, self._unfinished))


def read_lines(read: Callable[[int], bytes], delimiter: bytes = b"\n") -> Iterator[list[bytes]]:
    """Yield the lines of a stream in lists as they come. A last line without its delimiter counts as one.

    :param read: returns up to that many bytes as soon as there are any, and nothing at the end of the stream;
        for example `sys.stdin.buffer.read1`.
    :param delimiter: what ends a line; not empty.
    """
    splitter = LineSplitter(delimiter)
    while chunk := read(READ_BYTES):
        if lines := splitter.feed(chunk):
            yield lines
    if rest := splitter.rest():
        yield [rest]

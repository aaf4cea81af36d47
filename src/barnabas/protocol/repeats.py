"""Requests that differ from an earlier one in nothing but their correlation id and their record bytes.

A producer sends the same request again and again, with other records in it. Whoever decoded one of them tells the
next by comparing bytes, which costs a fraction of decoding it. What comes out is the same: a decoder goes from the
first byte to the last, and all bytes that it would see are compared, but those that cannot matter.
"""

from __future__ import annotations

import struct

from barnabas.errors import MalformedMessageError
from barnabas.protocol.codec import RecordsSpan
from barnabas.protocol.varint import read_uvarint

_INT32 = struct.Struct(">i")
_CORRELATION_ID_START, _CORRELATION_ID_END = 4, 8


class RequestPattern:
    """What a request has in common with those that repeat it.

    :param frame: a request that was decoded, and has record bytes at one place.
    :param flexible: whether its version is.
    """

    __slots__ = ("_before", "_flexible", "_length_start", "_tail", "_tail_size", "_unpack_before")

    def __init__(self, frame: bytes | bytearray | memoryview, span: RecordsSpan, *, flexible: bool) -> None:
        length_start, _, end = span
        shape = f"{_CORRELATION_ID_START}s4x{length_start - _CORRELATION_ID_END}s"
        self._unpack_before = struct.Struct(shape).unpack_from
        self._before = self._unpack_before(frame)
        self._length_start = length_start
        self._flexible = flexible
        self._tail = bytes(frame[end:])
        self._tail_size = len(self._tail)

    def records_in(self, frame: bytearray | memoryview) -> memoryview | None:
        """Return the record bytes of a request that repeats this one; None if it may be another, or is damaged."""
        try:
            if self._unpack_before(frame) != self._before:
                return None
            start = self._length_start
            if self._flexible:
                size, start = read_uvarint(frame, start)
                size -= 1
            else:
                (size,) = _INT32.unpack_from(frame, start)
                start += _INT32.size
        except (IndexError, struct.error, MalformedMessageError):
            return None
        end = start + size
        if size < 0 or end + self._tail_size != len(frame) or bytes(frame[end:]) != self._tail:
            return None
        return memoryview(frame)[start:end]

"""Requests that differ from an earlier one in nothing but their correlation id and their record bytes.

A producer sends the same request again and again, with other records in it. Whoever decoded one of them tells the
next by comparing bytes, which costs a fraction of decoding it. What comes out is the same: a decoder goes from the
first byte to the last, and all that it would see besides those two is compared.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from barnabas.errors import MalformedMessageError
from barnabas.protocol.codec import RecordsSpan
from barnabas.protocol.varint import read_uvarint

SHAPES_MAX = 8
"""How many places of record bytes in a frame are remembered."""

PATTERNS_MAX = 256
"""How many requests are remembered for each of them."""

_INT32 = struct.Struct(">i")
_KIND_SIZE, _CORRELATION_ID_SIZE = 4, 4

_Before = tuple[Any, ...]
_Known = dict[_Before, tuple[Any, bytes]]


class RepeatedRequests:
    """Recognises requests that repeat one of those it was shown.

    :param flexible: whether their version is.
    """

    __slots__ = ("_flexible", "_shapes")

    def __init__(self, *, flexible: bool) -> None:
        self._flexible = flexible
        # By where the length of the record bytes stands: what takes the bytes before it out of a frame, and the
        # requests that begin with them, each with the bytes behind its records.
        self._shapes: dict[int, tuple[Callable[[bytearray | memoryview], _Before], _Known]] = {}

    def learn(self, frame: bytearray | memoryview, span: RecordsSpan, request: object) -> None:
        """Remember a request that was decoded from a frame, and that has record bytes at one place."""
        length_start, _, end = span
        if length_start not in self._shapes:
            if len(self._shapes) == SHAPES_MAX:
                return
            head_size = length_start - _KIND_SIZE - _CORRELATION_ID_SIZE
            before = struct.Struct(f"{_KIND_SIZE}s{_CORRELATION_ID_SIZE}x{head_size}s")
            self._shapes[length_start] = before.unpack_from, {}
        unpack_before, known = self._shapes[length_start]
        if len(known) < PATTERNS_MAX:
            known[unpack_before(frame)] = request, bytes(frame[end:])

    def recognise(self, frame: bytearray | memoryview) -> tuple[Any, memoryview] | None:
        """Return the request that is repeated, and the record bytes that belong there; None: decode it."""
        try:
            for length_start, (unpack_before, known) in self._shapes.items():
                found = known.get(unpack_before(frame))
                if found is not None:
                    request, tail = found
                    start, end = self._read_length(frame, length_start)
                    if not start <= end == len(frame) - len(tail) or bytes(frame[end:]) != tail:
                        return None
                    return request, memoryview(frame)[start:end]
        except (IndexError, struct.error, MalformedMessageError):
            pass  # shorter than one that is known, or damaged
        return None

    def _read_length(self, frame: bytearray | memoryview, position: int) -> tuple[int, int]:
        """Return where the record bytes begin and end."""
        if self._flexible:
            size, start = read_uvarint(frame, position)
            return start, start + size - 1
        (size,) = _INT32.unpack_from(frame, position)
        return position + _INT32.size, position + _INT32.size + size

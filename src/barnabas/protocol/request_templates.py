"""Requests and answers that differ from an earlier one in a few numbers, and in their record bytes.

A producer sends the same request again and again, with other records in it. After one of them was decoded,
the next is recognised by comparing bytes, which costs a fraction of decoding it. The result is the same, since all
bytes are compared except the correlation id and the record bytes.

A member of a group commits the same partitions again and again, at other offsets: such a request differs from the one
before in a few numbers only, and is recognised in the same way.

The answers also differ in a few numbers only, so they are made from the pattern of one that was encoded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from barnabas.errors import MalformedMessageError
from barnabas.protocol.codec import Chunk, RecordsSpan
from barnabas.protocol.frames import request_frame, response_frame
from barnabas.protocol.varint import read_uvarint

SHAPES_MAX = 8
"""How many places of record bytes in a frame are remembered."""

PATTERNS_MAX = 64
"""How many requests are remembered. When there are more, all are forgotten, and have to be decoded again."""

PATTERN_BYTES_MAX = 1024
"""A request that is longer than this besides its records is not remembered: the memory is kept as long as the
connection."""

PATTERNS_BYTES_MAX = 16 * 1024
"""The same for all requests that one connection has remembered; there may be ten thousand connections."""

_INT32 = struct.Struct(">i")
_INT64_BYTES = 8
_KIND_BYTES, _CORRELATION_ID_BYTES = 4, 4

_Before: TypeAlias = "tuple[bytes, bytes]"
_UnpackBefore: TypeAlias = "Callable[[bytearray | memoryview], tuple[bytes, int, bytes]]"


class RequestTemplates:
    """Recognises requests that repeat one of those it was shown.

    :param version: of all that it is shown.
    :param flexible: whether that version is.
    """

    __slots__ = ("_bytes", "_count", "_flexible", "_shapes", "version")

    def __init__(self, version: int, *, flexible: bool) -> None:
        self.version = version
        self._flexible = flexible
        self._count = self._bytes = 0
        # By where the length of the record bytes stands: what takes the bytes before it out of a frame, and the
        # requests that begin with them, each with the bytes behind its records.
        self._shapes: dict[int, tuple[_UnpackBefore, dict[_Before, tuple[Any, bytes]]]] = {}

    def learn(self, frame: bytearray | memoryview, span: RecordsSpan, request: object) -> None:
        """Remember a request that was decoded from a frame, and that has record bytes at one place."""
        length_start, _, end = span
        size = length_start + len(frame) - end
        if size > PATTERN_BYTES_MAX:
            return
        is_full = self._count == PATTERNS_MAX or self._bytes + size > PATTERNS_BYTES_MAX
        if is_full or (length_start not in self._shapes and len(self._shapes) == SHAPES_MAX):
            self._shapes.clear()
            self._count = self._bytes = 0
        if length_start not in self._shapes:
            head_bytes = length_start - _KIND_BYTES - _CORRELATION_ID_BYTES
            self._shapes[length_start] = struct.Struct(f">{_KIND_BYTES}si{head_bytes}s").unpack_from, {}
        unpack_before, known = self._shapes[length_start]
        kind, _, head = unpack_before(frame)
        if (kind, head) not in known:
            self._count += 1
            self._bytes += size
        known[kind, head] = request, bytes(frame[end:])

    def recognise(self, frame: bytearray | memoryview) -> tuple[Any, memoryview, int] | None:
        """Return the request that is repeated, the record bytes that belong there, and the frame's correlation id.

        :returns: None if it has to be decoded.
        """
        size = len(frame)
        try:
            for length_start, (unpack_before, known) in self._shapes.items():
                if size < length_start:
                    continue
                kind, correlation_id, head = unpack_before(frame)
                found = known.get((kind, head))
                if found is not None:
                    request, tail = found
                    start, end = self._read_length(frame, length_start)
                    if not start <= end == size - len(tail) or (tail and bytes(frame[end:]) != tail):
                        return None
                    return request, memoryview(frame)[start:end], correlation_id
        except (IndexError, struct.error, MalformedMessageError):
            pass  # it is damaged
        return None

    def _read_length(self, frame: bytearray | memoryview, position: int) -> tuple[int, int]:
        """Return where the record bytes begin and end."""
        if self._flexible:
            size, start = read_uvarint(frame, position)
            return start, start + size - 1
        start = position + _INT32.size
        return start, start + _INT32.unpack_from(frame, position)[0]


class IntegerRequestTemplate:
    """Recognises a request that differs from another one in its correlation id and some INT64 fields only.

    :param request_with: returns the request with a number in all of these fields.
    """

    __slots__ = ("_fixed", "_size", "_unpack")

    def __init__(self, request_with: Callable[[int], object], version: int, client_id: str | None) -> None:
        zeros, ones = (_joined(request_frame(request_with(number), version, 0, client_id)) for number in (0, -1))
        fields, at = "", _INT32.size + _KIND_BYTES + _CORRELATION_ID_BYTES
        for position in int64_positions(zeros, ones):
            fields, at = f"{fields}{position - at}sq", position + _INT64_BYTES
        self._size = len(zeros) - _INT32.size
        self._unpack = struct.Struct(f">{_KIND_BYTES}si{fields}{len(zeros) - at}s").unpack
        kind, _, *others = self._unpack(zeros[_INT32.size :])
        self._fixed = kind, tuple(others[::2])

    def recognise(self, frame: bytearray | memoryview) -> tuple[int, tuple[int, ...]] | None:
        """Return the correlation id and the numbers of a request frame.

        :returns: None if it is another request.
        """
        if len(frame) != self._size:
            return None
        fields = self._unpack(frame)
        if (fields[0], fields[2::2]) != self._fixed:
            return None
        return fields[1], fields[3::2]


def constant_response_encoder(response: object, version: int) -> Callable[[int], bytes]:
    """Return what makes response frames that differ in nothing but their correlation id, which it is given."""
    frame = _joined(response_frame(response, version, 0))
    size, rest = frame[: _INT32.size], frame[_INT32.size + _CORRELATION_ID_BYTES :]
    pack = struct.Struct(f">{len(size)}si{len(rest)}s").pack
    return lambda correlation_id: pack(size, correlation_id, rest)


def response_template_encoder(answer_with: Callable[[int], object], version: int) -> Callable[..., bytes]:
    """Return what makes response frames that differ in correlation id and some neighbouring INT64 fields only.

    Where those fields stand is found by encoding two answers that differ in every byte of them.

    :param answer_with: returns a response that has a number in all of these fields.
    :returns: a function of the correlation id and the fields' values; those that `version` lacks come last, and are
        left out.
    """
    zeros, ones = (_joined(response_frame(answer_with(number), version, 0)) for number in (0, -1))
    positions = int64_positions(zeros, ones)
    fields, begin, end = len(positions), positions[0], positions[-1] + _INT64_BYTES
    assert end - begin == fields * _INT64_BYTES, "the fields are no neighbours"
    behind_id = _INT32.size + _CORRELATION_ID_BYTES
    size, before, after = zeros[: _INT32.size], zeros[behind_id:begin], zeros[end:]
    pack = struct.Struct(f">{len(size)}si{len(before)}s{fields}q{len(after)}s").pack

    def frame(correlation_id: int, *values: int) -> bytes:
        return pack(size, correlation_id, before, *values[:fields], after)

    return frame


def int64_positions(zeros: bytes | bytearray, ones: bytes | bytearray) -> list[int]:
    """Return the positions of the INT64 fields that are 0 in one message and -1 in the other.

    :param zeros: the message with 0 in these fields.
    :param ones: the same message with -1 in them.
    """
    differing = [position for position, (zero, one) in enumerate(zip(zeros, ones, strict=True)) if zero != one]
    positions = differing[::_INT64_BYTES]
    whole = [position + number for position in positions for number in range(_INT64_BYTES)]
    assert differing == whole, "the fields are no INT64"
    return positions


def _joined(chunks: Iterable[Chunk]) -> bytes:
    return b"".join(map(bytes, chunks))  # type: ignore[arg-type]

"""Messages that are alike but for a few numbers and their record bytes, made and read without an object for each field.

A producer of few records at a time, or a consumer that waits for new ones, sends the same request and gets the same
answer again and again. Where the numbers stand is found by encoding a message once more for each of them, with -1 in
the place of 0, which differs in every byte. So nothing here knows a message: what is packed is what
`barnabas.protocol.codec` would have encoded, and what is read is what it would have decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import cast

from barnabas.errors import MalformedMessageError
from barnabas.protocol.codec import Buffer, Chunk, encode, encode_bytes, encoding_error
from barnabas.protocol.declare import message_of
from barnabas.protocol.frames import SIZE_BYTES, response_frame
from barnabas.protocol.varint import read_uvarint, write_uvarint

CORRELATION_ID_BYTES = 4

_CODES = {4: "i", 8: "q"}
_INT32 = struct.Struct(">i")


def template_encoder(message_with: Callable[..., object], count: int, version: int) -> Callable[..., bytes]:
    """Return a function that encodes what `message_with` returns for some numbers, and refuses what `encode` would.

    :param message_with: returns a message with each of its arguments, which are `count`, in an INT32 or INT64 field of
        its own, in the order in which they are encoded.
    """
    codes, pieces = _pattern(lambda *numbers: encode_bytes(message_with(*numbers), version), count)
    return _packer(type(message_with(*[0] * count)), version, codes, pieces)


def _packer(cls: type, version: int, codes: str, pieces: list[bytes | int]) -> Callable[..., bytes]:
    pack = struct.Struct(codes).pack

    def packed(*numbers: int) -> bytes:
        fields: list[bytes | int] = [*pieces]
        fields[1::2] = numbers
        try:
            return pack(*fields)
        except struct.error as error:
            raise encoding_error(cls, version, error) from None

    return packed


def template_encoder_with_records(
    message_with: Callable[..., object], count: int, version: int
) -> Callable[..., bytes]:
    """Return a function that encodes what `message_with` returns for record bytes and some numbers, as one piece.

    :param message_with: returns a message with record bytes, its first argument; else as for `template_encoder`, with
        the numbers before them.
    """
    cls = type(message_with(b"", *[0] * count))
    flexible = message_of(cls).flexible(version)

    def head(*numbers: int) -> bytes:
        return bytes(cast(Buffer, encode(message_with(b".", *numbers), version)[0]))[: -_length_bytes(flexible)]

    pack_head = _packer(cls, version, *_pattern(head, count))
    tail = _joined(encode(message_with(b".", *[0] * count), version)[2:])

    def packed(records: Buffer, *numbers: int) -> bytes:
        return b"".join((pack_head(*numbers), _length(len(records), flexible), records, tail))

    return packed


def _length_bytes(flexible: bool) -> int:
    """Return how many bytes say how long a single record byte is."""
    return 1 if flexible else _INT32.size


def _length(size: int, flexible: bool) -> bytes:
    if not flexible:
        return _INT32.pack(size)
    length = bytearray()
    write_uvarint(length, size + 1)
    return bytes(length)


def _joined(chunks: Sequence[Chunk]) -> bytes:
    return b"".join(cast(Sequence[Buffer], chunks))


class ResponseTemplate:
    """Reads response frames of one pattern, without record bytes.

    :param answer_with: returns a response with each of its arguments, which are `count`, in an INT32 or INT64 field of
        its own, in the order in which they are encoded.
    """

    __slots__ = ("_fixed", "_size", "_unpack")

    def __init__(self, answer_with: Callable[..., object], count: int, version: int) -> None:
        def encoded(*numbers: int) -> bytes:
            return _joined(response_frame(answer_with(*numbers), version, 0))[SIZE_BYTES + CORRELATION_ID_BYTES :]

        codes, pieces = _pattern(encoded, count)
        self._unpack = struct.Struct(codes).unpack_from
        self._fixed = tuple(pieces[::2])
        self._size = CORRELATION_ID_BYTES + struct.calcsize(codes)

    def read(self, frame: Buffer) -> Sequence[int] | None:
        """Return the numbers of a response frame; None if it is of another pattern."""
        if len(frame) != self._size:
            return None
        fields = self._unpack(frame, CORRELATION_ID_BYTES)
        return fields[1::2] if fields[::2] == self._fixed else None


class ResponseTemplateWithRecords:
    """Reads response frames of one pattern, with record bytes in one place.

    :param answer_with: returns a response with record bytes, its first argument, and each of the others, which are
        `count`, in an INT32 or INT64 field of its own before them, in the order in which they are encoded.
    """

    __slots__ = ("_fixed", "_flexible", "_length_at", "_tail", "_unpack")

    def __init__(self, answer_with: Callable[..., object], count: int, version: int) -> None:
        zeros = [0] * count
        self._flexible = message_of(type(answer_with(b"", *zeros))).flexible(version)
        length_bytes = _length_bytes(self._flexible)

        def split(*numbers: int) -> list[Chunk]:
            return response_frame(answer_with(b".", *numbers), version, 0)

        def head(*numbers: int) -> bytes:
            return bytes(cast(Buffer, split(*numbers)[0]))[SIZE_BYTES + CORRELATION_ID_BYTES : -length_bytes]

        codes, pieces = _pattern(head, count)
        self._unpack = struct.Struct(codes).unpack_from
        self._fixed = tuple(pieces[::2])
        self._length_at = CORRELATION_ID_BYTES + struct.calcsize(codes)
        self._tail = _joined(split(*zeros)[2:])

    def read(self, frame: Buffer) -> tuple[Sequence[int], memoryview] | None:
        """Return the numbers and the record bytes of a response frame; None if it is of another pattern."""
        try:
            fields = self._unpack(frame, CORRELATION_ID_BYTES)
            if fields[::2] != self._fixed:
                return None
            start, end = self._records(frame)
        except (IndexError, struct.error, MalformedMessageError):  # it ends before
            return None
        if not start <= end == len(frame) - len(self._tail) or frame[end:] != self._tail:
            return None
        return fields[1::2], memoryview(frame)[start:end]

    def _records(self, frame: Buffer) -> tuple[int, int]:
        """Return where the record bytes begin and end."""
        position = self._length_at
        if self._flexible:
            size, start = read_uvarint(frame, position)
            return start, start + size - 1
        start = position + _INT32.size
        return start, start + _INT32.unpack_from(frame, position)[0]


def _pattern(encoded: Callable[..., bytes], count: int) -> tuple[str, list[bytes | int]]:
    """Return the layout of what is encoded, for `struct`: what stays the same and numbers, in turns; and with zeros."""
    zeros = encoded(*[0] * count)
    codes, at = ">", 0
    pieces: list[bytes | int] = []
    for number in range(count):
        other = encoded(*[-1 if each == number else 0 for each in range(count)])
        places = [place for place, (one, two) in enumerate(zip(zeros, other, strict=True)) if one != two]
        begin, size = places[0], len(places)
        assert at <= begin, "the fields are encoded in another order"
        assert places == list(range(begin, begin + size)), "a number is in more than one field"
        codes, pieces = f"{codes}{begin - at}s{_CODES[size]}", [*pieces, zeros[at:begin], 0]
        at = begin + size
    return f"{codes}{len(zeros) - at}s", [*pieces, zeros[at:]]

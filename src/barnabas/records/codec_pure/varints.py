"""Zigzag varints, least significant group first.

Tables contain the small varints, because they are the most frequent.
"""

from __future__ import annotations

from barnabas.errors import CorruptBatchError
from barnabas.model import Headers
from barnabas.records.codec_pure.limits import as_bytes

_VARINT_BYTES_MAX = 10
_ZIGZAG_MAX = 2**64 - 1
NULL = b"\x01"
_SINGLE_BYTE_COUNT = 64
TABLE_SIZE = 8192


def encode_varint(value: int) -> bytes:
    """Return `value` as a zigzag varint.

    >>> encode_varint(-1), encode_varint(64)
    (b'\\x01', b'\\x80\\x01')
    """
    zigzag = value << 1 if value >= 0 else ~(value << 1)
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


def decode_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the zigzag varint at `position` and the position after it.

    :raises IndexError: `data` ends within the varint.
    :raises CorruptBatchError: the varint has more than 64 bits.
    """
    zigzag = 0
    for index in range(_VARINT_BYTES_MAX):
        byte = data[position + index]
        zigzag |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if zigzag > _ZIGZAG_MAX:
                break
            return (zigzag >> 1) ^ -(zigzag & 1), position + index + 1
    raise CorruptBatchError(f"varint at position {position} has more than 64 bits")


VARINTS = tuple(
    [bytes((n << 1,)) for n in range(_SINGLE_BYTE_COUNT)]
    + [bytes((n << 1 & 0x7F | 0x80, n >> 6)) for n in range(_SINGLE_BYTE_COUNT, TABLE_SIZE)]
)


SIGNED = tuple((n >> 1) ^ -(n & 1) for n in range(0x80))
"""The decoded number for each varint of one byte."""


def varint(value: int) -> bytes:
    """Return `value` as a zigzag varint. For small values, this function is faster than `encode_varint`."""
    return VARINTS[value] if 0 <= value < TABLE_SIZE else encode_varint(value)


def encode_headers(headers: Headers) -> bytes:
    """Return the encoded headers of a record, including their count."""
    parts = [varint(len(headers))]
    for name, value in headers:
        encoded_name = name.encode()
        parts += (varint(len(encoded_name)), encoded_name)
        if value is None:
            parts.append(NULL)
        else:
            content = as_bytes(value)
            parts += (varint(len(content)), content)
    return b"".join(parts)

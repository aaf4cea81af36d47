"""Unsigned varints of the flexible versions (KIP-482): seven bits a byte, the least significant first."""

from __future__ import annotations

from barnabas.errors import MalformedMessageError

Buffer = bytes | bytearray | memoryview

UVARINT_BYTES_MAX = 5
"""Lengths and tags are 32 bits wide."""


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read one and return it with the position after it.

    :raises MalformedMessageError: it has more than 32 bits.
    :raises IndexError: the buffer ends within it.

    >>> read_uvarint(b"\\xac\\x02", 0)
    (300, 2)
    """
    value = buffer[position]
    if value < 0x80:
        return value, position + 1
    byte = buffer[position + 1]
    if byte < 0x80:
        return value & 0x7F | byte << 7, position + 2
    value = 0
    for shift in range(0, 7 * UVARINT_BYTES_MAX, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise MalformedMessageError(f"a varint before byte {position} does not fit 32 bits")


def write_uvarint(out: bytearray, value: int) -> None:
    """Append one.

    >>> out = bytearray()
    >>> write_uvarint(out, 300)
    >>> bytes(out)
    b'\\xac\\x02'
    """
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)

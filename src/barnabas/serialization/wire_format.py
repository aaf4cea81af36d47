"""The header of a record in Confluent's wire format: a zero byte and the schema id in four bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.errors import SerializationError

MAGIC = 0
HEADER_BYTES = 5
INDEXES_MAX = 100
"""The maximum nesting depth of a Protobuf message type."""

_HEADER = struct.Struct(">BI")


class Writer(NamedTuple):
    """The schema id of a record, and for Protobuf the message indexes of its type."""

    schema_id: int
    indexes: tuple[int, ...] = ()

    def prefix(self) -> bytes:
        """Return the bytes before a record.

        >>> Writer(7, (0,)).prefix()
        b'\\x00\\x00\\x00\\x00\\x07\\x00'
        """
        return header(self.schema_id) + (encode_indexes(self.indexes) if self.indexes else b"")

    def __str__(self) -> str:
        return ":".join([str(self.schema_id), *(".".join(map(str, each)) for each in [self.indexes] if each)])

    @classmethod
    def parse(cls, text: str) -> Writer:
        """Parse the text that `str(writer)` returns.

        >>> Writer.parse("7:1.0")
        Writer(schema_id=7, indexes=(1, 0))
        """
        number, _, indexes = text.partition(":")
        return cls(int(number), tuple(map(int, indexes.split("."))) if indexes else ())


def header(schema_id: int) -> bytes:
    """Return the header of a record with a schema id.

    >>> header(258)
    b'\\x00\\x00\\x00\\x01\\x02'
    """
    return _HEADER.pack(MAGIC, schema_id)


def schema_id(data: bytes) -> int:
    """Return the schema id of a record.

    :raises SerializationError: if the record has no valid header.
    """
    if len(data) < HEADER_BYTES:
        raise SerializationError(
            f"a record of {len(data)} bytes is too short for a schema id: its header takes 5 bytes"
        )
    magic, found = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise SerializationError(f"the first byte is {magic} instead of 0: the record was written without a schema id")
    return int(found)


def encode_indexes(indexes: Sequence[int]) -> bytes:
    """Encode message indexes, which follow the schema id in a Protobuf record.

    >>> encode_indexes([0]), encode_indexes([1, 0])
    (b'\\x00', b'\\x04\\x02\\x00')
    """
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(map(_zigzag, (len(indexes), *indexes)))


def decode_indexes(data: bytes, position: int = HEADER_BYTES) -> tuple[list[int], int]:
    """Decode message indexes. Return them, and the byte position of the message that follows.

    :raises SerializationError: if the message indexes are invalid.

    >>> decode_indexes(b"\\x04\\x02\\x00...", 0)
    ([1, 0], 3)
    """
    count, position = _number(data, position)
    if not 0 <= count <= INDEXES_MAX:
        raise SerializationError(
            f"invalid number of message indexes: {count}; check that the record was written with Protobuf"
        )
    indexes = []
    for _ in range(count):
        index, position = _number(data, position)
        indexes.append(index)
    return indexes or [0], position


def _zigzag(number: int) -> bytes:
    left, encoded = (number << 1) ^ (number >> 31), bytearray()
    while left > 0x7F:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


def _number(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 35:
        if position >= len(data):
            raise SerializationError("the record ends within its message indexes")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise SerializationError("a message index is too large")

"""The loops that run once per record: encoding into and decoding from the body of a batch. Pure Python.

Kept behind two names, so that a compiled twin can take this module's place:

- `RecordEncoder`: takes records one by one or many at once, gives the body.
- `decode_records`: fills columns from a body.

A record in the body (format version 2): length varint, attributes i8, timestamp delta varlong, offset delta
varint, key length varint (-1: null), key, value length varint, value, header count varint, headers. Varints are
zigzag-encoded, least significant group first.

Speed decides the style here: small varints come out of a table on the way in and are decoded in place on the
way out; lengths are checked against the end of the record once per record, since slicing bytes beyond their
end allocates nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.errors import CorruptBatchError
from barnabas.model import NO_TIMESTAMP, Header, Headers
from barnabas.records.columns import Columns

RECORD_SIZE_MIN = 7
"""Bytes of a record with neither key nor value nor headers."""

_TIMESTAMP_LIMIT = 2**62
"""Timestamps and their deltas beyond this are damage: their sum might not fit 64 bits."""

_VARINT_BYTES_MAX = 10
_NULL = b"\x01"
_SINGLE_BYTE_COUNT = 64
_TABLE_SIZE = 8192


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

    :raises IndexError: `data` ends within it.
    :raises CorruptBatchError: it is longer than a 64-bit number can be.
    """
    zigzag = 0
    for index in range(_VARINT_BYTES_MAX):
        byte = data[position + index]
        zigzag |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (zigzag >> 1) ^ -(zigzag & 1), position + index + 1
    raise CorruptBatchError(f"varint at position {position} is longer than {_VARINT_BYTES_MAX} bytes")


_VARINTS = tuple(
    [bytes((n << 1,)) for n in range(_SINGLE_BYTE_COUNT)]
    + [bytes((n << 1 & 0x7F | 0x80, n >> 6)) for n in range(_SINGLE_BYTE_COUNT, _TABLE_SIZE)]
)


_SIGNED = tuple((n >> 1) ^ -(n & 1) for n in range(0x80))
"""The number that each varint of one byte stands for."""


def _varint(value: int) -> bytes:
    return _VARINTS[value] if 0 <= value < _TABLE_SIZE else encode_varint(value)


def _encode_headers(headers: Headers) -> bytes:
    parts = [_varint(len(headers))]
    for name, value in headers:
        encoded_name = name.encode()
        parts += (_varint(len(encoded_name)), encoded_name)
        if value is None:
            parts.append(_NULL)
        else:
            parts += (_varint(len(value)), value)
    return b"".join(parts)


class RecordEncoder:
    """Encodes the records of one batch, in order.

    Each record is copied when it is appended, so the caller may change what it passed. An append that raises
    leaves the encoder as it was.
    """

    __slots__ = ("_base_timestamp_ms", "_body_size", "_count", "_max_timestamp_ms", "_parts")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._count = 0
        self._body_size = 0
        self._base_timestamp_ms = NO_TIMESTAMP
        self._max_timestamp_ms = NO_TIMESTAMP

    @property
    def count(self) -> int:
        """Records so far."""
        return self._count

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
        """Add one record.

        :returns: its index in the batch.
        :raises TypeError: key or value is neither bytes-like nor None.
        """
        index = self._count
        delta = timestamp_ms - self._base_timestamp_ms if index else 0
        body = b"".join(
            (
                b"\x00",
                _VARINTS[delta] if 0 <= delta < _TABLE_SIZE else encode_varint(delta),
                _VARINTS[index] if index < _TABLE_SIZE else encode_varint(index),
                _NULL if key is None else _varint(len(key)) + key,
                _NULL if value is None else _VARINTS[len(value)] if len(value) < _TABLE_SIZE else _varint(len(value)),
                b"" if value is None else value,
                _encode_headers(headers) if headers else b"\x00",
            )
        )
        size = len(body)
        length = _VARINTS[size] if size < _TABLE_SIZE else encode_varint(size)
        self._parts += (length, body)
        self._body_size += size + len(length)
        self._count = index + 1
        if not index:
            self._base_timestamp_ms = self._max_timestamp_ms = timestamp_ms
        elif timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = timestamp_ms
        return index

    def append_many(
        self,
        timestamp_ms: int,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
    ) -> int:
        """Add records that share a timestamp and have no headers.

        :param keys: as many as `values`, or None for records without key.
        :returns: the index in the batch of the first of them.
        :raises ValueError: there are not as many keys as values.
        """
        first = self._count
        if keys is not None:
            for key, value in zip(keys, values, strict=True):
                self.append(timestamp_ms, key, value)
            return first
        if not values:
            return first
        base = self._base_timestamp_ms if first else timestamp_ms
        prefix = b"\x00" + _varint(timestamp_ms - base)
        parts: list[bytes] = []
        size_total = 0
        varints = _VARINTS
        for index, value in enumerate(values, first):
            offset = varints[index] if index < _TABLE_SIZE else encode_varint(index)
            if value is None:
                body = b"".join((prefix, offset, b"\x01\x01\x00"))
            else:
                size = len(value)
                length = varints[size] if size < _TABLE_SIZE else encode_varint(size)
                body = b"".join((prefix, offset, _NULL, length, value, b"\x00"))
            size = len(body)
            length = varints[size] if size < _TABLE_SIZE else encode_varint(size)
            parts += (length, body)
            size_total += size + len(length)
        self._parts += parts
        self._body_size += size_total
        self._count = first + len(values)
        self._base_timestamp_ms = base
        self._max_timestamp_ms = max(self._max_timestamp_ms, timestamp_ms) if first else timestamp_ms
        return first

    def body(self) -> bytes:
        """Return the records encoded one after the other."""
        if len(self._parts) != 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0]


def decode_records(body: bytes, count: int, base_offset: int, base_timestamp_ms: int, columns: Columns) -> None:
    """Decode the `count` records of a body and append them to all columns but the timestamp types.

    :param body: the decompressed body of one batch; bytes, so that slices of it are the results.
    :raises CorruptBatchError: the body is not `count` records and nothing else. The columns are then as long as
        damage lets them be; throw them away.
    """
    if not 0 <= count <= len(body) // RECORD_SIZE_MIN:
        raise CorruptBatchError(f"{count} records cannot be in {len(body)} bytes")
    if not -_TIMESTAMP_LIMIT < base_timestamp_ms < _TIMESTAMP_LIMIT:
        raise CorruptBatchError(f"base timestamp {base_timestamp_ms} is out of range")
    try:
        position = _decode_loop(body, count, base_offset, base_timestamp_ms, columns)
    except IndexError:
        raise CorruptBatchError(f"{count} records announced, the batch ends before") from None
    if position != len(body):
        raise CorruptBatchError(f"{len(body) - position} bytes after the last of {count} records")


def _decode_loop(  # noqa: PLR0912, PLR0915 - one flat loop: a call per field would double its time
    body: bytes, count: int, base_offset: int, base_timestamp_ms: int, columns: Columns
) -> int:
    """Return the position after the last record.

    :raises IndexError: the body ends within a record.
    """
    add_offset, add_timestamp = columns.offsets.append, columns.timestamps_ms.append
    add_key, add_value, add_headers = columns.keys.append, columns.values.append, columns.headers.append
    signed = _SIGNED
    position = 0
    previous_delta = -1
    for _ in range(count):
        byte = body[position]
        if byte < 0x80:
            length = signed[byte]
            position += 1
        elif (high := body[position + 1]) < 0x80 and not byte & 1:
            length = (byte & 0x7F) >> 1 | high << 6
            position += 2
        else:
            length, position = decode_varint(body, position)
        end = position + length

        byte = body[position + 1]
        if byte < 0x80:
            timestamp_delta = signed[byte]
            position += 2
        elif (high := body[position + 2]) < 0x80 and not byte & 1:
            timestamp_delta = (byte & 0x7F) >> 1 | high << 6
            position += 3
        else:
            timestamp_delta, position = decode_varint(body, position + 1)
            if not -_TIMESTAMP_LIMIT < timestamp_delta < _TIMESTAMP_LIMIT:
                raise CorruptBatchError(f"timestamp delta {timestamp_delta} is out of range")

        byte = body[position]
        if byte < 0x80:
            delta = signed[byte]
            position += 1
        elif (high := body[position + 1]) < 0x80 and not byte & 1:
            delta = (byte & 0x7F) >> 1 | high << 6
            position += 2
        else:
            delta, position = decode_varint(body, position)
        if delta <= previous_delta:
            raise CorruptBatchError(f"offset delta {delta} after {previous_delta}")
        previous_delta = delta

        byte = body[position]
        if byte == 1:
            key = None
            position += 1
        else:
            if byte < 0x80:
                size = signed[byte]
                position += 1
            else:
                size, position = decode_varint(body, position)
            if size < 0:
                raise CorruptBatchError(f"key of {size} bytes")
            key = body[position : position + size]
            position += size

        byte = body[position]
        if byte == 1:
            value = None
            position += 1
        else:
            if byte < 0x80:
                size = signed[byte]
                position += 1
            elif (high := body[position + 1]) < 0x80 and not byte & 1:
                size = (byte & 0x7F) >> 1 | high << 6
                position += 2
            else:
                size, position = decode_varint(body, position)
            if size < 0:
                raise CorruptBatchError(f"value of {size} bytes")
            value = body[position : position + size]
            position += size

        if body[position] == 0:
            position += 1
            add_headers(())
        else:
            record_headers, position = _decode_headers(body, position, end)
            add_headers(record_headers)
        if position != end:
            raise CorruptBatchError(f"record of {length} bytes has fields of {length + position - end}")
        add_offset(base_offset + delta)
        add_timestamp(base_timestamp_ms + timestamp_delta)
        add_key(key)
        add_value(value)
    return position


def _decode_headers(body: bytes, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    """Return the headers at `position` and the position after them.

    Names that are not UTF-8 are decoded with replacement characters, as Java clients do: a consumer must be
    able to go on behind a record that another client wrote badly.
    """
    byte = body[position]
    if byte < 0x80:
        count = _SIGNED[byte]
        position += 1
    else:
        count, position = decode_varint(body, position)
    # Two bytes is the least that a header takes.
    if not 0 <= count <= (end - position) // 2:
        raise CorruptBatchError(f"{count} headers cannot be in {end - position} bytes")
    headers: list[Header] = []
    for _ in range(count):
        byte = body[position]
        if byte < 0x80:
            size = _SIGNED[byte]
            position += 1
        else:
            size, position = decode_varint(body, position)
        if not 0 <= size <= end - position:
            raise CorruptBatchError(f"header name of {size} bytes, {end - position} are left")
        name = body[position : position + size].decode("utf-8", "replace")
        position += size
        byte = body[position]
        if byte < 0x80:
            size = _SIGNED[byte]
            position += 1
        else:
            size, position = decode_varint(body, position)
        if not -1 <= size <= end - position:
            raise CorruptBatchError(f"header value of {size} bytes, {end - position} are left")
        if size < 0:
            headers.append((name, None))
        else:
            headers.append((name, body[position : position + size]))
            position += size
    return tuple(headers), position

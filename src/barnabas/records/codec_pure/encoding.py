"""Encodes records into the body of a batch.

A record in format version 2: length varint, attributes i8, timestamp delta varlong, offset delta varint, key length
varint (-1: null), key, value length varint, value, header count varint, headers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from barnabas.model import NO_TIMESTAMP, Headers
from barnabas.records.codec_pure.limits import (
    BAD_COLUMN,
    BATCH_BYTES_MAX,
    BATCH_TOO_LARGE,
    RECORD_OVERHEAD_MAX,
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    as_bytes,
    checked_timestamp,
    wrapped_timestamp,
)
from barnabas.records.codec_pure.varints import NULL, TABLE_SIZE, VARINTS, encode_headers, encode_varint, varint
from barnabas.records.columns import BinaryBuffers, Buffer
from barnabas.records.header import BATCH_HEADER_SIZE

NO_ROOM = -1
"""The value that replaces the index of a record if the record does not fit."""


class RecordEncoder:
    """Encodes the records of one batch, in order.

    Each record is copied when it is appended, so the caller may change its arguments afterwards. An append that raises
    an error does not change the encoder.

    `limit_bytes` is the maximum size of the batch, including its header. `closed` and `owner` are used if several
    threads fill a batch: see `Appender`.
    """

    __slots__ = (
        "_parts",
        "base_timestamp_ms",
        "closed",
        "count",
        "limit_bytes",
        "max_timestamp_ms",
        "min_timestamp_ms",
        "owner",
        "size_bytes",
    )

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.count = 0
        """The number of records."""
        self.size_bytes = BATCH_HEADER_SIZE
        """The size of the batch before compression, in bytes."""
        self.base_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_ms = NO_TIMESTAMP
        self.min_timestamp_ms = NO_TIMESTAMP
        self.limit_bytes = BATCH_BYTES_MAX
        self.closed = False
        self.owner: Any = None

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        limited: bool = False,
    ) -> int:
        """Append one record.

        :param limited: True to append the record only if it fits into `limit_bytes`.
        :returns: the index of the record in the batch; -1 if the record does not fit.
        :raises TypeError: key or value is neither bytes-like nor None, or the timestamp is not an int.
        :raises ValueError: the timestamp is out of range, or the batch would be larger than 2 GiB.
        """
        index = self.count
        fits = self._put(
            checked_timestamp(timestamp_ms),
            None if key is None else as_bytes(key),
            None if value is None else as_bytes(value),
            encode_headers(headers) if headers else b"\x00",
            self.limit_bytes if limited else BATCH_BYTES_MAX,
        )
        if fits:
            return index
        if not limited:
            raise ValueError(BATCH_TOO_LARGE)
        return NO_ROOM

    def _put(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: bytes, limit_bytes: int) -> bool:
        """Append one record; return False if it does not fit."""
        index = self.count
        delta = timestamp_ms - self.base_timestamp_ms if index else 0
        if not TIMESTAMP_MIN <= delta <= TIMESTAMP_MAX:
            delta = wrapped_timestamp(delta)
        body = b"".join(
            (
                b"\x00",
                VARINTS[delta] if 0 <= delta < TABLE_SIZE else encode_varint(delta),
                VARINTS[index] if index < TABLE_SIZE else encode_varint(index),
                NULL if key is None else varint(len(key)) + key,
                NULL if value is None else VARINTS[len(value)] if len(value) < TABLE_SIZE else varint(len(value)),
                b"" if value is None else value,
                headers,
            )
        )
        size = len(body)
        length = VARINTS[size] if size < TABLE_SIZE else encode_varint(size)
        whole = size + len(length)
        if self.size_bytes + whole > limit_bytes:
            return False
        self._parts += (length, body)
        self.size_bytes += whole
        self.count = index + 1
        if not index:
            self.base_timestamp_ms = self.max_timestamp_ms = self.min_timestamp_ms = timestamp_ms
        elif timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
        elif timestamp_ms < self.min_timestamp_ms:
            self.min_timestamp_ms = timestamp_ms
        return True

    def append_many(
        self,
        timestamp_ms: int,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        start: int = 0,
        limited: bool = False,
    ) -> int:
        """Append the records `values[start:]`, which share a timestamp and have no headers.

        :param keys: one key for each value, or None for records without keys.
        :param limited: True to append only as many records as fit into `limit_bytes`.
        :returns: the number of appended records.
        :raises ValueError: the numbers of keys and values differ, or the batch would be larger than 2 GiB.
        """
        stamp = checked_timestamp(timestamp_ms)
        value_list = exact_bytes(values)
        key_list = None if keys is None else exact_bytes(keys)
        if key_list is not None and len(key_list) != len(value_list):
            raise ValueError(f"{len(key_list)} keys for {len(value_list)} values; the numbers must be equal")
        if not limited:
            self._check_total(value_list[start:], (key_list or [])[start:])
        limit_bytes = self.limit_bytes if limited else BATCH_BYTES_MAX
        before = self.count
        for place in range(start, len(value_list)):
            key, value = None if key_list is None else key_list[place], value_list[place]
            if not self._put(stamp, key, value, b"\x00", limit_bytes):
                break
        return self.count - before

    def _check_total(self, values: list[bytes | None], keys: list[bytes | None]) -> None:
        """Raise an error before the first append if the records together exceed the maximum size of a batch."""
        total = self.size_bytes + RECORD_OVERHEAD_MAX * len(values)
        total += sum(len(blob or b"") for blob in (*values, *keys))
        if total > BATCH_BYTES_MAX:
            raise ValueError(BATCH_TOO_LARGE)

    def append_columns(
        self,
        timestamps_ms: int | Buffer,
        values: BinaryBuffers,
        keys: BinaryBuffers | None,
        rows: Buffer | None,
        start: int,
        stop: int,
    ) -> int:
        """Append as many rows of Arrow columns as fit into `limit_bytes`.

        :param timestamps_ms: one timestamp for all rows, or an int64 for each row.
        :param rows: the numbers of the rows to append, as int64; None appends the rows in order.
        :param start: the first index of `rows` to append.
        :param stop: the end of the range in `rows` to append.
        :returns: the number of appended rows.
        :raises ValueError: the offsets of a column point outside its data, or a timestamp is out of range.
        """
        stamps = None if isinstance(timestamps_ms, int) else memoryview(timestamps_ms).cast("B").cast("q")
        stamp = checked_timestamp(timestamps_ms) if isinstance(timestamps_ms, int) else 0
        order = None if rows is None else memoryview(rows).cast("B").cast("q")
        if not 0 <= start <= stop or (order is None and stop > values.length):
            raise IndexError(f"rows {start} to {stop} are not in a column of {values.length} rows")
        find_value = column_reader(values)
        find_key = None if keys is None else column_reader(keys)
        for place in range(start, stop):
            row = place if order is None else order[place]
            if stamps is not None:
                stamp = checked_timestamp(stamps[row])
            key = None if find_key is None else find_key(row)
            if not self._put(stamp, key, find_value(row), b"\x00", self.limit_bytes):
                return place - start
        return stop - start

    def body(self) -> bytes:
        """Return the encoded records."""
        if len(self._parts) != 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0]

    def whole(self) -> bytearray | memoryview:
        """Return a writable buffer with space for the header of a batch, followed by the body."""
        return bytearray(BATCH_HEADER_SIZE) + self.body()


def exact_bytes(given: Sequence[bytes | None]) -> list[bytes | None]:
    """Return keys or values as a list of bytes and None. If `given` is already such a list, return it unchanged.

    :raises TypeError: an element is neither bytes-like nor None.
    """
    if type(given) is list and all(each is None or type(each) is bytes for each in given):
        return given
    return [None if each is None else as_bytes(each) for each in given]


def column_reader(column: BinaryBuffers) -> Callable[[int], bytes | None]:
    """Return a function that returns the value of a row.

    It checks the offsets of the column, because no other code does.
    """
    end = column.start + column.length
    width = 8 if column.is_wide else 4
    raw, data = memoryview(column.offsets).cast("B"), memoryview(column.data).cast("B")
    validity = None if column.validity is None else memoryview(column.validity).cast("B")
    if column.start < 0 or column.length < 0 or (column.length and len(raw) < (end + 1) * width):
        raise ValueError(BAD_COLUMN)
    if validity is not None and len(validity) < (end + 7) // 8:
        raise ValueError(BAD_COLUMN)
    offsets = raw[: (end + 1) * width if column.length else 0].cast("q" if column.is_wide else "i")

    def find(row: int) -> bytes | None:
        if not 0 <= row < column.length:
            raise ValueError(BAD_COLUMN)
        place = row + column.start
        if validity is not None and not validity[place >> 3] >> (place & 7) & 1:
            return None
        begin, stop = offsets[place], offsets[place + 1]
        if not 0 <= begin <= stop <= len(data):
            raise ValueError(BAD_COLUMN)
        return bytes(data[begin:stop])

    return find

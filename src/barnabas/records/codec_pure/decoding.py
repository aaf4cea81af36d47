"""Decodes the body of a batch into records.

The loop is optimized for speed. It decodes small varints inline, and checks lengths against the end of the record only
once per record. This is safe, because slicing bytes beyond their end allocates nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from itertools import repeat
from typing import Generic, NamedTuple, cast

from barnabas.errors import CorruptBatchError
from barnabas.model import K_co, RecordHeader, TimestampType, V_co
from barnabas.records.codec_pure.limits import (
    BATCH_BYTES_MAX,
    HEADERS_MAX,
    NEAR_TIMESTAMP_LIMIT,
    OFFSET_MAX,
    RECORD_SIZE_MIN,
    wrapped_timestamp,
)
from barnabas.records.codec_pure.varints import SIGNED, decode_varint
from barnabas.records.columns import Buffer
from barnabas.records.header import BatchHeader
from barnabas.records.record_protocol import ANNOTATIONS, DATA_CLASS_FIELDS, record_of, timestamp_of


class Record(NamedTuple, Generic[K_co, V_co]):
    """One record of a partition.

    >>> record = Record("clicks", 0, 42, 1_700_000_000_000, TimestampType.CREATE_TIME, b"member-1", b"/jobs", ())
    >>> record.offset, record.value
    (42, b'/jobs')
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: K_co | None
    value: V_co | None
    headers: tuple[RecordHeader, ...]

    @property
    def timestamp(self) -> datetime | None:
        """The timestamp in UTC, or None if the record has none or it is beyond the year 9999."""
        return timestamp_of(self.timestamp_ms)

    def __reduce__(self) -> tuple[Callable[..., Record[K_co, V_co]], tuple[object, ...]]:
        return record_of, tuple(self)


Record.__annotations__ = dict(ANNOTATIONS)
Record.__dataclass_fields__ = DATA_CLASS_FIELDS  # type: ignore[attr-defined]

_make_header = cast("Callable[[Iterable[object]], RecordHeader]", partial(tuple.__new__, RecordHeader))
_make_record = cast("Callable[[Iterable[object]], Record]", partial(tuple.__new__, Record))


class Lists:
    """The fields of the records of one batch, as parallel lists."""

    __slots__ = ("headers", "keys", "offsets", "timestamps_ms", "values")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.timestamps_ms: list[int] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[tuple[RecordHeader, ...]] = []


def decode_records(
    body: Buffer,
    header: BatchHeader,
    topic: str,
    partition: int,
    min_offset: int = 0,
    max_offset: int = OFFSET_MAX,
) -> list[Record]:
    """Return the records of a batch with `min_offset <= offset < max_offset`.

    :param body: the decompressed bytes after the header.
    :raises CorruptBatchError: the body does not match the header.
    """
    lists, part = decode_batch(body, header, min_offset, max_offset)
    rows = zip(
        repeat(topic),
        repeat(partition),
        lists.offsets[part],
        lists.timestamps_ms[part],
        repeat(header.timestamp_type),
        lists.keys[part],
        lists.values[part],
        lists.headers[part],
        strict=False,
    )
    return list(map(_make_record, rows))


def check_ranges(size: int, header: BatchHeader) -> None:
    """Check the numbers in a batch header, before memory for the records is allocated.

    :raises CorruptBatchError: the record count does not fit a body of `size` bytes, or a number is out of range.
    """
    if not 0 <= header.record_count <= size // RECORD_SIZE_MIN:
        raise CorruptBatchError(f"{header.record_count} records do not fit into {size} bytes")
    if size > BATCH_BYTES_MAX:
        raise CorruptBatchError(f"a body of {size} bytes is larger than a batch can be")
    if not 0 <= header.base_offset <= header.last_offset < OFFSET_MAX:
        raise CorruptBatchError(f"offsets from {header.base_offset} to {header.last_offset} are out of range")


def decode_batch(
    body: Buffer, header: BatchHeader, min_offset: int, max_offset: int, *, any_deltas: bool = True
) -> tuple[Lists, slice]:
    """Return all records of a batch, and a slice that selects the records with `min_offset <= offset < max_offset`.

    The decoder accepts the same batches as Kafka's clients: sums of timestamps wrap around, and any negative length
    means null. If the number of records equals the number of offsets in the header, the offset of a record follows from
    its position in the batch. Producers may write arbitrary offset deltas in such a batch.

    :param any_deltas: False to reject batches in which the offset deltas do not ascend.
    """
    check_ranges(len(body), header)
    content = body if type(body) is bytes else bytes(body)
    lists = Lists()
    is_gapless = any_deltas and header.record_count == header.last_offset_delta + 1
    try:
        position = _decode_loop(content, header, lists, is_gapless)
    except IndexError:
        raise CorruptBatchError(f"the batch ends before the last of {header.record_count} records") from None
    if position != len(content):
        raise CorruptBatchError(f"{len(content) - position} bytes after the last of {header.record_count} records")
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        lists.timestamps_ms = [header.max_timestamp_ms] * header.record_count
    elif not -NEAR_TIMESTAMP_LIMIT < header.base_timestamp_ms < NEAR_TIMESTAMP_LIMIT:
        lists.timestamps_ms = list(map(wrapped_timestamp, lists.timestamps_ms))
    if is_gapless:
        lists.offsets = list(range(header.base_offset, header.next_offset))
    first = bisect_left(lists.offsets, min_offset)
    return lists, slice(first, max(first, bisect_left(lists.offsets, max_offset)))


def _decode_loop(  # noqa: PLR0912, PLR0915 - one flat loop, because a call per field would double the time
    body: bytes, header: BatchHeader, lists: Lists, is_gapless: bool
) -> int:
    """Decode the records of a body; return the position after the last record.

    :raises IndexError: the body ends within a record.
    """
    add_offset, add_timestamp = lists.offsets.append, lists.timestamps_ms.append
    add_key, add_value, add_headers = lists.keys.append, lists.values.append, lists.headers.append
    base_offset, base_timestamp_ms = header.base_offset, header.base_timestamp_ms
    last_delta = header.last_offset_delta
    signed = SIGNED
    position = 0
    previous_delta = -1
    for _ in range(header.record_count):
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
            timestamp_delta = wrapped_timestamp(base_timestamp_ms + timestamp_delta) - base_timestamp_ms

        byte = body[position]
        if byte < 0x80:
            delta = signed[byte]
            position += 1
        elif (high := body[position + 1]) < 0x80 and not byte & 1:
            delta = (byte & 0x7F) >> 1 | high << 6
            position += 2
        else:
            delta, position = decode_varint(body, position)
        if not previous_delta < delta <= last_delta and not is_gapless:
            raise CorruptBatchError(f"offset delta {delta} is not between {previous_delta + 1} and {last_delta}")
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
                key = None
            else:
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
                value = None
            else:
                value = body[position : position + size]
                position += size

        if body[position] == 0:
            position += 1
            add_headers(())
        else:
            record_headers, position = _decode_headers(body, position, end)
            add_headers(record_headers)
        if position != end:
            raise CorruptBatchError(f"a record has {length} bytes, but its fields have {length + position - end}")
        add_offset(base_offset + delta)
        add_timestamp(base_timestamp_ms + timestamp_delta)
        add_key(key)
        add_value(value)
    return position


def _decode_headers(body: bytes, position: int, end: int) -> tuple[tuple[RecordHeader, ...], int]:
    """Return the headers at `position` and the position after them.

    Invalid UTF-8 in a name is decoded to replacement characters, as in Java clients. So an invalid record from another
    client does not stop a consumer.
    """
    byte = body[position]
    if byte < 0x80:
        count = SIGNED[byte]
        position += 1
    else:
        count, position = decode_varint(body, position)
    # A header takes at least two bytes.
    if not 0 <= count <= min((end - position) // 2, HEADERS_MAX):
        raise CorruptBatchError(f"{count} headers in {end - position} bytes (at most {HEADERS_MAX} are decoded)")
    headers: list[RecordHeader] = []
    for _ in range(count):
        byte = body[position]
        if byte < 0x80:
            size = SIGNED[byte]
            position += 1
        else:
            size, position = decode_varint(body, position)
        if not 0 <= size <= end - position:
            raise CorruptBatchError(f"a header name has {size} bytes, but only {end - position} are left")
        name = body[position : position + size].decode("utf-8", "replace")
        position += size
        byte = body[position]
        if byte < 0x80:
            size = SIGNED[byte]
            position += 1
        else:
            size, position = decode_varint(body, position)
        if size > end - position:
            raise CorruptBatchError(f"a header value has {size} bytes, but only {end - position} are left")
        if size < 0:
            headers.append(_make_header((name, None)))
        else:
            headers.append(_make_header((name, body[position : position + size])))
            position += size
    return tuple(headers), position

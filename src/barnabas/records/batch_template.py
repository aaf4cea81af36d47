"""A template for a batch that is sent repeatedly: the keys stay the same, and only numbers in the values change."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from barnabas.protocol.codec import int64_positions
from barnabas.records.builder import BatchBuilder
from barnabas.records.header import BATCH_HEADER_SIZE, set_timestamp, write_crc

_pack_int64_into = struct.Struct(">q").pack_into


class BatchTemplate:
    """Batches that differ only in their timestamp and in INT64 fields of their values.

    :param records_with: returns the keys and values of the records; each INT64 field contains the given number.

    >>> from barnabas.records.reader import read_records
    >>> batch = BatchTemplate(lambda number: [(b"key", number.to_bytes(8, signed=True))])
    >>> records = read_records(batch.with_numbers(1_700_000_000_000, [258]), "clicks", 0)
    >>> [(record.key, record.value) for record in records]
    [(b'key', b'\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x02')]
    """

    __slots__ = ("_batch", "_positions")

    def __init__(self, records_with: Callable[[int], Sequence[tuple[bytes, bytes]]]) -> None:
        zeros, ones = (_built(records_with(number)) for number in (0, -1))
        self._positions = [
            BATCH_HEADER_SIZE + position
            for position in int64_positions(zeros[BATCH_HEADER_SIZE:], ones[BATCH_HEADER_SIZE:])
        ]
        self._batch = zeros

    def with_numbers(self, timestamp_ms: int, numbers: Sequence[int]) -> bytearray:
        """Return the batch with new numbers in its fields. The next call overwrites the returned batch.

        :param numbers: the numbers for the INT64 fields, in the order of the fields in the batch.
        """
        batch = self._batch
        for position, number in zip(self._positions, numbers, strict=True):
            _pack_int64_into(batch, position, number)
        set_timestamp(batch, 0, timestamp_ms)
        write_crc(batch, 0, len(batch))
        return batch


def _built(records: Sequence[tuple[bytes, bytes]]) -> bytearray:
    builder = BatchBuilder()
    for key, value in records:
        builder.append(0, key, value)
    return bytearray(builder.build())

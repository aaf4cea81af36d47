"""A batch that is written again and again with the same keys, and other values of the same size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from barnabas.records.builder import BatchBuilder
from barnabas.records.header import set_timestamp, write_crc

_NO_HEADERS_BYTES = 1
"""What follows the value of a record: that it has no headers."""


class RepeatedBatch:
    """Batches that differ in their time and their values only.

    :param records: keys, and values of the size that all others will have.

    >>> from barnabas.records.reader import read_records
    >>> batch = RepeatedBatch([(b"key", b"v1")]).with_values(1_700_000_000_000, [b"v2"])
    >>> [(record.key, record.value) for record in read_records(batch, "clicks", 0)]
    [(b'key', b'v2')]
    """

    __slots__ = ("_batch", "_places")

    def __init__(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        builder = BatchBuilder()
        self._places = []
        for key, value in records:
            builder.append(0, key, value)
            end = builder.size_bytes - _NO_HEADERS_BYTES
            self._places.append(slice(end - len(value), end))
        self._batch = bytearray(builder.build())

    def with_values(self, timestamp_ms: int, values: Iterable[bytes]) -> bytearray:
        """Return the batch of these values, with base offset 0 or that of the one before. It holds until the next
        call."""
        batch, size = self._batch, len(self._batch)
        for place, value in zip(self._places, values, strict=True):
            batch[place] = value
        assert len(batch) == size, "the values are of another size"
        set_timestamp(batch, 0, timestamp_ms)
        write_crc(batch, 0, size)
        return batch

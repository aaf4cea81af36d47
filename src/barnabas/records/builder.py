"""Builds record batches. The format is the same on the wire and in segments."""

from __future__ import annotations

from crc32c import crc32c

from barnabas.model import NO_LEADER_EPOCH, NO_PRODUCER_ID, TimestampType
from barnabas.records.codec import RecordEncoder
from barnabas.records.compression import Compression, compress
from barnabas.records.header import (
    BATCH_HEADER_SIZE,
    CRC,
    CRC_POSITION,
    CRC_START,
    HEADER,
    LENGTH_OVERHEAD,
    MAGIC,
)


class BatchBuilder(RecordEncoder):
    """Collects records and builds them into one batch. Not thread-safe.

    >>> builder = BatchBuilder(Compression.LZ4)
    >>> builder.append(1_700_000_000_000, b"member-1", b"/jobs", [("host", b"web-7")])
    0
    >>> builder.count
    1
    >>> batch = builder.build()
    """

    __slots__ = ("_attributes", "_built", "_built_count", "_compression")

    def __init__(
        self,
        compression: Compression = Compression.NONE,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    ) -> None:
        super().__init__()
        self._compression = compression
        self._attributes = int(compression) | int(timestamp_type) << 3
        self._built = b""
        self._built_count = 0

    def build(
        self, producer_id: int = NO_PRODUCER_ID, producer_epoch: int = -1, base_sequence: int = -1
    ) -> bytearray | memoryview:
        """Return the batch with base offset 0 and no leader epoch. The broker later stamps both fields.

        Repeated calls, for example with another producer id, do not encode or compress the records again. A call does
        not change the batches that earlier calls have returned.

        :raises ValueError: there are no records.
        """
        if not self.count:
            raise ValueError("a batch must have at least one record")
        batch = self.whole() if self._compression is Compression.NONE else self._whole_compressed()
        size = len(batch)
        HEADER.pack_into(
            batch,
            0,
            0,  # base offset
            size - LENGTH_OVERHEAD,
            NO_LEADER_EPOCH,
            MAGIC,
            0,  # CRC
            self._attributes,
            self.count - 1,  # last offset delta
            self.base_timestamp_ms,
            self.max_timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            self.count,
        )
        with memoryview(batch) as view:
            CRC.pack_into(batch, CRC_POSITION, crc32c(view[CRC_START:]))
        return batch

    def _whole_compressed(self) -> bytearray:
        if self._built_count != self.count:
            self._built = compress(self._compression, self.body())
            self._built_count = self.count
        return bytearray(BATCH_HEADER_SIZE) + self._built

"""Decodes the bodies of many batches into columns."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain

from barnabas.records.codec_pure.decoding import Lists, decode_batch
from barnabas.records.codec_pure.encoding import column_reader
from barnabas.records.codec_pure.limits import BATCH_BYTES_MAX, OFFSET_MAX
from barnabas.records.codec_pure.stretches import Stretches, stretches_of
from barnabas.records.columns import BinaryBuffers, Buffer, ColumnBuffers, HeaderBuffers
from barnabas.records.header import BatchHeader


class ColumnDecoder:
    """Collects the records of many batches as columns in Arrow's layout.

    :param include_headers: True to collect the headers of the records.
    """

    def __init__(self, include_headers: bool = True) -> None:
        self._include_headers = include_headers
        self._timestamp_types: list[int] = []
        self._lists = Lists()
        self.size_bytes = 0
        """The size of the collected keys, values and headers, in bytes.

        Header names with invalid UTF-8 may be counted with another size.
        """

    def __len__(self) -> int:
        return len(self._lists.offsets)

    @property
    def last_offset(self) -> int:
        """The offset of the last collected record. At least one record must have been collected."""
        return self._lists.offsets[-1]

    def stretches(self, row: int, width_ms: int) -> Stretches:
        """Group the records in the rows from `row` on by timestamp windows.

        :param row: the first row to group.
        :param width_ms: the size of a window. The window of records without a timestamp starts at -1.
        """
        lists, rows = self._lists, slice(max(0, row), None)
        return stretches_of(zip(lists.offsets[rows], lists.timestamps_ms[rows], strict=True), width_ms)

    def decode(
        self,
        body: Buffer,
        header: BatchHeader,
        min_offset: int = 0,
        max_offset: int = OFFSET_MAX,
        max_records: int = OFFSET_MAX,
    ) -> int:
        """Add at most `max_records` records of a batch with `min_offset <= offset < max_offset`.

        :param body: the decompressed bytes after the header.
        :returns: the number of added records.
        :raises CorruptBatchError: the body does not match the header; nothing was added.
        :raises OverflowError: a column would be larger than 2 GiB; call `finish` first.
        """
        check_column_room(self.size_bytes, len(body))
        lists, part = decode_batch(body, header, min_offset, max_offset)
        part = slice(part.start, min(part.stop, part.start + max(0, max_records)))
        count: int = part.stop - part.start
        mine = self._lists
        mine.offsets += lists.offsets[part]
        mine.timestamps_ms += lists.timestamps_ms[part]
        self._timestamp_types += [header.timestamp_type] * count
        mine.keys += lists.keys[part]
        mine.values += lists.values[part]
        self.size_bytes += sum(len(blob or b"") for blob in chain(lists.keys[part], lists.values[part]))
        if self._include_headers:
            mine.headers += lists.headers[part]
            pairs = chain.from_iterable(lists.headers[part])
            self.size_bytes += sum(len(name.encode()) + len(value or b"") for name, value in pairs)
        return count

    def finish(self) -> ColumnBuffers:
        """Return the collected records as the buffers of Arrow columns, and reset the decoder."""
        lists, kinds = self._lists, self._timestamp_types
        headers = None
        if self._include_headers:
            pairs = list(chain.from_iterable(lists.headers))
            headers = HeaderBuffers(
                _running_totals(map(len, lists.headers)),
                _binary_buffers([name.encode() for name, _ in pairs]),
                _binary_buffers([value for _, value in pairs]),
            )
        self._lists, self._timestamp_types, self.size_bytes = Lists(), [], 0
        return ColumnBuffers(
            len(lists.offsets),
            memoryview(array("q", lists.offsets)).cast("B"),
            memoryview(array("q", lists.timestamps_ms)).cast("B"),
            bytes(kinds),
            _binary_buffers(lists.keys),
            _binary_buffers(lists.values),
            headers,
        )


def check_column_room(size_bytes: int, more_bytes: int) -> None:
    """Check that a column stays below 2 GiB, because its offsets are 32-bit numbers.

    :raises OverflowError: a column would be larger than 2 GiB.
    """
    if size_bytes + more_bytes > BATCH_BYTES_MAX:
        raise OverflowError(f"a column of {size_bytes} bytes cannot grow by {more_bytes} bytes; finish it first")


def _running_totals(lengths: Iterable[int]) -> memoryview:
    return memoryview(array("i", accumulate(lengths, initial=0))).cast("B")


def _binary_buffers(blobs: Sequence[bytes | None]) -> BinaryBuffers:
    nulls = sum(blob is None for blob in blobs)
    validity = None
    if nulls:
        bits = bytearray((len(blobs) + 7) // 8)
        for place, blob in enumerate(blobs):
            bits[place >> 3] |= (blob is not None) << (place & 7)
        validity = bytes(bits)
    offsets = _running_totals(len(blob or b"") for blob in blobs)
    return BinaryBuffers(len(blobs), offsets, b"".join(blob or b"" for blob in blobs), validity, nulls)


def with_valid_names(names: BinaryBuffers) -> BinaryBuffers:
    """Return the header names with replacement characters for invalid UTF-8, because Arrow's strings must be valid."""
    find = column_reader(names)
    decoded = ((find(row) or b"").decode("utf-8", "replace") for row in range(names.length))
    return _binary_buffers([name.encode() for name in decoded])

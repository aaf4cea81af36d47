"""Columns in Arrow's memory layout: the output of bulk reads, and the input of `send_arrow`.

The columns are plain buffers, so the codecs do not need pyarrow. The module `arrow` converts the columns to Arrow
arrays and back, without a copy.
"""

from __future__ import annotations

from typing import NamedTuple

Buffer = bytes | bytearray | memoryview


class BinaryBuffers(NamedTuple):
    """A column of byte strings: value `i` is `data[offsets[start + i]:offsets[start + i + 1]]`."""

    length: int
    offsets: Buffer
    """The offsets as int32 values, or as int64 values if `is_wide`."""
    data: Buffer
    validity: Buffer | None
    """One bit per value, least significant bit first; a zero bit means null. None if there are no nulls."""
    null_count: int
    start: int = 0
    is_wide: bool = False


class HeaderBuffers(NamedTuple):
    """A column of lists of headers: row `i` has the names and values from `offsets[i]` up to `offsets[i + 1]`."""

    offsets: Buffer
    names: BinaryBuffers
    values: BinaryBuffers


class ColumnBuffers(NamedTuple):
    """Records as columns."""

    length: int
    offsets: Buffer
    """int64 values."""
    timestamps_ms: Buffer
    """int64 values."""
    timestamp_types: Buffer
    """int8 values, see `TimestampType`."""
    keys: BinaryBuffers
    values: BinaryBuffers
    headers: HeaderBuffers | None
    """The column of headers; None if the reader skips headers."""

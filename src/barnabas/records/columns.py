"""Columns as Arrow lays them out in memory: what bulk readers get, and what `send_arrow` gives.

Plain buffers, so that neither codec needs pyarrow; `arrow` makes arrays of them and out of arrays, without a copy.
"""

from __future__ import annotations

from typing import NamedTuple

Buffer = bytes | bytearray | memoryview


class BinaryBuffers(NamedTuple):
    """A column of byte strings: value `i` is `data[offsets[start + i]:offsets[start + i + 1]]`."""

    length: int
    offsets: Buffer
    """int32, or int64 where `is_wide`."""
    data: Buffer
    validity: Buffer | None
    """A bit for each value, least significant first, clear where it is null; None: there is no null."""
    null_count: int
    start: int = 0
    is_wide: bool = False


class HeaderBuffers(NamedTuple):
    """A column of lists of headers: those of row `i` are the names and values `offsets[i]` to `offsets[i + 1]`."""

    offsets: Buffer
    names: BinaryBuffers
    values: BinaryBuffers


class ColumnBuffers(NamedTuple):
    """Records as columns."""

    length: int
    offsets: Buffer
    """int64."""
    timestamps_ms: Buffer
    """int64."""
    timestamp_types: Buffer
    """int8, see `TimestampType`."""
    keys: BinaryBuffers
    values: BinaryBuffers
    headers: HeaderBuffers | None
    """None if the reader leaves headers out."""

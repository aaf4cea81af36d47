"""The offsets of a partition that may match a filter, computed with Arrow. Pure.

The filter is an Arrow expression of any form. To skip a file, Arrow decides from known facts about the file (such as
`offset <= 5`) that no row matches. This module presents a partition to Arrow as a file. A binary search over such facts
finds the smallest and the largest offset, and the smallest timestamp, that the filter may match. If Arrow cannot
decide, the rows are read. The filter is evaluated again on all rows that are read.

Timestamps in a log need not increase. Reading starts at the first record with the smallest wanted timestamp or a later
one, and must continue to the end. So an upper bound on the timestamp does not reduce the number of records to read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from barnabas.formats.times import TIME_TYPE, TIME_US_MAX

_FILE_FORMAT = ds.IpcFileFormat()
_NO_FILES = LocalFileSystem()


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """The part of a partition to read: the offsets from `start_offset` to `end_offset`, exclusive.

    `timestamp_ms_min`: Skip all records before the first record with this timestamp or a later one. None if no records
    are skipped.
    """

    start_offset: int
    end_offset: int
    timestamp_ms_min: int | None = None

    @property
    def count(self) -> int:
        """The number of offsets."""
        return max(self.end_offset - self.start_offset, 0)


def restrict(
    condition: ds.Expression | None, schema: pa.Schema, topic: str, partition: int, whole: ReadBounds
) -> ReadBounds:
    """Return the part of a partition that may match a filter.

    :param schema: The columns that the filter may use.
    :param whole: The offsets of the partition.
    """
    if condition is None or not whole.count:
        return whole
    asked = _Asked(condition, schema, (ds.field("topic") == topic) & (ds.field("partition") == _int32(partition)))
    if not asked.is_possible(None):
        return ReadBounds(whole.start_offset, whole.start_offset)
    offset = ds.field("offset")
    start = _first(lambda bound: asked.is_possible(offset <= _int64(bound)), whole.start_offset, whole.end_offset)
    end = _first(lambda bound: not asked.is_possible(offset >= _int64(bound)), start, whole.end_offset)
    return ReadBounds(start, end, _least_time_ms(asked))


def _least_time_ms(asked: _Asked) -> int | None:
    time = ds.field("timestamp")
    if asked.is_possible(time.is_null()):  # a timestamp out of range is null, and its record may be anywhere
        return None
    least_us = _first(lambda bound: asked.is_possible(time <= pa.scalar(bound, TIME_TYPE)), 0, TIME_US_MAX)
    # Record timestamps are whole milliseconds: a timestamp of at least 1.5 ms is at least 2 ms.
    return -(-least_us // 1_000) or None


def _first(is_so: Callable[[int], bool], least: int, greatest: int) -> int:
    """Return the smallest number for which `is_so` is true, by binary search; `greatest` if there is none. `is_so` must
    be monotone.
    """
    while least < greatest:
        middle = (least + greatest) // 2
        if is_so(middle):
            greatest = middle
        else:
            least = middle + 1
    return least


@dataclass(frozen=True, slots=True)
class _Asked:
    """A filter, and conditions that are known to hold for all rows of the partition."""

    condition: ds.Expression
    schema: pa.Schema
    known: ds.Expression

    def is_possible(self, more: ds.Expression | None) -> bool:
        """Return whether any row that satisfies the additional condition `more` may match the filter."""
        known = self.known if more is None else self.known & more
        no_file = _FILE_FORMAT.make_fragment("no-file", filesystem=_NO_FILES, partition_expression=known)
        dataset = ds.FileSystemDataset([no_file], self.schema, _FILE_FORMAT, _NO_FILES)
        return next(iter(dataset.get_fragments(self.condition)), None) is not None


def _int32(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.int32())


def _int64(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.int64())


def referenced_columns(condition: ds.Expression | None, schema: pa.Schema) -> list[str]:
    """Return the columns that a filter uses.

    Arrow does not expose the columns of a filter, so this function tries to evaluate the filter without each column.
    """
    if condition is None:
        return []
    text = str(condition)
    named = [name for name in schema.names if name in text]
    if not _can_do_with(condition, schema, named):
        named = schema.names
    needed = list(named)
    for name in named:
        others = [each for each in needed if each != name]
        if _can_do_with(condition, schema, others):
            needed = others
    return needed


def _can_do_with(condition: ds.Expression, schema: pa.Schema, names: list[str]) -> bool:
    empty = pa.schema([schema.field(name) for name in names]).empty_table()
    try:
        empty.filter(condition)
    except pa.ArrowInvalid:
        return False
    return True

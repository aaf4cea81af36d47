"""The offsets of a partition that a predicate does not exclude, found by asking Arrow. Pure.

A condition comes as an Arrow expression of any form. Arrow knows how to tell from what is known of a file (`offset` is
at most 5) that no row of it can meet a condition, so that it need not be opened. Here a partition is such a file, and
by halving what is known of it the least and the greatest offset, and the least time, are found that a condition does
not exclude. What Arrow cannot tell is not excluded; all that is read is checked once more in any case.

Times in a log need not ascend. Before the first record that is as late as a query wants none can meet it; whatever
comes after that one has to be read. An upper end of a time therefore narrows nothing.
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
    """What is to be read of a partition: offsets from `start_offset` to before `end_offset`, and nothing earlier.

    `timestamp_ms_min`: no record before the first that is as late as this is wanted; None: there is no such bound.
    """

    start_offset: int
    end_offset: int
    timestamp_ms_min: int | None = None

    @property
    def count(self) -> int:
        """How many offsets."""
        return max(self.end_offset - self.start_offset, 0)


def restrict(
    condition: ds.Expression | None, schema: pa.Schema, topic: str, partition: int, whole: ReadBounds
) -> ReadBounds:
    """Return what a condition leaves of a partition.

    :param schema: the columns that the condition may be about.
    :param whole: what there is.
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
    if asked.is_possible(time.is_null()):  # its time is beyond the calendar: it may be anywhere
        return None
    least_us = _first(lambda bound: asked.is_possible(time <= pa.scalar(bound, TIME_TYPE)), 0, TIME_US_MAX)
    # A record's time is whole milliseconds: what is not before 1.5 ms is at 2 ms or later.
    return -(-least_us // 1_000) or None


def _first(is_so: Callable[[int], bool], least: int, greatest: int) -> int:
    """Return the first number of which something is so that is so of all greater ones; `greatest` if of none."""
    while least < greatest:
        middle = (least + greatest) // 2
        if is_so(middle):
            greatest = middle
        else:
            least = middle + 1
    return least


@dataclass(frozen=True, slots=True)
class _Asked:
    """A condition, and what is known of all rows."""

    condition: ds.Expression
    schema: pa.Schema
    known: ds.Expression

    def is_possible(self, more: ds.Expression | None) -> bool:
        """Whether a row can meet the condition of which more is known."""
        known = self.known if more is None else self.known & more
        no_file = _FILE_FORMAT.make_fragment("no-file", filesystem=_NO_FILES, partition_expression=known)
        dataset = ds.FileSystemDataset([no_file], self.schema, _FILE_FORMAT, _NO_FILES)
        return next(iter(dataset.get_fragments(self.condition)), None) is not None


def _int32(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.int32())


def _int64(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.int64())


def referenced_columns(condition: ds.Expression | None, schema: pa.Schema) -> list[str]:
    """Return the columns that a condition is about.

    An expression does not say; it does say when one of its columns is missing.
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

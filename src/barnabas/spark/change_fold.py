"""The last change of each key. Pure: Arrow columns in, row numbers out.

The order of changes is total, and does not depend on the loads that the changes arrive in:

    order by offset     offset, topic, partition
    otherwise           order value, topic, partition, offset

A tombstone has no order value. It has the highest order value of the earlier changes of its key in its partition, so it
deletes the row that these changes made. A tombstone without earlier changes comes before all changes with a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]
Column: TypeAlias = "pa.Array | pa.ChunkedArray"


class KeyIndex:
    """Numbers the distinct keys of rows, and finds these keys in other rows.

    :param columns: the key columns. They have no nulls.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self._values: list[pa.Array] = []
        self._pairs: list[pa.Array] = []
        codes: Numbers | None = None
        for column in columns:
            encoded = comparable(column).dictionary_encode()
            own = _numbers(encoded.indices)
            self._values.append(encoded.dictionary)
            if codes is not None:
                pairs = pa.array(codes * max(1, len(encoded.dictionary)) + own).dictionary_encode()
                self._pairs.append(pairs.dictionary)
                own = _numbers(pairs.indices)
            codes = own
        assert codes is not None, "there is at least one key column"
        self.codes: Numbers = codes
        """The number of each row's key, from 0 on, in the order of the first appearance."""
        self.count = len(self._pairs[-1]) if self._pairs else len(self._values[0])

    def find(self, columns: Sequence[Column]) -> Numbers:
        """Return the number of each row's key; -1 for other keys."""
        codes = self._place(comparable(columns[0]), self._values[0])
        for column, values, pairs in zip(columns[1:], self._values[1:], self._pairs, strict=True):
            own = self._place(comparable(column), values)
            both = np.where((codes < 0) | (own < 0), -1, codes * max(1, len(values)) + own)
            codes = self._place(pa.array(both), pairs)
        return codes

    @staticmethod
    def _place(column: pa.Array, values: pa.Array) -> Numbers:
        return _numbers(pc.index_in(column, value_set=values).fill_null(-1))


@dataclass(frozen=True, slots=True)
class Last:
    """The last change of each key.

    :param rows: the row of the last change of each key, in the order of the keys' numbers.
    :param order_rows: the row whose order value that change has: another row for a tombstone; -1 if it has no value.
    """

    rows: Numbers
    order_rows: Numbers


def last_changes(codes: Numbers, rows: pa.Table, order: Column | None) -> Last:
    """Return the last change of each key. Of equal changes, the later row is the last.

    :param codes: the number of each row's key. Each number from 0 to the highest one appears.
    :param rows: columns `topic`, `partition` and `offset`; changes without them are ordered as the rows.
    :param order: the order value of each row; None to order by offset.
    """
    offsets, places = _positions(rows)
    if order is None:
        by_order = np.lexsort((places, offsets, codes))
        last = by_order[_ends(codes[by_order])]
        return Last(last, last)
    own = comparable(order)
    values = ranks(own)
    filled = values
    if own.null_count:
        filled = _filled(codes, places, offsets, values)
    by_order = np.lexsort((offsets, places, filled, codes))
    last = by_order[_ends(codes[by_order])]
    row_of_value = np.full(int(values.max(initial=-1)) + 2, -1, np.int64)  # the last element is for no value: -1
    has_value = np.flatnonzero(values >= 0)
    row_of_value[values[has_value]] = has_value
    return Last(last, np.where(values[last] >= 0, last, row_of_value[filled[last]]))


def candidates(codes: Numbers, rows: pa.Table, order: Column | None) -> Numbers:
    """Return the rows that may be the last change of their key, beside any earlier rows, in ascending order.

    These are the last change with an order value of each key, and the last change without one of each key in each
    partition, whose order value depends on the earlier rows. By offset, the last change of each key in each partition
    stays, so that the merge can count keys with changes in several ones. The arguments are those of `last_changes`.
    """
    offsets, places = _positions(rows)
    if order is None:
        by_place = np.lexsort((offsets, places, codes))
        return np.sort(by_place[_ends(_groups(codes, places)[by_place])])
    values = ranks(order)
    by_order = np.lexsort((offsets, places, values, codes))
    by_order = by_order[values[by_order] >= 0]
    last = by_order[_ends(codes[by_order])]
    by_offset = np.lexsort((offsets, places, codes))
    by_offset = by_offset[values[by_offset] < 0]
    return np.sort(np.concatenate([last, by_offset[_ends(_groups(codes, places)[by_offset])]]))


def keys_in_several_partitions(codes: Numbers, rows: pa.Table) -> int:
    """Return the number of keys with rows of several partitions. The arguments are those of `last_changes`."""
    places = _positions(rows)[1]
    if not places.max(initial=0):
        return 0
    width = int(places.max()) + 1
    return int((np.bincount(np.unique(_groups(codes, places)) // width) > 1).sum())


def _groups(codes: Numbers, places: Numbers) -> Numbers:
    """Return a number for each pair of a key and a partition."""
    return codes * (int(places.max(initial=0)) + 1) + places


def _positions(rows: pa.Table) -> tuple[Numbers, Numbers]:
    """Return the offset of each row, and the rank of its partition."""
    if not {"topic", "partition", "offset"} <= set(rows.column_names):
        return np.arange(rows.num_rows), np.zeros(rows.num_rows, np.int64)
    partitions = _numbers(comparable(rows.column("partition")))
    places = ranks(rows.column("topic")) * (int(partitions.max(initial=0)) + 1) + partitions
    return _numbers(comparable(rows.column("offset"))), places


def take_last(rows: pa.Table, last: Last, order: str | None) -> pa.Table:
    """Return the last change of each key, with the order value that it has.

    :param order: the column with the order values; None to order by offset.
    """
    taken = rows.take(pa.array(last.rows))
    if order is None or (last.rows == last.order_rows).all():
        return taken
    places = pa.array(np.where(last.order_rows < 0, 0, last.order_rows), mask=last.order_rows < 0)
    return taken.set_column(
        taken.schema.get_field_index(order), rows.schema.field(order), rows.column(order).combine_chunks().take(places)
    )


def _filled(codes: Numbers, places: Numbers, offsets: Numbers, values: Numbers) -> Numbers:
    """Give each row without a value the highest value of the earlier rows of its key in its partition."""
    by_offset = np.lexsort((offsets, places, codes))
    own, at = codes[by_offset], places[by_offset]
    starts = np.ones(len(own), bool)
    starts[1:] = (own[1:] != own[:-1]) | (at[1:] != at[:-1])
    base = np.cumsum(starts) * (int(values.max(initial=-1)) + 2)
    highest = np.maximum.accumulate(base + values[by_offset] + 1) - base - 1
    filled = np.empty_like(values)
    filled[by_offset] = np.where(values[by_offset] < 0, highest, values[by_offset])
    return filled


def ranks(column: Column) -> Numbers:
    """Return the rank of each value among the distinct values, from 0 on; -1 for nulls."""
    encoded = comparable(column).dictionary_encode()
    order = _numbers(pc.sort_indices(encoded.dictionary))
    rank_of = np.empty(len(order) + 1, np.int64)
    rank_of[order] = np.arange(len(order))
    rank_of[-1] = -1
    return rank_of[_numbers(encoded.indices.fill_null(-1))]


def comparable(column: Column) -> pa.Array:
    """Return a column as one array of a type that Arrow can look up. -0.0 becomes 0.0, which SQL finds equal."""
    kind = column.type
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        column = pc.add(column, pa.scalar(0.0, kind))
    if pa.types.is_string(kind):
        column = column.cast(pa.large_string())
    elif pa.types.is_binary(kind):
        column = column.cast(pa.large_binary())
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column


def _numbers(column: pa.Array) -> Numbers:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


def _ends(codes: Numbers) -> Numbers:
    """Return the position of the last row of each number in sorted numbers."""
    if not len(codes):
        return np.empty(0, np.int64)
    return np.append(np.flatnonzero(codes[1:] != codes[:-1]), len(codes) - 1)

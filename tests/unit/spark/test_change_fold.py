"""The last change of each key is that of a plain loop over the changes, also in parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.change_fold import KeyIndex, candidates, last_changes, ranks, take_last

SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("order", pa.int64()),
    ]
)


class Change(NamedTuple):
    a: int
    b: str
    topic: str
    partition: int
    offset: int
    order: int | None


@st.composite
def changes(draw: st.DrawFn) -> list[Change]:
    """Records of two topics with two partitions each. A change without order value is a tombstone."""
    found = []
    for place in range(draw(st.integers(0, 12))):
        topic, partition = draw(st.sampled_from(["t", "u"])), draw(st.integers(0, 1))
        order = draw(st.one_of(st.none(), st.integers(0, 3)))
        found.append(
            Change(
                draw(st.integers(0, 1)),
                draw(st.sampled_from("xy")),
                topic,
                partition,
                place,
                order,
            )
        )
    return draw(st.permutations(found))


def expected(rows: Sequence[Change], *, by_offset: bool) -> dict[tuple[int, str], Change]:
    """Return the last change of each key, with the order value of tombstones filled in."""
    last: dict[tuple[int, str], tuple[Any, Change]] = {}
    highest: dict[tuple[Any, ...], int] = {}
    for row in sorted(rows, key=lambda row: row.offset):
        place = (row.a, row.b, row.topic, row.partition)
        order = row.order if row.order is not None else highest.get(place)
        if order is not None:
            highest[place] = max(order, highest.get(place, order))
        rank = (
            (row.offset, row.topic, row.partition)
            if by_offset
            else (-1 if order is None else order, row.topic, row.partition, row.offset)
        )
        key = (row.a, row.b)
        if key not in last or rank > last[key][0]:
            last[key] = (rank, row if by_offset else row._replace(order=order))
    return {key: row for key, (_, row) in last.items()}


def folded(table: pa.Table, *, by_offset: bool) -> pa.Table:
    index = KeyIndex([table.column("a"), table.column("b")])
    last = last_changes(index.codes, table, None if by_offset else table.column("order"))
    return take_last(table, last, None if by_offset else "order")


def folded_part(table: pa.Table, *, by_offset: bool) -> pa.Table:
    index = KeyIndex([table.column("a"), table.column("b")])
    return table.take(pa.array(candidates(index.codes, table, None if by_offset else table.column("order"))))


def as_table(rows: Sequence[Change]) -> pa.Table:
    return pa.Table.from_pylist([row._asdict() for row in rows], SCHEMA)


def as_dict(table: pa.Table) -> dict[tuple[int, str], Change]:
    rows = [Change(**row) for row in table.to_pylist()]
    assert len({(row.a, row.b) for row in rows}) == len(rows)
    return {(row.a, row.b): row for row in rows}


@given(changes(), st.booleans())
def test_fold_is_that_of_a_loop(rows: list[Change], by_offset: bool) -> None:
    assert as_dict(folded(as_table(rows), by_offset=by_offset)) == expected(rows, by_offset=by_offset)


@given(changes(), st.booleans(), st.integers(0, 12))
def test_fold_of_folded_parts_in_order_of_offsets_is_the_fold(
    rows: list[Change],
    by_offset: bool,
    cut: int,
) -> None:
    parts = [[row for row in rows if (row.offset < cut) is early] for early in (True, False)]
    both = pa.concat_tables([folded_part(as_table(part), by_offset=by_offset) for part in parts])
    assert as_dict(folded(both, by_offset=by_offset)) == expected(rows, by_offset=by_offset)


def test_keys_are_found_in_other_rows() -> None:
    index = KeyIndex([pa.array([1, 1, 2, 1]), pa.array(["x", "y", "x", "x"])])
    assert index.codes.tolist() == [0, 1, 2, 0]
    assert index.count == 3
    other = [pa.array([2, 2, 1, None, 7]), pa.array(["x", "y", "y", "x", "x"])]
    assert index.find(other).tolist() == [2, -1, 1, -1, -1]


@pytest.mark.parametrize(
    "values",
    [
        [3, None, 1, 3],
        ["c", None, "a", "c"],
        [True, None, False, True],
        [b"b", None, b"", b"b"],
    ],
)
def test_ranks_order_values_of_all_types(values: list[Any]) -> None:
    assert ranks(pa.array(values)).tolist() == [1, -1, 0, 1]
    assert isinstance(ranks(pa.array(values)), np.ndarray)

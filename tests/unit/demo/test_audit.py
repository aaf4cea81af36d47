"""The books of the demo: they find what is lost, what is there twice, and what belongs to another run."""

from __future__ import annotations

import pyarrow as pa

from barnabas.model import TopicPartition
from barnabas.spark.columns import HEADERS_TYPE
from demo.audit import Audit, TableCount, count_in_table, since, stored_between
from demo.loaded_run import rows_with_id_of


def headers(*ids: str | None) -> pa.ListArray:
    rows = [
        None if each is None else [{"key": "other", "value": b"x"}, {"key": "id", "value": each.encode()}]
        for each in ids
    ]
    return pa.array(rows, HEADERS_TYPE)


def test_each_row_of_the_input_once_is_neither_lost_nor_duplicated() -> None:
    assert count_in_table([headers("r:0", "r:2"), headers("r:1")], "r", 3) == TableCount(3, 0, 0)


def test_lost_and_duplicated_rows_are_counted_by_id() -> None:
    assert count_in_table([headers("r:0", "r:0"), headers("r:0", "r:2")], "r", 4) == TableCount(4, 2, 2)


def test_records_of_other_runs_and_without_id_do_not_count() -> None:
    assert count_in_table([headers("q:0", None, "r2:1", "r:1")], "r", 2) == TableCount(1, 1, 0)


def test_an_empty_table_has_lost_everything() -> None:
    assert count_in_table([], "r", 2) == TableCount(0, 2, 0)


def test_rows_of_a_run_are_found_beside_others() -> None:
    assert rows_with_id_of(headers("q:0", "r:5", None, "r:1"), "r").to_pylist() == [1, 3]


def test_the_books_balance_only_if_every_count_is_the_inputs() -> None:
    assert Audit(3, 3, 3, 3, 3, 0, 0).balances
    for counts in ((2, 3, 3, 3, 0, 0), (3, 4, 3, 3, 0, 0), (3, 3, 2, 3, 0, 0), (3, 3, 3, 2, 1, 0), (3, 3, 3, 4, 0, 1)):
        assert not Audit(3, *counts).balances


def test_stored_is_by_how_much_the_logs_have_grown() -> None:
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    assert stored_between({zero: 5, one: 1}, {zero: 9, one: 1}) == 4
    assert since({zero: 5, one: 1}) == "(partition = 0 and offset >= 5) or (partition = 1 and offset >= 1)"

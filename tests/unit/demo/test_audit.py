"""The books of the demo: what the audit says of one run, and of no other."""

from __future__ import annotations

import pyarrow as pa

from barnabas.audit.balance import ApplicationBalance, Balance
from barnabas.audit.events import LOADED
from barnabas.audit.findings import Finding, Kind
from barnabas.audit.identities import Producer
from barnabas.model import TopicPartition
from barnabas.spark.columns import HEADERS_TYPE
from demo.audit import Audit, books_of, since, where_it_is
from demo.loaded_run import rows_with_id_of

ONE = Producer(7, 0, 2)


def finding(kind: Kind, tier: str = LOADED, run: str = "r") -> Finding:
    return Finding(kind, 0, ONE, 1, "web-1", f"demo-{run}", offset=5, tier=tier)


def balance(*findings: Finding) -> Balance:
    counts = {"demo-r": ApplicationBalance(3, 3, 3), "demo-q": ApplicationBalance(9, 8, 7)}
    return Balance([], list(findings), 60_000, counts)


def test_books_are_those_of_one_run() -> None:
    books = books_of(balance(finding(Kind.LOST, run="q")), "r", 3, 3)
    assert books == Audit(3, 3, 3, 3, 3, 0, 0)
    assert books.balances
    assert books_of(balance(), "unheard", 3, 3) == Audit(3, 0, 0, 3, 0, 0, 0)


def test_what_is_lost_doubled_or_late_anywhere_is_in_the_books() -> None:
    for kind, counts in (
        (Kind.LOST, (1, 0, 0)),
        (Kind.EXCHANGED, (1, 0, 0)),
        (Kind.DOUBLED, (0, 1, 0)),
        (Kind.EXTRA, (0, 1, 0)),
        (Kind.LATE, (0, 0, 1)),
        (Kind.OPEN, (0, 0, 1)),
    ):
        books = books_of(balance(finding(kind)), "r", 3, 3)
        assert (books.lost, books.duplicated, books.late) == counts
        assert not books.balances


def test_late_records_are_in_the_last_line_where_there_are_any() -> None:
    assert Audit(3, 3, 3, 3, 2, 0, 0, 1).line().endswith("loaded=2 lost=0 duplicated=0 late=1")


def test_place_of_a_record_is_told_with_its_sender() -> None:
    assert where_it_is(finding(Kind.LOST)) == "1 lost in the table: partition 2, offset 5, sent by demo-r on web-1"


def test_rows_of_a_run_are_found_beside_others() -> None:
    ids = ("q:0", "r:5", None, "r:1")
    rows = [None if each is None else [{"key": "id", "value": each.encode()}] for each in ids]
    assert rows_with_id_of(pa.array(rows, HEADERS_TYPE), "r").to_pylist() == [1, 3]


def test_the_books_balance_only_if_every_count_is_the_inputs() -> None:
    assert Audit(3, 3, 3, 3, 3, 0, 0).balances
    for counts in ((2, 3, 3, 3, 0, 0), (3, 4, 3, 3, 0, 0), (3, 3, 2, 3, 0, 0), (3, 3, 3, 2, 1, 0), (3, 3, 3, 4, 0, 1)):
        assert not Audit(3, *counts).balances


def test_a_look_at_the_logs_is_a_filter_of_the_table() -> None:
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    assert since({zero: 5, one: 1}) == "(partition = 0 and offset >= 5) or (partition = 1 and offset >= 1)"

"""Acknowledged records that neither the log nor the table has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from barnabas.audit.account import Account, WindowAccount, offsets_of
from barnabas.audit.balance import Balance, balance
from barnabas.audit.batch_windows import RecordRange
from barnabas.audit.events import COMMITTED, LOADED, PRODUCED, MonitoringEvent
from barnabas.audit.findings import Kind
from barnabas.audit.identities import Producer
from barnabas.audit.loaded_table import LoadedTable, accounts_of, instance_of_load
from barnabas.audit.stored_log import StoredLog
from barnabas.audit.table_rows import TableRows
from barnabas.audit.windows import NO_WINDOW_MS, tally

WIDTH_MS = 60_000
ONE, TWO = Producer(7, 0, 0), Producer(8, 0, 0)


def sent(count: int, producer: Producer = ONE, first: int = 0, topic_id: str = "now") -> MonitoringEvent:
    """What a producer told of one window."""
    return MonitoringEvent(
        "clicks", PRODUCED, 0, WIDTH_MS, f"life-{producer.producer_id}", 1, "web-1", "shop",
        {producer: tally(producer, first, count, 0)}, topic_id=topic_id,
    )  # fmt: skip


def account(first: int, count: int) -> WindowAccount:
    """What a load told of records of the first producer."""
    return WindowAccount({ONE: tally(ONE, first, count, 0)}, {0: tally(offsets_of(0), first, count, 0)})


def log(begin: int, *batches: tuple[Producer, int, int]) -> StoredLog:
    """A log that begins at an offset, with what is left: producers, first numbers, counts."""
    stored = StoredLog(WIDTH_MS)
    stored.begins_late(0, 0) if batches else stored.is_emptied(0)
    offset = begin
    for producer, first, count in batches:
        found = stored.counted.setdefault(0, {})
        found[producer] = tally(producer, first, count, 0)
        offset += count
    return stored


def table(
    offsets: range, begin: int, accounts: dict[int, WindowAccount] | None = None, *, is_whole: bool = True
) -> LoadedTable:
    """A table with rows of some offsets, loaded up to the last of them, of a log that begins at an offset."""
    rows = TableRows({0: begin}, {0: offsets.stop}, WIDTH_MS)
    rows.add(0, np.array(offsets, np.int64), np.zeros(len(offsets), np.int64))
    return LoadedTable(rows, accounts or {}, is_whole)


def lost(found: Balance) -> list[tuple[int, int, str]]:
    """Return window, records and application of what is lost."""
    return [(each.window_ms, each.records, each.application) for each in found.findings if each.kind is Kind.LOST]


def test_records_that_wait_in_the_log_are_not_lost() -> None:
    loaded = table(range(10), 10, {0: account(0, 10)})
    loaded.rows.check(ONE, 10, RecordRange(5, 0))
    found = balance([sent(15)], log(10, (ONE, 10, 5)), "now", loaded)
    assert lost(found) == []
    found = balance([sent(17)], log(10, (ONE, 10, 5)), "now", loaded)
    assert lost(found) == [(0, 2, "shop")]


def test_each_producer_of_a_window_is_judged_by_itself() -> None:
    """As many rows as records: those of a producer that tells nothing hide no loss."""
    loaded = table(range(5, 15), 15, {0: WindowAccount({ONE: tally(ONE, 5, 5, 0)}, account(5, 10).offsets)})
    assert lost(balance([sent(10)], log(15), "now", loaded)) == [(0, 5, "shop")]


def test_loads_that_did_not_tell_are_counted_by_their_rows() -> None:
    loaded = table(range(5, 15), 15, is_whole=False)
    assert lost(balance([sent(10)], log(15), "now", loaded)) == [(NO_WINDOW_MS, 5, "")]
    assert lost(balance([sent(10), sent(5, TWO)], log(15), "now", loaded)) == [(0, 5, "")]
    loaded = table(range(15), 15, is_whole=False)
    assert lost(balance([sent(10), sent(5, TWO)], log(15), "now", loaded)) == []


def test_loss_that_the_rows_show_already_is_reported_once() -> None:
    """Offsets 3 and 4 are in the log, below the end of the load, and not in the table."""
    loaded = table(range(5, 10), 3, {0: account(5, 5)})
    loaded.rows.check(ONE, 3, RecordRange(7, 0))
    found = balance([sent(10)], log(3, (ONE, 3, 7)), "now", loaded)
    assert sorted(lost(found)) == [(0, 2, "shop"), (0, 3, "shop")]
    assert sum(each.records for each in found.findings) == 5


@pytest.mark.parametrize("since_ms", [None, 0])
def test_offsets_in_front_of_log_and_table_had_records(since_ms: int | None) -> None:
    loaded = table(range(30, 40), 20)
    found = balance([], log(20), "now", loaded, since_ms=since_ms)
    assert lost(found) == ([(NO_WINDOW_MS, 20, "")] if since_ms is None else [])
    if since_ms is None:
        assert found.findings[0].offsets == ((0, 20),)


def test_records_of_an_earlier_topic_are_lost_unless_any_table_has_them() -> None:
    before = sent(10, topic_id="before")
    found = balance([before], StoredLog(WIDTH_MS), "now", table(range(0), 0))
    assert lost(found) == [(0, 10, "shop")]
    assert found.findings[0].earlier_topic_id == "before"

    whole = Account()
    whole.of("clicks", 0).add(account(0, 8).counted, account(0, 8).offsets)
    instance = instance_of_load("another table", "a")
    (reported,) = whole.events(LOADED, WIDTH_MS, instance, "host", "default.other", {"clicks": "before"})
    mark = replace(reported, tier=COMMITTED, counted={}, offsets={}, is_last=True)
    assert accounts_of([reported, mark], "another table", [], WIDTH_MS)
    found = balance([before, reported, mark], StoredLog(WIDTH_MS), "now", table(range(0), 0))
    assert lost(found) == [(0, 2, "shop")]
    assert lost(balance([before, reported], StoredLog(WIDTH_MS), "now", table(range(0), 0))) == [(0, 10, "shop")]


def test_records_that_a_producer_told_of_under_the_id_of_the_earlier_topic_are_in_the_new_log() -> None:
    loaded = table(range(0), 0)
    loaded.rows.check(ONE, 0, RecordRange(4, 0))
    reported = [sent(10, topic_id="before"), sent(1, first=3)]
    found = balance(reported, log(0, (ONE, 0, 4)), "now", loaded)
    assert lost(found) == [(0, 7, "shop")]

"""What loads tell: it counts once it is committed, and vouches for rows whose log is gone."""

from __future__ import annotations

import dataclasses

import numpy as np

from barnabas.audit.account import Account, WindowAccount, offsets_of
from barnabas.audit.balance import balance
from barnabas.audit.events import COMMITTED, LOADED, PRODUCED, MonitoringEvent
from barnabas.audit.findings import Kind
from barnabas.audit.identities import Producer
from barnabas.audit.loaded_table import LoadedTable, accounts_of, instance_of_load
from barnabas.audit.stored_log import StoredLog
from barnabas.audit.table_rows import TableRows
from barnabas.audit.windows import tally

WIDTH_MS = 60_000
ONE = Producer(7, 0, 0)


def account(first: int, count: int, window_ms: int = 0) -> Account:
    whole = Account()
    offsets = {0: tally(offsets_of(0), first, count, 0)}
    whole.of("clicks", window_ms).add({ONE: tally(ONE, first, count, 0)}, offsets)
    return whole


def reported(load_id: str, taken: Account, *, is_committed: bool = True) -> list[MonitoringEvent]:
    instance = instance_of_load("table", load_id)
    events = list(taken.events(LOADED, WIDTH_MS, instance, "host", "default.clicks", {"clicks": "t1"}))
    mark = dataclasses.replace(events[-1], tier=COMMITTED, counted={}, offsets={}, is_last=True)
    return [*events, mark] if is_committed else events


def produced(count: int) -> MonitoringEvent:
    return MonitoringEvent("clicks", PRODUCED, 0, WIDTH_MS, "life", 1, "web-1", "shop", {ONE: tally(ONE, 0, count, 0)})


def table(offsets: list[int], accounts: dict[int, WindowAccount], *, is_whole: bool = True) -> LoadedTable:
    rows = TableRows({0: 100}, {0: 100}, WIDTH_MS)
    rows.add(0, np.array(offsets, np.int64), np.zeros(len(offsets), np.int64))
    return LoadedTable(rows, accounts, is_whole)


def expired_log() -> StoredLog:
    stored = StoredLog(WIDTH_MS)
    stored.is_emptied(0)
    return stored


def statuses(events: list[MonitoringEvent], loaded: LoadedTable) -> list[str]:
    return [window.status for window in balance(events, expired_log(), "", loaded).windows]


def test_events_of_loads_survive_their_way_through_a_record() -> None:
    for event in reported("a", account(0, 10)):
        assert MonitoringEvent.from_json(event.to_json()) == event


def test_account_counts_once_its_load_is_committed_or_known_to_be() -> None:
    events = reported("a", account(0, 10)) + reported("b", account(10, 5), is_committed=False)
    assert accounts_of(events, "table", [], WIDTH_MS)[0].counted == {ONE: tally(ONE, 0, 10, 0)}
    assert accounts_of(events, "table", ["b"], WIDTH_MS)[0].counted == {ONE: tally(ONE, 0, 15, 0)}
    assert accounts_of(events, "another", ["b"], WIDTH_MS) == {}


def test_events_that_come_twice_change_nothing_and_narrow_windows_add_up() -> None:
    events = reported("a", Account.together([account(0, 10), account(10, 5, WIDTH_MS)]))
    (whole,) = accounts_of(events + events, "table", [], 2 * WIDTH_MS).values()
    assert whole.offsets == {0: tally(offsets_of(0), 0, 15, 0)}


def test_table_whose_rows_are_those_of_its_loads_is_complete_without_the_log() -> None:
    accounts = accounts_of(reported("a", account(0, 10)), "table", [], WIDTH_MS)
    assert statuses([produced(10)], table(list(range(10)), accounts)) == ["complete"]


def test_rows_that_are_gone_doubled_or_others_are_found_without_the_log() -> None:
    accounts = accounts_of(reported("a", account(0, 10)), "table", [], WIDTH_MS)
    for offsets, status in (
        ([*range(9)], "lost 1"),
        ([*range(10), 3], "doubled 1"),
        ([*range(9), 3], "exchanged 1"),
    ):
        assert statuses([produced(10)], table(offsets, accounts)) == [status]


def test_rows_of_loads_that_told_nothing_are_not_called_doubled() -> None:
    accounts = accounts_of(reported("a", account(0, 10)), "table", [], WIDTH_MS)
    assert statuses([produced(20)], table(list(range(20)), accounts, is_whole=False)) == ["expired"]


def test_what_retention_took_before_it_was_loaded_is_lost() -> None:
    accounts = accounts_of(reported("a", account(0, 10)), "table", [], WIDTH_MS)
    found = balance([produced(12)], expired_log(), "", table(list(range(10)), accounts))
    ((kind, tier, records),) = [(each.kind, each.tier, each.records) for each in found.findings]
    assert (kind, tier, records) == (Kind.LOST, LOADED, 2)
    assert found.findings[0].application == "shop"

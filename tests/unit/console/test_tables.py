"""Reads of tables for pages: few at the same time, each with a deadline."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from barnabas.console import tables as module
from barnabas.console.pages.table import RANGES_SHOWN_MAX, LoadedRange, Paging, loaded_ranges
from barnabas.console.tables import READS_AT_ONCE, TableReads
from barnabas.errors import TimedOutError, UnavailableError
from barnabas.spark.table_snapshots import FilePage, SnapshotPage, TableSnapshot


class Tables:
    """Tables whose reads a test holds up."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.exists = True
        self.asked: list[tuple[Any, ...]] = []

    def has_table(self, _topic: str) -> bool:
        self.may_end.wait(60)
        return self.exists

    def snapshots_of(self, *asked: Any) -> SnapshotPage:
        self.asked.append(asked)
        return SnapshotPage([], 7)

    def files_of(self, *asked: Any) -> FilePage:
        self.asked.append(asked)
        return FilePage([], 9)


def run(test: Callable[[Tables, TableReads], Awaitable[None]]) -> None:
    async def timed() -> None:
        tables = Tables()
        async with asyncio.timeout(60):
            await test(tables, TableReads(tables))  # type: ignore[arg-type]
        tables.may_end.set()

    asyncio.run(timed())


def test_parts_of_tables_are_read_and_missing_tables_are_none() -> None:
    async def test(tables: Tables, reads: TableReads) -> None:
        tables.may_end.set()
        assert await reads.snapshots("t", 50, 10) == SnapshotPage([], 7)
        assert await reads.files("t", 3, 0, 10) == FilePage([], 9)
        assert tables.asked == [("t", 50, 10), ("t", 3, 0, 10)]
        tables.exists = False
        assert await reads.snapshots("t", 0, 10) is None
        assert await reads.files("t", 3, 0, 10) is None

    run(test)


def test_slow_read_ends_its_page_and_counts_until_its_thread_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_S_MAX", 0.01)

    async def test(tables: Tables, reads: TableReads) -> None:
        for _ in range(READS_AT_ONCE):
            with pytest.raises(TimedOutError, match="not read within"):
                await reads.snapshots("t", 0, 10)
        with pytest.raises(UnavailableError, match="still reads tables"):
            await reads.files("t", 1, 0, 10)
        tables.may_end.set()
        monkeypatch.setattr(module, "READ_S_MAX", 60)
        while reads._reads:  # noqa: ASYNC110 - threads end them
            await asyncio.sleep(0.001)
        assert await reads.files("t", 1, 0, 10) == FilePage([], 9)

    run(test)


def snapshot(loaded: dict[str, dict[int, tuple[int, int]]]) -> TableSnapshot:
    return TableSnapshot(1, 0, "append", True, 1, 0, 10, 0, loaded)


def test_loaded_offsets_lead_to_their_records() -> None:
    shown, more = loaded_ranges("a", snapshot({"b": {3: (5, 6)}, "a": {1: (0, 10)}}))
    assert more == 0
    assert shown == [
        LoadedRange("1: 0 to 9", "/records?topic=a&partition=1&from=offset&offset=0"),
        LoadedRange("b-3: 5 to 5", "/records?topic=b&partition=3&from=offset&offset=5"),
    ]


def test_many_loaded_ranges_are_cut() -> None:
    shown, more = loaded_ranges("a", snapshot({"a": dict.fromkeys(range(RANGES_SHOWN_MAX + 5), (0, 1))}))
    assert (len(shown), more) == (RANGES_SHOWN_MAX, 5)


def test_links_to_further_pages_keep_the_query() -> None:
    assert Paging(2, 3, "/table", {"topic": "a&b"}).link(3) == "/table?topic=a%26b&page=3"

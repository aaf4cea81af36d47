"""The tables of topics as pages see them, and reads of tables on threads.

The console does not import table libraries: the command line passes an object with these methods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from barnabas.client.audit.topic_audit import TableSide
from barnabas.console.threads import on_thread
from barnabas.errors import TimedOutError, UnavailableError

READS_AT_ONCE = 4
"""The maximum number of reads of all users. A read whose page has given up counts until it ends."""
READ_S_MAX = 10.0
"""The time after which a page shows an error instead of waiting for a table."""

T = TypeVar("T")


class LoadedTopic(Protocol):
    """The loaded offsets of a topic."""

    @property
    def next_offsets(self) -> Mapping[int, int]: ...


class LoadedTopics(Protocol):
    """The loaded offsets of a table, by topic."""

    @property
    def topics(self) -> Mapping[str, LoadedTopic]: ...


class EventTimes(Protocol):
    """The times up to which a table is complete, according to its loads."""

    @property
    def at_ms(self) -> int: ...

    @property
    def event_time_ms(self) -> int | None: ...


class TableView(Protocol):
    """The status of a table."""

    @property
    def table(self) -> str: ...

    @property
    def ledger(self) -> LoadedTopics: ...

    @property
    def complete(self) -> EventTimes: ...

    @property
    def records(self) -> int: ...

    @property
    def files(self) -> int: ...

    @property
    def small_files(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def snapshots(self) -> int: ...

    @property
    def last_records(self) -> int: ...

    @property
    def last_bad_records(self) -> Mapping[str, int]: ...

    @property
    def audited_until_ms(self) -> int | None: ...


class TableSnapshot(Protocol):
    """A version of a table."""

    @property
    def id(self) -> int: ...

    @property
    def time_ms(self) -> int: ...

    @property
    def operation(self) -> str: ...

    @property
    def is_current(self) -> bool: ...

    @property
    def added_files(self) -> int | None: ...

    @property
    def deleted_files(self) -> int | None: ...

    @property
    def added_records(self) -> int | None: ...

    @property
    def deleted_records(self) -> int | None: ...

    @property
    def loaded(self) -> Mapping[str, Mapping[int, tuple[int, int]]]: ...


class SnapshotPage(Protocol):
    """A part of a table's versions."""

    @property
    def snapshots(self) -> Sequence[TableSnapshot]: ...

    @property
    def total(self) -> int: ...


class TableFile(Protocol):
    """A file of a table."""

    @property
    def path(self) -> str: ...

    @property
    def content(self) -> str: ...

    @property
    def records(self) -> int | None: ...

    @property
    def bytes(self) -> int: ...

    @property
    def partition(self) -> str: ...


class FilePage(Protocol):
    """A part of the files of a table's version."""

    @property
    def files(self) -> Sequence[TableFile]: ...

    @property
    def total(self) -> int: ...


class Tables(Protocol):
    """The tables of topics. Thread-safe."""

    def has_table(self, topic: str) -> bool: ...

    def audit_of(self, topic: str, topic_id: str) -> TableSide: ...

    def status_of(self, topic: str) -> TableView: ...

    def snapshots_of(self, topic: str, start: int, count: int) -> SnapshotPage: ...

    def files_of(self, topic: str, snapshot_id: int, start: int, count: int) -> FilePage: ...


class TableReads:
    """Reads the versions and files of tables for pages, without holding up the event loop. Used on one event loop."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._reads: set[asyncio.Task[object]] = set()

    async def snapshots(self, topic: str, start: int, count: int) -> SnapshotPage | None:
        """Return a part of the versions of a topic's table, the newest first; None if there is no table.

        :raises BarnabasError: the table cannot be read, or not in time.
        """
        tables = self._tables
        return await self._read(lambda: tables.snapshots_of(topic, start, count) if tables.has_table(topic) else None)

    async def files(self, topic: str, snapshot_id: int, start: int, count: int) -> FilePage | None:
        """Return a part of the files of a version of a topic's table; None if there is no table.

        :raises BarnabasError: there is no such version, or the table cannot be read, or not in time.
        """
        tables = self._tables
        return await self._read(
            lambda: tables.files_of(topic, snapshot_id, start, count) if tables.has_table(topic) else None
        )

    async def _read(self, work: Callable[[], T]) -> T:
        if len(self._reads) >= READS_AT_ONCE:
            raise UnavailableError("the console still reads tables for other pages; try again later")
        task: asyncio.Task[T] = asyncio.create_task(on_thread(work, "console-table"))
        self._reads.add(task)
        task.add_done_callback(self._end)
        await asyncio.wait([task], timeout=READ_S_MAX)
        if not task.done():
            raise TimedOutError(f"the table was not read within {READ_S_MAX:g} s")
        return task.result()

    def _end(self, task: asyncio.Task[T]) -> None:
        self._reads.discard(task)
        if not task.cancelled():
            task.exception()  # the page gets it; without this line asyncio logs it if the page has given up

"""Increments the life counters of this broker's log directories, first on the disk, then in the metadata store.

The broker increments the counters at each start, after replicas in older copies of log directories have left the ISRs.
While it is a member of the cluster, it increments them every 10 s, and soon after a leader election or an ISR change.
So the broker can detect a metadata store that is older than its disks. `barnabas.storage.life_counter` explains the
counters.

A broker whose disks may lack records leaves the ISRs. It cannot leave the ISRs of a topic whose nodes are unreadable.
Until all topics are readable, the disks keep the evidence of missing records for the next start. The same applies if
the disks show that the metadata store is older.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from barnabas.broker.disk_work import Run
from barnabas.broker.metadata_store_access import InMetadataThread
from barnabas.clock import Clock
from barnabas.coordination.life_counters import write_life_counters
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.errors import BarnabasError
from barnabas.storage.data_folders import DataFolders

INTERVAL_S = 10.0
"""The interval between increments, in seconds. The broker detects each copy that is older than this interval."""

PAUSE_S = 0.2
"""The minimum time between two increments in seconds, even if this broker writes many partition states."""

log = logging.getLogger(__name__)


class LifeCounters:
    """Increments the life counters. Used from the event loop's thread only.

    :param run: runs a function that may block on the disk.
    :param is_member: returns whether this broker is registered and has read the metadata store.
    :param has_unread: returns whether the metadata store contains topics that this broker cannot read.
    """

    def __init__(
        self,
        broker_id: int,
        logs: DataFolders,
        tree: MetadataStore,
        in_metadata_thread: InMetadataThread,
        run: Run,
        clock: Clock,
        is_member: Callable[[], bool],
        has_unread: Callable[[], bool],
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._tree = tree
        self._in_metadata_thread = in_metadata_thread
        self._run = run
        self._clock = clock
        self._is_member = is_member
        self._has_unread = has_unread
        self._is_due = asyncio.Event()
        self._is_noted = False
        self._refused = False

    async def begin(self) -> None:
        """Mark the disks as complete and increment the counters, unless the broker may lack records of unreadable
        topics.

        :raises DataFolderError: a write to a disk fails.
        """
        if self._logs.may_lack_records and self._has_unread():
            log.warning(
                "the broker may lack records, and cannot leave the in-sync replicas of topics whose nodes are "
                "unreadable; each start reports possibly missing records until these nodes are repaired"
            )
            return
        await self._note()
        await self.raise_all()

    async def _note(self) -> None:
        await self._run(self._logs.note_boot)
        self._is_noted = True

    async def raise_all(self) -> None:
        """Increment the counters once, if this broker is a member of the cluster."""
        if not self._is_member() or (self._logs.is_ahead_of_tree and self._has_unread()):
            return
        if not self._is_noted:
            if self._has_unread():
                return
            await self._note()
        raised = await self._run(self._logs.increment_life_counters, self._clock.time_ms())
        try:
            overtaken = await self._in_metadata_thread(write_life_counters, self._tree, self._broker_id, raised)
        except BarnabasError as error:
            if not self._refused:
                log.warning("cannot increment life counters in the metadata store: %s; retrying every 10 s", error)
            self._refused = True
            return
        self._refused = False
        for directory_id in overtaken:
            self._logs.stop_life_counter(directory_id)
        await self._run(self._logs.confirm_life_counters, raised.keys() - set(overtaken))

    def raise_soon(self) -> None:
        """Schedule an increment, because the metadata store has changed.

        Later starts must detect a store from before this change.
        """
        self._is_due.set()

    async def run(self) -> None:
        """Increment the counters every 10 s, and soon after each call of `raise_soon`, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_S):
                    await self._is_due.wait()
                    await asyncio.sleep(PAUSE_S)
            self._is_due.clear()
            try:
                await self.raise_all()
            except Exception:
                log.exception("cannot increment life counters; retrying every 10 s")

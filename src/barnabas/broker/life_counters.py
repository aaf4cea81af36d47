"""Raises the life counters of this broker's log directories: on the disk first, in the metadata tree afterwards.

At each start, when the replicas of an older copy have left the in-sync replicas; every 10 s while this broker is a
member of the cluster; and soon after this broker began to lead or changed in-sync replicas, so that a tree from before
that is recognised. `barnabas.storage.life_counter` explains the counters.

If this broker may lack records and the tree has topics that it cannot read, it has not left their in-sync replicas yet.
Until it has, the disks keep what shows that they lack records: a start before that has to find it again. The same holds
if the disks show that the tree is older.
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
"""An older copy is recognised if it is older than this."""

PAUSE_S = 0.2
"""Counters are not raised more often, however many states this broker writes."""

log = logging.getLogger(__name__)


class LifeCounters:
    """Used from the event loop's thread only.

    :param run: runs what may wait for the disk.
    :param is_member: returns whether this broker is registered and has heard of the metadata tree.
    :param has_unread: returns whether the tree has topics that this broker cannot read.
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
        """Let the disks count as complete, if this broker has left the in-sync replicas wherever it may lack records.

        :raises DataFolderError: a disk refuses.
        """
        if self._logs.may_lack_records and self._has_unread():
            log.warning(
                "this broker may lack records, and cannot leave the in-sync replicas of topics that it cannot read;"
                " each start finds that records may be missing until the nodes of these topics are mended"
            )
            return
        await self._note()
        await self.raise_all()

    async def _note(self) -> None:
        await self._run(self._logs.note_boot)
        self._is_noted = True

    async def raise_all(self) -> None:
        """Raise the counters once, if this broker is a member of the cluster."""
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
                log.warning("cannot raise life counters in the metadata tree: %s; retrying every 10 s", error)
            self._refused = True
            return
        self._refused = False
        for directory_id in overtaken:
            self._logs.stop_life_counter(directory_id)
        await self._run(self._logs.confirm_life_counters, raised.keys() - set(overtaken))

    def raise_soon(self) -> None:
        """Raise the counters soon: the metadata tree has changed, and an older one is to be recognised."""
        self._is_due.set()

    async def run(self) -> None:
        """Raise the counters every 10 s, and when `raise_soon` was called, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_S):
                    await self._is_due.wait()
                    await asyncio.sleep(PAUSE_S)
            self._is_due.clear()
            try:
                await self.raise_all()
            except Exception:
                log.exception("cannot raise life counters; retrying every 10 s")

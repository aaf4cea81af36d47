"""Committed offsets, kept in the tree: commits that come together are written together.

One write is under way at a time; the commits that arrive meanwhile form the next one. A commit returns when it
is in the tree, so a group never reads back an offset that is older than its last successful commit.

Offsets of a group that is dead are forgotten after a while (KIP-211): when the group has had no members, and the
offset was not committed, for the retention time. A broker that starts does not know how long a group has been
without members, and counts from its start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from barnabas.broker.topics import InTreeThread
from barnabas.clock import Clock
from barnabas.coordination.offsets import (
    commit_all,
    delete_group,
    delete_offsets,
    groups_with_offsets,
    read_committed_offsets,
    read_offsets,
)
from barnabas.coordination.tree import Tree
from barnabas.coordination.values import CommittedOffset
from barnabas.errors import CoordinationError
from barnabas.model import OffsetAndMetadata, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]

log = logging.getLogger(__name__)


class OffsetStore:
    """The offsets of every group. Used from the event loop's thread only."""

    def __init__(self, tree: Tree, clock: Clock, in_tree_thread: InTreeThread) -> None:
        self._tree = tree
        self._clock = clock
        self._in_tree_thread = in_tree_thread
        self._gathered: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self._waiting: list[asyncio.Future[set[str]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def commit(self, group_id: str, offsets: Offsets) -> set[TopicPartition]:
        """Keep these offsets; return those that are not kept, because their topic was deleted meanwhile.

        :raises CoordinationError: they could not be stored.
        """
        self._gathered.setdefault(group_id, {}).update(offsets)
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[set[str]] = loop.create_future()
        self._waiting.append(stored)
        if self._writer is None:
            self._writer = loop.create_task(self._write())
        gone = await stored
        return {where for where in offsets if where.topic in gone}

    async def committed(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return all offsets of a group."""
        found: dict[TopicPartition, OffsetAndMetadata] = await self._in_tree_thread(read_offsets, self._tree, group_id)
        return found

    async def group_ids(self) -> list[str]:
        """Return the ids of all groups that have committed offsets."""
        found: list[str] = await self._in_tree_thread(groups_with_offsets, self._tree)
        return found

    async def delete(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget a group's offsets in some partitions.

        :raises CoordinationError: they could not be deleted.
        """
        await self._in_tree_thread(delete_offsets, self._tree, group_id, list(partitions))

    async def delete_group(self, group_id: str) -> bool:
        """Forget all offsets of a group; return whether there were any.

        :raises CoordinationError: they could not be deleted.
        """
        had_offsets: bool = await self._in_tree_thread(delete_group, self._tree, group_id)
        return had_offsets

    async def expire(self, retention_ms: int, empty_for_ms: Callable[[str], int]) -> int:
        """Forget the offsets of dead groups; return how many.

        :param empty_for_ms: returns for how long a group has had no members.
        :raises CoordinationError: some could not be deleted.
        """
        forgotten = 0
        for group_id in await self.group_ids():
            if empty_for_ms(group_id) < retention_ms:
                continue
            found: dict[TopicPartition, CommittedOffset]
            found = await self._in_tree_thread(read_committed_offsets, self._tree, group_id)
            oldest_ms = self._clock.time_ms() - retention_ms
            old = [where for where, committed in found.items() if committed.committed_ms <= oldest_ms]
            # Members may have joined while the offsets were read; the offsets that they continue from must stay.
            if empty_for_ms(group_id) < retention_ms:
                continue
            if len(old) == len(found):
                await self.delete_group(group_id)
            else:
                await self.delete(group_id, old)
            forgotten += len(old)
        return forgotten

    async def _write(self) -> None:
        try:
            while self._gathered:
                await self._write_gathered()
        finally:
            self._writer = None

    async def _write_gathered(self) -> None:
        gathered, self._gathered = self._gathered, {}
        waiting, self._waiting = self._waiting, []
        failure: Exception | None = None
        gone: set[str] = set()
        try:
            gone = await self._in_tree_thread(commit_all, self._tree, gathered, self._clock.time_ms())
        except CoordinationError as error:
            failure = error
        except Exception as error:
            log.exception("offsets could not be stored")
            failure = CoordinationError(f"offsets could not be stored: {error!r}")
        for stored in waiting:
            if stored.done():
                continue
            if failure:
                stored.set_exception(failure)
            else:
                stored.set_result(gone)

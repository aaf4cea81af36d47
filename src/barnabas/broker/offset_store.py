"""The store of committed offsets. Offsets are deleted with their topics and groups, or when they expire (KIP-211).

An offset belongs to a topic id, so a recreated topic does not inherit the offsets of the deleted topic. The store
deletes offsets with tombstones. It appends only some tombstones at a time, so that other requests can run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence

from barnabas.broker.group_service import GroupService, GroupShard
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.clock import Clock
from barnabas.errors import ApiError
from barnabas.groups.offsets import CommittedOffsets, expired, of_deleted
from barnabas.groups.records import Change, Committed, OffsetRecord
from barnabas.groups.results import GroupState
from barnabas.groups.subscriptions import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from barnabas.model import OffsetAndMetadata, TopicPartition

FORGOTTEN_AT_ONCE = 256
"""The maximum number of offsets that one append deletes."""

Chooser = Callable[[GroupShard, str, Mapping[TopicPartition, Committed]], list[TopicPartition]]
"""Selects the offsets to delete from the given offsets of a group."""


class OffsetStore:
    """The committed offsets of all groups that this broker coordinates. Used from the event loop's thread only."""

    def __init__(self, groups: GroupService, clock: Clock, scheduler: CooperativeScheduler) -> None:
        self._groups = groups
        self._clock = clock
        self._scheduler = scheduler

    # -- commits -------------------------------------------------------------------------------------------

    def commit(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> asyncio.Future[set[TopicPartition]]:
        """Store offsets of existing partitions.

        :returns: a future that completes when the offsets are stored. Its result is the set of partitions whose offsets
            were not stored, because their topics were deleted. On failure, it raises an ApiError for the client.
        :raises ApiError: this broker does not coordinate the group.
        """
        shard = self._groups.find(group_id)
        stored: asyncio.Future[set[TopicPartition]] = asyncio.get_running_loop().create_future()
        shard.perform(shard.machine.commit(self._clock.stored_ms(), stored, group_id, offsets))
        return stored

    # -- reading -------------------------------------------------------------------------------------------

    def committed(self, group_id: str) -> CommittedOffsets:
        """Return a view of a group's committed offsets, which later commits change.

        :raises ApiError: this broker does not coordinate the group.
        """
        error = self._groups.error_of(group_id)
        if error:
            raise ApiError(error, f"group {group_id!r} is not served by this broker now")
        metadata = self._groups.metadata
        if not self._groups.coordinates(group_id):
            return CommittedOffsets(metadata, {})
        return CommittedOffsets(metadata, self._groups.find(group_id).machine.offsets.of(group_id))

    def has_offsets(self, group_id: str) -> bool:
        """Return whether this broker has committed offsets for a group."""
        return self._groups.coordinates(group_id) and group_id in self._groups.find(group_id).machine.offsets

    def group_ids(self) -> list[str]:
        """Return the ids of all groups that have committed offsets.

        :raises ApiError: some groups are still loading.
        """
        return [group_id for shard in self._groups.loaded_shards() for group_id in shard.machine.offsets]

    # -- deletion ------------------------------------------------------------------------------------------

    async def delete(self, group_id: str, partitions: Collection[TopicPartition]) -> None:
        """Delete the offsets of a group for some partitions.

        :raises ApiError: the deletion failed.
        """
        if not partitions or not self._groups.coordinates(group_id):
            return
        shard = self._groups.find(group_id)
        found = shard.machine.offsets.of(group_id)
        await self._forget(shard, group_id, {where: found[where] for where in partitions if where in found})

    async def delete_group(self, group_id: str, group_end: Awaitable[None] | None = None) -> bool:
        """Delete all offsets of a group. Return whether the group had offsets.

        :param group_end: completes when the tombstone of the group is stored, which must happen before the deletion of
            its offsets. None if the group does not exist.
        :raises ApiError: the deletion failed.
        """
        if not self._groups.coordinates(group_id):
            return False
        shard = self._groups.find(group_id)
        found = dict(shard.machine.offsets.of(group_id))
        if group_end is not None:
            await group_end
        await self._forget(shard, group_id, found)
        return bool(found)

    async def delete_topics(self, topic_ids: Collection[bytes], names: Collection[str]) -> None:
        """Delete the offsets of all groups for deleted topics.

        :param names: the names of the deleted topics, for offsets without a topic id.
        :raises ApiError: some offsets could not be deleted.
        """
        shards = self._groups.loaded_shards()
        await self._forget_in_all(shards, lambda _shard, _group_id, offsets: of_deleted(offsets, topic_ids, names))

    async def expire(self, retention_ms: int) -> int:
        """Delete expired offsets, and groups that have neither members nor offsets, in all loaded shards.

        :returns: the number of deleted offsets.
        :raises ApiError: some offsets could not be deleted.
        """
        now_ms = self._clock.expiry_ms()
        if now_ms is None:
            return 0

        def old(shard: GroupShard, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> list[TopicPartition]:
            empty_for_ms = self._empty_for_ms(shard, group_id)
            return expired(offsets, now_ms, retention_ms, empty_for_ms, _read_by(shard, group_id))

        shards = self._groups.served_shards()
        forgotten = await self._forget_in_all(shards, old)
        for shard in shards:
            for group_id in shard.machine.group_ids():
                if group_id not in shard.machine.offsets:
                    self._groups.forget_if_unused(shard, group_id)
                await self._scheduler.pause()
        return forgotten

    def _empty_for_ms(self, shard: GroupShard, group_id: str) -> int | None:
        """Return the time in ms since the last member left a group, or None if the group has members.

        For a group that never had members, return a time that expires each offset by its own age.
        """
        group = shard.machine.describe(group_id)
        if group is None:
            return self._clock.time_ms()
        if group.members or group.state is not GroupState.EMPTY:
            return None
        return int(1000 * (shard.machine.empty_for_s(self._clock.monotonic(), group_id) or 0.0))

    async def _forget_in_all(self, shards: Iterable[GroupShard], which: Chooser) -> int:
        """Delete the offsets that `which` selects in all groups. Return the number of deleted offsets."""
        return sum([await self._forget_in(shard, which) for shard in shards])

    async def _forget_in(self, shard: GroupShard, which: Chooser) -> int:
        forgotten = 0
        chosen: list[OffsetRecord] = []
        for group_id in list(shard.machine.offsets):
            for piece in _pieces(list(shard.machine.offsets.of(group_id))):
                offsets = shard.machine.offsets.of(group_id)
                found = {where: offsets[where] for where in piece if where in offsets}
                chosen += [OffsetRecord(group_id, where, None) for where in which(shard, group_id, found)]
                # Append the tombstones before other requests run, so that later commits follow the tombstones in the
                # log.
                if len(chosen) >= FORGOTTEN_AT_ONCE or self._scheduler.is_over():
                    forgotten += await self._write_settled(shard, chosen)
                    chosen = []
                await self._scheduler.pause()
        return forgotten + await self._write_settled(shard, chosen)

    async def _write_settled(self, shard: GroupShard, chosen: Sequence[OffsetRecord]) -> int:
        """Delete offsets, except offsets that a pending commit replaces. Return the number of deleted offsets."""
        if shard.is_closed:
            raise ApiError(shard.error, f"{shard.replica.topic_partition} has another coordinator")
        if not chosen:
            return 0
        machine = shard.machine
        settled = [change for change in chosen if not machine.is_unsettled(change.group_id, change.where)]
        # If a write covers several groups, an error names only the first group.
        await self._write(shard, chosen[0].group_id, settled)
        return len(settled)

    async def _forget(self, shard: GroupShard, group_id: str, chosen: Mapping[TopicPartition, Committed]) -> None:
        """Delete the given offsets in several appends. Skip an offset if it was committed again before its append."""
        for piece in _pieces(list(chosen)):
            offsets = shard.machine.offsets.of(group_id)
            same = [OffsetRecord(group_id, where, None) for where in piece if offsets.get(where) is chosen[where]]
            await self._write_settled(shard, same)
            await self._scheduler.pause()

    async def _write(self, shard: GroupShard, group_id: str, tombstones: Sequence[Change]) -> None:
        """Append tombstones, and wait until they are stored.

        :raises ApiError: the append failed.
        """
        stored: asyncio.Future[set[TopicPartition]] = asyncio.get_running_loop().create_future()
        shard.perform(shard.machine.forget(stored, group_id, tombstones))
        await stored


def _read_by(shard: GroupShard, group_id: str) -> frozenset[str] | None:
    """Return the topics to which the members of a consumer group subscribe, or None if unknown."""
    group = shard.machine.describe(group_id)
    if group is None or group.state is not GroupState.STABLE or group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    topics = subscribed_topics(shard.machine.subscriptions(group_id))
    return None if topics is None else frozenset(topics)


def _pieces(partitions: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    return (partitions[first : first + FORGOTTEN_AT_ONCE] for first in range(0, len(partitions), FORGOTTEN_AT_ONCE))

"""Committed offsets: stored with their group in `__consumer_offsets`, told, and forgotten.

An offset belongs to a topic's id. Of a topic that was deleted and made anew, nobody is told an offset of the old one,
also before that is forgotten. Offsets of deleted topics, of deleted groups, and those that are old (KIP-211) are
forgotten by records without a value.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from barnabas.broker.group_log import coordinator_error
from barnabas.broker.group_shard import GroupShard
from barnabas.broker.group_shell import GroupShell
from barnabas.broker.topics import Topics
from barnabas.broker.turns import Turns
from barnabas.clock import Clock
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.groups.offsets import expired, of_deleted
from barnabas.groups.records import Change, GroupRecord, OffsetRecord
from barnabas.groups.results import GroupState
from barnabas.groups.stored import Committed
from barnabas.groups.subscriptions import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from barnabas.model import OffsetAndMetadata, TopicPartition
from barnabas.protocol.types import ZERO_UUID

log = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]

FORGOTTEN_AT_ONCE = 256
"""So many offsets are forgotten with one write, where many are."""

Chooser = Callable[[GroupShard, str, Mapping[TopicPartition, Committed]], list[TopicPartition]]
"""Returns which of a group's offsets are to be forgotten."""


class OffsetStore:
    """The offsets of every group that this broker coordinates. Used from the event loop's thread only."""

    def __init__(self, groups: GroupShell, topics: Topics, clock: Clock, turns: Turns) -> None:
        self._groups = groups
        self._topics = topics
        self._clock = clock
        self._turns = turns

    # -- what clients ask ----------------------------------------------------------------------------------

    def commit(self, group_id: str, offsets: Offsets) -> asyncio.Future[set[TopicPartition]]:
        """Store these offsets, of partitions that exist.

        :returns: ends when they are stored, with those that are not, because their topic was deleted meanwhile; or
            with a ApiError that says what the client is to be told.
        :raises ApiError: the group is not here, or too much waits for the disk.
        """
        shard = self._groups.find(group_id)
        now_ms = self._clock.time_ms()
        changes = []
        for where, (offset, metadata, leader_epoch) in offsets.items():
            topic = self._topics.get(where.topic)
            assert topic
            shared = topic.where(where.partition)
            committed = Committed(offset, metadata, leader_epoch, now_ms, topic.id)
            changes.append(OffsetRecord(group_id, shared, committed))
        stored: asyncio.Future[set[TopicPartition]] = asyncio.get_running_loop().create_future()

        def done(error: BarnabasError | None) -> None:
            if stored.done():
                return
            if error is None:
                stored.set_result(self._forget_gone(shard, changes))
            else:
                code = coordinator_error(error, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
                stored.set_exception(ApiError(code, f"offsets of group {group_id!r} are not stored: {error}"))

        shard.log.write(changes, done)
        return stored

    def committed(self, group_id: str) -> CommittedOffsets:
        """Return the offsets of a group, as they are and will be.

        :raises ApiError: the group is not here.
        """
        error = self._groups.error_of(group_id)
        if error:
            raise ApiError(error, f"group {group_id!r} cannot be had from this broker now")
        if not self._groups.coordinates(group_id):
            return CommittedOffsets(self._topics, {})
        return CommittedOffsets(self._topics, self._groups.find(group_id).offsets.of(group_id))

    def has_offsets(self, group_id: str) -> bool:
        """Whether the group has offsets, as far as is known here."""
        return self._groups.coordinates(group_id) and group_id in self._groups.find(group_id).offsets

    def group_ids(self) -> list[str]:
        """Return the ids of all groups that have committed offsets.

        :raises ApiError: some are not loaded yet.
        """
        return [group_id for shard in self._groups.loaded_shards() for group_id in shard.offsets]

    # -- what is forgotten ---------------------------------------------------------------------------------

    async def delete(self, group_id: str, partitions: Collection[TopicPartition]) -> None:
        """Forget a group's offsets in some partitions.

        :raises ApiError: they could not be.
        """
        if not partitions or not self._groups.coordinates(group_id):
            return
        shard = self._groups.find(group_id)
        found = shard.offsets.of(group_id)
        await self._forget(shard, group_id, {where: found[where] for where in partitions if where in found})

    async def delete_group(self, group_id: str, *, is_known: bool = False) -> bool:
        """Forget all offsets of a group; return whether there were any.

        :param is_known: that members of it were known until now. That they are not any more is stored, too, when this
            returns.
        :raises ApiError: they could not be.
        """
        if not self._groups.coordinates(group_id):
            return False
        shard = self._groups.find(group_id)
        found = dict(shard.offsets.of(group_id))
        if is_known:
            await self._write(shard, [GroupRecord(group_id, None)])
        await self._forget(shard, group_id, found)
        return bool(found)

    async def delete_topics(self, topic_ids: Collection[bytes], names: Collection[str]) -> None:
        """Forget every group's offsets in topics that were deleted.

        :param names: their names, for offsets that tell no id.
        :raises ApiError: some could not be.
        """
        shards = self._groups.loaded_shards()
        await self._forget_in_all(shards, lambda _shard, _group_id, offsets: of_deleted(offsets, topic_ids, names))

    async def expire(self, retention_ms: int) -> int:
        """Forget what is old, and groups that have neither members nor offsets, in all partitions that are loaded;
        return how many offsets.

        :raises ApiError: some could not be forgotten.
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
            for group_id in shard.coordinator.group_ids():
                if group_id not in shard.offsets:
                    self._groups.forget_if_unused(shard, group_id)
                await self._turns.pause()
        return forgotten

    def _empty_for_ms(self, shard: GroupShard, group_id: str) -> int | None:
        """Return for how long a group has had no members, None if it has some. One that never had any is as old as
        its offsets."""
        group = shard.coordinator.describe(group_id)
        if group is None:
            return self._clock.time_ms()
        if group.members or group.state is not GroupState.EMPTY:
            return None
        return int(1000 * (shard.coordinator.empty_for_s(self._clock.monotonic(), group_id) or 0.0))

    async def _forget_in_all(self, shards: Iterable[GroupShard], which: Chooser) -> int:
        """Forget, in slices, offsets of all groups; return how many."""
        return sum([await self._forget_in(shard, which) for shard in shards])

    async def _forget_in(self, shard: GroupShard, which: Chooser) -> int:
        forgotten = 0
        chosen: list[OffsetRecord] = []
        for group_id in list(shard.offsets):
            for piece in _pieces(list(shard.offsets.of(group_id))):
                offsets = shard.offsets.of(group_id)
                found = {where: offsets[where] for where in piece if where in offsets}
                chosen += [OffsetRecord(group_id, where, None) for where in which(shard, group_id, found)]
                # What was chosen is on its way to the log before others have their turn: what they commit comes behind.
                if len(chosen) >= FORGOTTEN_AT_ONCE or self._turns.is_over():
                    forgotten += await self._write_settled(shard, chosen)
                    chosen = []
                await self._turns.pause()
        return forgotten + await self._write_settled(shard, chosen)

    async def _write_settled(self, shard: GroupShard, chosen: Sequence[OffsetRecord]) -> int:
        """Forget offsets, but those that a commit on its way to the log is about to replace; return how many."""
        if not chosen:
            return 0
        unsettled = shard.log.unsettled_offsets()
        settled = [change for change in chosen if (change.group_id, change.where) not in unsettled]
        await self._write(shard, settled)
        return len(settled)

    async def _forget(self, shard: GroupShard, group_id: str, chosen: Mapping[TopicPartition, Committed]) -> None:
        """Forget offsets in pieces, unless they are committed anew before their piece has its turn."""
        for piece in _pieces(list(chosen)):
            offsets = shard.offsets.of(group_id)
            same = [OffsetRecord(group_id, where, None) for where in piece if offsets.get(where) is chosen[where]]
            await self._write_settled(shard, same)
            await self._turns.pause()

    def _forget_gone(self, shard: GroupShard, changes: Iterable[OffsetRecord]) -> set[TopicPartition]:
        """Forget offsets that were stored for a topic which was deleted meanwhile; return where."""
        gone = [
            change for change in changes if change.committed and self._topics.by_id(change.committed.topic_id) is None
        ]
        # Where one for a new topic of that name was stored, or is about to be, it has replaced the one for the old.
        last = [each for each in gone if shard.offsets.of(each.group_id).get(each.where) is each.committed]
        if last and (unsettled := shard.log.unsettled_offsets()):
            last = [each for each in last if (each.group_id, each.where) not in unsettled]
        if last:
            try:
                shard.log.write([change._replace(committed=None) for change in last], _warn)
            except ApiError as error:
                _warn(error)
        return {change.where for change in gone}

    async def _write(self, shard: GroupShard, changes: Sequence[Change]) -> None:
        """:raises ApiError: what the client is to be told."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: BarnabasError | None) -> None:
            if stored.done():
                return
            if error is None:
                stored.set_result(None)
            else:
                stored.set_exception(ApiError(coordinator_error(error), f"not stored: {error}"))

        shard.log.write(changes, done)
        await stored


class CommittedOffsets:
    """The offsets of one group that its members are told: those in topics that exist, with the id that they had."""

    def __init__(self, topics: Topics, offsets: Mapping[TopicPartition, Committed]) -> None:
        self._topics = topics
        self._offsets = offsets

    def __iter__(self) -> Iterator[TopicPartition]:
        return (where for where, committed in self._offsets.items() if self._is_valid(where, committed))

    def get(self, where: TopicPartition) -> OffsetAndMetadata | None:
        """Return the offset in a partition."""
        committed = self._offsets.get(where)
        if committed is None or not self._is_valid(where, committed):
            return None
        return OffsetAndMetadata(committed.offset, committed.metadata, committed.leader_epoch)

    def _is_valid(self, where: TopicPartition, committed: Committed) -> bool:
        if committed.topic_id == ZERO_UUID:
            return True
        topic = self._topics.get(where.topic)
        return topic is not None and topic.id == committed.topic_id


def _read_by(shard: GroupShard, group_id: str) -> frozenset[str] | None:
    """Return the topics that the members of a group of consumers read; None where that is not known."""
    group = shard.coordinator.describe(group_id)
    if group is None or group.state is not GroupState.STABLE or group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    topics = subscribed_topics(shard.coordinator.subscriptions(group_id))
    return None if topics is None else frozenset(topics)


def _pieces(partitions: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    return (partitions[first : first + FORGOTTEN_AT_ONCE] for first in range(0, len(partitions), FORGOTTEN_AT_ONCE))


def _warn(error: BarnabasError | None) -> None:
    if error is not None:
        log.warning("offsets of a deleted topic stay in the log: %s", error)

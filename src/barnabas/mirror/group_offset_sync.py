"""Copies committed offsets of groups between the two clusters in both directions; `group_offset_rules.py` contains the
rules."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from barnabas.client.admin.groups import list_groups
from barnabas.client.committed_offsets import commit_offsets, committed_offsets
from barnabas.errors import ApiError, BarnabasError, DisconnectedError, ErrorCode
from barnabas.mirror.events import EventReporter
from barnabas.mirror.group_offset_rules import Conflict, Metadata, OffsetMove, decide, metadata_to_sync
from barnabas.mirror.ledger import GroupMark
from barnabas.mirror.ledger_topic import LedgerTopic
from barnabas.mirror.mirrored_cluster import MirroredCluster
from barnabas.mirror.name_filter import NameFilter
from barnabas.mirror.partition_link import PartitionLink
from barnabas.model import OffsetAndMetadata, TopicPartition

HAS_MEMBERS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})
"""The error codes of a commit for a group with active members. Only members may commit for such a group."""
FAILURES_MAX = 3
"""A round ends after this number of groups with retriable failures, because the cluster itself is probably
unavailable."""


class GroupOffsetSync:
    """Synchronizes the committed offsets of all selected groups, in rounds.

    :param links: the mirrored partitions by source partition.
    """

    def __init__(
        self,
        source: MirroredCluster,
        target: MirroredCluster,
        ledger: LedgerTopic,
        choice: NameFilter,
        links: Mapping[TopicPartition, PartitionLink],
        events: EventReporter,
    ) -> None:
        self._source, self._target = source, target
        self._ledger = ledger
        self._choice = choice
        self._links = links
        self._events = events
        self._turn = asyncio.Lock()
        self._metadata: dict[tuple[str, TopicPartition], Metadata] = {}
        """The metadata of the committed offsets in the last round, by group and source partition."""
        self.commits = 0
        """The number of offsets committed in either cluster."""

    async def round(self) -> None:
        """Synchronize all selected groups once.

        :raises BarnabasError: a cluster or a group coordinator does not respond.
        """
        async with self._turn:
            names = {
                each.group
                for side in (self._source, self._target)
                for each in await list_groups(side.cluster)
                if self._choice.matches(each.group)
            }
            failures: list[BarnabasError] = []
            for group in sorted(names):
                try:
                    await self._follow(group)
                except DisconnectedError:
                    raise
                except BarnabasError as error:  # the failure of one group does not stop the others
                    self._events.problem(f"group {group}", "not followed", str(error))
                    failures += [error] if error.retriable else []
                if len(failures) == FAILURES_MAX:
                    break
            if failures:
                raise failures[0]

    async def _follow(self, group: str) -> None:
        theirs = await committed_offsets(self._source.cluster, group, None)
        ours = await committed_offsets(self._target.cluster, group, None)
        moves: list[tuple[PartitionLink, OffsetMove, str]] = []
        agreed: dict[str, Mapping[str, Any]] = {}
        conflicts: list[str] = []
        for link in self._links.values():
            if link.copy.offsets is None or link.diverged is not None:
                continue
            source, target = theirs.get(link.source), ours.get(link.target)
            mark = self._mark(group, link)
            found = decide(source and source.offset, target and target.offset, mark, link.copy.offsets)
            if source is not None and target is not None and not isinstance(found, OffsetMove | Conflict):
                found = self._move_of_metadata(group, link, source, target, found or mark) or found
            if isinstance(found, OffsetMove):
                follows = target if found.commit_target is None else source
                moves.append((link, found, "" if follows is None else follows.metadata))
            elif isinstance(found, Conflict):
                conflicts.append(str(link.source))
            elif found is not None and found != mark:
                agreed[GroupMark.key(group, *link.target)] = found.value()
        await self._ledger.write(agreed)
        has_members = await self._commit(group, moves, to_source=False)
        has_members |= await self._commit(group, moves, to_source=True)
        if conflicts:
            both = f"the group committed in both clusters ({', '.join(conflicts)}); the mirror changes neither offset"
            self._events.problem(f"group {group}", "not followed", both)
        elif not has_members:
            self._events.recovered(f"group {group}")

    def _mark(self, group: str, link: PartitionLink) -> GroupMark | None:
        return self._ledger.find(GroupMark, GroupMark.key(group, *link.target))

    def _move_of_metadata(
        self,
        group: str,
        link: PartitionLink,
        source: OffsetAndMetadata,
        target: OffsetAndMetadata,
        mark: GroupMark | None,
    ) -> OffsetMove | None:
        """Return the move that copies changed metadata to the other cluster; None if no copy is needed."""
        now = source.metadata, target.metadata
        seen = self._metadata.get((group, link.source))
        self._metadata[group, link.source] = now
        metadata = metadata_to_sync(now, seen)
        if metadata is None or mark is None:
            return None
        if metadata == source.metadata:
            return OffsetMove(mark, None, target.offset, mark)
        return OffsetMove(mark, source.offset, None, mark)

    async def _commit(self, group: str, moves: list[tuple[PartitionLink, OffsetMove, str]], *, to_source: bool) -> bool:
        """Commit the moved offsets in one cluster; return whether active members of the group prevented the commit."""
        side = self._source if to_source else self._target
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        before, after = dict[str, Mapping[str, Any]](), dict[str, Mapping[str, Any]]()
        for link, move, metadata in moves:
            offset = move.commit_source if to_source else move.commit_target
            if offset is None:
                continue
            offsets[link.source if to_source else link.target] = OffsetAndMetadata(offset, metadata)
            key = GroupMark.key(group, *link.target)
            if move.mark != self._mark(group, link):
                before[key] = move.mark.value()
            after[key] = move.settled.value()
        if not offsets:
            return False
        await self._ledger.write(before)
        try:
            await self._commit_to(side, group, offsets)
        except ApiError as error:
            if error.code not in HAS_MEMBERS:
                raise
            works = f"the group has members in the {side.name} and has also committed in the other cluster"
            self._events.problem(f"group {group}", "not followed", works)
            return True
        await self._ledger.write(after)
        self.commits += len(offsets)
        return False

    async def _commit_to(
        self, side: MirroredCluster, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        try:
            await commit_offsets(side.cluster, group, offsets)
        except ApiError as error:
            if error.code is not ErrorCode.OFFSET_METADATA_TOO_LARGE:
                raise
            reason = (
                f"the {side.name} rejects the metadata as too long (offset.metadata.max.bytes); offsets are committed"
                " without metadata"
            )
            self._events.skipped(f"metadata of group {group}", reason)
            await commit_offsets(
                side.cluster, group, {tp: OffsetAndMetadata(each.offset) for tp, each in offsets.items()}
            )

"""Replicas that this broker held until they moved to other brokers (`barnabas.coordination.reassignments`).

With the end of a move the tree names who is to delete its replica. One that was away does it when it comes back. Of a
replica that is not named the folder stays as it is.

Used from the event loop's thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from barnabas.broker.disk_work import DiskWork
from barnabas.broker.replica_logs import Hosting
from barnabas.broker.tree_thread import InTreeThread
from barnabas.coordination import reassignments
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.coordination.reassignments import Removal
from barnabas.coordination.topic_metadata_store import PartitionInfo, TopicInfo
from barnabas.errors import BarnabasError
from barnabas.model import TopicPartition

log = logging.getLogger(__name__)


class Removals:
    """What this broker has yet to delete, or has just deleted."""

    def __init__(self, broker_id: int, tree: MetadataStore, in_tree_thread: InTreeThread, hosting: Hosting) -> None:
        self._broker_id = broker_id
        self._tree = tree
        self._in_tree_thread = in_tree_thread
        self._hosting = hosting
        self._pending: dict[Removal, None] = {}
        """Replicas that are held here no longer and may not be deleted yet."""
        self._may_be_named = False

    async def make_room(self, topics: Mapping[str, TopicInfo], untouched: Collection[str]) -> None:
        """Set aside what moved to other brokers while this one was away. What it holds again is kept, and so is a log
        that the tree is older than.

        :param topics: as the tree has them.
        :param untouched: topics of which nothing is known.
        :raises CoordinationError: the tree cannot be reached.
        """
        by_id = {info.topic_id: info for info in topics.values()}
        for topic_id, where in await self._in_tree_thread(reassignments.read_removals, self._tree, self._broker_id):
            if where.topic in untouched:
                continue
            topic = by_id.get(topic_id)
            if topic is not None and where.partition >= len(topic.partitions):
                log.error("a note says to delete %s, which the tree does not have; nothing is deleted", where)
                continue
            info = None if topic is None else topic.partitions[where.partition]
            is_held = info is not None and self._broker_id in info.replicas
            if not is_held and self._hosting.belongs_to(where, topic_id):
                if info is not None and self._is_older(info, where):
                    await self._end(where, topic_id)
                    continue
                if refused := self._hosting.delete([where]):
                    log.warning("%s", refused)
                    continue
                log.info("%s moved to other brokers while this one was away; its folder is deleted", where)
            if is_held or not self._hosting.may_have_more(where.topic):
                await self._end(where, topic_id)

    def _is_older(self, info: PartitionInfo, where: TopicPartition) -> bool:
        """Whether the tree is older than the log here, as `barnabas.replication.unclean_recovery.doubt` finds it out: what
        was to go by such a tree may have come back since, and be all that there is."""
        known = self._hosting.known_epoch(where)
        if known <= info.state.leader_epoch:
            return False
        told = (
            "the tree is older than the log here: epoch %d, not %d; %s was to be deleted, and its folder stays as it is"
        )
        log.error(told, info.state.leader_epoch, known, where)
        return True

    async def carry_out(self, where: TopicPartition, topic_id: bytes, work: DiskWork) -> None:
        """Delete a replica that is held here no longer, if it is named; its role has ended. Where the tree cannot be
        reached it is done later."""
        self._pending[Removal(topic_id, where)] = None
        await self._carry_out(where, topic_id, work)

    def look(self) -> None:
        """Look soon whether this broker is named: replicas are others now, and it may never have heard that it was to
        hold one that is to go again."""
        self._may_be_named = True

    async def go_on(self, is_held: Callable[[TopicPartition, bytes], bool], work: DiskWork) -> None:
        """Do what could not be done before. Nobody may take over topics meanwhile.

        :param is_held: whether this broker holds a replica again.
        :raises CoordinationError: the tree cannot be reached.
        """
        if self._may_be_named:
            named = await self._in_tree_thread(reassignments.read_removals, self._tree, self._broker_id)
            self._pending.update(dict.fromkeys(named))
            self._may_be_named = False
        for topic_id, where in list(self._pending):
            if is_held(where, topic_id):
                del self._pending[Removal(topic_id, where)]
            else:
                await self._carry_out(where, topic_id, work)

    async def _carry_out(self, where: TopicPartition, topic_id: bytes, work: DiskWork) -> None:
        try:
            is_gone = not self._hosting.belongs_to(where, topic_id) or await self._is_deleted(where, topic_id, work)
            if is_gone and not self._hosting.may_have_more(where.topic):
                await self._end(where, topic_id)
        except BarnabasError as error:
            log.warning("%s is held by other brokers now; it is deleted here later: %s", where, error)
            return
        del self._pending[Removal(topic_id, where)]

    async def _is_deleted(self, where: TopicPartition, topic_id: bytes, work: DiskWork) -> bool:
        arguments = self._tree, topic_id, where.partition, self._broker_id
        if not await self._in_tree_thread(reassignments.is_removal_noted, *arguments):
            log.error("%s is held by other brokers, and nobody moved it there; its folder stays as it is", where)
            return False
        if refused := await work.for_all(self._hosting.delete, [where]):
            log.warning("%s; the next start tries again", refused)
            return False
        log.info("%s is held by other brokers now; its folder here is deleted", where)
        return True

    async def _end(self, where: TopicPartition, topic_id: bytes) -> None:
        await self._in_tree_thread(reassignments.end_removal, self._tree, topic_id, where.partition, self._broker_id)

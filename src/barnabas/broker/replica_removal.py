"""Deletion of the replicas of this broker that were moved to other brokers (`barnabas.coordination.reassignments`).

At the end of a reassignment, the metadata tree names the brokers that have to delete their replica. A broker that was
away deletes its replica when it comes back. The folder of a replica that is not named stays.

Used from the event loop's thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from barnabas.broker.disk_work import DiskWork
from barnabas.broker.metadata_store_access import InMetadataThread
from barnabas.broker.replica_logs import ReplicaLogs
from barnabas.coordination import reassignments
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.coordination.reassignments import Removal
from barnabas.coordination.topic_metadata_store import PartitionInfo, TopicInfo
from barnabas.errors import BarnabasError
from barnabas.log_lines import LogEvent, event
from barnabas.model import TopicPartition

log = logging.getLogger(__name__)


class ReplicaRemoval:
    """The replicas that this broker still has to delete, or has just deleted."""

    def __init__(
        self, broker_id: int, tree: MetadataStore, in_metadata_thread: InMetadataThread, replica_logs: ReplicaLogs
    ) -> None:
        self._broker_id = broker_id
        self._tree = tree
        self._in_metadata_thread = in_metadata_thread
        self._replica_logs = replica_logs
        self._pending: dict[Removal, None] = {}
        """Replicas that have left this broker and may not be deleted yet."""
        self._may_be_named = False

    async def make_room(self, topics: Mapping[str, TopicInfo], untouched: Collection[str]) -> None:
        """Set aside what moved to other brokers while this one was away. What it holds again is kept, and so is a log
        that the tree is older than.

        :param topics: as the tree has them.
        :param untouched: topics of which nothing is known.
        :raises CoordinationError: the tree cannot be reached.
        """
        by_id = {info.topic_id: info for info in topics.values()}
        for topic_id, where in await self._in_metadata_thread(reassignments.read_removals, self._tree, self._broker_id):
            if where.topic in untouched:
                continue
            topic = by_id.get(topic_id)
            if topic is not None and where.partition >= len(topic.partitions):
                message = "a note says to delete %s, which the tree does not have; nothing is deleted"
                log.error(message, where, extra=event(LogEvent.REMOVAL_REFUSED))
                continue
            info = None if topic is None else topic.partitions[where.partition]
            is_held = info is not None and self._broker_id in info.replicas
            if not is_held and self._replica_logs.belongs_to(where, topic_id):
                if info is not None and self._is_older(info, where):
                    await self._end(where, topic_id)
                    continue
                if refused := self._replica_logs.delete([where]):
                    log.warning("%s", refused)
                    continue
                log.info("%s moved to other brokers while this one was away; its folder is deleted", where)
            if is_held or not self._replica_logs.may_have_more(where.topic):
                await self._end(where, topic_id)

    def _is_older(self, info: PartitionInfo, where: TopicPartition) -> bool:
        """Return whether the tree is older than the log here (see `barnabas.replication.unclean_recovery.doubt`).

        A replica that such a tree names for deletion may be the only one now.
        """
        known = self._replica_logs.known_epoch(where)
        if known <= info.state.leader_epoch:
            return False
        told = (
            "the tree is older than the log here: epoch %d, not %d; %s was to be deleted, and its folder stays as it is"
        )
        log.error(told, info.state.leader_epoch, known, where, extra=event(LogEvent.TREE_OLDER))
        return True

    async def carry_out(self, where: TopicPartition, topic_id: bytes, work: DiskWork) -> None:
        """Delete a replica whose role has ended, if the tree names it; later, if the tree cannot be reached."""
        self._pending[Removal(topic_id, where)] = None
        await self._carry_out(where, topic_id, work)

    def check_soon(self) -> None:
        """Check soon whether the tree names replicas of this broker, some of which it may never have had."""
        self._may_be_named = True

    async def resume(self, is_held: Callable[[TopicPartition, bytes], bool], work: DiskWork) -> None:
        """Delete the replicas whose deletion failed before. No update may be applied meanwhile.

        :param is_held: returns whether this broker holds a replica again.
        :raises CoordinationError: the metadata store cannot be reached.
        """
        if self._may_be_named:
            named = await self._in_metadata_thread(reassignments.read_removals, self._tree, self._broker_id)
            self._pending.update(dict.fromkeys(named))
            self._may_be_named = False
        for topic_id, where in list(self._pending):
            if is_held(where, topic_id):
                del self._pending[Removal(topic_id, where)]
            else:
                await self._carry_out(where, topic_id, work)

    async def _carry_out(self, where: TopicPartition, topic_id: bytes, work: DiskWork) -> None:
        try:
            is_gone = not self._replica_logs.belongs_to(where, topic_id) or await self._is_deleted(
                where, topic_id, work
            )
            if is_gone and not self._replica_logs.may_have_more(where.topic):
                await self._end(where, topic_id)
        except BarnabasError as error:
            log.warning("%s is held by other brokers now; it is deleted here later: %s", where, error)
            return
        del self._pending[Removal(topic_id, where)]

    async def _is_deleted(self, where: TopicPartition, topic_id: bytes, work: DiskWork) -> bool:
        arguments = self._tree, topic_id, where.partition, self._broker_id
        if not await self._in_metadata_thread(reassignments.is_removal_noted, *arguments):
            message = "%s is held by other brokers, and nobody moved it there; its folder stays as it is"
            log.error(message, where, extra=event(LogEvent.REMOVAL_REFUSED))
            return False
        if refused := await work.for_all(self._replica_logs.delete, [where]):
            log.warning("%s; the next start tries again", refused)
            return False
        log.info("%s is held by other brokers now; its folder here is deleted", where)
        return True

    async def _end(self, where: TopicPartition, topic_id: bytes) -> None:
        await self._in_metadata_thread(
            reassignments.end_removal, self._tree, topic_id, where.partition, self._broker_id
        )

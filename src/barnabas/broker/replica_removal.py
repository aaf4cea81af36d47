"""Deletes replicas that a reassignment has moved away from this broker (`barnabas.coordination.reassignments`).

At the end of a reassignment, the leader writes removal nodes for the brokers that must delete their replica. A broker
that was down deletes its replica after its restart. Without a removal node, the partition directory is kept.

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
    """The replicas that this broker must delete, because they have moved to other brokers."""

    def __init__(
        self, broker_id: int, tree: MetadataStore, in_metadata_thread: InMetadataThread, replica_logs: ReplicaLogs
    ) -> None:
        self._broker_id = broker_id
        self._tree = tree
        self._in_metadata_thread = in_metadata_thread
        self._replica_logs = replica_logs
        self._pending: dict[Removal, None] = {}
        """The removed replicas that may still have a partition directory on this broker."""
        self._may_be_named = False

    async def make_room(self, topics: Mapping[str, TopicInfo], untouched: Collection[str]) -> None:
        """Rename the partition directories of replicas that moved to other brokers while this broker was down.

        A directory is kept if this broker has been assigned the replica again, or if its log is newer than the metadata
        store.

        :param topics: the topics in the metadata store, by name.
        :param untouched: the names of topics whose metadata is unreadable.
        :raises CoordinationError: the metadata store is unreachable.
        """
        by_id = {info.topic_id: info for info in topics.values()}
        for topic_id, where in await self._in_metadata_thread(reassignments.read_removals, self._tree, self._broker_id):
            if where.topic in untouched:
                continue
            topic = by_id.get(topic_id)
            if topic is not None and where.partition >= len(topic.partitions):
                message = "cannot delete the removed replica %s: its topic has no such partition; its directory stays"
                log.error(message, where, extra=event(LogEvent.REMOVAL_REFUSED))
                continue
            info = None if topic is None else topic.partitions[where.partition]
            is_held = info is not None and self._broker_id in info.replicas
            if not is_held and self._replica_logs.belongs_to(where, topic_id):
                if info is not None and self._is_older(info, where):
                    await self._end(where, topic_id)
                    continue
                if refused := self._replica_logs.delete([where]):
                    log.warning(
                        "cannot delete the partition directory of the removed replica %s: %s; retrying at the next "
                        "start",
                        where,
                        refused,
                    )
                    continue
                log.info("%s moved to other brokers while this broker was down; deleted its partition directory", where)
            if is_held or not self._replica_logs.may_have_more(where.topic):
                await self._end(where, topic_id)

    def _is_older(self, info: PartitionInfo, where: TopicPartition) -> bool:
        """Return whether the metadata store is older than the log (see `barnabas.replication.unclean_recovery.doubt`).

        If the metadata store is older, a replica that it marks for deletion may be the only remaining replica.
        """
        known = self._replica_logs.known_epoch(where)
        if known <= info.state.leader_epoch:
            return False
        message = (
            "the metadata store is older than the log: it has leader epoch %d, and the log has %d;"
            " the partition directory of the removed replica %s stays"
        )
        log.error(message, info.state.leader_epoch, known, where, extra=event(LogEvent.TREE_OLDER))
        return True

    async def execute(self, where: TopicPartition, topic_id: bytes, work: DiskWork) -> None:
        """Delete a replica whose role has ended, if it has a removal node.

        If the metadata store is unreachable, retry later.
        """
        self._pending[Removal(topic_id, where)] = None
        await self._execute(where, topic_id, work)

    def check_soon(self) -> None:
        """Schedule a check for all removal nodes of this broker in the metadata store."""
        self._may_be_named = True

    async def resume(self, is_held: Callable[[TopicPartition, bytes], bool], work: DiskWork) -> None:
        """Retry the failed deletions. The caller must not apply metadata updates during this call.

        :param is_held: returns whether this broker has been assigned a replica again.
        :raises CoordinationError: the metadata store is unreachable.
        """
        if self._may_be_named:
            named = await self._in_metadata_thread(reassignments.read_removals, self._tree, self._broker_id)
            self._pending.update(dict.fromkeys(named))
            self._may_be_named = False
        for topic_id, where in list(self._pending):
            if is_held(where, topic_id):
                del self._pending[Removal(topic_id, where)]
            else:
                await self._execute(where, topic_id, work)

    async def _execute(self, where: TopicPartition, topic_id: bytes, work: DiskWork) -> None:
        try:
            is_gone = not self._replica_logs.belongs_to(where, topic_id) or await self._is_deleted(
                where, topic_id, work
            )
            if is_gone and not self._replica_logs.may_have_more(where.topic):
                await self._end(where, topic_id)
        except BarnabasError as error:
            log.warning("cannot delete the removed replica %s: %s; retrying later", where, error)
            return
        del self._pending[Removal(topic_id, where)]

    async def _is_deleted(self, where: TopicPartition, topic_id: bytes, work: DiskWork) -> bool:
        arguments = self._tree, topic_id, where.partition, self._broker_id
        if not await self._in_metadata_thread(reassignments.is_removal_noted, *arguments):
            message = "%s has no replica here, and no reassignment removed it; its partition directory stays"
            log.error(message, where, extra=event(LogEvent.REMOVAL_REFUSED))
            return False
        if refused := await work.for_all(self._replica_logs.delete, [where]):
            log.warning("cannot delete the partition directory of %s: %s; retrying at the next start", where, refused)
            return False
        log.info("deleted the partition directory of %s, which moved to other brokers", where)
        return True

    async def _end(self, where: TopicPartition, topic_id: bytes) -> None:
        await self._in_metadata_thread(
            reassignments.end_removal, self._tree, topic_id, where.partition, self._broker_id
        )

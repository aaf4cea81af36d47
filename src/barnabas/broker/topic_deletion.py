"""Deletion of topics: of the folders on this broker, and of the offsets in the groups that it coordinates.

The metadata tree notes each deletion before the topic goes, with the brokers that have to do their part. A broker that
was away does its part when it comes back. A topic without a note is not deleted.

Used from the event loop's thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from barnabas.broker.broker_events import Events, TopicsDeleted
from barnabas.broker.metadata_store_access import InMetadataThread
from barnabas.broker.replica_logs import ReplicaLogs
from barnabas.coordination import topic_deletions, topic_metadata_store
from barnabas.coordination.metadata_store import BadVersionError, MetadataStore, NodeError, NoNodeError
from barnabas.coordination.values import Deletion
from barnabas.errors import BarnabasError
from barnabas.log_lines import about
from barnabas.model import TopicPartition

log = logging.getLogger(__name__)

ATTEMPTS = 10
"""Each broker that starts between the note of a deletion and the deletion costs one."""


class TopicDeletion:
    """The deletions of which this broker still has to do its part."""

    def __init__(
        self,
        broker_id: int,
        tree: MetadataStore,
        in_metadata_thread: InMetadataThread,
        replica_logs: ReplicaLogs,
        events: Events,
    ) -> None:
        self._broker_id = broker_id
        self._tree = tree
        self._in_metadata_thread = in_metadata_thread
        self._replica_logs = replica_logs
        self._events = events
        self._names: dict[bytes, str] = {}
        """The deletions, by the id of the topic."""
        self._with_folders: set[bytes] = set()
        """The topics with folders that are left."""
        self._in_doubt: set[bytes] = set()
        """The topics that this broker had to delete and may not have deleted: their notes may be obsolete."""
        self._told = ""
        """The last logged error of the deletion of offsets."""

    async def delete(self, topic_id: bytes, name: str, brokers: Collection[int]) -> bool:
        """Note the deletion of a topic with the brokers that hold it, and delete the topic from the tree.

        :returns: False if the topic was gone; there may be another topic with its name.
        :raises CoordinationError: the metadata store refused.
        """
        try:
            return await self._delete(topic_id, name, sorted(brokers))
        except BarnabasError:
            self._in_doubt.add(topic_id)
            raise

    async def _delete(self, topic_id: bytes, name: str, brokers: Sequence[int]) -> bool:
        for attempt in range(1, ATTEMPTS + 1):
            noted = await self._in_metadata_thread(topic_deletions.note_deletion, self._tree, topic_id, name, brokers)
            if noted is None:
                return False
            try:
                await self._in_metadata_thread(topic_metadata_store.delete_topic, self._tree, name, noted)
            except (BadVersionError, NoNodeError):
                if attempt == ATTEMPTS:
                    raise
            else:
                return True
        raise AssertionError("the last attempt returns or raises")

    async def is_noted(self, topic_id: bytes) -> bool:
        """Whether a topic that has left the tree was deleted.

        :raises CoordinationError: the tree cannot be read.
        """
        return topic_id in await self._in_metadata_thread(topic_deletions.read_deletions, self._tree)

    def begin(self, topic_id: bytes, name: str, *, has_folders: bool) -> None:
        """Note that a topic was deleted by a broker; `end_all` does the rest.

        :param has_folders: whether folders are left that could not be renamed.
        """
        self._names[topic_id] = name
        if has_folders:
            self.keep_folders(topic_id)

    def keep_folders(self, topic_id: bytes) -> None:
        """Note that folders of a topic are left: the next start tries again."""
        self._with_folders.add(topic_id)

    async def make_room(self, topic_ids: Collection[bytes], untouched: Collection[str]) -> None:
        """Set aside the folders of topics that were deleted while this broker was away: others may have their names.

        Where one does not say whose it is, it is in doubt.

        :param topic_ids: of the topics that there are.
        :param untouched: topics of which nothing is known.
        """
        noted: Mapping[bytes, Deletion] = await self._in_metadata_thread(topic_deletions.read_deletions, self._tree)
        own = self._own(noted, topic_ids)
        self._with_folders = self._replica_logs.set_deleted_aside(own.keys(), untouched)
        for topic_id, deletion in own.items():
            if self._replica_logs.may_have_more(deletion.name):
                self.keep_folders(topic_id)
        self._replica_logs.doubt(deletion.name for deletion in own.values())

    def _own(self, noted: Mapping[bytes, Deletion], topic_ids: Collection[bytes]) -> dict[bytes, Deletion]:
        """Return the deletions that took place and that need this broker."""
        return {
            topic_id: deletion
            for topic_id, deletion in noted.items()
            if topic_id not in topic_ids and (not deletion.brokers or self._broker_id in deletion.brokers)
        }

    async def load(
        self, topic_ids: Collection[bytes], known: Collection[TopicPartition], untouched: Collection[str]
    ) -> None:
        """Set aside the folders that the last run could not, or that were to go while this broker was away.

        :param topic_ids: of the topics that there are.
        :param known: the replicas that there should be here.
        :param untouched: topics of which nothing is known.
        """
        noted: Mapping[bytes, Deletion] = await self._in_metadata_thread(topic_deletions.read_deletions, self._tree)
        own = self._own(noted, topic_ids)
        self._with_folders |= self._replica_logs.set_strays_aside(known, untouched, own.keys(), topic_ids)
        self._names = {topic_id: deletion.name for topic_id, deletion in own.items()}
        for topic_id in sorted(noted.keys() & set(topic_ids)):
            # The deletion was noted, and has not begun.
            await self._in_metadata_thread(topic_deletions.forget_deletion_not_begun, self._tree, topic_id)

    async def find_missed(self, topic_ids: Collection[bytes]) -> None:
        """Take up deletions of topics that this broker never heard of: made and deleted by others while it could not
        read the tree. Nobody may take over topics meanwhile.

        :param topic_ids: of the topics that are known here; of their deletion it is heard.
        :raises CoordinationError: the tree cannot be read.
        """
        noted: Mapping[bytes, Deletion] = await self._in_metadata_thread(topic_deletions.read_deletions, self._tree)
        for topic_id, deletion in noted.items():
            if self._broker_id not in deletion.brokers or topic_id in topic_ids:
                continue
            try:
                topic = await self._in_metadata_thread(topic_metadata_store.read_topic, self._tree, deletion.name)
            except NodeError:  # it may be that topic
                continue
            if topic is None or topic.topic_id != topic_id:
                self._names[topic_id] = deletion.name

    async def end_all(self, live_names: Collection[str]) -> None:
        """End what could not be ended before: the groups had to be loaded first, another broker has begun it, or a
        deletion was noted and then refused.

        :param live_names: of the topics that there are now.
        """
        names, self._names = self._names, {}
        if names:
            await self.end(names, live_names)
        for topic_id in sorted(self._in_doubt):
            await self._forget_not_begun(topic_id)

    async def _forget_not_begun(self, topic_id: bytes) -> None:
        try:
            await self._in_metadata_thread(topic_deletions.forget_deletion_not_begun, self._tree, topic_id)
        except BarnabasError as error:
            log.warning("whether topic %s was deleted is looked at later: %s", topic_id.hex(), error)
        else:
            self._in_doubt.discard(topic_id)

    async def end(self, names: Mapping[bytes, str], live_names: Collection[str]) -> None:
        """Delete the offsets of topics that have left the tree: the last part of a deletion.

        :param names: the names of the topics, by id.
        """
        try:
            gone = {name for name in names.values() if name not in {"", *live_names}}
            await self._events.deliver(TopicsDeleted(names.keys(), gone))
        except BarnabasError as error:
            # Nobody is told them, since they are of topics with other ids.
            if str(error) != self._told:
                log.warning("offsets of deleted topics are left for now: %s", error)
            self._told = str(error)
            self._names.update(names)
            return
        self._told = ""
        for topic_id, name in names.items():
            if topic_id not in self._with_folders and not self._replica_logs.may_have_more(name):
                await self._end(topic_id, name)

    async def _end(self, topic_id: bytes, name: str) -> None:
        try:
            await self._in_metadata_thread(topic_deletions.end_deletion, self._tree, topic_id, self._broker_id)
        except BarnabasError as error:
            log.warning("that nothing is left of topic %s is noted later: %s", name, error, extra=about(name))
            self._names[topic_id] = name

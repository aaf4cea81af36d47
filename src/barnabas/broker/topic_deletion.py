"""Topic deletion: removes the partition directories on this broker, and the offsets in its consumer groups.

Before the topic's nodes are deleted, a deletion note in the metadata store lists the brokers that must delete files. A
broker that was down deletes its files after its restart. Without a deletion note, no files are deleted.

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
"""The maximum number of attempts to delete a topic.

An attempt fails if a broker starts between the deletion note and the deletion.
"""


class TopicDeletion:
    """The topic deletions that this broker has not completed yet."""

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
        """The names of the deleted topics whose offsets may still exist, by topic id."""
        self._with_folders: set[bytes] = set()
        """The ids of deleted topics that still have partition directories on this broker."""
        self._in_doubt: set[bytes] = set()
        """The ids of topics that this broker may have failed to delete, so that their deletion notes may be obsolete.
        """
        self._last_error = ""
        """The last logged error of an attempt to delete committed offsets."""

    async def delete(self, topic_id: bytes, name: str, brokers: Collection[int]) -> bool:
        """Write a deletion note to the metadata store, and delete the topic's nodes.

        :param brokers: the brokers with replicas of the topic.
        :returns: False if the topic no longer exists. A new topic may have its name.
        :raises CoordinationError: the metadata store rejects a write.
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
        raise AssertionError("unreachable: the last attempt returns or raises an error")

    async def is_noted(self, topic_id: bytes) -> bool:
        """Return whether the metadata store has a deletion note for a topic whose nodes are gone.

        :raises CoordinationError: the metadata store cannot be read.
        """
        return topic_id in await self._in_metadata_thread(topic_deletions.read_deletions, self._tree)

    def begin(self, topic_id: bytes, name: str, *, has_folders: bool) -> None:
        """Add a topic that any broker has deleted. `end_all` completes the deletion on this broker.

        :param has_folders: True if a partition directory could not be renamed.
        """
        self._names[topic_id] = name
        if has_folders:
            self.keep_folders(topic_id)

    def keep_folders(self, topic_id: bytes) -> None:
        """Keep a deletion pending, because partition directories remain.

        The next start tries to delete these directories again.
        """
        self._with_folders.add(topic_id)

    async def make_room(self, topic_ids: Collection[bytes], untouched: Collection[str]) -> None:
        """Rename the partition directories of topics that were deleted while this broker was down.

        New topics with the same names may need these names. If a partition directory has no topic id, its records are
        treated as doubtful.

        :param topic_ids: the ids of all existing topics.
        :param untouched: the names of topics whose metadata is unreadable.
        """
        noted: Mapping[bytes, Deletion] = await self._in_metadata_thread(topic_deletions.read_deletions, self._tree)
        own = self._own(noted, topic_ids)
        self._with_folders = self._replica_logs.set_deleted_aside(own.keys(), untouched)
        for topic_id, deletion in own.items():
            if self._replica_logs.may_have_more(deletion.name):
                self.keep_folders(topic_id)
        self._replica_logs.doubt(deletion.name for deletion in own.values())

    def _own(self, noted: Mapping[bytes, Deletion], topic_ids: Collection[bytes]) -> dict[bytes, Deletion]:
        """Return the deletions for which this broker must delete files and whose topics no longer exist."""
        return {
            topic_id: deletion
            for topic_id, deletion in noted.items()
            if topic_id not in topic_ids and (not deletion.brokers or self._broker_id in deletion.brokers)
        }

    async def load(
        self, topic_ids: Collection[bytes], known: Collection[TopicPartition], untouched: Collection[str]
    ) -> None:
        """Rename the remaining partition directories of deleted topics, and load the pending deletions.

        :param topic_ids: the ids of all existing topics.
        :param known: the replicas that this broker should have.
        :param untouched: the names of topics whose metadata is unreadable.
        """
        noted: Mapping[bytes, Deletion] = await self._in_metadata_thread(topic_deletions.read_deletions, self._tree)
        own = self._own(noted, topic_ids)
        self._with_folders |= self._replica_logs.set_strays_aside(known, untouched, own.keys(), topic_ids)
        self._names = {topic_id: deletion.name for topic_id, deletion in own.items()}
        for topic_id in sorted(noted.keys() & set(topic_ids)):
            # There is a deletion note, but the topic still exists.
            await self._in_metadata_thread(topic_deletions.forget_deletion_not_begun, self._tree, topic_id)

    async def find_missed(self, topic_ids: Collection[bytes]) -> None:
        """Find the deletions of topics that were created and deleted while this broker could not read the metadata
        store.

        The caller must not apply topics during this call.

        :param topic_ids: the ids of the topics in this broker's metadata image. Their deletions are detected in another
            way.
        :raises CoordinationError: the metadata store cannot be read.
        """
        noted: Mapping[bytes, Deletion] = await self._in_metadata_thread(topic_deletions.read_deletions, self._tree)
        for topic_id, deletion in noted.items():
            if self._broker_id not in deletion.brokers or topic_id in topic_ids:
                continue
            try:
                topic = await self._in_metadata_thread(topic_metadata_store.read_topic, self._tree, deletion.name)
            except NodeError:  # The node is unreadable and may belong to this topic, so check again later.
                continue
            if topic is None or topic.topic_id != topic_id:
                self._names[topic_id] = deletion.name

    async def end_all(self, live_names: Collection[str]) -> None:
        """Complete the pending deletions.

        A deletion is pending if another broker has begun it, or if the consumer groups were not loaded. It is also
        pending if the metadata store rejected the deletion after the deletion note.

        :param live_names: the names of all existing topics.
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
            log.warning("cannot check the deletion note of topic %s: %s; checking again later", topic_id.hex(), error)
        else:
            self._in_doubt.discard(topic_id)

    async def end(self, names: Mapping[bytes, str], live_names: Collection[str]) -> None:
        """Delete the committed offsets of deleted topics. This is the last step of a deletion.

        :param names: the names of the topics, by topic id.
        """
        try:
            gone = {name for name in names.values() if name not in {"", *live_names}}
            await self._events.deliver(TopicsDeleted(names.keys(), gone))
        except BarnabasError as error:
            # A retry is sufficient: no client can read these offsets, because their topic ids no longer exist.
            if str(error) != self._last_error:
                log.warning("cannot delete the committed offsets of deleted topics: %s; retrying later", error)
            self._last_error = str(error)
            self._names.update(names)
            return
        self._last_error = ""
        for topic_id, name in names.items():
            if topic_id not in self._with_folders and not self._replica_logs.may_have_more(name):
                await self._end(topic_id, name)

    async def _end(self, topic_id: bytes, name: str) -> None:
        try:
            await self._in_metadata_thread(topic_deletions.end_deletion, self._tree, topic_id, self._broker_id)
        except BarnabasError as error:
            log.warning(
                "cannot record in the metadata store that topic %s is fully deleted: %s; retrying",
                name,
                error,
                extra=about(name),
            )
            self._names[topic_id] = name

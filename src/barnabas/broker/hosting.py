"""The logs of the replicas that this broker holds: opened, made and set aside, beside the event loop.

The tree is the truth about which topics exist; a folder whose topic is not in the tree is left alone and named in the
log, unless the tree says that the topic was deleted, and that this broker has yet to remove what it has of it.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterable

from barnabas.broker.disk_work import Run
from barnabas.errors import BarnabasError, ErrorCode, KafkaError, StorageError
from barnabas.model import TopicPartition
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_manager import LogManager

log = logging.getLogger(__name__)


class Hosting:
    """Used from the event loop's thread only, except where it says so.

    :param run: runs what may wait for the disk.
    """

    def __init__(self, logs: LogManager, run: Run) -> None:
        self._logs = logs
        self._run = run

    def restore(self, where: TopicPartition, config: LogConfig, topic_id: bytes) -> Log:
        """Return the log of a replica that there should be; see `LogManager.restore`."""
        opened = self._logs.restore(where, config, uuid.UUID(bytes=topic_id))
        self._flush_what_was_recovered(opened, config)
        return opened

    async def make(self, where: TopicPartition, config: LogConfig, topic_id: bytes) -> Log:
        """Return the log of a new replica.

        :raises KafkaError: INVALID_TOPIC_EXCEPTION: a folder of another topic is in its way.
        :raises StorageError: the disk refused.
        """
        made: Log = await self._run(self._make, where, config, topic_id)
        return made

    async def make_or_put_offline(self, where: TopicPartition, config: LogConfig, topic_id: bytes) -> Log:
        """Do the same for a topic that others have made: where it cannot be done, that replica alone is offline."""
        try:
            return await self.make(where, config, topic_id)
        except BarnabasError as error:
            return self._logs.put_offline(where, f"cannot be made: {error}; mend this, and start again")

    def _make(self, where: TopicPartition, config: LogConfig, topic_id: bytes) -> Log:
        identity = uuid.UUID(bytes=topic_id)
        if self._logs.topic_ids.get(where) != identity:
            self.check_free(where)
        opened = self._logs.create(where, config, identity)
        self._flush_what_was_recovered(opened, config)
        return opened

    def check_free(self, where: TopicPartition) -> None:
        """Check that no folder of another topic has the name that a replica's folder is to have.

        :raises KafkaError: INVALID_TOPIC_EXCEPTION. The folder is not touched: somebody may still need the records
            of a topic that the tree does not know.
        """
        stray = self._logs.get(where)
        if stray is not None:
            message = (
                f"the folder {stray.folder} is there, of a topic that is not known; move it away, or start with the"
                " tree that knows it"
            )
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)

    def is_there(self, where: TopicPartition) -> bool:
        """Whether there is a log of this name."""
        return self._logs.get(where) is not None

    def was_missing(self, where: TopicPartition) -> bool:
        """Whether `restore` found no log of a replica, and began an empty one."""
        return where in self._logs.missing

    def delete(self, partitions: Iterable[TopicPartition]) -> StorageError | None:
        """Set aside all that can be; return why the first of the others cannot. May be called from any thread."""
        refused = None
        for where in partitions:
            try:
                self._logs.delete(where)
            except StorageError as error:
                refused = refused or error
        return refused

    def remove_deleted_records(self) -> None:
        """Store durably where the logs begin, and free what is before. To be called on a thread.

        :raises StorageError: the disk refused.
        """
        self._logs.remove_deleted_records()

    def set_strays_aside(
        self, known: Collection[TopicPartition], untouched: Collection[str], deleted: Collection[bytes]
    ) -> set[bytes]:
        """Finish the deletions that the last run could not; leave all other folders alone.

        :param known: the replicas that there should be.
        :param untouched: topics of which nothing is known.
        :param deleted: the ids of topics whose folders are to go.
        :returns: the ids of topics of which folders are left.
        """
        left: dict[bytes, list[TopicPartition]] = {topic_id: [] for topic_id in deleted}
        for stray in self._logs.all().keys() - known:
            identity = self._logs.topic_ids.get(stray)
            if identity is not None and identity.bytes in left:
                left[identity.bytes].append(stray)
            elif stray.topic not in untouched:
                log.warning("the folder of %s belongs to no topic; it is left as it is", stray)
        return {topic_id for topic_id, partitions in left.items() if self._is_refused(partitions)}

    def _is_refused(self, partitions: Iterable[TopicPartition]) -> bool:
        refused = self.delete(partitions)
        if refused:
            log.warning("%s", refused)
        return refused is not None

    def _flush_what_was_recovered(self, recovered: Log, config: LogConfig) -> None:
        """Flush before anybody can read, if the topic asks for it: what a killed broker left in the page cache was not
        exposed by it."""
        if config.has_flush_policy and not recovered.is_offline:
            try:
                recovered.flush()
            except StorageError as error:
                log.warning("%s", error)

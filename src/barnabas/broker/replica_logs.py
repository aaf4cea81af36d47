"""The logs of this broker's replicas.

Logs are opened, created, deleted and checked on other threads than the event loop's.

The metadata store decides which topics exist. If the topic of a partition directory does not exist, the broker logs a
warning and keeps the directory. It deletes a directory only if a deletion note in the metadata store permits this.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from barnabas.broker.disk_work import Run
from barnabas.broker.internal_topics import INTERNAL_TOPICS, config_in_force, replication_factor_of
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import KEEP_RECORDS, usable_settings
from barnabas.coordination import topic_metadata_store
from barnabas.coordination.metadata_store import MetadataStore, NodeError
from barnabas.errors import ApiError, BarnabasError, ErrorCode, StorageError
from barnabas.model import NO_LEADER_EPOCH, TopicPartition
from barnabas.storage.data_folders import AnyLogs
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig


def log_configs(tree: MetadataStore, config: BrokerConfig) -> dict[str, LogConfig]:
    """Return the log settings of all topics that override settings, by topic name.

    Topics with damaged nodes are omitted. `Topics.load` logs these topics.
    """
    configs = {}
    for name, info in topic_metadata_store.each_topic(tree):
        if isinstance(info, NodeError):
            continue
        settings = KEEP_RECORDS if info.has_unreadable_config else usable_settings(config, info.config)[0]
        if settings or name in INTERNAL_TOPICS:
            configs[name] = config_in_force(config, name, settings, replication_factor_of(info.partitions)).log
    return configs


CreateLog = Callable[[TopicPartition, LogConfig, bytes], Awaitable[Log]]
"""The type of `ReplicaLogs.create`."""

CREATED_AT_ONCE = 8
"""The number of logs that are created in parallel, because each creation waits for the disk several times."""

log = logging.getLogger(__name__)


async def create_logs(
    make: CreateLog, places: Sequence[TopicPartition], config: LogConfig, topic_id: bytes
) -> list[Log]:
    """Create the logs of replicas of one topic in parallel. Return the logs in the order of `places`.

    :raises BarnabasError: the first error of `make`. No other creation is in progress then, but some logs may have been
        created.
    """
    made: list[Log] = []
    for start in range(0, len(places), CREATED_AT_ONCE):
        some = places[start : start + CREATED_AT_ONCE]
        outcomes = await asyncio.gather(*(make(each, config, topic_id) for each in some), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            made.append(outcome)
    return made


class ReplicaLogs:
    """The logs of this broker's replicas. Used from the event loop's thread only, unless a method says otherwise.

    :param run: runs a function that may block on the disk, on another thread.
    """

    def __init__(self, logs: AnyLogs, run: Run) -> None:
        self._logs = logs
        self._run = run
        self._in_doubt: frozenset[str] = frozenset()

    def doubt(self, names: Iterable[str]) -> None:
        """Mark topics as doubtful. `restore` uses records of a doubtful topic's logs only if the topic id matches."""
        self._in_doubt = frozenset(names)

    def restore(self, where: TopicPartition, config: LogConfig, topic_id: bytes) -> Log:
        """Open and return the log of an existing replica. See `LogManager.restore`."""
        in_doubt = where.topic in self._in_doubt
        opened = self._logs.restore(where, config, uuid.UUID(bytes=topic_id), in_doubt=in_doubt)
        self._flush_what_was_recovered(opened, config)
        return opened

    async def restore_all(self, places: Sequence[TopicPartition], config: LogConfig, topic_id: bytes) -> list[Log]:
        """Open the logs of existing replicas of one topic, in order.

        Missing partition directories are created on another thread.
        """
        identity = uuid.UUID(bytes=topic_id)
        new = [each for each in places if not self._logs.is_known(each, identity)]
        await create_logs(functools.partial(self._run, self.restore), new, config, topic_id)
        return [self.restore(each, config, topic_id) for each in places]

    async def create(self, where: TopicPartition, config: LogConfig, topic_id: bytes) -> Log:
        """Create and return the log of a new replica.

        :raises ApiError: INVALID_TOPIC_EXCEPTION if another topic's partition directory has the same name.
        :raises StorageError: a write to the disk failed.
        """
        made: Log = await self._run(self._create, where, config, topic_id)
        return made

    async def create_or_put_offline(self, where: TopicPartition, config: LogConfig, topic_id: bytes) -> Log:
        """Create the log of a new replica of a topic that another broker created. Return an offline log on failure."""
        try:
            return await self.create(where, config, topic_id)
        except BarnabasError as error:
            return self._logs.put_offline(where, f"cannot create the log: {error}; repair this, and restart the broker")

    def _create(self, where: TopicPartition, config: LogConfig, topic_id: bytes) -> Log:
        identity = uuid.UUID(bytes=topic_id)
        if self._logs.topic_ids.get(where) != identity:
            self.check_free(where)
            self._logs.delete(where)  # If a partition directory exists here, `check_free` has found no records in it.
        opened = self._logs.create(where, config, identity)
        self._flush_what_was_recovered(opened, config)
        return opened

    def check_free(self, where: TopicPartition) -> None:
        """Check that there is no partition directory with the name of this replica that contains records of another
        topic.

        :raises ApiError: INVALID_TOPIC_EXCEPTION. The directory is not changed, because the topic may be unknown only
            to this metadata store, and an operator may need its records.
        """
        stray = self._logs.get(where)
        if stray is not None and not self._logs.has_no_records(where):
            message = (
                f"the partition directory {stray.folder} belongs to an unknown topic; move it away, or start the broker"
                " with the metadata store that has this topic"
            )
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)

    def is_there(self, where: TopicPartition) -> bool:
        """Return whether a log of a partition exists on this broker."""
        return self._logs.get(where) is not None

    def belongs_to(self, where: TopicPartition, topic_id: bytes) -> bool:
        """Return whether a log of a partition exists on this broker and has the given topic id."""
        identity = self._logs.topic_ids.get(where)
        return self.is_there(where) and identity is not None and identity.bytes == topic_id

    def known_epoch(self, where: TopicPartition) -> int:
        """Return the latest leader epoch in the log of this partition, or -1."""
        opened = self._logs.get(where)
        return NO_LEADER_EPOCH if opened is None else opened.leader_epochs.latest

    def may_have_more(self, topic: str) -> bool:
        """Return whether more partition directories of a topic may be found at a later start.

        The topic's deletion must then stay pending.
        """
        return self._logs.may_have_more(topic)

    def was_missing(self, where: TopicPartition) -> bool:
        """Return whether `restore` found no log of a replica, and created an empty log."""
        return where in self._logs.missing

    def is_gone(self, where: TopicPartition) -> bool:
        """Return whether the log of a replica was missing, and may have had records that an operator can restore."""
        return where in self._logs.gone

    def is_in_old_copy(self, where: TopicPartition) -> bool:
        """Return whether the log of a replica is in an older copy of its log directory, and may lack records."""
        return self._logs.is_in_old_copy(where)

    def is_in_newer_folder(self, where: TopicPartition) -> bool:
        """Return whether the log of a replica is in a log directory that is newer than the metadata store."""
        return self._logs.is_in_newer_folder(where)

    def delete(self, partitions: Iterable[TopicPartition]) -> StorageError | None:
        """Rename partition directories for deletion.

        Return the first error, or None. Any thread may call this method.
        """
        refused = None
        for where in partitions:
            try:
                self._logs.delete(where)
            except StorageError as error:
                refused = refused or error
        return refused

    def remove_deleted_records(self) -> None:
        """Store the log start offsets durably, and delete the segment files below these offsets.

        Must not be called on the event loop's thread.

        :raises StorageError: a write to the disk failed.
        """
        self._logs.remove_deleted_records()

    def set_deleted_aside(self, deleted: Collection[bytes], untouched: Collection[str]) -> set[bytes]:
        """Rename the partition directories of deleted topics for deletion.

        Directories of topics with unreadable metadata are not changed.

        :returns: the ids of the topics with partition directories that could not be renamed.
        """
        left: dict[bytes, list[TopicPartition]] = {topic_id: [] for topic_id in deleted}
        for where, identity in self._logs.topic_ids.items():
            if identity.bytes in left and where.topic not in untouched:
                left[identity.bytes].append(where)
        return {topic_id for topic_id, partitions in left.items() if self._is_refused(partitions)}

    def set_strays_aside(
        self,
        known: Collection[TopicPartition],
        untouched: Collection[str],
        deleted: Collection[bytes],
        living: Collection[bytes],
    ) -> set[bytes]:
        """Clean up after deletions and creations that the last run of the broker did not finish.

        Partition directories of deleted topics are deleted. An empty directory is also deleted if it has no topic id,
        or if its topic has no such partition: the broker creates directories before it writes new partitions to the
        metadata store. All other directories are not changed.

        :param known: the replicas that should exist.
        :param untouched: the names of topics whose metadata is unreadable.
        :param deleted: the ids of deleted topics.
        :param living: the topic ids of existing topics.
        :returns: the ids of the topics with partition directories that could not be renamed.
        """
        left: dict[bytes, list[TopicPartition]] = {topic_id: [] for topic_id in deleted}
        for stray in sorted(self._logs.all().keys() - known):
            identity = self._logs.topic_ids.get(stray)
            if identity is not None and identity.bytes in left:
                left[identity.bytes].append(stray)
            elif stray.topic in untouched:
                continue
            elif (identity is None or identity.bytes in living) and self._logs.has_no_records(stray):
                self._is_refused([stray])
            else:
                log.warning(
                    "the partition directory of %s belongs to no topic; keeping the directory",
                    stray,
                )
        return {topic_id for topic_id, partitions in left.items() if self._is_refused(partitions)}

    def _is_refused(self, partitions: Iterable[TopicPartition]) -> bool:
        refused = self.delete(partitions)
        if refused:
            log.warning("cannot delete a partition directory: %s; retrying at the next start", refused)
        return refused is not None

    def _flush_what_was_recovered(self, recovered: Log, config: LogConfig) -> None:
        """Flush a recovered log before the first read, if its topic has a flush policy.

        After the broker was killed, the page cache may contain records that were never exposed to consumers.
        """
        if config.has_flush_policy and not recovered.is_offline:
            try:
                recovered.flush()
            except StorageError as error:
                log.warning("cannot flush a log after its recovery: %s", error)

"""The logs of the replicas that this broker holds: opened, made and set aside, beside the event loop.

The tree is the truth about which topics exist; a folder whose topic is not in the tree is left alone and named in the
log, unless the tree says that the topic was deleted, and that this broker has yet to remove what it has of it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from barnabas.broker.disk_work import Run
from barnabas.errors import ApiError, BarnabasError, ErrorCode, StorageError
from barnabas.model import NO_LEADER_EPOCH, TopicPartition
from barnabas.storage.data_folders import AnyLogs
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig

MakeLog = Callable[[TopicPartition, LogConfig, bytes], Awaitable[Log]]
"""`Hosting.make`, or one that takes its place."""

MADE_AT_ONCE = 8
"""So many logs are made side by side: each waits for the disk several times, and the disk does not mind."""

log = logging.getLogger(__name__)


async def make_all(make: MakeLog, places: Sequence[TopicPartition], config: LogConfig, topic_id: bytes) -> list[Log]:
    """Make the logs of replicas of one topic, side by side; return them in their order.

    :raises BarnabasError: what `make` raised first. Then nothing is under way any more, and some may be made.
    """
    made: list[Log] = []
    for start in range(0, len(places), MADE_AT_ONCE):
        some = places[start : start + MADE_AT_ONCE]
        outcomes = await asyncio.gather(*(make(each, config, topic_id) for each in some), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            made.append(outcome)
    return made


class Hosting:
    """Used from the event loop's thread only, except where it says so.

    :param run: runs what may wait for the disk.
    """

    def __init__(self, logs: AnyLogs, run: Run) -> None:
        self._logs = logs
        self._run = run
        self._in_doubt: frozenset[str] = frozenset()

    def doubt(self, names: Iterable[str]) -> None:
        """From now on `restore` takes no records for those of topics with these names unless it is certain."""
        self._in_doubt = frozenset(names)

    def restore(self, where: TopicPartition, config: LogConfig, topic_id: bytes) -> Log:
        """Return the log of a replica that there should be; see `LogManager.restore`."""
        in_doubt = where.topic in self._in_doubt
        opened = self._logs.restore(where, config, uuid.UUID(bytes=topic_id), in_doubt=in_doubt)
        self._flush_what_was_recovered(opened, config)
        return opened

    async def restore_all(self, places: Sequence[TopicPartition], config: LogConfig, topic_id: bytes) -> list[Log]:
        """Do the same for replicas of one topic, in their order; folders that are to be made are, beside the event
        loop."""
        identity = uuid.UUID(bytes=topic_id)
        new = [each for each in places if not self._logs.is_known(each, identity)]
        await make_all(functools.partial(self._run, self.restore), new, config, topic_id)
        return [self.restore(each, config, topic_id) for each in places]

    async def make(self, where: TopicPartition, config: LogConfig, topic_id: bytes) -> Log:
        """Return the log of a new replica.

        :raises ApiError: INVALID_TOPIC_EXCEPTION: a folder of another topic is in its way.
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
            self._logs.delete(where)  # what is there, if anything, holds nothing
        opened = self._logs.create(where, config, identity)
        self._flush_what_was_recovered(opened, config)
        return opened

    def check_free(self, where: TopicPartition) -> None:
        """Check that no folder of another topic has the name that a replica's folder is to have, or nothing is in it.

        :raises ApiError: INVALID_TOPIC_EXCEPTION. The folder is not touched: somebody may still need the records
            of a topic that the tree does not know.
        """
        stray = self._logs.get(where)
        if stray is not None and not self._logs.has_no_records(where):
            message = (
                f"the folder {stray.folder} is there, of a topic that is not known; move it away, or start with the"
                " tree that knows it"
            )
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)

    def is_there(self, where: TopicPartition) -> bool:
        """Whether there is a log of this name."""
        return self._logs.get(where) is not None

    def belongs_to(self, where: TopicPartition, topic_id: bytes) -> bool:
        """Whether there is a log of this name, and it is of the topic with this id."""
        identity = self._logs.topic_ids.get(where)
        return self.is_there(where) and identity is not None and identity.bytes == topic_id

    def known_epoch(self, where: TopicPartition) -> int:
        """Return the latest leader epoch that the log of this name knows, or -1."""
        opened = self._logs.get(where)
        return NO_LEADER_EPOCH if opened is None else opened.leader_epochs.latest

    def may_have_more(self, topic: str) -> bool:
        """Whether there may be folders of a topic with this name that only a later start finds: what is to be deleted
        stays noted until then."""
        return self._logs.may_have_more(topic)

    def was_missing(self, where: TopicPartition) -> bool:
        """Whether `restore` found no log of a replica, and began an empty one."""
        return where in self._logs.missing

    def is_gone(self, where: TopicPartition) -> bool:
        """Whether it was missing, and may have had records: who has them can put them back."""
        return where in self._logs.gone

    def is_in_old_copy(self, where: TopicPartition) -> bool:
        """Whether the log of a replica is in an older copy of its log directory, and may lack what it had."""
        return self._logs.is_in_old_copy(where)

    def is_in_newer_folder(self, where: TopicPartition) -> bool:
        """Return whether the log of a replica is in a log directory that is newer than the metadata tree."""
        return self._logs.is_in_newer_folder(where)

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

    def set_deleted_aside(self, deleted: Collection[bytes], untouched: Collection[str]) -> set[bytes]:
        """Set aside the folders of topics with these ids, but for those of topics of which nothing is known.

        :returns: the ids of topics of which folders are left.
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
        """Finish the deletions that the last run could not, and remove what it could not finish to make: a folder with
        nothing in it that does not say whose it is, or is that of a partition which its topic has not got, since a
        topic's folders are there before it grows. Leave all others alone.

        :param known: the replicas that there should be.
        :param untouched: topics of which nothing is known.
        :param deleted: the ids of topics whose folders are to go.
        :param living: the ids of the topics that there are.
        :returns: the ids of topics of which folders are left.
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

"""The topics of this broker: what the tree says there is, joined with the logs that hold it.

The tree is the truth about which topics exist; a log folder whose topic is not in the tree is left alone and
named in the log, unless the tree says that the topic was deleted. A topic exists once it is in the tree, and it can
be used once its logs are open; clients see it from then on. A deleted topic leaves the tree first, then its folders
are set aside and removed later.

Used from the event loop's thread; what the tree has to write runs on the tree's own thread.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar

from barnabas.broker.disk_work import DiskWork
from barnabas.broker.open_files import OpenFiles
from barnabas.broker.partition import ON_ANY_THREAD, Partition
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import TopicConfig, topic_config
from barnabas.broker.topic_names import check_topic_name
from barnabas.coordination import registry
from barnabas.coordination.registry import TopicInfo
from barnabas.coordination.tree import NodeError, NodeExistsError, Tree
from barnabas.coordination.values import PartitionState
from barnabas.errors import BarnabasError, ErrorCode, KafkaError, StorageError
from barnabas.model import TopicPartition
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_manager import LogManager

PARTITIONS_MAX = 10_000
"""The most partitions of a topic. Kafka's controllers allow as many in one request; each costs folders and files."""

log = logging.getLogger(__name__)

InTreeThread = Callable[..., "asyncio.Future[Any]"]
"""Runs a function of the tree, with its arguments, on the tree's thread."""

ForgetOffsets = Callable[[Collection[bytes], Collection[str]], Awaitable[None]]
"""Forgets what groups committed for topics with these ids, or, where no id is known, with these names."""


async def _forget_no_offsets(_topic_ids: Collection[bytes], _names: Collection[str]) -> None:
    """Where there are no groups."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, its partitions, each at the position of its number, and its own settings."""

    name: str
    id: bytes
    partitions: tuple[Partition, ...]
    settings: Mapping[str, str]


P = ParamSpec("P")
T = TypeVar("T")


def _to_its_end(change: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Complete a change that has begun, even if the client that asked for it is gone: a change made halfway would
    leave tree and logs in disagreement."""

    @functools.wraps(change)
    async def run(*arguments: P.args, **named: P.kwargs) -> T:
        return await asyncio.shield(asyncio.create_task(change(*arguments, **named)))

    return run


class Topics:
    """All topics, by name and by id."""

    def __init__(
        self,
        config: BrokerConfig,
        tree: Tree,
        logs: LogManager,
        in_tree_thread: InTreeThread,
        open_files: OpenFiles,
        work: DiskWork = ON_ANY_THREAD,
    ) -> None:
        self._config = config
        self._work = work
        self._open_files = open_files
        self._tree = tree
        self._logs = logs
        self._in_tree_thread = in_tree_thread
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._changing = asyncio.Lock()
        self.forget_offsets: ForgetOffsets = _forget_no_offsets
        """Called for topics that are deleted."""
        self._deleted: set[bytes] = set()
        """The ids of topics whose deletion, begun in an earlier run, has yet to end."""
        self._deleted_names: set[str] = set()
        self._with_folders: set[bytes] = set()
        """Those of which folders are left."""

    def load(self) -> None:
        """Open what the tree lists, and take the leadership of each partition with a new epoch.

        A topic of which the tree says what cannot be understood is not served, nor are its folders touched.
        """
        known: set[TopicPartition] = set()
        damaged: dict[str, BarnabasError] = {}
        changes: list[tuple[TopicPartition, PartitionState, int]] = []
        for name, info in registry.each_topic(self._tree):
            try:
                if isinstance(info, NodeError):
                    raise info
                config = topic_config(self._config, info.config)
            except (NodeError, KafkaError) as error:
                damaged[name] = error
                continue
            topic = self._load_topic(info, config, changes)
            self._keep(topic)
            known.update(each.topic_partition for each in topic.partitions)
        for name, reason in damaged.items():
            log.error("topic %s is not served: %s; its folders stay as they are; mend it and start again", name, reason)
        registry.write_partition_states(self._tree, changes)
        self._tree.flush()
        self._set_strays_aside(where for where in self._logs.all().keys() - known if where.topic not in damaged)

    def _load_topic(
        self, info: TopicInfo, config: TopicConfig, changes: list[tuple[TopicPartition, PartitionState, int]]
    ) -> Topic:
        """Open the logs of a topic; add to `changes` what the tree is to be told of its partitions."""
        identity = uuid.UUID(bytes=info.topic_id)
        partitions = []
        for number, each in enumerate(info.partitions):
            opened = self._logs.restore(TopicPartition(info.name, number), config.log, identity)
            self._flush_what_was_recovered(opened, config.log)
            # The tree may be older than the log, from a backup, or its last changes lost with the power.
            epoch = max(each.state.leader_epoch, opened.leader_epochs.latest) + 1
            state = replace(each.state, leader=self._config.broker_id, leader_epoch=epoch)
            changes.append((opened.partition, state, each.version))
            partitions.append(Partition(opened.partition, opened, epoch, config, self._work))
        return Topic(info.name, info.topic_id, tuple(partitions), dict(info.config))

    def get(self, name: str) -> Topic | None:
        """Return the topic, or None."""
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        """Return the topic with this id, or None."""
        return self._by_id.get(topic_id)

    def name_of(self, topic_id: bytes) -> str:
        """Return the name of the topic with this id.

        :raises KafkaError: UNKNOWN_TOPIC_ID.
        """
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
        return topic.name

    def all(self) -> Iterable[Topic]:
        """Return every topic."""
        return self._by_name.values()

    def has_partition(self, where: TopicPartition) -> bool:
        """Whether there is such a partition."""
        topic = self._by_name.get(where.topic)
        return topic is not None and 0 <= where.partition < len(topic.partitions)

    def partition(self, name: str, number: int) -> Partition:
        """Return a partition.

        :raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        topic = self._by_name.get(name)
        if topic is None or not 0 <= number < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{number}")
        return topic.partitions[number]

    def check_new(self, name: str, partition_count: int, settings: Mapping[str, str | None]) -> None:
        """Check that this topic could be made.

        :raises KafkaError: why it could not.
        """
        check_topic_name(name)
        if name in self._by_name:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
        if partition_count < 1:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"a topic has 1 partition or more, not {partition_count}")
        _check_partition_count(partition_count)
        self._open_files.check_room(partition_count)
        topic_config(self._config, settings)
        for number in range(partition_count):
            self._check_free(TopicPartition(name, number))

    def _check_free(self, where: TopicPartition) -> None:
        """Check that no folder of another topic has the name that a partition's folder is to have.

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

    @_to_its_end
    async def create(self, name: str, partition_count: int, settings: Mapping[str, str | None]) -> Topic:
        """Make a topic.

        :raises KafkaError: it exists, its name or a setting is wrong, a folder of another topic is in its way.
        :raises StorageError: the disk refused its folders; what this call made is gone again.
        """
        async with self._changing:
            self.check_new(name, partition_count, settings)
            topic_id = uuid.uuid4().bytes
            kept = {key: value for key, value in settings.items() if value is not None}
            replicas = [[self._config.broker_id]] * partition_count
            try:
                await self._in_tree_thread(registry.create_topic, self._tree, name, topic_id, replicas, kept)
            except NodeExistsError:
                raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists") from None
            partitions = [TopicPartition(name, number) for number in range(partition_count)]
            try:
                opened = await self._open_in_turns(topic_id, partitions, topic_config(self._config, kept))
            except BarnabasError:
                # A topic without its logs must not stay: it could neither be used nor made again.
                await self._in_tree_thread(registry.delete_topic, self._tree, name)
                # No log of this name was there before: those that are there are what this call made.
                self._delete_logs(partitions)
                raise
            topic = Topic(name, topic_id, opened, kept)
            self._keep(topic)
            log.info("created topic %s with %d partitions", name, partition_count)
            return topic

    def check_growth(self, name: str, partition_count: int) -> int:
        """Check that a topic could grow to so many partitions; return how many that adds.

        :raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, or INVALID_PARTITIONS where it would not grow.
        """
        topic = self._by_name.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        count = len(topic.partitions)
        if partition_count <= count:
            message = f"topic {name} has {count} partitions; it can grow to more, not to {partition_count}"
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
        _check_partition_count(partition_count)
        self._open_files.check_room(partition_count - count)
        return partition_count - count

    @_to_its_end
    async def grow(self, name: str, partition_count: int) -> None:
        """Add partitions to a topic.

        :raises KafkaError: the topic does not exist, or would not grow.
        :raises StorageError: the disk refused their folders.
        :raises CoordinationError: the tree refused; what it has is not known, and the same can be asked for again.
        """
        async with self._changing:
            self.check_growth(name, partition_count)
            topic = self._by_name[name]
            config = topic_config(self._config, topic.settings)
            added = [TopicPartition(name, number) for number in range(len(topic.partitions), partition_count)]
            new = [where for where in added if self._logs.get(where) is None]
            try:
                # Logs first: the tree must not list what cannot be opened.
                opened = await self._open_in_turns(topic.id, added, config)
                replicas = [self._config.broker_id]
                grow = registry.grow_topic
                count = await self._in_tree_thread(grow, self._tree, name, partition_count, replicas)
                if count > partition_count:
                    message = f"topic {name} has {count} partitions in the tree; it can grow to as many, or more"
                    raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
            except BarnabasError:
                self._delete_logs(new)
                raise
            self._keep(replace(topic, partitions=topic.partitions + opened))
            log.info("topic %s now has %d partitions", name, partition_count)

    @_to_its_end
    async def configure(
        self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool = False
    ) -> None:
        """Change the settings of a topic; they are in force when this returns.

        :param change: given the topic's own settings, returns the new ones; what it raises is passed on. Nobody
            else changes them meanwhile.
        :raises KafkaError: the topic does not exist, or a setting is wrong.
        """
        async with self._changing:
            topic = self._by_name.get(name)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
            settings = change(topic.settings)
            config = topic_config(self._config, settings)
            if validate_only:
                return
            await self._in_tree_thread(registry.write_topic_config, self._tree, name, settings)
            for partition in topic.partitions:
                partition.configure(config)
            self._keep(replace(topic, settings=dict(settings)))

    async def end_changes(self) -> None:
        """Return when the changes that have begun are made."""
        async with self._changing:
            pass

    @_to_its_end
    async def set_defaults(self, config: BrokerConfig) -> None:
        """Use other settings of the broker from now on, for existing topics and for new ones."""
        async with self._changing:
            self._config = config
            for topic in list(self.all()):
                changed = topic_config(config, topic.settings)
                for partition in topic.partitions:
                    if partition.config != changed:
                        partition.configure(changed)
                await asyncio.sleep(0)

    @_to_its_end
    async def delete(self, name: str) -> None:
        """Delete a topic with all that is in it, and every group's offsets in it.

        :raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        :raises StorageError: the disk refused for some of its folders; the topic is gone, and they go with the
            next start or with a new topic of that name.
        """
        async with self._changing:
            topic = self._by_name.get(name)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
            await self._in_tree_thread(registry.note_deletion, self._tree, topic.id, name)
            await self._in_tree_thread(registry.delete_topic, self._tree, name)
            del self._by_name[name]
            del self._by_id[topic.id]
            for partition in topic.partitions:
                partition.mark_deleted()
            # Not on the event loop: it waits for flushes that are under way.
            refused = await asyncio.to_thread(self._delete_logs, [each.topic_partition for each in topic.partitions])
            if refused:
                self._with_folders.add(topic.id)
            log.info("deleted topic %s", name)
        # Others may change topics meanwhile: this may take long, and concerns nobody else.
        await self._forget_offsets({topic.id}, {name})
        if refused:
            raise refused

    async def end_deletions(self) -> None:
        """End the deletions that could not be, in the last run or while groups were loaded."""
        topic_ids, self._deleted = self._deleted, set()
        if topic_ids:
            await self._forget_offsets(topic_ids, self._deleted_names)

    async def _forget_offsets(self, topic_ids: Collection[bytes], names: Collection[str]) -> None:
        """Forget all offsets in topics that have left the tree; with them and the folders, nothing is left of these."""
        try:
            await self.forget_offsets(topic_ids, names)
        except BarnabasError as error:
            # Nobody is told them, since they are of topics with other ids.
            log.warning("offsets of deleted topics are left for now: %s", error)
            self._deleted.update(topic_ids)
            self._deleted_names.update(names)
            return
        for topic_id in topic_ids:
            if topic_id not in self._with_folders:
                await self._in_tree_thread(registry.end_deletion, self._tree, topic_id)

    async def store_log_starts(self) -> None:
        """Store durably where the logs begin after records were deleted, and free the disk space of those records.

        :raises StorageError: the disk refused.
        """
        await asyncio.to_thread(self._logs.remove_deleted_records)

    async def delete_old_records(self) -> None:
        """Delete the records that the topics' settings no longer keep."""
        for partition in [partition for topic in self.all() for partition in topic.partitions]:
            await partition.delete_old_records()
            await asyncio.sleep(0)
        await self.store_log_starts()

    def _set_strays_aside(self, strays: Iterable[TopicPartition]) -> None:
        """Finish the deletions that the last run could not; leave all other folders alone."""
        self._deleted_names = registry.read_deleted_names(self._tree)
        deletions = registry.read_deletions(self._tree)
        left: dict[bytes, list[TopicPartition]] = {topic_id: [] for topic_id in deletions - self._by_id.keys()}
        for stray in strays:
            identity = self._logs.topic_ids.get(stray)
            if identity is not None and identity.bytes in left:
                left[identity.bytes].append(stray)
            else:
                log.warning("the folder of %s belongs to no topic; it is left as it is", stray)
        for topic_id in deletions:
            refused = self._delete_logs(left.get(topic_id, []))
            if refused:
                log.warning("%s", refused)
                self._with_folders.add(topic_id)
            elif topic_id not in left:
                registry.end_deletion(self._tree, topic_id)  # noted, and never begun
        self._deleted = set(left)

    def _delete_logs(self, partitions: Iterable[TopicPartition]) -> StorageError | None:
        """Set aside all that can be; return why the first of the others cannot."""
        refused = None
        for where in partitions:
            try:
                self._logs.delete(where)
            except StorageError as error:
                refused = refused or error
        return refused

    def _keep(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.id] = topic

    async def _open_in_turns(
        self, topic_id: bytes, partitions: Iterable[TopicPartition], config: TopicConfig
    ) -> tuple[Partition, ...]:
        """Open new logs, beside the event loop; one at a time, so that others have their turn at the disk."""
        opened = []
        for where in partitions:
            made = await asyncio.to_thread(self._open_log, where, config.log, topic_id)
            opened.append(Partition(where, made, 0, config, self._work))
        return tuple(opened)

    def _open_log(self, where: TopicPartition, config: LogConfig, topic_id: bytes) -> Log:
        identity = uuid.UUID(bytes=topic_id)
        if self._logs.topic_ids.get(where) != identity:
            self._check_free(where)
        opened = self._logs.create(where, config, identity)
        self._flush_what_was_recovered(opened, config)
        return opened

    def _flush_what_was_recovered(self, recovered: Log, config: LogConfig) -> None:
        """Flush before anybody can read, if the topic asks for it: what a killed broker left in the page cache was not
        exposed by it."""
        if config.has_flush_policy and not recovered.is_offline:
            try:
                recovered.flush()
            except StorageError as error:
                log.warning("%s", error)


def log_configs(tree: Tree, config: BrokerConfig) -> dict[str, LogConfig]:
    """Return the settings of the logs of topics that have settings of their own, by topic.

    Topics are left out of which the tree says what cannot be understood; `Topics.load` tells of them.
    """
    configs = {}
    for name, info in registry.each_topic(tree):
        if not isinstance(info, NodeError) and info.config:
            with suppress(KafkaError):
                configs[name] = topic_config(config, info.config).log
    return configs


def _check_partition_count(count: int) -> None:
    if count > PARTITIONS_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{count} partitions; a topic can have {PARTITIONS_MAX}")

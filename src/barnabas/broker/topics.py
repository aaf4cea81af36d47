"""The topics of the cluster, and what a client can have changed of them here: made, grown, configured, deleted.

Whatever this broker changes it writes into the tree first, then it takes it over, as it takes over what others tell
(`barnabas.broker.hosted_topics`). A deleted topic leaves the tree first, then its folders are set aside and removed
later.

Used from the event loop's thread; what the tree has to read or write runs on the tree's own thread.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from barnabas.broker import internal_topics
from barnabas.broker.chance import Chance
from barnabas.broker.disk_work import ON_ANY_THREAD, DiskWork
from barnabas.broker.hosted_topics import HostedTopics
from barnabas.broker.hosting import make_all
from barnabas.broker.internal_topics import config_in_force, replication_factor_of
from barnabas.broker.open_files import OpenFiles
from barnabas.broker.placement import (
    Assignment,
    added_replicas,
    check_partition_count,
    new_replicas,
    reassigned_partitions,
    unknown_partition,
)
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import usable_settings
from barnabas.broker.topic_lookup import Topic
from barnabas.broker.topic_names import check_topic_name
from barnabas.broker.tree_thread import InTreeThread
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.coordination import configs, paths, reassignments, registry
from barnabas.coordination.reassignments import End
from barnabas.coordination.registry import TopicInfo
from barnabas.coordination.tree import NodeExistsError, NoNodeError, Tree
from barnabas.coordination.values import ReplicaSet, TopicAssignment
from barnabas.errors import ApiError, BarnabasError, CoordinationError, ErrorCode
from barnabas.log_lines import about
from barnabas.model import TopicPartition
from barnabas.storage.data_folders import AnyLogs

log = logging.getLogger(__name__)

ATTEMPTS = 3
"""Whenever others delete a topic, and make it again, while it is changed here costs one."""

P = ParamSpec("P")
T = TypeVar("T")


def _to_its_end(change: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Complete a change that has begun, even if the client that asked for it is gone: a change made halfway would
    leave tree and logs in disagreement."""

    @functools.wraps(change)
    async def run(*arguments: P.args, **named: P.kwargs) -> T:
        changing = asyncio.create_task(change(*arguments, **named))
        try:
            return await asyncio.shield(changing)
        except asyncio.CancelledError:
            changing.add_done_callback(_let_go)  # a refusal would be logged as an error that nobody has looked at
            raise

    return run


def _let_go(changing: asyncio.Task[Any]) -> None:
    """Look at how a change ended whose client is gone: what was refused is no concern of anybody else."""
    if not changing.cancelled() and (error := changing.exception()) and not isinstance(error, BarnabasError):
        log.error("a change whose client is gone failed", exc_info=error)


class Topics(HostedTopics):
    """All topics, and what changes them.

    :param check_disk: raises StorageError if the disk has no room for so many new partitions (`Reserve.check_room`).
    """

    def __init__(
        self,
        config: BrokerConfig,
        tree: Tree,
        logs: AnyLogs,
        in_tree_thread: InTreeThread,
        open_files: OpenFiles,
        work: DiskWork = ON_ANY_THREAD,
        clock: Clock = SYSTEM_CLOCK,
        chance: Chance = Chance(),  # noqa: B008 - immutable
        check_disk: Callable[[int], None] = lambda _count: None,
    ) -> None:
        super().__init__(config, tree, logs, in_tree_thread, work, clock, chance)
        self._open_files = open_files
        self._chance = chance
        self.check_disk = check_disk

    def check_new(
        self,
        name: str,
        partition_count: int,
        settings: Mapping[str, str | None],
        replication_factor: int = 1,
        assignment: Assignment = None,
    ) -> list[tuple[int, ...]]:
        """Check that this topic could be made; return where its replicas would be.

        :raises ApiError: why it could not.
        :raises StorageError: the disk is full.
        """
        check_topic_name(name)
        if name in self._by_name:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
        if partition_count < 1:
            raise ApiError(ErrorCode.INVALID_PARTITIONS, f"a topic has 1 partition or more, not {partition_count}")
        check_partition_count(partition_count)
        config_in_force(self._config, name, settings, replication_factor)
        placed = new_replicas(self.picture, partition_count, replication_factor, assignment, self._chance.random_below)
        factor = min(map(len, placed))
        internal_topics.check_creation(name, self._config, factor, len(self.picture.brokers))
        internal_topics.check_settings(name, self._config, {}, settings, factor)
        own = [number for number, each in enumerate(placed) if self._config.broker_id in each]
        self._open_files.check_room(len(own))
        self.check_disk(len(own))
        for number in own:
            self.hosting.check_free(TopicPartition(name, number))
        return placed

    @_to_its_end
    async def create(
        self,
        name: str,
        partition_count: int,
        settings: Mapping[str, str | None],
        replication_factor: int = 1,
        assignment: Assignment = None,
    ) -> Topic:
        """Make a topic.

        :param assignment: the brokers of each partition's replicas; None: they are spread over all brokers.
        :raises ApiError: it exists, its name or a setting is wrong, a folder of another topic is in its way.
        :raises StorageError: the disk refused its folders; what this call made is gone again.
        :raises CoordinationError: the tree did not store the topic durably; what this call made is gone again.
        """
        async with self._changing:
            placed = self.check_new(name, partition_count, settings, replication_factor, assignment)
            topic_id = self._chance.new_id().bytes
            given = {key: value for key, value in settings.items() if value is not None}
            kept = internal_topics.settings_to_keep(name, given)
            live = set(self.picture.brokers)
            try:
                create = registry.create_topic
                info = await self._in_tree_thread(create, self._tree, name, topic_id, placed, kept, live)
            except NodeExistsError:
                raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists") from None
            self.picture.put_topic(info)
            try:
                await self._in_tree_thread(self._tree.flush)
                topic = await self._open_new(info, self._config_of(info), self.hosting.make)
            except BarnabasError:
                try:
                    await self._take_back(info)
                except CoordinationError as error:
                    message = "topic %s stays, without logs: the tree refused its deletion (%s); delete it later"
                    log.error(message, name, error, extra=about(name))  # noqa: TRY400 - the words say all
                raise
            log.info("created topic %s with %d partitions", name, partition_count, extra=about(name))
            self.on_led()
            return topic

    async def _take_back(self, info: TopicInfo) -> None:
        """Let a topic go again that was made without its logs: it could neither be used nor made again."""
        # Of its own replicas none had a log before: those that are there are what was made now. Of others' replicas
        # there may be folders of a topic that the tree does not know.
        own = [number for number, each in enumerate(info.partitions) if self._config.broker_id in each.replicas]
        refused = self.hosting.delete(TopicPartition(info.name, number) for number in own)
        # Others may have made their logs already.
        holders = {broker for each in info.partitions for broker in each.replicas} | {self._config.broker_id}
        is_all_gone = refused is None and len(holders) == 1
        if not is_all_gone or not await self._in_tree_thread(registry.take_topic_back, self._tree, info):
            await self.deletions.delete(info.topic_id, info.name, holders)
        self.picture.remove_topic(info.name)
        # Others may have deleted it meanwhile, and noted that this broker has something of it.
        self.deletions.begin(info.topic_id, info.name, has_folders=refused is not None)

    async def create_with_defaults(self, name: str) -> Topic:
        """Make a topic of which nobody said how it is to be.

        :raises BarnabasError: as `create`.
        """
        config = self._config
        count = internal_topics.partition_count(name, config)
        factor = internal_topics.replication_factor(name, config, len(self.picture.brokers))
        return await self.create(name, count, internal_topics.settings_of(name, config), factor)

    def check_growth(self, name: str, partition_count: int) -> int:
        """Check that a topic could grow to so many partitions; return how many that adds.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION, or INVALID_PARTITIONS where it would not grow.
        """
        topic = self._by_name.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        count = len(topic.partitions)
        if partition_count <= count:
            message = f"topic {name} has {count} partitions; it can grow to more, not to {partition_count}"
            raise ApiError(ErrorCode.INVALID_PARTITIONS, message)
        check_partition_count(partition_count)
        return partition_count - count

    @_to_its_end
    async def grow(self, name: str, partition_count: int, assignment: Assignment = None) -> None:
        """Add partitions to a topic, with as many replicas as it has.

        :param assignment: the brokers of each new partition's replicas; None: they are spread over all brokers.
        :raises ApiError: the topic does not exist, or would not grow.
        :raises StorageError: the disk refused their folders.
        :raises CoordinationError: the tree refused; what it has is not known, and the same can be asked for again.
        """
        async with self._changing:
            await self._change(name, lambda topic: self._grow(topic, partition_count, assignment))
            await self._reread_topics([name])
            log.info("topic %s now has %d partitions", name, partition_count, extra=about(name))

    async def _grow(self, topic: Topic, partition_count: int, assignment: Assignment) -> None:
        name, count = topic.name, len(topic.partitions)
        added_count = self.check_growth(name, partition_count)
        existing = [each.replica_set.target for each in topic.partitions]
        placed = added_replicas(self.picture, existing, added_count, assignment)
        own = [n for n, each in enumerate(placed, start=count) if self._config.broker_id in each]
        self._open_files.check_room(len(own))
        self.check_disk(len(own))
        new = [where for n in own if not self.hosting.is_there(where := TopicPartition(name, n))]
        config = config_in_force(self._config, name, topic.settings, replication_factor_of(topic.partitions))
        try:
            # Logs first: the tree must not list what cannot be opened.
            places = [TopicPartition(name, number) for number in own]
            await make_all(self.hosting.make, places, config.log, topic.id)
            grow, live = registry.grow_topic, set(self.picture.brokers)
            there = await self._in_tree_thread(grow, self._tree, name, placed, count, live, topic.id)
            if there != partition_count:
                message = f"topic {name} has {there} partitions in the tree; it can grow to more"
                raise ApiError(ErrorCode.INVALID_PARTITIONS, message)
        except BarnabasError:
            self.hosting.delete(new)
            raise

    @_to_its_end
    async def reassign(
        self, name: str, wanted: Mapping[int, Sequence[int] | None], *, may_change_factor: bool = True
    ) -> dict[int, ApiError]:
        """Have partitions of a topic move to other brokers; what takes time goes on when this returns.

        :param wanted: for each partition the brokers that are to hold it, the preferred leader first; None: it stays
            where it was before a move that is under way.
        :param may_change_factor: whether partitions may have more or fewer replicas than before.
        :returns: why partitions do not move, by number; the others do.
        :raises CoordinationError: the tree refused.
        """
        async with self._changing:
            topic = self._by_name.get(name)
            if topic is None:
                # One for all: a request may name very many.
                error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
                return dict.fromkeys(wanted, error)
            live, refused = set(self.picture.brokers), dict[int, ApiError]()

            def change(found: TopicAssignment) -> dict[int, ReplicaSet]:
                changed, refusals = reassigned_partitions(name, found, wanted, live, may_change_factor)
                refused.clear()
                refused.update(refusals)
                return changed

            try:
                begin = reassignments.begin_reassignments
                await self._in_tree_thread(begin, self._tree, name, topic.id, change)
            except NoNodeError:
                return {number: unknown_partition(name, number) for number in wanted}
            await self._reread_topics([name])
            return refused

    async def end_reassignments(self, topic_id: bytes, ends: Sequence[End]) -> None:
        """End moves of partitions of one topic which this broker leads, and take over what there is then.

        :raises CoordinationError: the tree refused; perhaps some have ended.
        """
        async with self._changing:
            with suppress(NoNodeError):
                await self._in_tree_thread(reassignments.end_reassignments, self._tree, topic_id, ends)
            await self._reread_topics([ends[0].where.topic])

    @_to_its_end
    async def configure(
        self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool = False
    ) -> None:
        """Change the settings of a topic; they are in force when this returns.

        :param change: given the topic's own settings, returns the new ones; what it raises is passed on. Where
            somebody else changes them meanwhile it is called again. It is called on any thread.
        :raises ApiError: the topic does not exist, or a setting is wrong.
        """

        async def configure(topic: Topic) -> None:
            factor = replication_factor_of(topic.partitions)

            def changed(settings: Mapping[str, str]) -> Mapping[str, str]:
                known = usable_settings(self._config, settings)[0]
                wanted = change(known)
                internal_topics.check_settings(name, self._config, known, wanted, factor)
                config_in_force(self._config, name, wanted, factor)
                return internal_topics.settings_to_keep(name, wanted)

            if validate_only:
                changed(topic.settings)
                return
            write = configs.change_topic_config
            settings = await self._in_tree_thread(write, self._tree, name, changed, topic.settings, topic.id)
            config = config_in_force(self._config, name, settings, factor)
            for replica in topic.hosted.values():
                replica.configure(config)
            self._keep(replace(topic, settings=dict(settings)))
            self.picture.put_topic(replace(self.picture.topics[name], config=dict(settings)))

        async with self._changing:
            await self._change(name, configure)

    async def _change(self, name: str, change: Callable[[Topic], Awaitable[T]]) -> T:
        """Change a topic as this broker knows it; where another one was made under its name, that one.

        :param change: what it raises is passed on, but for `NoNodeError`: the topic is not there any more.
        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        for _ in range(ATTEMPTS):
            topic = self._by_name.get(name)
            if topic is None:
                break
            try:
                return await change(topic)
            except NoNodeError:
                # Another broker has deleted it, of which this one has not heard yet.
                await self._reread_topics([name])
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")

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
                factor = replication_factor_of(topic.partitions)
                changed = config_in_force(config, topic.name, topic.settings, factor)
                for replica in topic.hosted.values():
                    if replica.config != changed:
                        replica.configure(changed)
                await asyncio.sleep(0)

    @_to_its_end
    async def delete(self, name: str, topic_id: bytes | None = None) -> None:
        """Delete a topic with all that is in it, and every group's offsets in it.

        :param topic_id: of the topic that is meant; None: whichever has the name.
        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID.
        :raises StorageError: the disk refused for some of its folders; the topic is gone, and they go with the
            next start or with a new topic of that name.
        """

        async def delete(topic: Topic) -> Topic:
            if topic_id not in {None, topic.id}:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
            holders = {broker for each in topic.partitions for broker in each.replicas} | set(self.picture.brokers)
            if not await self.deletions.delete(topic.id, name, holders):
                raise NoNodeError(paths.topic(name))
            return topic

        async with self._changing:
            topic = await self._change(name, delete)
            refused = await self._set_aside(topic)
            if refused:
                self.deletions.keep_folders(topic.id)
            log.info("deleted topic %s", name, extra=about(name))
        # Others may change topics meanwhile: this may take long, and concerns nobody else.
        await self.deletions.end({topic.id: name}, self._by_name)
        if refused:
            raise refused

"""The topics of the cluster, and the replicas of theirs that this broker holds, each in its role.

The tree is the truth about which topics exist, and who leads; what is known of it is the picture. A topic exists once
it is in the tree, and it can be used here once the logs of this broker's replicas are open; clients see it from then
on. A deleted topic leaves the tree first, then its folders are set aside and removed later.

Whatever this broker changes it writes into the tree first, then it takes it over, as it takes over what others tell.

Used from the event loop's thread; what the tree has to read or write runs on the tree's own thread.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from barnabas.broker import internal_topics
from barnabas.broker.chance import Chance
from barnabas.broker.claims import Claims
from barnabas.broker.cluster_watch import News, Read
from barnabas.broker.deletions import Deletions
from barnabas.broker.disk_work import DiskWork
from barnabas.broker.hosting import Hosting
from barnabas.broker.open_files import OpenFiles
from barnabas.broker.own_replicas import OwnReplicas
from barnabas.broker.partition import Partition
from barnabas.broker.picture import BrokersChange, Picture
from barnabas.broker.placement import Assignment, added_replicas, check_partition_count, new_replicas
from barnabas.broker.replica import ON_ANY_THREAD
from barnabas.broker.roles import Roles
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import TopicConfig, topic_config
from barnabas.broker.topic_lookup import Topic, TopicLookup
from barnabas.broker.topic_names import check_topic_name
from barnabas.broker.tree_thread import InTreeThread
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.coordination import registry
from barnabas.coordination.changes import StateChange
from barnabas.coordination.registry import TopicInfo
from barnabas.coordination.tree import NodeError, NodeExistsError, Tree
from barnabas.coordination.values import NO_LEADER
from barnabas.errors import BarnabasError, ErrorCode, KafkaError, StorageError
from barnabas.model import TopicPartition
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager

MakeLog = Callable[..., Awaitable[Log]]
"""`Hosting.make`, or one that takes its place."""

AT_ONCE = 64
"""So many replicas are given their roles between two pauses."""

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


def _to_its_end(change: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Complete a change that has begun, even if the client that asked for it is gone: a change made halfway would
    leave tree and logs in disagreement."""

    @functools.wraps(change)
    async def run(*arguments: P.args, **named: P.kwargs) -> T:
        return await asyncio.shield(asyncio.create_task(change(*arguments, **named)))

    return run


class Topics(TopicLookup):
    """All topics, and what changes them."""

    def __init__(
        self,
        config: BrokerConfig,
        tree: Tree,
        logs: LogManager,
        in_tree_thread: InTreeThread,
        open_files: OpenFiles,
        work: DiskWork = ON_ANY_THREAD,
        clock: Clock = SYSTEM_CLOCK,
        chance: Chance = Chance(),  # noqa: B008 - immutable
    ) -> None:
        super().__init__()
        self._config = config
        self._open_files = open_files
        self._tree = tree
        self._in_tree_thread = in_tree_thread
        self._clock = clock
        self._chance = chance
        self._work = work
        self._changing = asyncio.Lock()
        self.picture = Picture()
        self.hosting = Hosting(logs, work.for_all)
        self.roles = Roles(config.broker_id, self.picture, work, clock)
        own = self._own = OwnReplicas(self, self.picture, self.hosting)
        self.claims = Claims(config.broker_id, self.picture, self._is_unclean_allowed, own.known_epoch, own.end_of)
        self.deletions = Deletions(config.broker_id, tree, in_tree_thread, self.hosting)
        self.on_led: Callable[[], None] = lambda: None
        """Called when this broker may lead other partitions than before."""
        self._damaged: dict[str, BarnabasError] = {}

    # -- what the tree says ---------------------------------------------------------------------------------

    async def load(self, news: News, *, lost_memory: bool = False) -> None:
        """Open what this broker holds of what the tree lists, and take the leadership that it is due.

        A topic of which the tree says what cannot be understood is not served, nor are its folders touched.

        :param news: everything.
        :param lost_memory: whether records may be missing that this broker had acknowledged.
        """
        self.picture.put_brokers(news.brokers or {})
        self._begin_life(news)
        for name, info in news.topics.items():
            if (topic := self._understood(name, info)) is not None:
                self.picture.put_topic(topic[0])
                self._keep(self._restore(*topic))
        for name, reason in self._damaged.items():
            log.error("topic %s is not served: %s; its folders stay as they are; mend it and start again", name, reason)
        own = [each.topic_partition for each in self.hosted()]
        incomplete = [each.topic_partition for each in self.hosted() if lost_memory or self._own.lacks_records(each)]
        while wanted := self.claims.withdraw(incomplete, self.hosting.was_missing):
            await self._write_states(wanted)
            # Again where somebody else was faster: it may have counted on this broker still.
            incomplete = [each.where for each in wanted if self.picture.has_instead(each)]
        await self._claim(own)
        await self._in_tree_thread(self._tree.flush)
        await self.deletions.load(self._by_id.keys(), set(own), self._damaged.keys())

    def _begin_life(self, news: News) -> None:
        topics = [info for info in news.topics.values() if info is not None and not isinstance(info, NodeError)]
        self.picture.begin_life(self._config.broker_id, topics)

    def _understood(self, name: str, info: TopicInfo | NodeError | None) -> tuple[TopicInfo, TopicConfig] | None:
        self._damaged.pop(name, None)
        try:
            if isinstance(info, NodeError):
                raise info
            return None if info is None else (info, topic_config(self._config, info.config))
        except (NodeError, KafkaError) as error:
            self._damaged[name] = error
            return None

    def _restore(self, info: TopicInfo, config: TopicConfig) -> Topic:
        hosted = {}
        for number, each in enumerate(info.partitions):
            if self._config.broker_id in each.replicas:
                where = TopicPartition(info.name, number)
                opened = self.hosting.restore(where, config.log, info.topic_id)
                hosted[number] = self.roles.first(opened.partition, opened, each, config)
        return Topic(info.name, info.topic_id, info.partitions, dict(info.config), hosted)

    async def take_over(self, read: Read) -> News:
        """Take over what is read of the tree; return it.

        It is read while nothing is changed here: older than an own change, it would undo that.
        """
        async with self._changing:
            news = await read()
            await self._take_over(news)
        return news

    async def _take_over(self, news: News) -> None:
        if news.is_new_session:
            self._begin_life(news)
        came = None if news.brokers is None else self.picture.put_brokers(news.brokers)
        names = list(news.topics)
        if news.is_everything:
            names += [name for name in self._by_name if name not in news.topics]
        changed: dict[str, list[int]] = {}
        for name in names:
            changed[name] = await self._take_over_topic(name, news.topics.get(name))
        for name, numbers in self._take_over_states(
            state for change in news.changes for state in change.states
        ).items():
            changed[name] = [*changed.get(name, []), *numbers]
        await self._follow(changed)
        own = [TopicPartition(name, number) for name, numbers in changed.items() for number in numbers]
        if came is not None:
            own += self._concerned(came)
            self._leaders_came(came.came)
        if news.is_everything:
            own = [each.topic_partition for each in self.hosted()]
        await self._claim(own)

    async def _take_over_topic(self, name: str, info: TopicInfo | NodeError | None) -> list[int]:
        """Return the partitions of which something is news."""
        known = self._by_name.get(name)
        understood = self._understood(name, info)
        if understood is None:
            if name in self._damaged:
                log.error("topic %s stays as it was: %s", name, self._damaged[name])
            elif known is not None:
                await self._drop(known)
            return []
        info, config = understood
        if known is not None and known.id != info.topic_id:
            await self._drop(known)
        self.picture.put_topic(info)
        await self._open_new(self.picture.topics[name], config, self.hosting.make_or_put_offline)
        return list(range(len(info.partitions)))

    async def _open_new(self, info: TopicInfo, config: TopicConfig, make: MakeLog) -> Topic:
        """Open the logs of replicas that are new here, and put the topic's settings into force; one log at a time, so
        that others have their turn at the disk.

        :raises BarnabasError: as `make` does.
        """
        topic = self._by_name.get(info.name)
        hosted = dict(topic.hosted) if topic else {}
        logs = {}
        for number, each in enumerate(info.partitions):
            if number not in hosted and self._config.broker_id in each.replicas:
                where = TopicPartition(info.name, number)
                logs[number] = await make(where, config.log, info.topic_id)
        for number, opened in logs.items():
            hosted[number] = self.roles.first(opened.partition, opened, info.partitions[number], config)
        if topic is not None and topic.settings != info.config:
            for replica in topic.hosted.values():
                replica.configure(config)
        made = Topic(info.name, info.topic_id, info.partitions, dict(info.config), hosted)
        self._keep(made)
        return made

    async def _follow(self, changed: Mapping[str, Sequence[int]]) -> None:
        """Let replicas have the roles that the picture gives them."""
        count = 0
        for name, numbers in changed.items():
            topic = self._by_name.get(name)
            if topic is None or name not in self.picture.topics:
                continue
            hosted = dict(topic.hosted)
            for number in dict.fromkeys(numbers):
                if number in hosted:
                    hosted[number] = await self.roles.next(hosted[number], self.picture.topics[name].partitions[number])
                count += 1
                if count % AT_ONCE == 0:
                    await asyncio.sleep(0)
            self._keep(replace(topic, partitions=self.picture.topics[name].partitions, hosted=hosted))
        self.on_led()

    def _take_over_states(self, states: Iterable[StateChange]) -> dict[str, list[int]]:
        """Let clients see new states; return, by topic, the partitions of which they are news. The replicas here do not
        have their roles yet."""
        changed = self.picture.put_states(states)
        for name in changed:
            if (topic := self._by_name.get(name)) is not None:
                self._keep(replace(topic, partitions=self.picture.topics[name].partitions))
        return changed

    def _concerned(self, came_and_gone: BrokersChange) -> list[TopicPartition]:
        """Return the replicas here whose leader or in-sync replicas may be others now."""
        others = came_and_gone.came | came_and_gone.gone | came_and_gone.changed
        found = []
        for replica in self.hosted():
            info = self.picture.partition(replica.topic_partition)
            if info is not None and not others.isdisjoint({info.state.leader, *info.state.isr, *info.replicas}):
                found.append(replica.topic_partition)
                if isinstance(replica, Partition) and replica.followers is not None:
                    self.roles.on_isr_wanted(replica)
        return found

    def _leaders_came(self, came: Collection[int]) -> None:
        """Let replicas whose leader was not known to live begin now: that it leads may be known before that it lives,
        and it may live at another address."""
        for replica in self.hosted():
            if replica.leader in came:
                self.roles.on_begun(replica)

    # -- leadership -----------------------------------------------------------------------------------------

    async def claim_due(self) -> None:
        """Take over partitions that nobody before this broker in line has taken over."""
        async with self._changing:
            await self._claim(self.claims.due(self._clock.monotonic()))

    async def _claim(self, partitions: Iterable[TopicPartition]) -> None:
        asked = list(partitions)
        own = list(filter(self._own.may_lead, asked))
        others = set(asked).difference(own)
        self.claims.forget(others)
        await self._write_states(self.claims.give_up(others))
        while changes := self.claims.look(own, self._clock.monotonic()):
            try:
                await self._write_states(changes)
            except BarnabasError:
                self.claims.look_again((change.where for change in changes), self._clock.monotonic())
                raise
            # Whoever was faster need not lead now: perhaps the old leader had written another ISR before it died.
            # And where all were waited for that lost memory, this one may have been the last to tell.
            own = [each.where for each in changes if self.picture.has_instead(each) or each.state.leader == NO_LEADER]

    async def _write_states(self, wanted: Sequence[StateChange]) -> None:
        """Write states if nobody was faster, and let replicas have their roles."""
        if wanted:
            await self._follow(await self.propose(wanted))

    async def propose(self, wanted: Sequence[StateChange]) -> dict[str, list[int]]:
        """Write states if nobody was faster; the picture has what there is now.

        :returns: the partitions, by topic, of which that is news: their replicas do not have their roles yet.
        """
        written = await self._in_tree_thread(registry.write_partition_states, self._tree, wanted)
        others = set(wanted) - set(written)
        if others:
            written += await self._in_tree_thread(registry.read_partition_states, self._tree, others)
        return self._take_over_states(written)

    async def reread(self, states: Iterable[StateChange]) -> dict[str, list[int]]:
        """Read states anew; return, by topic, the partitions of which that brings news."""
        return self._take_over_states(
            await self._in_tree_thread(registry.read_partition_states, self._tree, list(states))
        )

    async def follow(self, changed: Mapping[str, Sequence[int]]) -> None:
        """Let replicas have the roles that the picture gives them now."""
        async with self._changing:
            await self._follow(changed)

    def preferred_replica(self, where: TopicPartition) -> int:
        """Return the broker that is meant to lead a partition, or -1 if there is no such partition."""
        info = self.picture.partition(where)
        return NO_LEADER if info is None else info.replicas[0]

    def _is_unclean_allowed(self, name: str) -> bool:
        topic = self._by_name.get(name)
        return topic is not None and topic_config(self._config, topic.settings).unclean_leader_election_enable

    # -- changes --------------------------------------------------------------------------------------------

    def check_new(
        self,
        name: str,
        partition_count: int,
        settings: Mapping[str, str | None],
        replication_factor: int = 1,
        assignment: Assignment = None,
    ) -> list[tuple[int, ...]]:
        """Check that this topic could be made; return where its replicas would be.

        :raises KafkaError: why it could not.
        """
        check_topic_name(name)
        if name in self._by_name:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
        if partition_count < 1:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"a topic has 1 partition or more, not {partition_count}")
        check_partition_count(partition_count)
        topic_config(self._config, settings)
        placed = new_replicas(self.picture, partition_count, replication_factor, assignment, self._chance.random_below)
        own = [number for number, each in enumerate(placed) if self._config.broker_id in each]
        self._open_files.check_room(len(own))
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
        :raises KafkaError: it exists, its name or a setting is wrong, a folder of another topic is in its way.
        :raises StorageError: the disk refused its folders; what this call made is gone again.
        """
        async with self._changing:
            placed = self.check_new(name, partition_count, settings, replication_factor, assignment)
            topic_id = self._chance.new_id().bytes
            kept = {key: value for key, value in settings.items() if value is not None}
            live = set(self.picture.brokers)
            try:
                create = registry.create_topic
                info = await self._in_tree_thread(create, self._tree, name, topic_id, placed, kept, live)
            except NodeExistsError:
                raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists") from None
            self.picture.put_topic(info)
            try:
                topic = await self._open_new(info, topic_config(self._config, kept), self.hosting.make)
            except BarnabasError:
                await self._take_back(info)
                raise
            log.info("created topic %s with %d partitions", name, partition_count)
            self.on_led()
            return topic

    async def _take_back(self, info: TopicInfo) -> None:
        """Let a topic go again that was made without its logs: it could neither be used nor made again."""
        others = {broker for each in info.partitions for broker in each.replicas} - {self._config.broker_id}
        if others:
            # They may have made theirs already.
            await self.deletions.note(info.topic_id, info.name, others)
        await self._in_tree_thread(registry.delete_topic, self._tree, info.name)
        self.picture.remove_topic(info.name)
        # No log of this name was there before: those that are there are what was made now.
        self.hosting.delete(TopicPartition(info.name, number) for number in range(len(info.partitions)))

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

        :raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, or INVALID_PARTITIONS where it would not grow.
        """
        topic = self._by_name.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        count = len(topic.partitions)
        if partition_count <= count:
            message = f"topic {name} has {count} partitions; it can grow to more, not to {partition_count}"
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
        check_partition_count(partition_count)
        return partition_count - count

    @_to_its_end
    async def grow(self, name: str, partition_count: int, assignment: Assignment = None) -> None:
        """Add partitions to a topic, with as many replicas as it has.

        :param assignment: the brokers of each new partition's replicas; None: they are spread over all brokers.
        :raises KafkaError: the topic does not exist, or would not grow.
        :raises StorageError: the disk refused their folders.
        :raises CoordinationError: the tree refused; what it has is not known, and the same can be asked for again.
        """
        async with self._changing:
            added_count = self.check_growth(name, partition_count)
            topic = self._by_name[name]
            count = len(topic.partitions)
            existing = [each.replicas for each in topic.partitions]
            placed = added_replicas(self.picture, existing, added_count, assignment)
            own = [n for n, each in enumerate(placed, start=count) if self._config.broker_id in each]
            self._open_files.check_room(len(own))
            new = [where for n in own if not self.hosting.is_there(where := TopicPartition(name, n))]
            config = topic_config(self._config, topic.settings)
            try:
                # Logs first: the tree must not list what cannot be opened.
                for number in own:
                    await self.hosting.make(TopicPartition(name, number), config.log, topic.id)
                grow, live = registry.grow_topic, set(self.picture.brokers)
                there = await self._in_tree_thread(grow, self._tree, name, placed, count, live)
                if there != partition_count:
                    message = f"topic {name} has {there} partitions in the tree; it can grow to more"
                    raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
            except BarnabasError:
                self.hosting.delete(new)
                raise
            info = await self._in_tree_thread(registry.read_topic, self._tree, name)
            if info is not None:
                await self._follow({name: await self._take_over_topic(name, info)})
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
            for replica in topic.hosted.values():
                replica.configure(config)
            self._keep(replace(topic, settings=dict(settings)))
            self.picture.put_topic(replace(self.picture.topics[name], config=dict(settings)))

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
                for replica in topic.hosted.values():
                    if replica.config != changed:
                        replica.configure(changed)
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
            holders = {broker for each in topic.partitions for broker in each.replicas} | set(self.picture.brokers)
            await self.deletions.note(topic.id, name, holders)
            await self._in_tree_thread(registry.delete_topic, self._tree, name)
            refused = await self._set_aside(topic)
            if refused:
                self.deletions.keep_folders(topic.id)
            log.info("deleted topic %s", name)
        # Others may change topics meanwhile: this may take long, and concerns nobody else.
        await self.deletions.end({topic.id: name}, self._by_name)
        if refused:
            raise refused

    async def _drop(self, topic: Topic) -> None:
        """Let go of a topic that has left the tree; set its folders aside if it was deleted."""
        if await self.deletions.is_noted(topic.id):
            refused = await self._set_aside(topic)
            if refused:
                log.warning("%s", refused)
            log.info("topic %s was deleted", topic.name)
            self.deletions.begin(topic.id, topic.name, has_folders=refused is not None)
            return
        log.error("topic %s has left the tree, and nobody deleted it; its folders stay as they are", topic.name)
        self._let_go(topic)
        for replica in topic.hosted.values():
            await self.roles.end(replica, "the topic has left the tree")

    async def _set_aside(self, topic: Topic) -> StorageError | None:
        self._let_go(topic)
        for replica in topic.hosted.values():
            self.roles.on_ended(replica)
            replica.mark_deleted()
        # Not on the event loop: it waits for flushes that are under way.
        partitions = [each.topic_partition for each in topic.hosted.values()]
        refused: StorageError | None = await self._work.for_all(self.hosting.delete, partitions)
        return refused

    def _let_go(self, topic: Topic) -> None:
        del self._by_name[topic.name]
        del self._by_id[topic.id]
        self.picture.remove_topic(topic.name)
        self.on_led()

    async def end_deletions(self) -> None:
        """End the deletions that could not be: in the last run, while groups were loaded, or made by other brokers."""
        await self.deletions.end_all(self._by_name)

    async def store_log_starts(self) -> None:
        """Store durably where the logs begin after records were deleted, and free the disk space of those records.

        :raises StorageError: the disk refused.
        """
        await self._work.for_all(self.hosting.remove_deleted_records)

    async def delete_old_records(self) -> None:
        """Delete the records that the topics' settings no longer keep."""
        for replica in self.hosted():
            await replica.delete_old_records()
            await asyncio.sleep(0)
        await self.store_log_starts()

"""The topics of the cluster as clients see them, and the application of metadata changes on this broker.

The metadata store decides which topics and leaders exist, and `MetadataImage` is the broker's copy of its contents. A
topic exists when it is in the metadata store. Clients see a topic when the logs of this broker's replicas
(`ReplicaManager`) are open. The broker applies changes of other brokers. It writes its own changes, for example of
leaders, to the metadata store before it applies them.

Used from the event loop's thread. Calls of the metadata store run on its own thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from barnabas.broker import internal_topics
from barnabas.broker.broker_events import (
    ElectionPostponed,
    Events,
    LeadershipChanged,
    LifeCountersDue,
)
from barnabas.broker.cluster_watch import MetadataUpdate, Read
from barnabas.broker.disk_work import ON_ANY_THREAD, DiskWork
from barnabas.broker.leader_election import LeaderElection
from barnabas.broker.leader_eligibility import LeaderEligibility
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.metadata_image import BrokersDelta, MetadataImage
from barnabas.broker.metadata_store_access import InMetadataThread
from barnabas.broker.random_source import RandomSource
from barnabas.broker.replica import Replica
from barnabas.broker.replica_logs import CreateLog, ReplicaLogs
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.replica_removal import ReplicaRemoval
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import (
    KEEP_RECORDS,
    TopicConfig,
    is_unclean_election_allowed,
    usable_settings,
)
from barnabas.broker.topic_deletion import TopicDeletion
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.coordination import configs, paths, topic_metadata_store
from barnabas.coordination.change_notifications import StateChange
from barnabas.coordination.fields import DamagedNodeError
from barnabas.coordination.metadata_store import MetadataStore, NodeError
from barnabas.coordination.topic_metadata_store import PartitionInfo, TopicInfo
from barnabas.coordination.values import NO_LEADER
from barnabas.errors import ApiError, BarnabasError, ErrorCode, StorageError
from barnabas.log_lines import LogEvent, about, event
from barnabas.model import TopicPartition
from barnabas.shielded import shielded
from barnabas.storage.data_folders import AnyLogs

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as clients see it.

    :ivar partitions: the partitions, in the order of their numbers.
    :ivar settings: the settings that the topic overrides.
    """

    name: str
    id: bytes
    partitions: tuple[PartitionInfo, ...]
    settings: Mapping[str, str]


class Topics:
    """All topics of the cluster. Applies metadata updates to them."""

    def __init__(
        self,
        config: BrokerConfig,
        tree: MetadataStore,
        logs: AnyLogs,
        in_metadata_thread: InMetadataThread,
        events: Events,
        work: DiskWork = ON_ANY_THREAD,
        clock: Clock = SYSTEM_CLOCK,
        random_source: RandomSource = RandomSource(),  # noqa: B008 - immutable
    ) -> None:
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._config = config
        self._tree = tree
        self._in_metadata_thread = in_metadata_thread
        self._events = events
        self._clock = clock
        self._work = work
        self.changing = asyncio.Lock()
        """The lock that is held during each change of topics, and while a metadata update is applied."""
        self.metadata = MetadataCache(events)
        self.replica_logs = ReplicaLogs(logs, work.in_order)
        self.replicas = ReplicaManager(
            config.broker_id, self._partitions_of, self.metadata, self.replica_logs, work, clock, events
        )
        own = self._own = LeaderEligibility(self.replicas, self.metadata, self.replica_logs)
        self.election = LeaderElection(
            config.broker_id,
            self.metadata,
            self._is_unclean_allowed,
            own.known_epoch,
            own.end_of,
            own.is_ahead_of_tree,
            random_source.later_epoch,
            lambda: events.publish(ElectionPostponed()),
        )
        self.deletions = TopicDeletion(config.broker_id, tree, in_metadata_thread, self.replica_logs, events)
        self.removals = ReplicaRemoval(config.broker_id, tree, in_metadata_thread, self.replica_logs)
        self._damaged: dict[str, BarnabasError] = {}
        """The errors of topics whose nodes are damaged, by topic name."""
        self._logged_damage: dict[str, str] = {}
        """The last logged errors of topics whose nodes are damaged, by topic name."""
        self._unread: set[str] = set()
        """The names of the topics that this broker has not been able to read since its registration."""
        self._lost_memory = False
        self._may_have_missed = False
        """True if other brokers may have created and deleted topics while this broker could not read the metadata
        store.
        """
        self._incomplete: set[TopicPartition] = set()
        """This broker's replicas that may lack acknowledged records and have not left the ISRs yet."""

    @property
    def config(self) -> BrokerConfig:
        """The effective settings of the broker."""
        return self._config

    @property
    def image(self) -> MetadataImage:
        """The current metadata image."""
        return self.metadata.image

    # -- lookup ----------------------------------------------------------------------------------------------

    def get(self, name: str) -> Topic | None:
        """Return the topic with this name, or None."""
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        """Return the topic with this id, or None."""
        return self._by_id.get(topic_id)

    def name_of(self, topic_id: bytes) -> str:
        """Return the name of the topic with this id.

        :raises ApiError: UNKNOWN_TOPIC_ID.
        """
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic with this id exists")
        return topic.name

    def all(self) -> Iterable[Topic]:
        """Return all topics."""
        return self._by_name.values()

    def names(self) -> set[str]:
        """Return the names of all topics."""
        return set(self._by_name)

    def has_partition(self, where: TopicPartition) -> bool:
        """Return whether a partition exists."""
        topic = self._by_name.get(where.topic)
        return topic is not None and 0 <= where.partition < len(topic.partitions)

    def _partitions_of(self, name: str) -> Sequence[PartitionInfo] | None:
        topic = self._by_name.get(name)
        return None if topic is None else topic.partitions

    def _keep(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.id] = topic

    # -- metadata updates -----------------------------------------------------------------------------

    async def load(self, update: MetadataUpdate, *, lost_memory: bool = False) -> None:
        """Open the logs of this broker's replicas, and claim the partitions that this broker should lead.

        If a topic's node is damaged, the broker does not serve the topic, but keeps its partition directories.

        :param update: the result of a full read.
        :param lost_memory: True if acknowledged records may be missing from this broker's disks.
        """
        self._lost_memory = lost_memory
        self.metadata.put_brokers(update.brokers or {})
        self._begin_incarnation(update)
        topics = {name: info for name, info in update.topics.items() if isinstance(info, TopicInfo)}
        topic_ids = {info.topic_id for info in topics.values()}
        await self.deletions.make_room(topic_ids, update.topics.keys() - topics.keys())
        await self.removals.make_room(topics, update.topics.keys() - topics.keys())
        understood: dict[bytes, tuple[TopicInfo, TopicConfig]] = {}
        for name, info in _oldest_first(update.topics):
            if (topic := self._usable(name, info, understood)) is not None:
                understood[topic[0].topic_id] = topic
        self.metadata.put_topics(info for info, _ in understood.values())
        for topic in understood.values():
            await self._restore(*topic)
        self._logged_damage = {name: str(reason) for name, reason in self._damaged.items()}
        for name, reason in self._damaged.items():
            message = (
                "topic %s is not served: %s; its partition directories stay; repair its nodes and restart the broker"
            )
            log.error(message, name, reason, extra=event(LogEvent.TREE_DAMAGED, name))
        self._unread.update(self._damaged)
        own = [each.topic_partition for each in self.replicas.all()]
        self._note_incomplete(self.replicas.all())
        self._protect_newer_logs(self.replicas.all())
        while doubted := self.election.doubt(own):
            await self._write_and_apply_states(doubted)
            if not any(self.image.has_version_of(each) for each in doubted):
                break  # The topics are being deleted.
        await self._withdraw()
        await self._elect(own)
        await self._in_metadata_thread(self._tree.flush)
        await self.deletions.load(self._by_id.keys(), set(own), self._damaged.keys())
        self._log_logs_left()

    def _log_logs_left(self) -> None:
        """Report each log of a partition that has no replica on this broker.

        If the metadata store was restored, it may be the only copy.
        """
        for topic in self._by_id.values():
            for number, info in enumerate(topic.partitions):
                where = TopicPartition(topic.name, number)
                if self._config.broker_id not in info.replicas and self.replica_logs.belongs_to(where, topic.id):
                    message = (
                        "%s has replicas on brokers %s in the metadata store, with leader epoch %d;"
                        " this broker still has a log of it, with leader epoch %d"
                    )
                    log.error(
                        message,
                        where,
                        list(info.replicas),
                        info.state.leader_epoch,
                        self.replica_logs.known_epoch(where),
                        extra=event(LogEvent.TREE_OLDER),
                    )

    def _begin_incarnation(self, update: MetadataUpdate) -> None:
        topics = [info for info in update.topics.values() if info is not None and not isinstance(info, NodeError)]
        self._unread.update(name for name, info in update.topics.items() if isinstance(info, NodeError))
        self.metadata.begin_incarnation(self._config.broker_id, topics)

    def _note_incomplete(self, opened: Iterable[Replica]) -> None:
        self._incomplete.update(each.topic_partition for each in opened if self._is_incomplete(each))

    def _protect_newer_logs(self, opened: Iterable[Replica]) -> None:
        """Mark the logs that may be newer than the metadata store.

        A follower must not truncate such a log before it was compared with a leader's log.
        """
        for replica in opened:
            if self.replica_logs.is_in_newer_folder(replica.topic_partition):
                replica.log.mark_newer_than_tree()

    def _is_incomplete(self, replica: Replica) -> bool:
        is_old = self.replica_logs.is_in_old_copy(replica.topic_partition)
        return self._lost_memory or is_old or self._own.lacks_records(replica)

    @property
    def has_unread(self) -> bool:
        """Return whether an ISR may wrongly contain this broker.

        This is possible if this broker has not read some topics yet, or has not left some ISRs yet.
        """
        return bool(self._unread or self._incomplete)

    async def _withdraw(self) -> None:
        """Leave the ISRs of the partitions for which this broker may lack acknowledged records."""
        while wanted := self.election.withdraw(
            sorted(self._incomplete), self.replica_logs.is_gone, self.replica_logs.is_in_old_copy
        ):
            await self._write_and_apply_states(wanted)
            # If another broker has written a newer state with this broker in the ISR, repeat the write for this
            # partition.
            self._incomplete = {each.where for each in wanted if self.image.has_other_than(each)}
        self._incomplete.clear()

    def _usable(
        self, name: str, info: TopicInfo | NodeError | None, loading: Mapping[bytes, tuple[TopicInfo, TopicConfig]]
    ) -> tuple[TopicInfo, TopicConfig] | None:
        """Return a topic with its settings, or None if the topic does not exist or is damaged.

        :param loading: the topics that have been read before, and are being loaded, by topic id.
        """
        self._damaged.pop(name, None)
        try:
            if isinstance(info, NodeError):
                raise info
            if info is None:
                return None
            if info.topic_id in loading:
                raise _same_id(info, loading[info.topic_id][0].name)
            return self._with_usable_config(info)
        except (NodeError, ApiError) as error:
            self._damaged[name] = error
            return None

    def _with_usable_config(self, info: TopicInfo) -> tuple[TopicInfo, TopicConfig]:
        """Return a topic with its valid settings, and its effective settings.

        :raises DamagedNodeError: another topic has the same topic id, for example because the node is a copy.
        """
        path, known = paths.topic_config(info.name), self._by_id.get(info.topic_id)
        if known is not None and known.name != info.name:
            raise _same_id(info, known.name)
        settings = info.config
        if info.has_unreadable_config:
            settings = dict(KEEP_RECORDS if known is None else known.settings)
        if info.name in internal_topics.INTERNAL_TOPICS:
            own = {} if info.has_unreadable_config else info.config
            info = replace(info, config=own, has_unreadable_config=False)
            return info, self._config_of(info)
        usable, problems = usable_settings(self._config, settings)
        configs.report_settings(self._tree, path, problems)
        info = replace(info, config=usable, has_unreadable_config=False)
        return info, self._config_of(info)

    def _config_of(self, info: TopicInfo) -> TopicConfig:
        """Return the effective settings of a topic.

        :raises ApiError: a setting is invalid.
        """
        known = self._by_name.get(info.name)
        if known is None or known.settings != info.config:
            internal_topics.log_ignored(self._config, info.name, info.config)
        factor = internal_topics.replication_factor_of(info.partitions)
        return internal_topics.config_in_force(self._config, info.name, info.config, factor)

    async def _restore(self, info: TopicInfo, config: TopicConfig) -> None:
        await self.replicas.restore(info, config)
        self._keep(Topic(info.name, info.topic_id, info.partitions, dict(info.config)))

    async def apply_update(self, read: Read) -> MetadataUpdate:
        """Read the metadata store, apply the update, and return it.

        The lock `changing` is held during the read. Otherwise, an update that was read before a change by this broker
        would undo this change.
        """
        async with self.changing:
            update = await read()
            await self._apply_update(update)
        return update

    async def _apply_update(self, update: MetadataUpdate) -> None:
        if update.is_new_session:
            self._begin_incarnation(update)
        brokers = None if update.brokers is None else self.metadata.put_brokers(update.brokers).brokers
        names = [name for name, _ in _oldest_first(update.topics)]
        if update.is_everything:
            self._may_have_missed = True
            names += [name for name in self._by_name if name not in update.topics]
        changed: dict[str, Sequence[int]] = {}
        for name in names:
            changed[name] = await self._apply_topic(name, update.topics.get(name))
        await self._withdraw()
        for name, numbers in self._apply_states(state for change in update.changes for state in change.states).items():
            changed[name] = [*changed.get(name, []), *numbers]
        await self._apply_roles(changed)
        own = [TopicPartition(name, number) for name, numbers in changed.items() for number in numbers]
        if brokers is not None:
            own += self._concerned(brokers)
            self.replicas.restart_followers_of(brokers.came)
        if update.is_everything:
            own = [each.topic_partition for each in self.replicas.all()]
        await self._elect(own)

    async def _apply_topic(self, name: str, info: TopicInfo | NodeError | None) -> list[int]:
        """Apply the metadata of a topic. Return the partitions that may have changed."""
        known = self._by_name.get(name)
        if known is None or not isinstance(info, TopicInfo) or known.id != info.topic_id:
            self._may_have_missed = True
        understood = self._usable(name, info, {})
        if understood is None:
            if name in self._damaged:
                if self._logged_damage.get(name) != str(self._damaged[name]):
                    extra = event(LogEvent.TREE_DAMAGED, name)
                    log.error(
                        "the nodes of topic %s are damaged: %s; keeping its last valid state",
                        name,
                        self._damaged[name],
                        extra=extra,
                    )
                self._logged_damage[name] = str(self._damaged[name])
            elif known is not None:
                await self._drop(known)
            return []
        info, config = understood
        self._logged_damage.pop(name, None)
        if known is not None and known.id != info.topic_id:
            await self._drop(known)
        if name in self._unread:
            self._unread.discard(name)
            self.metadata.add_to_incarnation(self._config.broker_id, info)
            if known is None:
                await self._open_late(info, config)
        before = self.image.topics.get(name)
        if before is not None and before.version != info.version:
            self.removals.check_soon()
        self.metadata.put_topic(info)
        await self._end_removed_replicas(name)
        await self._open_new(self.image.topics[name], config, self.replica_logs.create_or_put_offline)
        return list(range(len(info.partitions)))

    async def _end_removed_replicas(self, name: str) -> None:
        """End the roles of replicas that moved to other brokers.

        Delete their directories if removal nodes permit this.
        """
        topic, info = self._by_name.get(name), self.image.topics[name]
        own = self._config.broker_id
        removed = [number for number in self.replicas.of_topic(name) if own not in info.partitions[number].replicas]
        if topic is None or not removed:
            return
        taken = self.replicas.remove(name, removed)
        self._keep(replace(topic, partitions=info.partitions))
        self._events.publish(LeadershipChanged())
        for replica in taken:
            await self.replicas.resign(replica, "the partition moved to other brokers")
            await self.removals.execute(replica.topic_partition, topic.id, self._work)

    def _is_held(self, where: TopicPartition, topic_id: bytes) -> bool:
        topic = self._by_name.get(where.topic)
        return topic is not None and topic.id == topic_id and self.replicas.get(where) is not None

    async def _open_late(self, info: TopicInfo, config: TopicConfig) -> None:
        """Open the logs of a topic whose nodes were unreadable when the broker started."""
        self.metadata.put_topic(info)
        await self._restore(info, config)
        opened = self.replicas.of_topic(info.name).values()
        self._note_incomplete(opened)
        self._protect_newer_logs(opened)

    async def _open_new(self, info: TopicInfo, config: TopicConfig, make: CreateLog) -> Topic:
        """Open the logs of replicas that are new on this broker, and apply the topic's settings.

        :raises BarnabasError: a log cannot be created.
        """
        known = self._by_name.get(info.name)
        await self.replicas.open_new(info, config, make)
        if known is not None and known.settings != info.config:
            self.replicas.configure(info.name, config)
        topic = Topic(info.name, info.topic_id, info.partitions, dict(info.config))
        self._keep(topic)
        return topic

    async def open_created(self, info: TopicInfo) -> Topic:
        """Create the logs of a topic that this broker has just created in the metadata store.

        The caller must hold the lock `changing`.

        :raises BarnabasError: a log cannot be created, or a setting is invalid.
        """
        return await self._open_new(info, self._config_of(info), self.replica_logs.create)

    def apply_settings(self, topic: Topic, settings: Mapping[str, str]) -> None:
        """Apply topic settings that this broker has just written to the metadata store.

        The caller must hold the lock `changing`.

        :raises ApiError: a setting is invalid.
        """
        factor = internal_topics.replication_factor_of(topic.partitions)
        config = internal_topics.config_in_force(self._config, topic.name, settings, factor)
        self.replicas.configure(topic.name, config)
        self._keep(replace(topic, settings=dict(settings)))
        self.metadata.put_topic(replace(self.image.topics[topic.name], config=dict(settings)))

    @shielded
    async def apply_defaults(self, config: BrokerConfig) -> None:
        """Apply new broker settings as defaults of existing and new topics."""
        async with self.changing:
            self._config = config
            for topic in list(self.all()):
                factor = internal_topics.replication_factor_of(topic.partitions)
                changed = internal_topics.config_in_force(config, topic.name, topic.settings, factor)
                self.replicas.configure(topic.name, changed)
                await asyncio.sleep(0)

    async def end_changes(self) -> None:
        """Wait until no change of topics is in progress."""
        async with self.changing:
            pass

    async def _apply_roles(self, changed: Mapping[str, Sequence[int]]) -> None:
        """Make the replicas of this broker leaders or followers, as the metadata image requires."""
        for name, numbers in changed.items():
            topic = self._by_name.get(name)
            if topic is None or name not in self.image.topics:
                continue
            await self.replicas.transition(name, numbers)
            self._keep(replace(topic, partitions=self.image.topics[name].partitions))
        self._events.publish(LeadershipChanged())

    def _apply_states(self, states: Iterable[StateChange]) -> Mapping[str, Sequence[int]]:
        """Apply partition states to the metadata image. Return the changed partitions, by topic, for `_apply_roles`."""
        changed = self.metadata.put_states(states).partitions
        for name in changed:
            if (topic := self._by_name.get(name)) is not None:
                self._keep(replace(topic, partitions=self.image.topics[name].partitions))
        return changed

    def _concerned(self, brokers: BrokersDelta) -> list[TopicPartition]:
        """Return this broker's partitions whose leader or ISR may change because brokers have joined or left."""
        others = brokers.all
        found = []
        for replica in self.replicas.all():
            info = self.image.partition(replica.topic_partition)
            if info is not None and not others.isdisjoint({info.state.leader, *info.state.isr, *info.replicas}):
                found.append(replica.topic_partition)
                if isinstance(replica, LeaderReplica) and replica.followers is not None:
                    replica.ask_for_isr_change()
        return found

    # -- leadership -----------------------------------------------------------------------------------------

    async def elect_due(self) -> None:
        """Claim the partitions with a due postponed election, which no earlier candidate has claimed in time."""
        async with self.changing:
            await self._elect(self.election.due(self._clock.monotonic()))

    async def elect_uncleanly(self, partitions: Sequence[TopicPartition]) -> None:
        """Claim partitions without a live in-sync replica for which this broker is the first candidate.

        An administrator has requested this unclean election, so it does not depend on topic settings.

        :raises BarnabasError: the metadata store is unreachable.
        """
        async with self.changing:
            with self.election.allowing_unclean(partitions):
                await self._elect(partitions)

    async def _elect(self, partitions: Iterable[TopicPartition]) -> None:
        asked = list(partitions)
        own = self._that_may_lead(asked)
        able = set(own)
        others = [each for each in asked if each not in able]
        self.election.forget(others)
        await self._write_and_apply_states(self.election.resign(others))
        while changes := self.election.elect(await self._with_brokers_read(own), self._clock.monotonic()):
            try:
                await self._write_and_apply_states(changes)
            except BarnabasError:
                self.election.retry_soon((change.where for change in changes), self._clock.monotonic())
                raise
            # Elect again if another broker wrote the state, because the state may have no live leader. Also elect again
            # if this broker reported its log end, because its report may have been the last missing one.
            known = [each for each in changes if self.image.has_version_of(each)]
            own = [each.where for each in known if self.image.has_other_than(each) or each.state.leader == NO_LEADER]
            if unknown := [each.where for each in changes if not self.image.has_version_of(each)]:
                # The topic is being deleted: its partition states are gone, and this broker will read the deletion
                # soon.
                self.election.retry_soon(unknown, self._clock.monotonic())

    def _that_may_lead(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        return [each for each in partitions if each not in self._incomplete and self._own.may_lead(each)]

    def _is_led_by_an_unknown(self, where: TopicPartition) -> bool:
        info = self.image.partition(where)
        return info is not None and info.state.leader not in {NO_LEADER, *self.image.brokers}

    async def _with_brokers_read(self, own: list[TopicPartition]) -> list[TopicPartition]:
        """Read the live brokers again if the leader of a partition is not in the metadata image.

        Partition states may be newer than the list of live brokers, so the leader may have registered after this list
        was read.

        :returns: `own`, and the partitions whose leader or ISR may change because of new or missing brokers.
        """
        if not any(self._is_led_by_an_unknown(each) for each in own):
            return own
        known = self.image.brokers
        try:
            brokers = await self._in_metadata_thread(topic_metadata_store.read_brokers, self._tree, None, known)
        except BarnabasError:
            self.election.retry_soon(own, self._clock.monotonic())
            raise
        change = self.metadata.put_brokers(brokers).brokers
        self.replicas.restart_followers_of(change.came)
        return list(dict.fromkeys([*own, *self._that_may_lead(self._concerned(change))]))

    async def _write_and_apply_states(self, wanted: Sequence[StateChange]) -> None:
        """Write partition states, and begin the resulting roles."""
        if wanted:
            await self._apply_roles(await self.write_states(wanted))

    async def write_states(self, wanted: Sequence[StateChange]) -> Mapping[str, Sequence[int]]:
        """Write partition states by compare-and-set.

        Apply the resulting states in the metadata store to the metadata image.

        A write that adds a broker to an ISR also requires that the topic is unchanged, because the replica may have
        been moved to another broker.

        :returns: the changed partitions, by topic, for `apply_roles`.
        """
        versions = {
            each.where.topic: self.image.topics[each.where.topic].version
            for each in wanted
            if self._adds(each) or self._names_other_brokers(each) or each.where in self.metadata.disbelieved
        }
        written = await self._in_metadata_thread(
            topic_metadata_store.write_partition_states, self._tree, wanted, versions
        )
        if any(each.state.leader == self._config.broker_id for each in written):
            self._events.publish(LifeCountersDue())
        changed = set(written)
        # Keep the order of `wanted`, so that all runs of a simulation begin the roles in the same order.
        others = [each for each in wanted if each not in changed]
        if others:
            written += await self._in_metadata_thread(topic_metadata_store.read_partition_states, self._tree, others)
        return self._apply_states(written)

    def _adds(self, change: StateChange) -> bool:
        info = self.image.partition(change.where)
        return info is not None and not {*change.state.isr, change.state.leader} <= {*info.state.isr, NO_LEADER}

    def _names_other_brokers(self, change: StateChange) -> bool:
        """Return whether the known state contains brokers that have no replica of the partition in the metadata
        image.
        """
        info = self.image.partition(change.where)
        return info is not None and not {*info.state.isr, info.state.leader} <= {*info.replicas, NO_LEADER}

    async def read_broker_epochs(self, broker_ids: Iterable[int]) -> dict[int, int]:
        """Read the broker epochs of registered brokers from the metadata store.

        :raises CoordinationError: the metadata store is unreachable.
        """
        epochs: dict[int, int] = await self._in_metadata_thread(
            topic_metadata_store.read_broker_epochs, self._tree, list(broker_ids)
        )
        return epochs

    async def reread(self, states: Iterable[StateChange]) -> Mapping[str, Sequence[int]]:
        """Read partition states again, and apply them to the metadata image.

        Return the changed partitions, by topic.
        """
        return self._apply_states(
            await self._in_metadata_thread(topic_metadata_store.read_partition_states, self._tree, list(states))
        )

    async def reread_topics(self, names: Iterable[str]) -> None:
        """Read topics from the metadata store and apply them.

        :raises CoordinationError: the metadata store is unreachable.
        """
        async with self.changing:
            await self.reread_while_changing(names)

    async def reread_while_changing(self, names: Iterable[str]) -> None:
        """Read topics from the metadata store and apply them. The caller must hold the lock `changing`.

        :raises CoordinationError: the metadata store is unreachable.
        """
        changed: dict[str, Sequence[int]] = {}
        for name in names:
            info = await self._in_metadata_thread(topic_metadata_store.read_topic, self._tree, name)
            if info is not None:  # `ClusterWatch` applies deletions.
                changed[name] = await self._apply_topic(name, info)
        await self._apply_roles_and_elect_soon(changed)

    async def apply_roles(self, changed: Mapping[str, Sequence[int]]) -> None:
        """Begin new roles of this broker's replicas, as the metadata image requires."""
        async with self.changing:
            await self._apply_roles_and_elect_soon(changed)

    async def _apply_roles_and_elect_soon(self, changed: Mapping[str, Sequence[int]]) -> None:
        """Begin roles, and schedule elections of their partitions.

        This is necessary because `ClusterWatch` will find these states unchanged, and will not start elections.
        """
        await self._apply_roles(changed)
        places = (TopicPartition(name, number) for name, numbers in changed.items() for number in numbers)
        self.election.retry_soon(places, self._clock.monotonic())

    def preferred_replica(self, where: TopicPartition) -> int:
        """Return the preferred replica of a partition, or -1 if the partition does not exist."""
        info = self.image.partition(where)
        return NO_LEADER if info is None else info.replicas[0]

    def _is_unclean_allowed(self, name: str) -> bool:
        topic = self._by_name.get(name)
        if topic is None:
            return False
        factor = internal_topics.replication_factor_of(topic.partitions)
        settings = internal_topics.settings_in_force(self._config, name, topic.settings, factor)
        return is_unclean_election_allowed(self._config, settings)

    # -- deletion and retention ------------------------------------------------------------------------------

    async def _drop(self, topic: Topic) -> None:
        """Drop a topic that is no longer in the metadata store.

        If it has a deletion note, rename its directories for deletion.
        """
        if await self.deletions.is_noted(topic.id):
            refused = await self.delete_replicas(topic)
            if refused:
                log.warning(
                    "cannot delete a partition directory: %s; retrying at the next start",
                    refused,
                    extra=about(topic.name),
                )
            log.info("topic %s was deleted", topic.name, extra=about(topic.name))
            self.deletions.begin(topic.id, topic.name, has_folders=refused is not None)
            return
        if self.replicas.of_topic(topic.name):
            message = "topic %s is missing from the metadata store, and no broker deleted it; its directories stay"
            log.error(message, topic.name, extra=event(LogEvent.TOPIC_NOT_IN_TREE, topic.name))
        else:  # The broker that created the topic may have failed to create its logs.
            log.info(
                "topic %s was removed from the metadata store before this broker had a replica",
                topic.name,
                extra=about(topic.name),
            )
        for replica in self._forget(topic):
            await self.replicas.resign(replica, "the topic is missing from the metadata store")

    async def delete_replicas(self, topic: Topic) -> StorageError | None:
        """Remove a deleted topic from memory, and rename its partition directories.

        The caller must hold the lock `changing`.

        :returns: the error of the first directory that could not be renamed, or None.
        """
        return await self.replicas.delete(self._forget(topic))

    def _forget(self, topic: Topic) -> list[Replica]:
        """Remove a topic from memory, and return its replicas. The caller must end their roles."""
        del self._by_name[topic.name]
        del self._by_id[topic.id]
        self.metadata.remove_topic(topic.name)
        taken = self.replicas.remove_topic_replicas(topic.name)
        self._events.publish(LeadershipChanged())
        return taken

    async def end_deletions(self) -> None:
        """Complete the pending deletions of topics and of removed replicas."""
        async with self.changing:
            await self.removals.resume(self._is_held, self._work)
        if self._may_have_missed:
            async with self.changing:
                await self.deletions.find_missed(self._by_id.keys())
                self._may_have_missed = False
        await self.deletions.end_all(self._by_name)


def _same_id(info: TopicInfo, other: str) -> DamagedNodeError:
    return DamagedNodeError(paths.topic(info.name), f"topic {other} has the same id")


def _oldest_first(topics: Mapping[str, TopicInfo | NodeError | None]) -> list[tuple[str, TopicInfo | NodeError | None]]:
    """Return topics in the order of their creation, so that a copy of a topic's node follows the original."""
    return sorted(topics.items(), key=lambda each: each[1].created_at if isinstance(each[1], TopicInfo) else 0)

"""Topic administration: creation, deletion, new partitions, reassignments and changes of settings.

`TopicAdmin` writes each change to the metadata store first. `Topics` then applies it in the same way as a change by
another broker. A deletion removes the topic from the metadata store first. The broker then renames the partition
directories, and removes them later.

Used from the event loop's thread. Calls of the metadata store run on its own thread.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from barnabas.broker import internal_topics
from barnabas.broker.broker_events import Events, LeadershipChanged
from barnabas.broker.internal_topics import config_in_force, replication_factor_of
from barnabas.broker.metadata_image import MetadataImage
from barnabas.broker.metadata_store_access import InMetadataThread
from barnabas.broker.open_files import OpenFiles
from barnabas.broker.random_source import RandomSource
from barnabas.broker.replica_logs import create_logs
from barnabas.broker.settings.topic_config import usable_settings
from barnabas.broker.topic_names import check_topic_name
from barnabas.broker.topics import Topic, Topics
from barnabas.coordination import configs, paths, reassignments, topic_metadata_store
from barnabas.coordination.metadata_store import MetadataStore, NodeExistsError, NoNodeError
from barnabas.coordination.reassignments import End
from barnabas.coordination.topic_metadata_store import TopicInfo
from barnabas.coordination.values import ReplicaSet, TopicAssignment
from barnabas.errors import ApiError, BarnabasError, CoordinationError, ErrorCode
from barnabas.log_lines import LogEvent, about, event
from barnabas.model import TopicPartition
from barnabas.replication.assignment import assign_added, assign_replicas, check_assignment
from barnabas.replication.reassignment import cancelled, check_target, reassigned
from barnabas.shielded import shielded

PARTITIONS_MAX = 10_000
"""The maximum number of partitions of a topic. It is the number that Kafka's controllers allow in one request."""

Assignment = Sequence[Sequence[int]] | None
"""The brokers of each new partition's replicas, with the preferred leader first. None if the broker chooses them."""


def check_partition_count(count: int) -> None:
    """Check that a topic may have this number of partitions.

    :raises ApiError: POLICY_VIOLATION.
    """
    if count > PARTITIONS_MAX:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"a topic can have at most {PARTITIONS_MAX} partitions, not {count}")


def new_replicas(
    image: MetadataImage,
    partition_count: int,
    replication_factor: int,
    assignment: Assignment,
    random_below: Callable[[int], int],
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition of a new topic.

    :param random_below: returns a random number from 0 to its argument, exclusive.
    :raises ApiError: INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR.
    """
    if assignment is not None:
        check_assignment(dict(enumerate(assignment)), image.brokers, machines=_machines(image))
        return [tuple(each) for each in assignment]
    count = max(1, len(image.brokers))
    start, shift = random_below(count), random_below(count)
    racks, machines = _racks(image), _machines(image)
    return assign_replicas(racks, partition_count, replication_factor, start, shift, machines=machines)


def added_replicas(
    image: MetadataImage, existing: Sequence[tuple[int, ...]], added_count: int, assignment: Assignment
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition that is added to a topic.

    :param existing: the replicas of the existing partitions.
    :raises ApiError: INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR.
    """
    if assignment is not None:
        wanted = dict(enumerate(assignment, start=len(existing)))
        check_assignment(wanted, image.brokers, len(existing), len(existing[0]), _machines(image))
        return [tuple(each) for each in assignment]
    return assign_added(_racks(image), existing, added_count, _machines(image))


def reassigned_partitions(
    name: str,
    found: TopicAssignment,
    wanted: Mapping[int, Sequence[int] | None],
    image: MetadataImage,
    may_change_factor: bool,
) -> tuple[dict[int, ReplicaSet], dict[int, ApiError]]:
    """Return the new replica sets of the partitions that can be reassigned, and the errors of all other partitions.

    :param found: the current assignment of the topic.
    :param wanted: the target replicas of each partition. None cancels a reassignment.
    """
    live, machines = image.brokers.keys(), _machines(image)
    changed: dict[int, ReplicaSet] = {}
    refused: dict[int, ApiError] = {}
    for number, target in wanted.items():
        if not 0 <= number < len(found.replicas):
            refused[number] = unknown_partition(name, number)
            continue
        before = found.replica_set(number)
        try:
            if target is None:
                after = cancelled(before)
            else:
                check_target(before, target, live, may_change_factor=may_change_factor, machines=machines)
                after = reassigned(before, target)
        except ApiError as error:
            refused[number] = ApiError(error.code, error.reason, f"{name}-{number}")
            continue
        if after != before:
            changed[number] = after
    return changed, refused


def unknown_partition(name: str, number: int) -> ApiError:
    """Return the error for a partition that does not exist."""
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {name}-{number} does not exist")


def _racks(image: MetadataImage) -> dict[int, str | None]:
    """Return the racks of the live brokers. The rack is None if a broker has none."""
    return {each: broker.registration.rack or None for each, broker in image.brokers.items()}


def _machines(image: MetadataImage) -> dict[int, str]:
    """Return the labels of the live brokers' machines."""
    registrations = {each: broker.registration for each, broker in image.brokers.items()}
    return {each: found.machine for each, found in registrations.items() if found.machine}


log = logging.getLogger(__name__)

ATTEMPTS = 3
"""The maximum number of attempts to change a topic.

An attempt fails if another broker has deleted and recreated the topic.
"""

T = TypeVar("T")


class TopicAdmin:
    """Creates, changes and deletes topics. Used from the event loop's thread only.

    :param topics: the topics of this broker. A change holds their lock `changing`.
    :param open_files: rejects new partitions if the process has too few file descriptors left.
    :param check_disk: raises StorageError if the disk is too full for this many new partitions
        (`Reserve.check_room`).
    """

    def __init__(
        self,
        broker_id: int,
        topics: Topics,
        tree: MetadataStore,
        in_metadata_thread: InMetadataThread,
        events: Events,
        open_files: OpenFiles,
        random_source: RandomSource,
        check_disk: Callable[[int], None],
    ) -> None:
        self._broker_id = broker_id
        self._topics = topics
        self._tree = tree
        self._in_metadata_thread = in_metadata_thread
        self._events = events
        self._open_files = open_files
        self._random_source = random_source
        self._check_disk = check_disk

    # -- create ----------------------------------------------------------------------------------------------

    def check_new(
        self,
        name: str,
        partition_count: int,
        settings: Mapping[str, str | None],
        replication_factor: int = 1,
        assignment: Assignment = None,
    ) -> list[tuple[int, ...]]:
        """Check that a topic can be created. Return the brokers of each partition's replicas.

        :raises ApiError: the topic exists, or its name, a setting or the assignment is invalid.
        :raises StorageError: the disk is full.
        """
        check_topic_name(name)
        if self._topics.get(name) is not None:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
        if partition_count < 1:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS, f"a topic must have at least 1 partition, not {partition_count}"
            )
        check_partition_count(partition_count)
        config, image = self._topics.config, self._topics.image
        config_in_force(config, name, settings, replication_factor)
        placed = new_replicas(image, partition_count, replication_factor, assignment, self._random_source.random_below)
        factor = min(map(len, placed))
        internal_topics.check_creation(name, config, factor, len(image.brokers))
        internal_topics.check_settings(name, config, {}, settings, factor)
        own = self._own_numbers(placed)
        self._open_files.check_room(len(own))
        self._check_disk(len(own))
        for number in own:
            self._topics.replica_logs.check_free(TopicPartition(name, number))
        return placed

    def _own_numbers(self, replicas: Sequence[Sequence[int]], first: int = 0) -> list[int]:
        """Return the numbers of the partitions that have a replica on this broker.

        :param first: the number of the first partition.
        """
        return [number for number, brokers in enumerate(replicas, first) if self._broker_id in brokers]

    @shielded
    async def create(
        self,
        name: str,
        partition_count: int,
        settings: Mapping[str, str | None],
        replication_factor: int = 1,
        assignment: Assignment = None,
        admit: Callable[[int], None] = lambda _count: None,
    ) -> Topic:
        """Create a topic.

        :param assignment: the brokers of each partition's replicas. None spreads the replicas over all brokers.
        :param admit: called with the number of partitions before the creation, which it may refuse with an error.
        :raises ApiError: see `check_new`; or a partition directory of another topic has the same name as a new
            partition.
        :raises StorageError: a partition directory could not be created. The creation is undone.
        :raises CoordinationError: the metadata store did not store the topic durably. The creation is undone.
        """
        topics = self._topics
        async with topics.changing:
            placed = self.check_new(name, partition_count, settings, replication_factor, assignment)
            admit(len(placed))
            topic_id = self._random_source.new_id().bytes
            given = {key: value for key, value in settings.items() if value is not None}
            kept = internal_topics.settings_to_keep(name, given)
            live = set(topics.image.brokers)
            try:
                create = topic_metadata_store.create_topic
                info = await self._in_metadata_thread(create, self._tree, name, topic_id, placed, kept, live)
            except NodeExistsError:
                raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists") from None
            topics.metadata.put_topic(info)
            try:
                await self._in_metadata_thread(self._tree.flush)
                topic = await topics.open_created(info)
            except BarnabasError:
                try:
                    await self._undo_creation(info)
                except CoordinationError as error:
                    message = "cannot delete topic %s, which has no logs: %s; delete the topic later"
                    log.error(message, name, error, extra=event(LogEvent.TOPIC_NOT_UNDONE, name))  # noqa: TRY400
                raise
            log.info("created topic %s with %d partitions", name, partition_count, extra=about(name))
            self._events.publish(LeadershipChanged())
            return topic

    async def _undo_creation(self, info: TopicInfo) -> None:
        """Delete a topic whose logs could not be created. Clients could neither use this topic nor create it again."""
        # `check_new` found no directories with the names of this broker's replicas, so all such directories belong to
        # the failed creation. Directories of other partitions may belong to a topic that the metadata store does not
        # have.
        own = self._own_numbers([each.replicas for each in info.partitions])
        refused = self._topics.replica_logs.delete(TopicPartition(info.name, number) for number in own)
        # Other brokers may have created logs of this topic. If there are none, the topic is removed without a deletion
        # note.
        holders = {broker for each in info.partitions for broker in each.replicas} | {self._broker_id}
        is_all_gone = refused is None and len(holders) == 1
        if not is_all_gone or not await self._in_metadata_thread(
            topic_metadata_store.take_topic_back, self._tree, info
        ):
            await self._topics.deletions.delete(info.topic_id, info.name, holders)
        self._topics.metadata.remove_topic(info.name)
        # Another broker may have deleted the topic at the same time, with a deletion note for this broker.
        self._topics.deletions.begin(info.topic_id, info.name, has_folders=refused is not None)

    async def create_with_defaults(self, name: str, admit: Callable[[int], None] = lambda _count: None) -> Topic:
        """Create a topic with the broker's default settings.

        :param admit: see `create`.
        :raises BarnabasError: see `create`.
        """
        config = self._topics.config
        count = internal_topics.partition_count(name, config)
        factor = internal_topics.replication_factor(name, config, len(self._topics.image.brokers))
        return await self.create(name, count, internal_topics.settings_of(name, config), factor, admit=admit)

    # -- grow ------------------------------------------------------------------------------------------------

    def check_growth(self, name: str, partition_count: int) -> int:
        """Check that a topic can be extended to this number of partitions. Return the number of new partitions.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION; INVALID_PARTITIONS if the number is not higher than the current
            one.
        """
        topic = self._topics.get(name)
        if topic is None:
            raise _unknown_topic(name)
        count = len(topic.partitions)
        if partition_count <= count:
            message = f"topic {name} has {count} partitions; the new number must be higher, not {partition_count}"
            raise ApiError(ErrorCode.INVALID_PARTITIONS, message)
        check_partition_count(partition_count)
        return partition_count - count

    @shielded
    async def grow(self, name: str, partition_count: int, assignment: Assignment = None) -> None:
        """Add partitions to a topic, with the topic's replication factor.

        :param assignment: the brokers of each new partition's replicas. None spreads the replicas over all brokers.
        :raises ApiError: the topic does not exist, or the number of partitions is not higher than the current one.
        :raises StorageError: a partition directory could not be created.
        :raises CoordinationError: the metadata store rejected the change, or its response was lost. The caller may
            retry.
        """
        async with self._topics.changing:
            await self._change(name, lambda topic: self._grow(topic, partition_count, assignment))
            await self._topics.reread_while_changing([name])
            log.info("topic %s now has %d partitions", name, partition_count, extra=about(name))

    async def _grow(self, topic: Topic, partition_count: int, assignment: Assignment) -> None:
        name, count, replica_logs = topic.name, len(topic.partitions), self._topics.replica_logs
        added_count = self.check_growth(name, partition_count)
        existing = [each.replica_set.target for each in topic.partitions]
        placed = added_replicas(self._topics.image, existing, added_count, assignment)
        own = [TopicPartition(name, number) for number in self._own_numbers(placed, count)]
        self._open_files.check_room(len(own))
        self._check_disk(len(own))
        new = [where for where in own if not replica_logs.is_there(where)]
        config = config_in_force(self._topics.config, name, topic.settings, replication_factor_of(topic.partitions))
        try:
            # Create the logs first, because the metadata store must not contain a partition whose log cannot be opened.
            await create_logs(replica_logs.create, own, config.log, topic.id)
            grow, live = topic_metadata_store.grow_topic, set(self._topics.image.brokers)
            there = await self._in_metadata_thread(grow, self._tree, name, placed, count, live, topic.id)
            if there != partition_count:
                message = f"topic {name} has {there} partitions in the metadata store; it can only grow"
                raise ApiError(ErrorCode.INVALID_PARTITIONS, message)
        except BarnabasError:
            replica_logs.delete(new)
            raise

    # -- move ------------------------------------------------------------------------------------------------

    @shielded
    async def reassign(
        self, name: str, wanted: Mapping[int, Sequence[int] | None], *, may_change_factor: bool = True
    ) -> dict[int, ApiError]:
        """Start reassigning partitions of a topic to other brokers. The reassignments are completed after this call.

        :param wanted: the target brokers of each partition, with the preferred leader first. None cancels a
            reassignment.
        :param may_change_factor: True if a partition's number of replicas may change.
        :returns: the errors of rejected partitions, by partition number. All other partitions are reassigned.
        :raises CoordinationError: the metadata store rejected the change.
        """
        async with self._topics.changing:
            topic = self._topics.get(name)
            if topic is None:
                # All partitions share one error object, because a request may contain many partitions.
                return dict.fromkeys(wanted, _unknown_topic(name))
            image, refused = self._topics.image, dict[int, ApiError]()

            def change(found: TopicAssignment) -> dict[int, ReplicaSet]:
                changed, refusals = reassigned_partitions(name, found, wanted, image, may_change_factor)
                refused.clear()
                refused.update(refusals)
                return changed

            try:
                begin = reassignments.begin_reassignments
                await self._in_metadata_thread(begin, self._tree, name, topic.id, change)
            except NoNodeError:
                return {number: unknown_partition(name, number) for number in wanted}
            await self._topics.reread_while_changing([name])
            return refused

    async def end_reassignments(self, topic_id: bytes, ends: Sequence[End]) -> None:
        """Complete the reassignments of some partitions of one topic that this broker leads, and apply the resulting
        metadata.

        :raises CoordinationError: the metadata store rejected a write. Some reassignments may be complete.
        """
        async with self._topics.changing:
            with suppress(NoNodeError):
                await self._in_metadata_thread(reassignments.end_reassignments, self._tree, topic_id, ends)
            await self._topics.reread_while_changing([ends[0].where.topic])

    # -- alter -----------------------------------------------------------------------------------------------

    @shielded
    async def alter(
        self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool = False
    ) -> None:
        """Change the settings of a topic. They are in effect when this call returns.

        :param change: returns the new settings for the current settings. It is called on any thread, and called again
            if another broker changes the settings at the same time. Its exceptions are passed to the caller.
        :raises ApiError: the topic does not exist, or a setting is invalid.
        """

        async def alter(topic: Topic) -> None:
            config, factor = self._topics.config, replication_factor_of(topic.partitions)

            def changed(settings: Mapping[str, str]) -> Mapping[str, str]:
                known = usable_settings(config, settings)[0]
                wanted = change(known)
                internal_topics.check_settings(name, config, known, wanted, factor)
                config_in_force(config, name, wanted, factor)
                return internal_topics.settings_to_keep(name, wanted)

            if validate_only:
                changed(topic.settings)
                return
            write = configs.change_topic_config
            settings = await self._in_metadata_thread(write, self._tree, name, changed, topic.settings, topic.id)
            self._topics.apply_settings(topic, settings)

        async with self._topics.changing:
            await self._change(name, alter)

    async def _change(self, name: str, change: Callable[[Topic], Awaitable[T]]) -> T:
        """Change the topic that currently has this name.

        :param change: raises `NoNodeError` if the topic has been deleted. All other exceptions are passed to the
            caller.
        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        for _ in range(ATTEMPTS):
            topic = self._topics.get(name)
            if topic is None:
                break
            try:
                return await change(topic)
            except NoNodeError:
                # Another broker has deleted the topic, and this broker has not read the deletion yet.
                await self._topics.reread_while_changing([name])
        raise _unknown_topic(name)

    # -- delete ----------------------------------------------------------------------------------------------

    @shielded
    async def delete(self, name: str, topic_id: bytes | None = None) -> None:
        """Delete a topic, its records, and the offsets that groups have committed for it.

        :param topic_id: the expected topic id, or None to accept any topic with this name.
        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID.
        :raises StorageError: some partition directories could not be renamed. The topic is deleted nevertheless. These
            directories are removed at the next start, or when a topic with this name is created.
        """

        async def delete(topic: Topic) -> Topic:
            if topic_id not in {None, topic.id}:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic with this id exists")
            live = set(self._topics.image.brokers)
            holders = {broker for each in topic.partitions for broker in each.replicas} | live
            if not await self._topics.deletions.delete(topic.id, name, holders):
                raise NoNodeError(paths.topic(name))
            return topic

        async with self._topics.changing:
            topic = await self._change(name, delete)
            refused = await self._topics.delete_replicas(topic)
            if refused:
                self._topics.deletions.keep_folders(topic.id)
            log.info("deleted topic %s", name, extra=about(name))
        # Delete the offsets without the lock, because this may take long and does not affect other topics.
        await self._topics.deletions.end({topic.id: name}, self._topics.names())
        if refused:
            raise refused


def _unknown_topic(name: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")

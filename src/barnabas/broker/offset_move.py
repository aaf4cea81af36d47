"""Migrates the committed offsets of an early release from the metadata store to `__consumer_offsets`.

The broker serves groups only after the migration. The migration deletes offsets from the metadata store after they are
durable in the log, so a crash loses no offsets. The next start migrates the remaining offsets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from barnabas.broker.coordinators.appends import CoordinatorCounters, ShardLog
from barnabas.broker.group_service import GROUP_RECORDS, GroupService
from barnabas.broker.internal_topics import CONSUMER_OFFSETS
from barnabas.broker.metadata_store_access import InMetadataThread
from barnabas.broker.topics import Topics
from barnabas.clock import Clock
from barnabas.coordination import offsets, topic_metadata_store
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.coordination.values import CommittedOffset
from barnabas.errors import ApiError, BarnabasError, ErrorCode, MalformedMessageError
from barnabas.groups.hashing import partition_of
from barnabas.groups.records import Change, Committed, OffsetRecord
from barnabas.model import TopicPartition
from barnabas.protocol.declare import ZERO_UUID
from barnabas.state_machine import Append

GROUPS_AT_ONCE = 25
"""The number of groups that one call on the metadata store's thread reads or deletes."""

WRITTEN_AT_ONCE = 256
"""The maximum number of offsets in one append."""

TIMEOUT_S = 300.0

log = logging.getLogger(__name__)

Found = dict[str, dict[TopicPartition, CommittedOffset]]


async def move_offsets(
    tree: MetadataStore,
    in_metadata_thread: InMetadataThread,
    groups: GroupService,
    topics: Topics,
    topic_ids: Mapping[str, bytes],
    clock: Clock,
) -> None:
    """Migrate all offsets.

    :param topic_ids: the topic ids at the start of the broker, by name. If a topic was recreated after the start, its
        id has changed, and it does not get the offsets of the deleted topic.
    :raises BarnabasError: not all offsets were migrated. The remaining offsets are still in the metadata store.
    """
    names = await in_metadata_thread(offsets.groups_with_offsets, tree)
    log.info("migrating the committed offsets of %d groups from the metadata store to %s", len(names), CONSUMER_OFFSETS)
    await groups.ensure_topic()
    topic = topics.get(CONSUMER_OFFSETS)
    if topic is None:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{CONSUMER_OFFSETS} does not exist")
    led = topics.replicas.leaders_of_topic(CONSUMER_OFFSETS)
    counters = CoordinatorCounters()
    logs = [ShardLog(led[number], GROUP_RECORDS, _Moved(), clock, TIMEOUT_S, counters) for number in sorted(led)]
    moved = 0
    for some in _in_steps(names):
        found: Found = await in_metadata_thread(_read, tree, some)
        for group_id, committed in found.items():
            changes = [_record(topic_ids, group_id, where, each) for where, each in committed.items()]
            try:
                for first in range(0, len(changes), WRITTEN_AT_ONCE):
                    await _write(logs[partition_of(group_id, len(logs))], changes[first : first + WRITTEN_AT_ONCE])
            except MalformedMessageError as error:
                log.warning(
                    "skipping the committed offsets of group %.100r, which do not fit into records: %s", group_id, error
                )
            else:
                moved += len(changes)
    for partition in led.values():
        await partition.storage.flush()
    for some in _in_steps(names):
        await in_metadata_thread(_delete, tree, some)
    await in_metadata_thread(topic_metadata_store.note_offsets_moved, tree)
    log.info("migrated %d committed offsets of %d groups to %s", moved, len(names), CONSUMER_OFFSETS)


def _in_steps(names: list[str]) -> list[list[str]]:
    return [names[first : first + GROUPS_AT_ONCE] for first in range(0, len(names), GROUPS_AT_ONCE)]


def _read(tree: MetadataStore, group_ids: list[str]) -> Found:
    found: Found = {}
    for group_id in group_ids:
        try:
            found[group_id] = offsets.read_committed_offsets(tree, group_id)
        except (BarnabasError, ValueError) as error:
            log.warning("skipping the committed offsets of group %r, whose nodes are damaged: %s", group_id, error)
    return found


def _delete(tree: MetadataStore, group_ids: list[str]) -> None:
    for group_id in group_ids:
        offsets.delete_group(tree, group_id)


def _record(
    topic_ids: Mapping[str, bytes], group_id: str, where: TopicPartition, found: CommittedOffset
) -> OffsetRecord:
    offset, metadata, leader_epoch = found.offset
    topic_id = topic_ids.get(where.topic, ZERO_UUID)
    return OffsetRecord(group_id, where, Committed(offset, metadata, leader_epoch, found.committed_ms, topic_id))


class _Move(Append[Change]):
    """A waiting append of migrated offsets."""

    __slots__ = ("written",)

    def __init__(self, changes: list[OffsetRecord]) -> None:
        super().__init__(changes)
        self.written: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class _Moved:
    """A state machine that only reports the results of appends.

    The migrated offsets are loaded into the group coordinator later.
    """

    def apply(self, record: Change) -> None:
        pass

    def appended(self, append: Append[Change]) -> None:
        assert isinstance(append, _Move)
        if not append.written.done():
            append.written.set_result(None)

    def unconfirmed(self, append: Append[Change], error: ApiError) -> None:
        assert isinstance(append, _Move)
        append.written.set_exception(error)

    def failed(self, append: Append[Change], error: ApiError) -> None:
        assert isinstance(append, _Move)
        if not append.written.done():
            append.written.set_exception(error)

    def broken(self, error: ApiError) -> None:
        pass


async def _write(into: ShardLog[Change], changes: list[OffsetRecord]) -> None:
    move = _Move(changes)
    into.write(move)
    await move.written

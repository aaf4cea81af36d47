"""Fetch, versions 4 to 18: read record batches, waiting for them if need be.

Whole batches are returned, from the first that ends at or after the offset asked for, as file regions that go to the
socket with sendfile. Where compaction has left nothing up to the high watermark, an empty batch says so, so that the
reader comes there. The first batch is returned even if it is larger than the limits; after that nothing exceeds
`max_bytes`. If there is less than `min_bytes`, the answer waits until there is, at most `max_wait_ms`.

Fetch sessions (version 7, KIP-227) are kept in `barnabas.broker.fetch_sessions`. The replica id of a request is
believed on the brokers' own listener only (CVE-2018-1288): every other reader gets what is below the high watermark.
Without transactions the last stable offset is the high watermark, and no transaction was ever aborted.

A reader that says in which rack it stands (version 11, KIP-392) is told which replica is there, if
`replica.selector.class` says so, and reads from that one, which serves what is below the high watermark that it knows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.broker.error_codes import error_code
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.pipeline.call import Call
from barnabas.broker.pipeline.reply import ENTRIES_PER_STEP, LAST_OF_STEP, WAITING_ENTRY_BYTES, LaterReply, Reply, Steps
from barnabas.broker.pipeline.served_api import serves
from barnabas.broker.settings.dynamic import DynamicSettings
from barnabas.broker.settings.static import RACK_AWARE_SELECTORS
from barnabas.broker.topics import Topics
from barnabas.broker.turns import Turns
from barnabas.clock import Clock
from barnabas.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.model import NO_OFFSET, IsolationLevel
from barnabas.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.replication.read_replica import read_replica

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.fetch_sessions import FetchKey, FetchPlan
    from barnabas.broker.replica import Replica


NOBODY_ELSE = -1
"""The replica to read from instead, where there is none."""

KEPT_PER_PARTITION = 4 * WAITING_ENTRY_BYTES
"""What a long poll without a session keeps for each partition."""

PARTITIONS_PER_PAUSE = 256
"""How many partitions a long poll begins to watch between two pauses."""


@serves(FetchRequest, ends_with_client=True)
def fetch(
    topics: Topics,
    fetch_sessions: FetchSessions,
    settings: DynamicSettings,
    turns: Turns,
    clock: Clock,
    request: FetchRequest,
    call: Call,
) -> Steps[FetchResponse | Reply]:
    """Read at once; if there is too little and no error to report, wait and read again.

    Where waiting requests keep as much as they may, the answer comes at once, with what there is.
    """
    try:
        plan = yield from fetch_sessions.plan(request, clock.monotonic())
    except KafkaError as error:
        return FetchResponse(error_code=error.code, responses=[])
    read = _Read(topics, settings, request, plan)
    yield from read.all()
    if read.is_enough or request.max_wait_ms <= 0:
        return (yield from plan.respond(read.data))
    poll = _LongPoll(turns, request, read)
    yield from poll.begin()
    kept_bytes = _kept_bytes(request, plan)
    request.topics, request.forgotten_topics_data = [], []  # the plan has what is read again
    return LaterReply(poll.end(plan), kept_bytes=kept_bytes, end=poll.finish)


def _kept_bytes(request: FetchRequest, plan: FetchPlan) -> int:
    """Return what a long poll keeps: what it reads again, and the names that its answer needs.

    The partitions of a session are the session's own.
    """
    count = len(plan.wanted)
    if plan.session is not None:
        return WAITING_ENTRY_BYTES * count + len(request.rack_id)
    return KEPT_PER_PARTITION * count + len(request.rack_id) + sum(len(topic.topic) for topic in request.topics)


class _LongPoll:
    """Waits until enough is appended to the partitions of a request, or its time is up.

    `begin` watches them at once, in the turn of the event loop that has read them, so that usually nothing can have
    been appended in between.
    """

    __slots__ = ("_enough", "_is_due", "_missing", "_read", "_request", "_turns")

    def __init__(self, turns: Turns, request: FetchRequest, read: _Read) -> None:
        self._turns = turns
        self._request = request
        self._read = read
        self._missing = request.min_bytes - read.size
        self._is_due = False
        self._enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self) -> Steps[None]:
        """Watch the partitions. `end` must follow."""
        try:
            for number, partition in enumerate(self._read.partitions, start=1):
                partition.watch(self._on_readable)
                if not number % PARTITIONS_PER_PAUSE:
                    yield
            if self._read.is_outdated:
                # Other requests had their turn since the read, before this one watched: it was not told what they
                # appended.
                self._missing = self._request.min_bytes
                again = self._read.anew()
                yield from again.all()
                if again.is_enough:
                    self.finish()
                else:
                    self._on_readable(again.size)
        except BaseException:
            self._unwatch()
            raise

    async def end(self, plan: FetchPlan) -> Steps[FetchResponse]:
        """Wait; return the steps of reading again."""
        self._read.data = []  # it is read again
        timer = asyncio.get_running_loop().call_later(self._request.max_wait_ms / 1000, self.finish)
        try:
            await self._enough
            for number, partition in enumerate(self._read.partitions, start=1):
                partition.unwatch(self._on_readable)
                if not number % PARTITIONS_PER_PAUSE:
                    await self._turns.pause()
        except BaseException:
            self._unwatch()
            raise
        finally:
            timer.cancel()
        return _read_at_last(self._read.anew(), plan)

    def _on_readable(self, size: int) -> None:
        self._missing -= size
        if self._missing <= 0:
            self.finish()

    def finish(self) -> None:
        """End the wait."""
        if not self._is_due:
            self._is_due = True
            self._turns.wake(self._enough)

    def _unwatch(self) -> None:
        for partition in self._read.partitions:
            partition.unwatch(self._on_readable)


def _read_at_last(read: _Read, plan: FetchPlan) -> Steps[FetchResponse]:
    """Read, and answer with whatever there is."""
    yield from read.all()
    return (yield from plan.respond(read.data))


class _Read:
    """One pass over the partitions of a request; `data` is what it brought."""

    def __init__(self, topics: Topics, settings: DynamicSettings, request: FetchRequest, plan: FetchPlan) -> None:
        self._topics = topics
        self._settings = settings
        self._request = request
        self._plan = plan
        self._bytes_left = max(0, min(request.max_bytes, settings.config.fetch_max_bytes))
        committed_only = request.isolation_level == IsolationLevel.READ_COMMITTED
        self._aborted: list[AbortedTransaction] | None = [] if committed_only else None
        self._must_answer = False
        self._replica: Callable[[str, int], Replica] = topics.replica if request.rack_id else topics.partition
        self.size = 0
        self.partitions: list[Replica] = []
        self._high_watermarks: list[int] = []
        self.data: list[tuple[FetchKey, PartitionData]] = []

    def anew(self) -> _Read:
        """Return another pass over the same partitions."""
        return _Read(self._topics, self._settings, self._request, self._plan)

    def all(self) -> Steps[None]:
        """Read each partition."""
        find, aborted = self._plan.caught_up.find, self._aborted
        for number, (where, wanted) in enumerate(self._plan.wanted):
            if number % ENTRIES_PER_STEP == LAST_OF_STEP:
                yield
            partition, data = find(where, wanted, aborted) or self._read(where, wanted)
            self.data.append((where, data))
            if partition is not None:
                self.partitions.append(partition)
                self._high_watermarks.append(data.high_watermark)

    @property
    def is_enough(self) -> bool:
        """Whether the answer need not wait: enough bytes, an error to tell, or nothing to wait for."""
        return self.size >= self._request.min_bytes or self._must_answer or not self.partitions

    @property
    def is_outdated(self) -> bool:
        """Whether reading again could bring something else."""
        seen = zip(self.partitions, self._high_watermarks, strict=True)
        return any(partition.has_ended or partition.log.high_watermark != offset for partition, offset in seen)

    def _read(self, where: FetchKey, wanted: FetchPartition) -> tuple[Replica | None, PartitionData]:
        """Return the replica that was read, None if there is an error to tell, and what is told of it."""
        try:
            partition = self._replica(self._topic_name(where), where.partition)
            partition.check_epoch(wanted.current_leader_epoch)
            data = self._read_partition(partition, wanted)
        except BarnabasError as error:
            self._must_answer = True
            return None, PartitionData(
                partition_index=wanted.partition, error_code=error_code(error), high_watermark=NO_OFFSET, records=b""
            )
        has_all = data.high_watermark == wanted.fetch_offset and data.preferred_read_replica == NOBODY_ELSE
        if has_all and wanted.last_fetched_epoch < 0 and isinstance(partition, LeaderReplica):
            self._plan.caught_up.note(where, wanted, partition, data)
        return partition, data

    def _topic_name(self, where: FetchKey) -> str:
        return self._topics.name_of(where.topic_id) if where.is_by_id else where.topic

    def _read_partition(self, partition: Replica, wanted: FetchPartition) -> PartitionData:
        log = partition.log
        data = PartitionData(
            partition_index=wanted.partition,
            error_code=ErrorCode.NONE,
            high_watermark=log.high_watermark,
            last_stable_offset=log.high_watermark,
            log_start_offset=log.log_start_offset,
            aborted_transactions=self._aborted,
            records=b"",
        )
        diverging = self._diverging_epoch(partition, wanted) if wanted.last_fetched_epoch >= 0 else None
        if diverging is not None:
            data.diverging_epoch = diverging
        elif self._request.rack_id and self._is_elsewhere(partition, wanted.fetch_offset, data):
            self._must_answer = True
        else:
            limit = min(max(0, wanted.partition_max_bytes), self._bytes_left)
            region = partition.read(wanted.fetch_offset, limit, min_one_batch=self.size == 0)
            if region is not None:
                data.records = region
                self.size += len(region)
                self._bytes_left = max(0, self._bytes_left - len(region))
        return data

    def _is_elsewhere(self, replica: Replica, offset: int, data: PartitionData) -> bool:
        """Whether a reader that says where it stands is to read from another replica; if so, say which one (KIP-392).

        :raises KafkaError: OFFSET_NOT_AVAILABLE: this follower has yet to fetch what the reader asks for.
        """
        if not isinstance(replica, LeaderReplica):
            if offset > replica.log.log_end_offset:
                message = f"{replica.topic_partition}: this replica has offsets up to {replica.log.log_end_offset}"
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, message)
            return False
        if replica.followers is None or self._settings.config.replica_selector_class not in RACK_AWARE_SELECTORS:
            return False
        racks = {each: broker.registration.rack for each, broker in self._topics.picture.brokers.items()}
        nearest = read_replica(replica.followers, replica.leader, self._request.rack_id, offset, racks)
        if nearest != replica.leader:
            data.preferred_read_replica = nearest
        return nearest != replica.leader

    def _diverging_epoch(self, partition: Replica, wanted: FetchPartition) -> EpochEndOffset | None:
        """Return where the reader's log and this one part, if the epoch that it read last says so (KIP-595)."""
        log = partition.log
        epoch, end_offset = log.leader_epochs.end_offset_for(wanted.last_fetched_epoch, log.log_end_offset)
        if epoch == wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
            return None
        self._must_answer = True
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)

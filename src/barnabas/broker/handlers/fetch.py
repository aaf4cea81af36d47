"""Fetch, versions 4 to 18: read record batches, waiting for them if need be.

The response has whole batches, from the first that ends at or after the fetch offset, as file regions for sendfile.
Where compaction has removed all batches up to the high watermark, an empty batch takes the reader there. The first
batch is returned even if it is larger than the limits; all others stay within `max_bytes`. Below `min_bytes` the
response waits, at most `max_wait_ms` (`barnabas.broker.delayed_fetch`).

Version 7 added fetch sessions (KIP-227), see `barnabas.broker.fetch_sessions`. The replica id of a request counts on
the brokers' own listener only (CVE-2018-1288): here every reader reads up to the high watermark. Readers of committed
records read up to the last stable offset, and get the aborted transactions to skip.

A read of a remote segment is awaited. The response waits for it, and not for more records.

Version 11 added the reader's rack (KIP-392). With `replica.selector.class`, the leader names the replica in that rack,
and the reader fetches from that replica, up to the high watermark that the replica knows.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.cooperative_scheduler import CooperativeScheduler
from barnabas.broker.delayed_fetch import DelayedFetch
from barnabas.broker.error_codes import error_code
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.pipeline.call import Call
from barnabas.broker.pipeline.reply import ENTRIES_PER_STEP, LAST_OF_STEP, WAITING_ENTRY_BYTES, LaterReply, Reply, Steps
from barnabas.broker.pipeline.served_api import serves
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.settings.dynamic import DynamicSettings
from barnabas.broker.settings.static import RACK_AWARE_SELECTORS
from barnabas.broker.topics import Topics
from barnabas.clock import Clock
from barnabas.errors import ApiError, BarnabasError, ErrorCode
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
from barnabas.storage.log_reader import NO_BATCHES, ReadResult

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from barnabas.broker.fetch_sessions import FetchKey, FetchPlan
    from barnabas.broker.replica import Replica


NO_PREFERRED_REPLICA = -1

KEPT_PER_PARTITION = 4 * WAITING_ENTRY_BYTES
"""The bytes that a waiting fetch without a session keeps for each partition."""


@serves(FetchRequest, ends_with_client=True)
def fetch(
    topics: Topics,
    replicas: ReplicaManager,
    fetch_sessions: FetchSessions,
    settings: DynamicSettings,
    scheduler: CooperativeScheduler,
    clock: Clock,
    request: FetchRequest,
    call: Call,
) -> Steps[FetchResponse | Reply]:
    """Read; if there are too few bytes and no error, wait and read again.

    Without memory for another waiting request, the response is due at once.
    """
    try:
        plan = yield from fetch_sessions.plan(request, clock.monotonic())
    except ApiError as error:
        return FetchResponse(error_code=error.code, responses=[])
    read = _Read(topics, replicas, settings, request, plan)
    yield from read.all()
    if read.awaited:
        return LaterReply(_respond_after_remote_reads(read, plan), kept_bytes=_kept_bytes(request, plan))
    if read.is_enough or request.max_wait_ms <= 0:
        return (yield from plan.respond(read.data))
    delayed = DelayedFetch(scheduler, read.partitions, request.min_bytes - read.size, request.max_wait_ms)
    yield from delayed.begin(partial(_check, delayed, read))
    kept_bytes = _kept_bytes(request, plan)
    request.topics, request.forgotten_topics_data = [], []  # the next pass reads the partitions of the plan
    return LaterReply(_read_later(delayed, read, plan), kept_bytes=kept_bytes, end=delayed.complete)


def _check(delayed: DelayedFetch, read: _Read) -> Steps[None] | None:
    return _read_again(delayed, read) if read.is_outdated else None


def _read_again(delayed: DelayedFetch, read: _Read) -> Steps[None]:
    """Count what other requests have appended between the read and the wait."""
    delayed.expect(read.min_bytes)
    again = read.anew()
    yield from again.all()
    again.leave_remote()
    if again.is_enough:
        delayed.complete()
    else:
        delayed.on_readable(again.size)


async def _read_later(delayed: DelayedFetch, read: _Read, plan: FetchPlan) -> Steps[FetchResponse]:
    read.data = []
    await delayed.wait()
    return _read_at_last(read.anew(), plan)


def _read_at_last(read: _Read, plan: FetchPlan) -> Steps[FetchResponse]:
    """Read, and respond with whatever there is in local segments."""
    yield from read.all()
    read.leave_remote()
    return (yield from plan.respond(read.data))


def _kept_bytes(request: FetchRequest, plan: FetchPlan) -> int:
    """Return the bytes that a waiting fetch keeps: the partitions, and the names for its response.

    A session owns its partitions.
    """
    count = len(plan.wanted)
    if plan.session is not None:
        return WAITING_ENTRY_BYTES * count + len(request.rack_id)
    return KEPT_PER_PARTITION * count + len(request.rack_id) + sum(len(topic.topic) for topic in request.topics)


async def _respond_after_remote_reads(read: _Read, plan: FetchPlan) -> Steps[FetchResponse]:
    await read.finish_remote()
    return plan.respond(read.data)


class _Read:
    """One pass over the partitions of a request; `data` has its results."""

    def __init__(
        self,
        topics: Topics,
        replicas: ReplicaManager,
        settings: DynamicSettings,
        request: FetchRequest,
        plan: FetchPlan,
    ) -> None:
        self._topics = topics
        self._replicas = replicas
        self._settings = settings
        self._request = request
        self._plan = plan
        self._bytes_left = max(0, min(request.max_bytes, settings.config.fetch_max_bytes))
        self._committed = request.isolation_level == IsolationLevel.READ_COMMITTED
        self._aborted: list[AbortedTransaction] | None = [] if self._committed else None
        self._must_answer = False
        self._replica: Callable[[str, int], Replica] = replicas.replica if request.rack_id else replicas.leader
        self.size = 0
        self.awaited: list[tuple[PartitionData, Coroutine[Any, Any, ReadResult]]] = []
        """Reads of remote segments, and the data that each completes."""
        self.partitions: list[Replica] = []
        self._high_watermarks: list[int] = []
        self.data: list[tuple[FetchKey, PartitionData]] = []

    def anew(self) -> _Read:
        """Return another pass over the same partitions."""
        return _Read(self._topics, self._replicas, self._settings, self._request, self._plan)

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
    def min_bytes(self) -> int:
        """The bytes that make the response due."""
        return self._request.min_bytes

    @property
    def is_enough(self) -> bool:
        """Whether the response is due: enough bytes, an error, or no partition to wait for."""
        return self.size >= self._request.min_bytes or self._must_answer or not self.partitions

    @property
    def is_outdated(self) -> bool:
        """Whether another pass could have other results."""
        seen = zip(self.partitions, self._high_watermarks, strict=True)
        return any(
            replica.storage.has_ended or replica.storage.log.high_watermark != offset for replica, offset in seen
        )

    def _read(self, where: FetchKey, wanted: FetchPartition) -> tuple[Replica | None, PartitionData]:
        """Return the replica, None if there was an error, and the partition's part of the response."""
        try:
            partition = self._replica(self._topic_name(where), where.partition)
            partition.check_epoch(wanted.current_leader_epoch)
            data = self._read_partition(partition, wanted)
        except BarnabasError as error:
            self._must_answer = True
            return None, PartitionData(
                partition_index=wanted.partition, error_code=error_code(error), high_watermark=NO_OFFSET, records=b""
            )
        has_all = data.high_watermark == wanted.fetch_offset and data.preferred_read_replica == NO_PREFERRED_REPLICA
        if has_all and wanted.last_fetched_epoch < 0 and isinstance(partition, LeaderReplica):
            self._plan.caught_up.note(where, wanted, partition, data)
        return partition, data

    def _topic_name(self, where: FetchKey) -> str:
        return self._topics.name_of(where.topic_id) if where.is_by_id else where.topic

    def _read_partition(self, partition: Replica, wanted: FetchPartition) -> PartitionData:
        offsets = partition.storage.log.offsets
        data = PartitionData(
            partition_index=wanted.partition,
            error_code=ErrorCode.NONE,
            high_watermark=offsets.high_watermark,
            last_stable_offset=offsets.last_stable_offset,
            log_start_offset=offsets.log_start_offset,
            aborted_transactions=self._aborted,
            records=NO_BATCHES,
        )
        diverging = self._diverging_epoch(partition, wanted) if wanted.last_fetched_epoch >= 0 else None
        if diverging is not None:
            data.diverging_epoch = diverging
        elif self._request.rack_id and self._is_elsewhere(partition, wanted.fetch_offset, data):
            self._must_answer = True
        else:
            limit = min(max(0, wanted.partition_max_bytes), self._bytes_left)
            offset, is_first = wanted.fetch_offset, self.size == 0 and not self.awaited
            result = partition.read(offset, limit, min_one_batch=is_first, committed=self._committed)
            if isinstance(result, ReadResult):
                self._add(data, result)
                self._bytes_left -= len(result.batches)
            else:
                self.awaited.append((data, result))
                self._must_answer = True
                self._bytes_left -= limit
        return data

    def _add(self, data: PartitionData, result: ReadResult) -> None:
        """Add the result of a read to the response."""
        data.records, _, aborted = result
        self.size += len(data.records)
        if aborted and self._committed:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset) for each in aborted
            ]

    async def finish_remote(self) -> None:
        """Wait for the reads of remote segments. A read that fails is the error of its partition alone."""
        results = await asyncio.gather(*(reading for _, reading in self.awaited), return_exceptions=True)
        for (data, _), result in zip(self.awaited, results, strict=True):
            if isinstance(result, BarnabasError):
                data.error_code, data.high_watermark = error_code(result), NO_OFFSET
            elif isinstance(result, BaseException):
                raise result
            else:
                self._add(data, result)

    def leave_remote(self) -> None:
        """Answer without what is in remote segments: the reader asks for it again."""
        for _, reading in self.awaited:
            reading.close()

    def _is_elsewhere(self, replica: Replica, offset: int, data: PartitionData) -> bool:
        """Whether the reader has to fetch from a replica in its rack; `data` then names that replica (KIP-392).

        :raises ApiError: OFFSET_NOT_AVAILABLE: this follower has not fetched the offset yet.
        """
        if not isinstance(replica, LeaderReplica):
            if offset > replica.log.log_end_offset:
                message = f"{replica.topic_partition}: this replica has offsets up to {replica.log.log_end_offset}"
                raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, message)
            return False
        if replica.followers is None or self._settings.config.replica_selector_class not in RACK_AWARE_SELECTORS:
            return False
        racks = {each: broker.registration.rack for each, broker in self._topics.image.brokers.items()}
        nearest = read_replica(replica.followers, replica.leader, self._request.rack_id, offset, racks)
        if nearest != replica.leader:
            data.preferred_read_replica = nearest
        return nearest != replica.leader

    def _diverging_epoch(self, partition: Replica, wanted: FetchPartition) -> EpochEndOffset | None:
        """Return where the reader's log and this one diverge, or None if they do not (KIP-595)."""
        log = partition.log
        epoch, end_offset = log.leader_epochs.end_offset_for(wanted.last_fetched_epoch, log.log_end_offset)
        if epoch == wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
            return None
        self._must_answer = True
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)

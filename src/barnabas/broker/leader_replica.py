"""The leader role of a replica: appends, acknowledgements, and the high watermark.

If the leader is the only replica, the high watermark is the log end offset. If the topic also has `flush.messages` or
`flush.ms`, the high watermark is the recovery point (paper, 3.1: "a message is only exposed to the consumers after it
is flushed"). With followers, the high watermark is the offset that all in-sync replicas have reached
(`barnabas.replication.in_sync`). With a flush policy, the leader itself counts with its recovery point.

- acks=1 waits for the append. If a request makes a flush due by `flush.messages`, it also waits for this flush. So with
  `flush.messages=1`, every acknowledged record is durable.
- acks=all waits for the high watermark. With a flush policy, acks=all also causes an immediate flush.

The event loop's thread appends batches that fit into the active segment. Batches that must be recompressed or checked
against schemas, and batches that need a new segment, are appended on a separate thread. Such an append runs in the
replica's append queue, and later appends wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.broker.disk_work import ON_ANY_THREAD, DiskWork
from barnabas.broker.replica_storage import Acknowledgements, ReplicaStorage, UnexposedAppends, Waiter, refused
from barnabas.broker.schema_check import check_values
from barnabas.errors import ApiError, BarnabasError, ErrorCode, StorageError
from barnabas.model import NO_OFFSET, Acks
from barnabas.records.header import COMPRESSION_MASK
from barnabas.records.recompression import recompress
from barnabas.storage.log_appender import checked_batch

if TYPE_CHECKING:
    from barnabas.broker.replica_storage import ConsumerRead, LogEndListener, ReadListener
    from barnabas.broker.settings.topic_config import TopicConfig
    from barnabas.model import TopicPartition
    from barnabas.records.header import Buffer
    from barnabas.replication.in_sync import RemoteReplicas
    from barnabas.storage.log import Log
    from barnabas.storage.log_appender import AppendInfo, Outcome
    from barnabas.storage.log_reader import ReadResult

log = logging.getLogger(__name__)

RECOMPRESSED_BYTES_MAX = 16 * 1024 * 1024
"""The maximum decompressed size in bytes of the batches of a request that must be recompressed."""

AT_ONCE_BYTES_MAX = 2 * 1024 * 1024
"""The maximum size in bytes of an append that is checked and written on the event loop's thread.

Larger appends would block the event loop.
"""

ATTRIBUTES_END = 23
"""The position after the attributes in a batch header. The last byte of the attributes contains the compression type.
"""

OnIsrChangeDue = Callable[["LeaderReplica"], None]


def _ignore(_replica: LeaderReplica) -> None:
    """Do nothing. This is the default of `on_isr_change_due`."""


class LeaderReplica:
    """The leader role of a replica in one leader epoch. Used from the event loop's thread only.

    A fenced leader rejects requests until `unfence`. A leader that has resigned rejects all requests.

    :param work: runs work that may block on the disk.
    :param leader: the id of this broker.
    :param followers: the state of the other replicas, or None if this is the only replica.
    :param on_isr_change_due: called when the ISR may have to change.
    """

    __slots__ = (
        "_fenced",
        "_log_end_listeners",
        "_next",
        "_on_isr_change_due",
        "_readable",
        "_trimmed",
        "_unexposed",
        "followers",
        "leader",
        "leader_epoch",
        "storage",
        "times_fenced",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: Log,
        leader_epoch: int,
        config: TopicConfig,
        work: DiskWork = ON_ANY_THREAD,
        *,
        leader: int = 0,
        followers: RemoteReplicas | None = None,
        on_isr_change_due: OnIsrChangeDue = _ignore,
    ) -> None:
        self.topic_partition = topic_partition
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.followers = followers
        self._on_isr_change_due = on_isr_change_due
        self._log_end_listeners: dict[LogEndListener, None] = {}
        self._fenced: ApiError | None = None
        self.times_fenced = 0
        """The number of times that `fence` was called."""
        self._next: LeaderReplica | None = None
        """The `LeaderReplica` of the next leader epoch, or None if this broker does not lead in it."""
        self._unexposed = UnexposedAppends()
        self._readable = Acknowledgements()
        self._trimmed = Acknowledgements()
        if followers is not None:
            # Record the start offset of this leader epoch. It is also the end offset of the previous epoch, which
            # followers request (KIP-101).
            log.leader_epochs.assign(leader_epoch, log.log_end_offset)
        self.storage = ReplicaStorage(topic_partition, log, leader_epoch, config, work, self._on_flushed)
        self.configure(config)
        if self.storage.flusher and log.recovery_point < log.log_end_offset:
            # An earlier leader may have acknowledged the unflushed records. Flush them now, because there may be no
            # later append that triggers a flush.
            self.storage.flusher.flush_soon()

    def configure(self, config: TopicConfig) -> None:
        """Apply new settings of the topic."""
        self.storage.configure(config)
        if self.followers is None:
            self.log.release_high_watermark(follows_end=not config.log.has_flush_policy)
        else:
            self.log.hold_high_watermark()
        self._advance()

    @property
    def log(self) -> Log:
        """The current log. A move to another log directory replaces it."""
        return self.storage.log

    @property
    def config(self) -> TopicConfig:
        """The effective settings of the topic."""
        return self.storage.config

    # --- the role ---

    @property
    def is_deleted(self) -> bool:
        """True if the topic was deleted."""
        return self.storage.is_deleted

    @property
    def has_ended(self) -> bool:
        """True if the topic was deleted, or the replica no longer has this role."""
        return self.storage.has_ended

    @property
    def is_led(self) -> bool:
        """True if this broker leads the partition and is not fenced."""
        storage = self.storage
        return not storage.is_deleted and storage.refusal is None and self._fenced is None

    def check_epoch(self, epoch: int) -> None:
        """Check that this broker leads, and compare a client's leader epoch with the current leader epoch (KIP-320).

        :param epoch: the client's leader epoch, or -1 if it is unknown.
        :raises ApiError: NOT_LEADER_OR_FOLLOWER; FENCED_LEADER_EPOCH for an older epoch; UNKNOWN_LEADER_EPOCH for a
            newer epoch.
        """
        self._check_role()
        self.storage.check_epoch(epoch)

    def _check_role(self) -> None:
        """Check that this broker leads.

        :raises ApiError: NOT_LEADER_OR_FOLLOWER.
        """
        if (refusal := self.storage.refusal or self._fenced) is not None:
            raise refusal

    def fence(self) -> None:
        """Reject appends and reads until `unfence`, because another broker may lead."""
        message = f"{self.topic_partition}: broker {self.leader} may no longer be the leader"
        self._fenced = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
        self.times_fenced += 1
        self.storage.reads_changed()
        self._leadership_lost()

    def unfence(self) -> None:
        """Accept requests again, because no other broker has become leader."""
        self._fenced = None

    def resign(self, error: ApiError, *, leads_on: bool = False) -> None:
        """End the leader role, and reject all later requests with this error. The caller must await `end` next.

        :param leads_on: True if this broker also leads in the next leader epoch. The next role then completes the
            waiting requests (`take_over_from`).
        """
        if not leads_on:
            self.end_waits(error)
        self.storage.resign(error)
        self._leadership_lost()

    async def end(self) -> None:
        """Wait until no work that changes the log is in progress."""
        await self.storage.end()

    def take_over_from(self, last: LeaderReplica) -> None:
        """Let this role complete the waiting requests of the previous leader role.

        The log still contains their records, because only followers truncate. If a producer got an error instead, it
        might send its batch again, and the log would contain the batch twice.
        """
        flusher, log_of_partition, flushed = self.storage.flusher, self.log, self.storage.flushed
        last._next = self
        self._readable.take_over(last._readable)
        flushed.take_over(last.storage.flushed)
        self._trimmed.take_over(last._trimmed)
        if flusher and log_of_partition.recovery_point < log_of_partition.log_end_offset:
            flusher.flush_soon()
        flushed.settle(log_of_partition.recovery_point if flusher else log_of_partition.log_end_offset)
        self._advance()

    def mark_deleted(self) -> None:
        """End the leader role, because the topic was deleted."""
        self.end_waits(self.storage.deletion_error)
        self.storage.mark_deleted()
        self._leadership_lost()

    def end_waits(self, error: ApiError) -> None:
        """Fail all waiting requests, and all requests that would wait later, with this error."""
        self.storage.flushed.close(error)
        self._readable.close(error)
        self._trimmed.close(error)

    # --- readers ---

    def read(self, offset: int, max_bytes: int, *, min_one_batch: bool, committed: bool = False) -> ConsumerRead:
        """Return whole batches below the high watermark. See `ReplicaStorage.read_for_consumer`.

        :raises ApiError: OFFSET_OUT_OF_RANGE.
        """
        return self.storage.read_for_consumer(offset, max_bytes, min_one_batch=min_one_batch, committed=committed)

    async def read_stored(self, offset: int, max_bytes: int) -> ReadResult:
        """Return whole batches up to the log end offset, for use inside the broker. The read runs on a separate thread.

        :raises BarnabasError: see `read`.
        """
        return await self.storage.read_stored(offset, max_bytes)

    def watch(self, listener: ReadListener) -> None:
        """Add a listener for reads."""
        self.storage.watch(listener)

    def unwatch(self, listener: ReadListener) -> None:
        """Remove a listener for reads."""
        self.storage.unwatch(listener)

    def check_end_is_known(self) -> None:
        """Check that clients may get the end offset, because no earlier leader can have returned a higher end offset
        (KIP-207).

        :raises ApiError: OFFSET_NOT_AVAILABLE.
        """
        if self.followers is not None and not self.followers.knows_high_watermark:
            message = f"{self.topic_partition}: the new leader waits for a fetch of each in-sync replica"
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, message)

    # --- followers ---

    def on_follower_fetch(
        self, follower: int, broker_epoch: int, fetch_offset: int, now_s: float, log_start_offset: int = NO_OFFSET
    ) -> None:
        """Record that a follower has all records below an offset; raise the high watermark if possible.

        :param broker_epoch: the broker epoch of the follower's registration.
        :param now_s: the monotonic time of the fetch in seconds.
        :param log_start_offset: the log start offset of the follower.
        :raises ApiError: the follower's broker has no replica, its broker epoch is outdated, or the offset is beyond
            the log end offset.
        """
        followers = self.followers
        if followers is None:
            message = f"{self.topic_partition}: broker {follower} has no replica"
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, message)
        log_of_partition = self.storage.log
        followers.on_fetch(follower, fetch_offset, log_of_partition.log_end_offset, now_s, broker_epoch)
        followers.on_log_start(follower, log_start_offset)
        self._advance()
        if fetch_offset >= log_of_partition.high_watermark and not followers.is_in_sync(follower):
            self._on_isr_change_due(self)

    def read_for_follower(self, offset: int, max_bytes: int, *, min_one_batch: bool) -> ReadResult:
        """Return whole batches of local segments below the log end offset. See `ReplicaStorage.read`.

        :raises ApiError: OFFSET_OUT_OF_RANGE.
        """
        storage = self.storage
        return storage.read(offset, max_bytes, storage.log.log_end_offset, min_one_batch=min_one_batch)

    def note_caught_up(self, follower: int, broker_epoch: int, fetch_offset: int, at_s: float) -> None:
        """Record that a follower was caught up at a point in time, unless its fetch offset has changed.

        A fetch session skips unchanged partitions, so it calls this method when a partition changes. A call with an
        outdated broker epoch has no effect, because it belongs to an earlier connection.
        """
        followers = self.followers
        if followers is None or followers.broker_epoch_of(follower) != broker_epoch:
            return
        if followers.log_end_offset_of(follower) == fetch_offset:
            followers.on_fetch(follower, fetch_offset, fetch_offset, at_s, broker_epoch)

    def request_follower_fetches(self) -> None:
        """Complete the waiting fetches of followers, so that the followers fetch again immediately."""
        for each in tuple(self._log_end_listeners):
            each.on_fetch_awaited()

    def isr_changed(self) -> None:
        """Raise the high watermark if a change of the ISR or of the proposed ISR allows it."""
        self._advance()

    def ask_for_isr_change(self) -> None:
        """Request a check whether the ISR must change."""
        self._on_isr_change_due(self)

    def watch_log_end(self, listener: LogEndListener) -> None:
        """Add a listener for appends."""
        self._log_end_listeners[listener] = None

    def unwatch_log_end(self, listener: LogEndListener) -> None:
        """Remove a listener for appends."""
        self._log_end_listeners.pop(listener, None)

    def _leadership_lost(self) -> None:
        for each in tuple(self._log_end_listeners):
            each.on_leadership_lost()

    def _offsets_moved(self) -> None:
        for each in tuple(self._log_end_listeners):
            each.on_offsets_moved()

    # --- appending ---

    def append_all(self, requests: Sequence[Buffer]) -> list[Outcome] | asyncio.Future[list[Outcome]]:
        """Append the batches of several produce requests in order. Each request has its own outcome.

        `when_acknowledged` returns the future that must complete before the acknowledgement.

        :returns: the outcomes, or a future of the outcomes if the append is not complete.
        """

        def refuse(error: ApiError) -> list[Outcome]:
            return [error] * len(requests)

        storage = self.storage
        if (refusal := storage.refusal or self._fenced) is not None:
            return refuse(refusal)
        outcomes: list[Outcome] = []
        config = storage.config
        is_hidden = config.log.is_compacted and any(map(_is_compressed, requests))
        if is_hidden or config.value_schemas is not None or sum(map(len, requests)) > AT_ONCE_BYTES_MAX:
            return storage.run_in_queue(lambda: self._append_beside(requests), refuse)
        if not storage.append_queue.is_busy and config.compression is None:
            outcomes = self._append_until_roll(requests)
            if len(outcomes) == len(requests):
                return outcomes
        return storage.run_in_queue(lambda: self._append_from_queue(requests, outcomes), refuse)

    def hold_appends(self, until: Callable[[], Awaitable[object]]) -> asyncio.Future[object]:
        """Delay later appends until the coroutine of `until` has finished."""
        return self.storage.run_in_queue(until)

    def append_own_batch(self, batch: bytearray) -> bool:
        """Append a batch of keyed records that this broker created, if it can be acknowledged without waiting.

        :returns: False if the batch was not appended; the caller must use `append_all`.
        """
        storage, config = self.storage, self.storage.config
        if (
            storage.append_queue.is_busy
            or storage.flusher
            or config.compression is not None
            or config.min_insync_replicas > 1
        ):
            return False
        if self.followers is not None or storage.refusal is not None or self._fenced is not None:
            return False
        if not storage.log.append_own_batch(batch, self.leader_epoch):
            return False
        if storage.readers:
            storage.readable(len(batch))
        return True

    def acknowledges_at_once(self, acks: int) -> bool:
        """Return whether appends with these acks are acknowledged without waiting, so that `when_acknowledged` returns
        None.
        """
        return self.storage.flusher is None and (self.followers is None or acks != Acks.ALL)

    def check_replicas(self) -> None:
        """Check that the ISR has at least `min.insync.replicas` members.

        :raises ApiError: NOT_ENOUGH_REPLICAS.
        """
        count = 1 if self.followers is None else len(self.followers.isr)
        if count < self.config.min_insync_replicas:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, self._too_few(count))

    def when_acknowledged(self, info: AppendInfo, acks: int) -> Waiter | None:
        """Return the future that must complete before the acknowledgement of appended batches.

        :returns: None if the batches can be acknowledged now; otherwise a future. It raises a BarnabasError if the
            batches must not be acknowledged.
        """
        flusher, last_offset = self.storage.flusher, info.last_offset
        if acks == Acks.NONE or (flusher is None and acks != Acks.ALL):
            return None
        if self._next is not None:
            return self._next.when_acknowledged(info, acks)
        waiting = self._readable if acks == Acks.ALL else self.storage.flushed
        if self.storage.refusal is not None:
            # This role has ended: the wait fails, or the next leader role completes it.
            return waiting.wait_for(last_offset)
        if self.log.high_watermark > last_offset:
            lacking = self._lacks_replicas(acks)
            return None if lacking is None else refused(lacking)
        if flusher is not None and (acks == Acks.ALL or flusher.must_cover(last_offset + 1)):
            flusher.flush_soon()
        elif acks != Acks.ALL:
            return None
        if acks == Acks.ALL and self.followers is not None:
            self.request_follower_fetches()
        return waiting.wait_for(last_offset)

    async def _append_beside(self, requests: Sequence[Buffer]) -> list[Outcome]:
        """Append large requests one by one. Each request has its own outcome, even if other requests fail."""
        outcomes: list[Outcome] = []
        for records in requests:
            try:
                outcomes.append(await self._append_large(records))
            except BarnabasError as error:
                outcomes.append(error)
            except Exception as error:
                log.exception("%s: an append failed", self.topic_partition)
                outcomes.append(StorageError(f"{self.topic_partition}: append failed: {error!r}"))
        return outcomes

    async def _append_large(self, records: Buffer) -> Outcome:
        disk = self.storage.disk
        if self.config.compression is not None:
            records = await disk.beside(self._recompressed, records)
        view = memoryview(records)
        checked = await disk.beside(checked_batch, view, self.config.log)
        if (registry := self.config.value_schemas) is not None:
            limit = self.config.log.max_message_bytes
            # The schema check waits for another server, so it must not block a thread of the broker's pools.
            await asyncio.to_thread(check_values, view, self.topic_partition.topic, registry, limit)
        self._check_role()
        while (group := self.log.begin_append(lambda group: group.take(view, checked), self.leader_epoch)) is None:
            await disk.do(self.log.roll)
        await disk.do(self.log.write_append, group)
        outcome = self.log.finish_append(group)
        self._note_append([records], [outcome])
        return outcome

    def _append_until_roll(self, requests: Sequence[Buffer]) -> list[Outcome]:
        """Append the requests before the first request that needs a new segment."""
        self._check_role()
        outcomes = self.storage.log.append_until_roll(requests, self.leader_epoch)
        self._note_append(requests, outcomes)
        return outcomes

    def _note_append(self, requests: Sequence[Buffer], outcomes: Sequence[Outcome]) -> None:
        """Notify the flusher, the listeners for reads, and the listeners for appends."""
        storage, followers = self.storage, self.followers
        if not storage.flusher and not storage.readers and followers is None:
            return
        size = sum(
            len(records)
            for records, outcome in zip(requests, outcomes, strict=False)
            if not isinstance(outcome, BarnabasError) and not outcome.duplicate
        )
        if storage.flusher is None and followers is None:
            if size:
                storage.readable(size)
            return
        if size:
            self._unexposed.note(storage.log.log_end_offset, size)
        if storage.flusher:
            storage.flusher.note_append()
        if followers is not None and size:
            is_read = bool(storage.readers)
            self._advance()
            for each in tuple(self._log_end_listeners):
                each.on_appended(size, is_urgent=is_read)

    async def _append_from_queue(self, requests: Sequence[Buffer], outcomes: list[Outcome]) -> list[Outcome]:
        """Append the requests that have no outcome yet.

        Each request has its own outcome, even if other requests fail.
        """
        disk = self.storage.disk
        while rest := requests[len(outcomes) :]:
            try:
                if self.config.compression is not None:
                    # Recompress one request at a time, because the requests fail independently.
                    rest = [await disk.beside(self._recompressed, rest[0])]
                ready = self._append_until_roll(rest)
                outcomes += ready
                if len(ready) < len(rest):
                    await disk.do(self.log.roll)
                    outcomes += self._append_until_roll(rest[len(ready) : len(ready) + 1])
            except BarnabasError as error:
                outcomes.append(error)
            except Exception as error:
                log.exception("%s: an append failed", self.topic_partition)
                outcomes.append(StorageError(f"{self.topic_partition}: append failed: {error!r}"))
        return outcomes

    def _recompressed(self, records: Buffer) -> Buffer:
        compression, limit = self.config.compression, self.config.log.max_message_bytes
        if compression is None:
            return records
        if len(records) > limit:
            message = f"{len(records)} bytes of batches exceed max.message.bytes, which is {limit}"
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, message)
        return recompress(records, compression, max(RECOMPRESSED_BYTES_MAX, limit))

    # --- the high watermark ---

    def _on_flushed(self, error: BarnabasError | None) -> None:
        if error is None:
            self._advance()
            return
        self._readable.end(error)
        self.storage.reads_changed()

    def _advance(self) -> None:
        """Raise the high watermark as far as flushes and followers allow, and complete the waits that depend on it."""
        storage, followers = self.storage, self.followers
        log_of_partition = storage.log
        known = log_of_partition.high_watermark
        offset = log_of_partition.recovery_point if storage.flusher else log_of_partition.log_end_offset
        if followers is not None:
            offset = followers.high_watermark(offset)
        if offset > known:
            log_of_partition.move_high_watermark(offset)
            storage.readable(self._unexposed.expose(offset))
            self._offsets_moved()
        self._readable.settle(offset, self._lacks_replicas(Acks.ALL))
        start = log_of_partition.log_start_offset
        self._trimmed.settle(start if followers is None else followers.least_log_start(start))

    def _lacks_replicas(self, acks: int) -> ApiError | None:
        """Return the error for acks=all if the ISR has too few members to acknowledge, or None."""
        followers = self.followers
        if acks != Acks.ALL or followers is None or followers.can_acknowledge(self.config.min_insync_replicas):
            return None
        message = f"{self._too_few(len(followers.isr))}; the leader has appended the batch"
        return ApiError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, message)

    def _too_few(self, count: int) -> str:
        replicas = "replica" if count == 1 else "replicas"
        least = self.config.min_insync_replicas
        return f"{self.topic_partition} has {count} in-sync {replicas}, fewer than min.insync.replicas={least}"

    # --- the log start offset ---

    async def delete_old_records(self) -> None:
        """Delete the segments that exceed the retention settings."""
        if self.storage.flusher and not self.has_ended:
            # A segment roll also flushes the sealed segments, which raises the recovery point.
            self._advance()
        start = self.log.log_start_offset
        await self.storage.delete_old_records()
        if self.log.log_start_offset > start:
            self._offsets_moved()

    async def delete_records_before(self, offset: int) -> int:
        """Raise the log start offset and return it. The followers fetch immediately, to raise their log start offsets.

        :raises BarnabasError: see `Log.delete_records_before`.
        """
        start = await self.storage.delete_records_before(offset)
        self.request_follower_fetches()
        return start

    def when_deleted(self, offset: int) -> Waiter | None:
        """Return a future that completes when no in-sync replica has records before `offset`, which a new leader would
        restore.

        :returns: None if no replica has such records; otherwise a future. It raises a BarnabasError if this broker
            stops leading.
        """
        if self._next is not None:
            return self._next.when_deleted(offset)
        if self.followers is None or self.followers.least_log_start(self.log.log_start_offset) >= offset:
            return None
        return self._trimmed.wait_for(offset - 1)


def _is_compressed(records: Buffer) -> bool:
    """Return whether a batch is compressed.

    Checking the keys of a compressed batch requires an expensive decompression.
    """
    return len(records) > ATTRIBUTES_END and bool(records[ATTRIBUTES_END - 1] & COMPRESSION_MASK)

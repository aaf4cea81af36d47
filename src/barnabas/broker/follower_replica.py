"""The follower role of a replica, which copies the leader's batches at the leader's offsets.

`append` validates the leader's batches as a leader validates a producer's batches (`barnabas.storage.log_appender`),
and accepts only the batch at the log end offset. A follower's high watermark is the leader's high watermark, but at
most the log end offset. The follower's log start offset follows the leader's, which retention and DeleteRecords raise.
Fetch responses contain both.

When `flush.messages` records are unflushed, the next fetch waits for a flush. Otherwise, a record would be durable only
on the leader's disk with `flush.messages=1`. Followers in Apache Kafka also flush.

Appends that need a new segment, large appends and truncations run on a separate thread, in the order of the replica's
append queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.broker.disk_work import ON_ANY_THREAD, DiskWork
from barnabas.broker.replica_storage import ReplicaStorage, UnexposedAppends
from barnabas.errors import BarnabasError, StorageError
from barnabas.records.header import read_header
from barnabas.storage.log_appender import AppendInfo

if TYPE_CHECKING:
    from barnabas.broker.replica_storage import ConsumerRead, ReadListener, Waiter
    from barnabas.broker.settings.topic_config import TopicConfig
    from barnabas.errors import ApiError
    from barnabas.model import TopicPartition
    from barnabas.storage.log import Log
    from barnabas.storage.log_appender import AppendGroup

log = logging.getLogger(__name__)

AT_ONCE_BYTES_MAX = 2 * 1024 * 1024
"""The maximum size in bytes of an append that is written on the event loop's thread.

Larger appends would block the event loop.
"""


class FollowerReplica:
    """The follower role of a replica in one leader epoch. Used from the event loop's thread only.

    :param work: runs work that may block on the disk.
    :param leader: the id of the leader's broker, or -1 if there is no leader.
    :param topic_id: the topic id in fetch requests.
    """

    __slots__ = (
        "_start_refusal",
        "_unexposed",
        "leader",
        "leader_epoch",
        "storage",
        "topic_id",
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
        leader: int,
        topic_id: bytes,
    ) -> None:
        self.topic_partition = topic_partition
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.topic_id = topic_id
        self._unexposed = UnexposedAppends()
        self._start_refusal = ""
        """The last logged error of an attempt to raise the log start offset."""
        # Remove a leader epoch in which this broker led but appended nothing. Other replicas may have records of an
        # earlier epoch at its start offset.
        log.leader_epochs.truncate_from(log.log_end_offset)
        self.storage = ReplicaStorage(topic_partition, log, leader_epoch, config, work, self._on_flushed)
        self.configure(config)

    def configure(self, config: TopicConfig) -> None:
        """Apply new settings of the topic."""
        self.storage.configure(config)
        self.log.hold_high_watermark()

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

    def check_epoch(self, epoch: int) -> None:
        """Compare a client's leader epoch with the replica's leader epoch (KIP-320).

        :param epoch: the client's leader epoch, or -1 if it is unknown.
        :raises ApiError: FENCED_LEADER_EPOCH for an older epoch, UNKNOWN_LEADER_EPOCH for a newer one.
        """
        self.storage.check_epoch(epoch)

    def resign(self, error: ApiError) -> None:
        """End the follower role, and reject all later requests with this error. The caller must await `end` next."""
        self.storage.flushed.close(error)
        self.storage.resign(error)

    async def end(self) -> None:
        """Wait until no work that changes the log is in progress."""
        await self.storage.end()

    def mark_deleted(self) -> None:
        """End the follower role, because the topic was deleted."""
        self.storage.flushed.close(self.storage.deletion_error)
        self.storage.mark_deleted()

    def _on_flushed(self, _error: BarnabasError | None) -> None:
        """Do nothing: on a follower, only the waiters in `ReplicaStorage.flushed` depend on a flush."""

    # --- readers ---

    def read(self, offset: int, max_bytes: int, *, min_one_batch: bool, committed: bool = False) -> ConsumerRead:
        """Return whole batches below the high watermark. See `ReplicaStorage.read_for_consumer`.

        :raises ApiError: OFFSET_OUT_OF_RANGE.
        """
        return self.storage.read_for_consumer(offset, max_bytes, min_one_batch=min_one_batch, committed=committed)

    def watch(self, listener: ReadListener) -> None:
        """Add a listener for reads."""
        self.storage.watch(listener)

    def unwatch(self, listener: ReadListener) -> None:
        """Remove a listener for reads."""
        self.storage.unwatch(listener)

    async def delete_old_records(self) -> None:
        """Delete the segments that exceed the retention settings."""
        await self.storage.delete_old_records()

    # --- appending ---

    def append(
        self, records: memoryview, leader_high_watermark: int, leader_log_start: int
    ) -> asyncio.Future[None] | None:
        """Append the records of one fetch, and apply the leader's high watermark and log start offset.

        :param records: whole batches, or nothing. They must not change until the append has ended.
        :returns: None if the append is complete; otherwise a future that completes with the append, or raises its
            BarnabasError.
        :raises CorruptBatchError: a batch is damaged, or does not begin at the log end offset. Nothing was appended.
        :raises ApiError: the role has ended.
        :raises StorageError: a write to the disk failed.
        """
        storage = self.storage
        if storage.refusal is not None:
            raise storage.refusal
        self.log.mark_compared()
        if storage.append_queue.is_busy or len(records) > AT_ONCE_BYTES_MAX:
            return storage.run_in_queue(
                lambda: self._append_from_queue(records, leader_high_watermark, leader_log_start)
            )
        if len(records):
            group = None if self._begins_before(records) else self._begin_append(records)
            if group is None:
                return storage.run_in_queue(
                    lambda: self._append_from_queue(records, leader_high_watermark, leader_log_start)
                )
            self.log.write_append(group)
            self._account(group, records)
        self._raise_high_watermark(leader_high_watermark)
        if min(leader_log_start, self.log.high_watermark) > self.log.log_start_offset:
            return storage.run_in_queue(lambda: self._raise_log_start(leader_log_start, brought=len(records)))
        return self._when_flushed() if storage.flusher else None

    async def truncate_to(self, offset: int) -> None:
        """Truncate the log to the offset at which it diverges from the leader's log.

        :raises BarnabasError: a write to the disk failed, the role has ended, or the metadata store is older than the
            log.
        """
        self._check_may_cut(offset)
        if offset < self.log.high_watermark:
            log.warning(
                "%s: truncating to offset %d, below the high watermark %d: the leader of epoch %d lacks the records "
                "above this offset",
                self.topic_partition, offset, self.log.high_watermark, self.leader_epoch,
            )  # fmt: skip
        await self.storage.run_in_queue(lambda: self._cut(self.log.truncate_to, offset))

    def _check_may_cut(self, offset: int) -> None:
        """Check that a truncation does not remove records that may have been acknowledged.

        :raises StorageError: the metadata store was restored from a state older than this log, and the truncation would
            remove records.
        """
        end = self.log.log_end_offset
        if self.log.is_newer_than_tree and offset < end:
            raise StorageError(
                f"cannot truncate the log: the metadata store was older than {self.log.folder.parent} or another"
                f" replica's log. Broker {self.leader}, the leader of epoch {self.leader_epoch}, lacks the records from"
                f" offset {offset} to {end - 1}, of leader epochs up to {self.log.leader_epochs.latest}. These records"
                " may be acknowledged, so this replica keeps them and stays out of the in-sync replicas. To discard"
                f" the records, stop this broker and move {self.log.folder} elsewhere. To keep the records, see"
                ' "The tree from a backup" in docs/how-to/operations.md'
            )

    async def truncate_lost_records(self) -> None:
        """Truncate the log to the first offset whose records the disk has lost.

        The fetcher then fetches these records again.

        :raises BarnabasError: a write to the disk failed, or the role has ended.
        """
        offset = self.log.lost_from
        if offset is not None:
            message = "%s: records from offset %d on are missing from the disk; truncating and fetching them again"
            log.warning(message, self.topic_partition, offset)
            await self.storage.run_in_queue(lambda: self._cut(self.log.truncate_to, offset))
            self.log.accept_loss()

    async def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records and start the log at `offset`, because the leader's log starts there.

        :raises BarnabasError: a write to the disk failed, or the role has ended.
        """
        self._check_may_cut(self.log.log_start_offset)
        end = self.log.log_end_offset
        message = "%s: the log ends at offset %d, before the leader's log start offset %d; removing all its records"
        log.warning(message, self.topic_partition, end, offset)
        await self.storage.run_in_queue(lambda: self._cut(self.log.truncate_fully_and_start_at, offset))

    async def _cut(self, cut: Callable[[int], object], offset: int) -> None:
        """Run a truncation."""
        try:
            await self.storage.disk.do(cut, offset)
        finally:  # The log may be truncated even if a write failed.
            self._unexposed.clear()
            if self.storage.flusher:
                self.storage.flusher.note_truncation()
            self.storage.reads_changed()  # Wake up waiting readers: reads returned no records during the truncation.

    async def _append_from_queue(self, records: memoryview, leader_high_watermark: int, leader_log_start: int) -> None:
        if len(records):
            if self._begins_before(records):
                await self._cut(self.log.lower_log_end_to, read_header(records).base_offset)
            while (group := self._begin_append(records)) is None:
                await self.storage.disk.do(self.log.roll, read_header(records).base_offset)
            await self.storage.disk.do(self.log.write_append, group)
            self._account(group, records)
        self._raise_high_watermark(leader_high_watermark)
        await self._raise_log_start(leader_log_start, brought=len(records))
        if (flushed := self._when_flushed()) is not None:
            await flushed

    def _when_flushed(self) -> Waiter | None:
        """Return a waiter for the flush that must precede the next fetch, or None.

        A fetch acknowledges the records to the leader.
        """
        end, flusher = self.log.log_end_offset, self.storage.flusher
        if flusher is None or self.log.recovery_point >= end or not flusher.must_cover(end):
            return None
        return self.storage.flushed.wait_for(end - 1)

    def _begins_before(self, records: memoryview) -> bool:
        """Return whether the log is empty and its start offset is inside the first batch of `records`.

        This happens if the leader's log start offset is inside a batch.
        """
        replica_log = self.log
        if replica_log.log_start_offset != replica_log.log_end_offset:
            return False
        first = read_header(records)
        return first.base_offset < replica_log.log_end_offset <= first.last_offset

    def _begin_append(self, records: memoryview) -> AppendGroup | None:
        return self.log.begin_append(lambda group: group.replicate(records), self.leader_epoch)

    def _account(self, group: AppendGroup, records: memoryview) -> None:
        followed = self.log
        size, count = followed.appended_bytes, followed.appended_records
        outcome = followed.finish_append(group)
        if not isinstance(outcome, AppendInfo):
            raise outcome
        followed.note_replicated(followed.appended_bytes - size, followed.appended_records - count)
        self._unexposed.note(followed.log_end_offset, len(records))
        if self.storage.flusher:
            self.storage.flusher.note_append()

    def _raise_high_watermark(self, leader_high_watermark: int) -> None:
        """Raise the high watermark to the leader's high watermark, but at most to the log end offset."""
        known = self.log.high_watermark
        if leader_high_watermark > known:
            self.log.move_high_watermark(leader_high_watermark)
            if (high_watermark := self.log.high_watermark) > known:
                self.storage.readable(self._unexposed.expose(high_watermark))

    async def _raise_log_start(self, leader_log_start: int, *, brought: int) -> None:
        """Raise the log start offset to the leader's log start offset.

        :param brought: the number of bytes of records in the same fetch response. If this is not 0, errors are only
            logged.
        :raises BarnabasError: a write to the disk failed, and the response had no records. The fetcher must then pause,
            because the next fetch would fail in the same way.
        """
        offset = min(leader_log_start, self.log.high_watermark)
        if offset <= self.log.log_start_offset:
            self._start_refusal = ""
            return
        try:
            if offset == self.log.log_end_offset:
                await self.storage.disk.do(self.log.roll)
            self.log.delete_records_before(offset)
        except BarnabasError as error:
            if not brought:
                raise
            if str(error) != self._start_refusal:
                message = "%s: cannot delete the records that the leader has deleted: %s; retrying after the next fetch"
                log.warning(message, self.topic_partition, error)
            self._start_refusal = str(error)
        else:
            self._start_refusal = ""

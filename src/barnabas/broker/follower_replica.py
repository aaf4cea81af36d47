"""The replica that follows: it has the batches of the leader, at the leader's offsets.

`append` checks a leader's batches as a leader checks a producer's (`barnabas.storage.log_appender`), and takes only
the batch that comes next. The high watermark is the leader's, as far as the log reaches. The log start offset follows
the leader's, which moves by retention or DeleteRecords, with the fetches.

With `flush.messages`, the next fetch waits until the records are flushed here, once so many are not. Otherwise
`flush.messages=1` would make a record durable on the leader's disk only. Apache Kafka's followers flush likewise.

An append that needs a new segment, a large append, and a truncation run in the replica's line, beside the event loop.
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
"""A thread writes larger appends, so that they do not block the event loop."""


class FollowerReplica:
    """The follower in one leader epoch. Used from the event loop's thread only.

    :param work: runs work that may wait for the disk.
    :param leader: the id of the broker that leads; -1 where none does.
    :param topic_id: the id of the topic in fetches.
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
        """The disk's last error when the log start offset had to rise; each is logged once."""
        # An epoch in which this broker led and appended nothing: other replicas may have records of an earlier epoch
        # at its start offset.
        log.leader_epochs.truncate_from(log.log_end_offset)
        self.storage = ReplicaStorage(topic_partition, log, leader_epoch, config, work, self._on_flushed)
        self.configure(config)

    def configure(self, config: TopicConfig) -> None:
        """Use these settings from now on."""
        self.storage.configure(config)
        self.log.hold_high_watermark()

    @property
    def log(self) -> Log:
        """The log; another one after the replica was moved to another data folder."""
        return self.storage.log

    @property
    def config(self) -> TopicConfig:
        """The settings of the topic."""
        return self.storage.config

    # --- the role ---

    @property
    def is_deleted(self) -> bool:
        """Whether the topic was deleted."""
        return self.storage.is_deleted

    @property
    def has_ended(self) -> bool:
        """Whether the topic was deleted, or the role has ended."""
        return self.storage.has_ended

    def check_epoch(self, epoch: int) -> None:
        """Compare a client's leader epoch with the replica's (KIP-320); -1 stands for an unknown epoch.

        :raises ApiError: FENCED_LEADER_EPOCH for an older one, UNKNOWN_LEADER_EPOCH for a newer one.
        """
        self.storage.check_epoch(epoch)

    def resign(self, error: ApiError) -> None:
        """End the role: refuse all requests with this error from now on. `end` must follow."""
        self.storage.flushed.close(error)
        self.storage.resign(error)

    async def end(self) -> None:
        """Return when no work is under way that changes the log."""
        await self.storage.end()

    def mark_deleted(self) -> None:
        """End the role because the topic is deleted."""
        self.storage.flushed.close(self.storage.deletion_error)
        self.storage.mark_deleted()

    def _on_flushed(self, _error: BarnabasError | None) -> None:
        """Do nothing: the waits for flushes are all that depends on them."""

    # --- readers ---

    def read(self, offset: int, max_bytes: int, *, min_one_batch: bool, committed: bool = False) -> ConsumerRead:
        """Return whole batches below the high watermark; see `ReplicaStorage.read_for_consumer`.

        :raises ApiError: OFFSET_OUT_OF_RANGE.
        """
        return self.storage.read_for_consumer(offset, max_bytes, min_one_batch=min_one_batch, committed=committed)

    def watch(self, listener: ReadListener) -> None:
        """Pass the events of reads to this listener from now on."""
        self.storage.watch(listener)

    def unwatch(self, listener: ReadListener) -> None:
        """Pass no more events to this listener."""
        self.storage.unwatch(listener)

    async def delete_old_records(self) -> None:
        """Delete the segments that the topic's settings do not keep."""
        await self.storage.delete_old_records()

    # --- appending ---

    def append(
        self, records: memoryview, leader_high_watermark: int, leader_log_start: int
    ) -> asyncio.Future[None] | None:
        """Append the records of one fetch, and take over the leader's high watermark and log start offset.

        :param records: whole batches, or nothing. They must not change until the append has ended.
        :returns: None if the append has ended; else a future that ends with it, with a BarnabasError if it failed.
        :raises CorruptBatchError: a batch is damaged, or is not the one that comes next; nothing was appended.
        :raises ApiError: the role has ended.
        :raises StorageError: the disk refused.
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
        """Remove the records from `offset` on: the leader has others there, or none.

        :raises BarnabasError: the disk refused, or the role has ended; or the metadata tree is older than the log.
        """
        self._check_may_cut(offset)
        if offset < self.log.high_watermark:
            log.warning(
                "%s: truncated to offset %d, below the high watermark %d: the leader of epoch %d lacks those records",
                self.topic_partition, offset, self.log.high_watermark, self.leader_epoch,
            )  # fmt: skip
        await self.storage.run_in_queue(lambda: self._cut(self.log.truncate_to, offset))

    def _check_may_cut(self, offset: int) -> None:
        """:raises StorageError: the metadata tree is older than this log, so the records may be acknowledged ones."""
        end = self.log.log_end_offset
        if self.log.is_newer_than_tree and offset < end:
            raise StorageError(
                f"the metadata tree was older than {self.log.folder.parent} or another replica's log, and broker"
                f" {self.leader}, which leads in epoch {self.leader_epoch}, lacks the records from offset {offset} to"
                f" {end - 1} here, of epochs up to {self.log.leader_epochs.latest}. They may be acknowledged, so they"
                " stay, and this replica stays out of the in-sync replicas. To give them up, stop this broker and move"
                f' {self.log.folder} elsewhere; to go on with them instead, see "The tree from a backup" in'
                " docs/how-to/operations.md"
            )

    async def truncate_lost_records(self) -> None:
        """Truncate the log to the first offset that this disk has lost, so that the records are fetched again.

        :raises BarnabasError: the disk refused, or the role has ended.
        """
        offset = self.log.lost_from
        if offset is not None:
            message = "%s: the disk has lost records from offset %d on; fetching them again"
            log.warning(message, self.topic_partition, offset)
            await self.storage.run_in_queue(lambda: self._cut(self.log.truncate_to, offset))
            self.log.accept_loss()

    async def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records and begin with `offset`: the leader has none before it.

        :raises BarnabasError: the disk refused, or the role has ended.
        """
        self._check_may_cut(self.log.log_start_offset)
        end = self.log.log_end_offset
        log.warning("%s: ends at offset %d, and the leader's log begins at %d", self.topic_partition, end, offset)
        await self.storage.run_in_queue(lambda: self._cut(self.log.truncate_fully_and_start_at, offset))

    async def _cut(self, cut: Callable[[int], object], offset: int) -> None:
        """Run a truncation."""
        try:
            await self.storage.disk.do(cut, offset)
        finally:  # the log may be truncated although the disk refused to store that
            self._unexposed.clear()
            if self.storage.flusher:
                self.storage.flusher.note_truncation()
            self.storage.reads_changed()  # reads returned nothing meanwhile

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
        """Return the wait that precedes the next fetch, which makes the records count as replicated; or None."""
        end, flusher = self.log.log_end_offset, self.storage.flusher
        if flusher is None or self.log.recovery_point >= end or not flusher.must_cover(end):
            return None
        return self.storage.flushed.wait_for(end - 1)

    def _begins_before(self, records: memoryview) -> bool:
        """Whether the log is empty and its first offset lies within the first batch: the leader's log start offset
        does too."""
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
        """Raise the high watermark to the leader's, as far as the log reaches."""
        known = self.log.high_watermark
        if leader_high_watermark > known:
            self.log.move_high_watermark(leader_high_watermark)
            if (high_watermark := self.log.high_watermark) > known:
                self.storage.readable(self._unexposed.expose(high_watermark))

    async def _raise_log_start(self, leader_log_start: int, *, brought: int) -> None:
        """Raise the log start offset to the leader's.

        :param brought: the bytes of records that the same fetch brought; they stay, whatever happens here.
        :raises BarnabasError: the disk refused, and the fetch brought nothing: the next fetch would end the same way,
            so it has to come after a pause.
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
                message = "%s: cannot delete the records that the leader has deleted: %s; they stay for now"
                log.warning(message, self.topic_partition, error)
            self._start_refusal = str(error)
        else:
            self._start_refusal = ""

"""The replica of a partition that follows: batches as its leader has them, where the leader has them.

What the leader sent is checked as a leader checks what producers send (`barnabas.storage.follower_append`), and must be
what comes next. The high watermark is the leader's, as far as the log reaches. Where the leader's log begins, this one
begins too: a log start that moves on, by retention or by DeleteRecords, comes with the fetches.

With `flush.messages`, the leader is told that records are here once they are flushed here, when so many are not: else
`flush.messages=1` would promise of one disk only what is on all of them. Apache Kafka's followers flush likewise.

What can be appended at once is; what needs a new segment, or is large, stands in line and is done beside the event
loop. Truncation stands in the same line.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.broker.replica import GONE_BYTES, ON_ANY_THREAD, Replica
from barnabas.errors import BarnabasError, StorageError
from barnabas.records.header import read_header
from barnabas.storage.append import AppendInfo

if TYPE_CHECKING:
    from barnabas.broker.acknowledgements import Waiter
    from barnabas.broker.disk_work import DiskWork
    from barnabas.broker.settings.topic_config import TopicConfig
    from barnabas.model import TopicPartition
    from barnabas.storage.append_group import AppendGroup
    from barnabas.storage.log import Log

log = logging.getLogger(__name__)

AT_ONCE_BYTES_MAX = 2 * 1024 * 1024
"""Larger appends are written by a thread, so that they do not hold up the event loop."""


class FollowerReplica(Replica):
    """The replica that follows in one leader epoch. Used from the event loop's thread only.

    :param leader: whom it follows.
    :param topic_id: by which it asks for the partition.
    """

    __slots__ = ("_told_refusal", "_unexposed_bytes", "topic_id")

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
        self.topic_id = topic_id
        self._unexposed_bytes = 0
        self._told_refusal = ""
        """What the disk said when it refused to forget records, as long as it does: it is told once."""
        # An epoch in which this broker led and wrote nothing: others may have records of an earlier one there.
        log.leader_epochs.truncate_from(log.log_end_offset)
        super().__init__(topic_partition, log, leader_epoch, config, work, leader=leader)

    def configure(self, config: TopicConfig) -> None:
        """Use these settings from now on."""
        super().configure(config)
        self.log.hold_high_watermark()

    def append(
        self, records: memoryview, leader_high_watermark: int, leader_log_start: int
    ) -> asyncio.Future[None] | None:
        """Append what one fetch brought, and go on to where the leader's high watermark and log start are.

        :param records: whole batches; nothing where there was nothing new. Must stay as they are until this has ended.
        :returns: None if it is done; else a future that ends when it is, with a BarnabasError where it failed.
        :raises CorruptBatchError: a batch is damaged, or is not the one that comes next; nothing was appended.
        :raises KafkaError: the role has ended.
        :raises StorageError: the disk refused.
        """
        if self._refusal is not None:
            raise self._refusal
        self.log.is_newer_than_tree = False  # the leader found no difference
        if self._moving is not None or len(records) > AT_ONCE_BYTES_MAX:
            return self._get_in_line(lambda: self._append_in_turn(records, leader_high_watermark, leader_log_start))
        if len(records):
            group = None if self._begins_before(records) else self._begin_append(records)
            if group is None:
                return self._get_in_line(lambda: self._append_in_turn(records, leader_high_watermark, leader_log_start))
            self.log.write(group)
            self._account(group, records)
        self._go_on_to(leader_high_watermark)
        if min(leader_log_start, self.log.high_watermark) > self.log.log_start_offset:
            return self._get_in_line(lambda: self._begin_with(leader_log_start, brought=len(records)))
        return self._when_flushed() if self._flusher else None

    async def truncate_to(self, offset: int) -> None:
        """Remove what is from `offset` on: the leader has other records there, or none.

        :raises BarnabasError: the disk refused, or the role has ended; or the metadata tree is older than the log.
        """
        self._check_may_cut(offset)
        if offset < self.log.high_watermark:
            log.warning(
                "%s: truncated to offset %d, below the high watermark %d: the leader of epoch %d lacks those records",
                self.topic_partition, offset, self.log.high_watermark, self.leader_epoch,
            )  # fmt: skip
        await self._get_in_line(lambda: self._cut(self.log.truncate_to, offset))

    def _check_may_cut(self, offset: int) -> None:
        """:raises StorageError: the metadata tree is older than this log, so the records may be acknowledged ones."""
        end = self.log.log_end_offset
        if self.log.is_newer_than_tree and offset < end:
            raise StorageError(
                f"the metadata tree was older than {self.log.folder.parent} when this broker started, and broker"
                f" {self.leader}, which leads in epoch {self.leader_epoch}, lacks the records from offset {offset} to"
                f" {end - 1} here, of epochs up to {self.log.leader_epochs.latest}. They may be acknowledged, so they"
                " stay, and this replica stays out of the in-sync replicas. To give them up, stop this broker and move"
                f' {self.log.folder} elsewhere; to go on with them instead, see "The tree from a backup" in'
                " docs/operations.md"
            )

    async def give_up_what_is_behind_a_loss(self) -> None:
        """Go back to where records were lost on this disk, so that they are fetched again, with all behind them.

        :raises BarnabasError: the disk refused, or the role has ended.
        """
        offset = self.log.lost_from
        if offset is not None:
            log.warning("%s: records from offset %d on are fetched anew: some were lost", self.topic_partition, offset)
            await self._get_in_line(lambda: self._cut(self.log.truncate_to, offset))
            self.log.lost_from = None

    async def start_over_at(self, offset: int) -> None:
        """Remove all records, and go on with `offset`: the leader no longer has those before it.

        :raises BarnabasError: the disk refused, or the role has ended.
        """
        self._check_may_cut(self.log.log_start_offset)
        end = self.log.log_end_offset
        log.warning("%s: ends at offset %d, and the leader's log begins at %d", self.topic_partition, end, offset)
        await self._get_in_line(lambda: self._cut(self.log.start_over_at, offset))

    async def _cut(self, cut: Callable[[int], object], offset: int) -> None:
        """Let the log end at an offset before its end."""
        try:
            await self._disk.do(cut, offset)
        finally:  # it may have been cut when what notes it could not be stored
            if self._flusher:
                self._flusher.note_truncation()
            self._notify(GONE_BYTES)  # readers had nothing meanwhile

    async def _append_in_turn(self, records: memoryview, leader_high_watermark: int, leader_log_start: int) -> None:
        if len(records):
            if self._begins_before(records):
                await self._cut(self.log.reach_back_to, read_header(records).base_offset)
            while (group := self._begin_append(records)) is None:
                await self._disk.do(self.log.roll, read_header(records).base_offset)
            await self._disk.do(self.log.write, group)
            self._account(group, records)
        self._go_on_to(leader_high_watermark)
        await self._begin_with(leader_log_start, brought=len(records))
        if (flushed := self._when_flushed()) is not None:
            await flushed

    def _when_flushed(self) -> Waiter | None:
        """Return what has to be waited for before the leader is told that the records are here."""
        end = self.log.log_end_offset
        if self._flusher is None or self.log.recovery_point >= end or not self._flusher.must_cover(end):
            return None
        return self._flushed.wait_for(end - 1)

    def _begins_before(self, records: memoryview) -> bool:
        """Whether an empty log has to begin with the batch that holds its first offset: the leader's log begins within
        a batch."""
        replica_log = self.log
        if replica_log.log_start_offset != replica_log.log_end_offset:
            return False
        first = read_header(records)
        return first.base_offset < replica_log.log_end_offset <= first.last_offset

    def _begin_append(self, records: memoryview) -> AppendGroup | None:
        return self.log.begin_append(lambda group: group.replicate(records), self.leader_epoch)

    def _account(self, group: AppendGroup, records: memoryview) -> None:
        outcome = self.log.account(group)
        if not isinstance(outcome, AppendInfo):
            raise outcome
        self._unexposed_bytes += len(records)
        if self._flusher:
            self._flusher.note_append()

    def _go_on_to(self, leader_high_watermark: int) -> None:
        """Move the high watermark to the leader's, as far as the log reaches; it does not go back."""
        known = self.log.high_watermark
        if leader_high_watermark > known:
            self.log.high_watermark = leader_high_watermark
            if self.log.high_watermark > known:
                size, self._unexposed_bytes = self._unexposed_bytes, 0
                self._notify(size)

    async def _begin_with(self, leader_log_start: int, *, brought: int) -> None:
        """Forget the records that the leader has forgotten.

        :param brought: the bytes of records that came with that. They are here, whatever becomes of the others.
        :raises BarnabasError: the disk refused, and nothing came: who asks again at once is told the same at once.
        """
        offset = min(leader_log_start, self.log.high_watermark)
        if offset <= self.log.log_start_offset:
            self._told_refusal = ""
            return
        try:
            if offset == self.log.log_end_offset:
                await self._disk.do(self.log.roll)
            self.log.delete_records_before(offset)
        except BarnabasError as error:
            if not brought:
                raise
            if str(error) != self._told_refusal:
                log.warning("%s: records that its leader has deleted stay: %s", self.topic_partition, error)
            self._told_refusal = str(error)
        else:
            self._told_refusal = ""

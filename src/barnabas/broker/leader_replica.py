"""A partition that this broker leads: appends and their acknowledgement.

With one replica the log itself keeps the high watermark at its end: what is appended may be read. Where the topic
has `flush.messages` or `flush.ms`, the high watermark follows the flushes instead (paper, 3.1: "a message is only
exposed to the consumers after it is flushed"). The paper's broker acknowledges nothing; here

- acks=1 means, as in Kafka, that the message is in the log. The request that completes `flush.messages` is answered
  after the flush that it causes, so `flush.messages=1` means that all that is acknowledged is durable;
- acks=all means, as everywhere, that consumers can have the message: it waits for the flush, and does not leave it
  to `flush.messages` or `flush.ms` when that is.

With followers, the high watermark is where all replicas of the ISR have come (`barnabas.replication.in_sync`), this one
with what it has flushed where there is a flush policy. acks=all waits for that, and acks=1 does not.

An append is carried out at once where the log can take it at once. Where it must first be compressed anew, the schemas
of its values are to be checked, or the log needs a new segment, a thread does that. The append waits for it in line,
and later appends to this partition wait behind it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.broker.acknowledgements import Acknowledgements, Waiter, refused
from barnabas.broker.disk_work import DiskWork
from barnabas.broker.replica import GONE_BYTES, ON_ANY_THREAD, URGENT_BYTES, Replica
from barnabas.broker.schema_check import check_values
from barnabas.errors import BarnabasError, ErrorCode, KafkaError, StorageError
from barnabas.model import NO_OFFSET, Acks
from barnabas.records.header import COMPRESSION_MASK
from barnabas.records.recompression import recompress
from barnabas.storage.append import checked_batch

if TYPE_CHECKING:
    from barnabas.broker.settings.topic_config import TopicConfig
    from barnabas.model import FileRegion, TopicPartition
    from barnabas.records.header import Buffer
    from barnabas.replication.in_sync import RemoteReplicas
    from barnabas.storage.append import AppendInfo
    from barnabas.storage.append_group import Outcome
    from barnabas.storage.log import Log

log = logging.getLogger(__name__)

RECOMPRESSED_BYTES_MAX = 16 * 1024 * 1024
"""How much a request's batches may hold when decompressed, where they are compressed anew."""

AT_ONCE_BYTES_MAX = 2 * 1024 * 1024
"""Appends that are larger than this together are checked and written by a thread, so that they do not hold up the event
loop."""

ATTRIBUTES_END = 23
"""Where the attributes of a batch end; their last byte tells how it is compressed."""


OnChange = Callable[[int], None]
"""See `LeaderReplica.watch_changes`."""

OnIsrWanted = Callable[["LeaderReplica"], None]


def _ignore(_partition: LeaderReplica) -> None:
    """Where nobody proposes another ISR."""


class LeaderReplica(Replica):
    """The replica that leads. Used from the event loop's thread only.

    :param work: runs work that may wait for the disk.
    :param leader: this broker.
    :param followers: what it knows of the other replicas; None where there are no others.
    """

    __slots__ = (
        "_changes",
        "_fenced",
        "_next",
        "_readable",
        "_trimmed",
        "_unexposed_bytes",
        "followers",
        "on_isr_wanted",
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
    ) -> None:
        self.followers = followers
        self.on_isr_wanted: OnIsrWanted = _ignore
        """Called when there may be another ISR to propose."""
        self._changes: dict[OnChange, None] = {}
        self._fenced: KafkaError | None = None
        self._next: LeaderReplica | None = None
        """The role after this one, where it leads as well."""
        self._unexposed_bytes = 0
        self._readable = Acknowledgements()
        self._trimmed = Acknowledgements()
        if followers is not None:
            # So that followers that ask for this epoch, or an earlier one, are told where it begins (KIP-101).
            log.leader_epochs.assign(leader_epoch, log.log_end_offset)
        super().__init__(topic_partition, log, leader_epoch, config, work, leader=leader)
        if self._flusher and log.recovery_point < log.log_end_offset:
            # They may be acknowledged, by a leader before: readers must not have to wait until more records come.
            self._flusher.flush_soon()

    def configure(self, config: TopicConfig) -> None:
        """Use these settings from now on."""
        super().configure(config)
        if self.followers is None:
            self.log.release_high_watermark(follows_end=not config.log.has_flush_policy)
        else:
            self.log.hold_high_watermark()
        self._advance()

    # --- the role ---

    def check_epoch(self, epoch: int) -> None:
        """Do as every replica does; and check that the partition is led from here.

        :raises KafkaError: NOT_LEADER_OR_FOLLOWER too.
        """
        self._check_role()
        super().check_epoch(epoch)

    def _check_role(self) -> None:
        """Check that the partition is still led from here.

        :raises KafkaError: NOT_LEADER_OR_FOLLOWER.
        """
        if (refusal := self._refusal or self._fenced) is not None:
            raise refusal

    @property
    def is_led(self) -> bool:
        """Whether it is there, and led from here, as far as this broker knows."""
        return not self.is_deleted and self._refusal is None and self._fenced is None

    def fence(self) -> None:
        """Neither append nor let anybody read until `unfence`: another broker may lead by now."""
        message = f"{self.topic_partition}: it is in doubt whether broker {self.leader} still leads"
        self._fenced = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
        self._notify(GONE_BYTES)
        self._tell_followers(GONE_BYTES)

    def unfence(self) -> None:
        """Lead on: it has turned out that nobody else does."""
        self._fenced = None

    def resign(self, error: KafkaError, *, leads_on: bool = False) -> None:
        """End the role, and with it everything that waits, unless the next one leads as well."""
        super().resign(error, leads_on=leads_on)
        self._tell_followers(GONE_BYTES)

    def succeed(self, last: LeaderReplica) -> None:
        """Let those who wait in the role before wait in this one: the log still holds what they wait for, for only
        those that follow cut it. Who was refused would send it again, and it would be there twice."""
        last._next = self
        self._readable.take_over(last._readable)
        self._flushed.take_over(last._flushed)
        self._trimmed.take_over(last._trimmed)
        if self._flusher and self.log.recovery_point < self.log.log_end_offset:
            self._flusher.flush_soon()
        self._flushed.settle(self.log.recovery_point if self._flusher else self.log.log_end_offset)
        self._advance()

    def mark_deleted(self) -> None:
        """Called when the topic is deleted: waiting fetches look again, and find that it is gone."""
        super().mark_deleted()
        self._tell_followers(GONE_BYTES)

    def end_waits(self, error: KafkaError) -> None:
        super().end_waits(error)
        self._readable.close(error)
        self._trimmed.close(error)

    # --- followers ---

    def on_follower_fetch(
        self, follower: int, broker_epoch: int, fetch_offset: int, now_s: float, log_start_offset: int = NO_OFFSET
    ) -> None:
        """Note that a follower has everything below an offset; move the high watermark if that makes it possible.

        :param broker_epoch: of the follower's registration.
        :param now_s: monotonic, when it said so.
        :param log_start_offset: where the follower's log begins.
        :raises KafkaError: it is no replica; its broker epoch is an old one; this log does not reach so far.
        """
        followers = self.followers
        if followers is None:
            message = f"{self.topic_partition} has no follower on broker {follower}"
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, message)
        followers.on_fetch(follower, fetch_offset, self.log.log_end_offset, now_s, broker_epoch)
        followers.on_log_start(follower, log_start_offset)
        self._advance()
        if fetch_offset >= self.log.high_watermark and not followers.is_in_sync(follower):
            self.on_isr_wanted(self)

    def read_for_follower(self, offset: int, max_bytes: int, *, min_one_batch: bool) -> FileRegion | bytearray | None:
        """Do as `read` does, up to the end of the log."""
        return self._read(offset, max_bytes, self.log.log_end_offset, min_one_batch=min_one_batch)

    def note_caught_up(self, follower: int, broker_epoch: int, fetch_offset: int, at_s: float) -> None:
        """Note that a follower, which had everything below an offset, had all there was at this time.

        Those that follow without news do not say so partition by partition. What was said in an earlier life, over a
        connection of which nobody knows yet that it is gone, does not count.
        """
        followers = self.followers
        if followers is None or followers.broker_epoch_of(follower) != broker_epoch:
            return
        if followers.log_end_offset_of(follower) == fetch_offset:
            followers.on_fetch(follower, fetch_offset, fetch_offset, at_s, broker_epoch)

    def ask_followers(self) -> None:
        """Have those that fetch, and have had nothing new, say again how far they are."""
        self._tell_followers(URGENT_BYTES)

    def check_end_is_known(self) -> None:
        """Check that clients may be told where the records end: no earlier leader told them of a later end (KIP-207).

        :raises KafkaError: OFFSET_NOT_AVAILABLE.
        """
        if self.followers is not None and not self.followers.knows_high_watermark:
            message = f"{self.topic_partition}: its new leader has not heard from all in-sync replicas yet"
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, message)

    def isr_changed(self) -> None:
        """Called when the ISR in force, or the one that may soon be, is another one: the high watermark may move."""
        self._advance()

    def watch_changes(self, on_change: OnChange) -> None:
        """Call `on_change` with the number of bytes whenever something is appended, with 0 whenever only the high
        watermark or the start of the log has moved, with `URGENT_BYTES` or more when somebody waits for followers, and
        with `GONE_BYTES` when the role ends or is in doubt."""
        self._changes[on_change] = None

    def unwatch_changes(self, on_change: OnChange) -> None:
        """Stop calling `on_change`."""
        self._changes.pop(on_change, None)

    def _tell_followers(self, size: int) -> None:
        for on_change in tuple(self._changes):
            on_change(size)

    # --- appending ---

    def append_all(self, requests: Sequence[Buffer]) -> list[Outcome] | asyncio.Future[list[Outcome]]:
        """Append the batches of several produce requests, each judged alone, in their order.

        `when_acknowledged` says what to wait for before a batch is acknowledged.

        :returns: the outcomes; or a future of them, where something has to be waited for.
        """

        def refuse(error: KafkaError) -> list[Outcome]:
            return [error] * len(requests)

        if (refusal := self._refusal or self._fenced) is not None:
            return refuse(refusal)
        outcomes: list[Outcome] = []
        is_hidden = self.config.log.is_compacted and any(map(_is_compressed, requests))
        if is_hidden or self.config.value_schemas is not None or sum(map(len, requests)) > AT_ONCE_BYTES_MAX:
            return self._get_in_line(lambda: self._append_beside(requests), refuse)
        if not self._moving and self.config.compression is None:
            outcomes = self._append_ready(requests)
            if len(outcomes) == len(requests):
                return outcomes
        return self._get_in_line(lambda: self._append_in_turn(requests, outcomes), refuse)

    def hold_appends(self, until: Callable[[], Awaitable[object]]) -> asyncio.Future[object]:
        """Append nothing from now until something has ended: what comes waits behind it."""
        return self._get_in_line(until)

    def append_made(self, batch: bytearray) -> bool:
        """Append a batch that this broker made, of records with keys, if that can be done, and acknowledged, at once.

        :returns: False where it is not in the log: `append_all` does it, or says why not.
        """
        config = self.config
        if self._moving or self._flusher or config.compression is not None or config.min_insync_replicas > 1:
            return False
        if self.followers is not None or self._refusal is not None or self._fenced is not None:
            return False
        if not self.log.append_made(batch, self.leader_epoch):
            return False
        if self._on_readable:
            self._notify(len(batch))
        return True

    def acknowledges_at_once(self, acks: int) -> bool:
        """Whether a batch is acknowledged as soon as it is in the log, so that `when_acknowledged` need not be
        asked."""
        return self._flusher is None and (self.followers is None or acks != Acks.ALL)

    def check_replicas(self) -> None:
        """Check that a message could be acknowledged by as many replicas as the topic asks for.

        :raises KafkaError: NOT_ENOUGH_REPLICAS.
        """
        count = 1 if self.followers is None else len(self.followers.isr)
        if count < self.config.min_insync_replicas:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, self._too_few(count))

    def when_acknowledged(self, info: AppendInfo, acks: int) -> Waiter | None:
        """Return what has to be waited for before the batches that were just appended are acknowledged.

        :returns: None, or a future that ends with a BarnabasError where they must not be.
        """
        flusher, last_offset = self._flusher, info.last_offset
        if acks == Acks.NONE or (flusher is None and acks != Acks.ALL):
            return None
        if self._next is not None:
            return self._next.when_acknowledged(info, acks)
        waiting = self._readable if acks == Acks.ALL else self._flushed
        if self._refusal is not None:
            # In vain, or until the next role has begun.
            return waiting.wait_for(last_offset)
        if self.log.high_watermark > last_offset:
            lacking = self._lacks_replicas(acks)
            return None if lacking is None else refused(lacking)
        if flusher is not None and (acks == Acks.ALL or flusher.must_cover(last_offset + 1)):
            flusher.flush_soon()
        elif acks != Acks.ALL:
            return None
        if acks == Acks.ALL and self.followers is not None:
            self._tell_followers(URGENT_BYTES)
        return waiting.wait_for(last_offset)

    async def _append_beside(self, requests: Sequence[Buffer]) -> list[Outcome]:
        """Append large requests, one by one; whatever becomes of one, the others have their outcomes too."""
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
        if self.config.compression is not None:
            records = await self._disk.beside(self._recompressed, records)
        view = memoryview(records)
        checked = await self._disk.beside(checked_batch, view, self.config.log)
        if (url := self.config.value_schemas) is not None:
            limit = self.config.log.max_message_bytes
            # On a thread of no pool of ours: it waits for another server.
            await asyncio.to_thread(check_values, view, self.topic_partition.topic, url, limit)
        self._check_role()
        while (group := self.log.begin_append(lambda group: group.take(view, checked), self.leader_epoch)) is None:
            await self._disk.do(self.log.roll)
        await self._disk.do(self.log.write, group)
        outcome = self.log.account(group)
        self._note_append([records], [outcome])
        return outcome

    def _append_ready(self, requests: Sequence[Buffer]) -> list[Outcome]:
        """Append up to the first request that needs a new segment."""
        self._check_role()
        outcomes = self.log.append_ready(requests, self.leader_epoch)
        self._note_append(requests, outcomes)
        return outcomes

    def _note_append(self, requests: Sequence[Buffer], outcomes: Sequence[Outcome]) -> None:
        """Notify those that wait for more."""
        if not self._flusher and not self._on_readable and self.followers is None:
            return
        size = sum(
            len(records)
            for records, outcome in zip(requests, outcomes, strict=False)
            if not isinstance(outcome, BarnabasError) and not outcome.duplicate
        )
        if self._flusher is None and self.followers is None:
            if size:
                self._notify(size)
            return
        self._unexposed_bytes += size
        if self._flusher:
            self._flusher.note_append()
        if self.followers is not None and size:
            is_read = bool(self._on_readable)
            self._advance()
            self._tell_followers(size + URGENT_BYTES if is_read else size)

    async def _append_in_turn(self, requests: Sequence[Buffer], outcomes: list[Outcome]) -> list[Outcome]:
        """Append those requests that have no outcome yet; whatever becomes of one, the others have theirs too."""
        while rest := requests[len(outcomes) :]:
            try:
                if self.config.compression is not None:
                    # One by one: each may be refused by itself.
                    rest = [await self._disk.beside(self._recompressed, rest[0])]
                ready = self._append_ready(rest)
                outcomes += ready
                if len(ready) < len(rest):
                    await self._disk.do(self.log.roll)
                    outcomes += self._append_ready(rest[len(ready) : len(ready) + 1])
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
            message = f"{len(records)} bytes of batches, max.message.bytes is {limit}"
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, message)
        return recompress(records, compression, max(RECOMPRESSED_BYTES_MAX, limit))

    # --- the high watermark ---

    def _on_flushed(self, error: BarnabasError | None) -> None:
        super()._on_flushed(error)
        if error is None:
            self._advance()
            return
        self._readable.end(error)
        self._notify(GONE_BYTES)

    def _advance(self) -> None:
        """Move the high watermark up to where all that must have the records have them, and tell those who wait."""
        log_of_partition = self.log
        known = log_of_partition.high_watermark
        offset = log_of_partition.recovery_point if self._flusher else log_of_partition.log_end_offset
        if self.followers is not None:
            offset = self.followers.high_watermark(offset)
        if offset > known:
            log_of_partition.high_watermark = offset
            size, self._unexposed_bytes = self._unexposed_bytes, 0
            self._notify(size)
            if self._changes:
                self._tell_followers(0)
        self._readable.settle(offset, self._lacks_replicas(Acks.ALL))
        start = log_of_partition.log_start_offset
        self._trimmed.settle(start if self.followers is None else self.followers.least_log_start(start))

    def _lacks_replicas(self, acks: int) -> KafkaError | None:
        """Return why what was appended is not acknowledged although it is below the high watermark, or None."""
        followers = self.followers
        if acks != Acks.ALL or followers is None or followers.can_acknowledge(self.config.min_insync_replicas):
            return None
        message = f"{self._too_few(len(followers.isr))}; the message is in the log"
        return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, message)

    def _too_few(self, count: int) -> str:
        replicas = "replica" if count == 1 else "replicas"
        least = self.config.min_insync_replicas
        return f"{self.topic_partition} has {count} {replicas} in sync, min.insync.replicas is {least}"

    # --- old records ---

    async def delete_old_records(self) -> None:
        """Delete the records that the topic's settings no longer keep."""
        if self._flusher and not self.has_ended:
            # Sealed segments are also flushed by others than the flusher.
            self._advance()
        start = self.log.log_start_offset
        await super().delete_old_records()
        if self.log.log_start_offset > start:
            self._tell_followers(0)

    async def delete_records_before(self, offset: int) -> int:
        """Forget the records before `offset`; return where the log begins now. Followers do the same with their next
        fetch, which they are to send at once.

        :raises BarnabasError: as `Log.delete_records_before` does.
        """
        start = await super().delete_records_before(offset)
        self.ask_followers()
        return start

    def when_deleted(self, offset: int) -> Waiter | None:
        """Return what has to be waited for before no replica in sync has records before `offset`: a new leader would
        bring them back.

        :returns: None, or a future that ends with a BarnabasError where this broker leads no longer.
        """
        if self._next is not None:
            return self._next.when_deleted(offset)
        if self.followers is None or self.followers.least_log_start(self.log.log_start_offset) >= offset:
            return None
        return self._trimmed.wait_for(offset - 1)


def _is_compressed(records: Buffer) -> bool:
    """Whether the keys in a batch can be seen only after it was decompressed, which takes long."""
    return len(records) > ATTRIBUTES_END and bool(records[ATTRIBUTES_END - 1] & COMPRESSION_MASK)

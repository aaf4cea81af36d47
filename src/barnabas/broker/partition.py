"""One partition that this broker leads: its log, its leader epoch, and who waits for more of it.

With one replica the log itself keeps the high watermark at its end: what is appended may be read. Where the topic
has `flush.messages` or `flush.ms`, the high watermark follows the flushes instead (paper, 3.1: "a message is only
exposed to the consumers after it is flushed"). The paper's broker acknowledges nothing; here

- acks=1 means, as in Kafka, that the message is in the log. The request that completes `flush.messages` is answered
  after the flush that it causes, so `flush.messages=1` means that all that is acknowledged is durable;
- acks=all means, as everywhere, that consumers can have the message: it waits for the flush, and does not leave it
  to `flush.messages` or `flush.ms` when that is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.broker.flusher import Flusher
from barnabas.errors import BarnabasError, CorruptBatchError, ErrorCode, KafkaError, StorageError
from barnabas.model import Acks, FileRegion, TopicPartition
from barnabas.records.recompression import recompress

if TYPE_CHECKING:
    from barnabas.broker.topic_config import TopicConfig
    from barnabas.records.header import Buffer
    from barnabas.storage.append_group import Outcome
    from barnabas.storage.log import AppendInfo, Log

log = logging.getLogger(__name__)

OnReadable = Callable[[int], None]
"""Called with the number of bytes that became readable, or with a huge one when the partition went away."""

RECOMPRESSED_BYTES_MAX = 16 * 1024 * 1024
"""How much a request's batches may hold when decompressed, where they are compressed anew."""

GONE_BYTES = 2**62
"""Satisfies every waiting fetch, so that it looks again and finds the partition gone."""


class Partition:
    """A partition whose leader this broker is. Used from the event loop's thread only."""

    __slots__ = (
        "_flusher",
        "_on_readable",
        "_unexposed_bytes",
        "_waiting",
        "config",
        "is_deleted",
        "leader_epoch",
        "log",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, log: Log, leader_epoch: int, config: TopicConfig) -> None:
        self.topic_partition = topic_partition
        self.log = log
        self.leader_epoch = leader_epoch
        self.is_deleted = False
        self._on_readable: set[OnReadable] = set()
        self._flusher: Flusher | None = None
        self._unexposed_bytes = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self.configure(config)

    def configure(self, config: TopicConfig) -> None:
        """Put settings into force."""
        self.config = config
        self.log.config = config.log
        self.log.high_watermark_follows_end = not config.log.has_flush_policy
        if self._flusher and config.log.has_flush_policy:
            self._flusher.restart_timer()
        elif self._flusher:
            self._flusher.stop()
            self._flusher = None
            self._expose(self.log.log_end_offset)
        elif config.log.has_flush_policy:
            self._flusher = Flusher(self.log, self._on_flushed)

    def append(self, records: Buffer) -> AppendInfo:
        """Append a produce request's batches.

        :raises BarnabasError: the batches were refused, or the disk refused them.
        """
        (outcome,) = self.append_all([records])
        if isinstance(outcome, BarnabasError):
            raise outcome
        return outcome

    def append_all(self, requests: Sequence[Buffer]) -> list[Outcome]:
        """Append the batches of several produce requests, each judged alone, in their order.

        What has to be waited for before one is acknowledged, `when_acknowledged` tells.
        """
        if self.config.compression is not None:
            return [self._recompress_and_append(records) for records in requests]
        return self._append_all(requests)

    def when_acknowledged(self, info: AppendInfo, acks: int) -> asyncio.Future[None] | None:
        """Return what has to be waited for before the batches that were just appended are acknowledged.

        :returns: None, or a future that ends with a BarnabasError where they must not be.
        """
        flusher = self._flusher
        if not flusher or acks == Acks.NONE or self.log.high_watermark > info.last_offset:
            return None
        if acks != Acks.ALL and not flusher.must_cover(info.last_offset + 1):
            return None
        flusher.flush_soon()
        exposed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((info.last_offset, exposed))
        return exposed

    def _append_all(self, requests: Sequence[Buffer]) -> list[Outcome]:
        outcomes = self.log.append_all(requests, self.leader_epoch)
        if not self._flusher and not self._on_readable:
            return outcomes
        size = sum(
            len(records)
            for records, outcome in zip(requests, outcomes, strict=True)
            if not isinstance(outcome, BarnabasError) and not outcome.duplicate
        )
        if self._flusher:
            self._unexposed_bytes += size
            self._flusher.note_append()
        elif size:
            self._notify(size)
        return outcomes

    def _recompress_and_append(self, records: Buffer) -> Outcome:
        assert self.config.compression is not None
        limit = self.config.log.max_message_bytes
        try:
            if len(records) > limit:
                message = f"{len(records)} bytes of batches, max.message.bytes is {limit}"
                raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, message)
            recompressed = recompress(records, self.config.compression, max(RECOMPRESSED_BYTES_MAX, limit))
        except BarnabasError as error:
            return error
        return self._append_all([recompressed])[0]

    def _on_flushed(self, error: BarnabasError | None) -> None:
        if error is None:
            self._expose(self.log.recovery_point)
            return
        self._end_waiting(error)
        self._notify(GONE_BYTES)

    def _expose(self, offset: int) -> None:
        """Let consumers have what is below `offset`."""
        log_of_partition = self.log
        if offset > log_of_partition.high_watermark:
            log_of_partition.high_watermark = offset
            size, self._unexposed_bytes = self._unexposed_bytes, 0
            self._notify(size)
        still_waiting = []
        for last_offset, exposed in self._waiting:
            if last_offset >= offset:
                still_waiting.append((last_offset, exposed))
            elif not exposed.done():
                exposed.set_result(None)
        self._waiting = still_waiting

    def _end_waiting(self, error: BarnabasError) -> None:
        waiting, self._waiting = self._waiting, []
        for _, exposed in waiting:
            if not exposed.done():
                exposed.set_exception(error)

    def read(self, offset: int, max_bytes: int, *, min_one_batch: bool) -> FileRegion | None:
        """Return whole batches from the one that holds `offset`, below the high watermark.

        :raises KafkaError: OFFSET_OUT_OF_RANGE.
        """
        return self.log.read(offset, max_bytes, self.log.high_watermark, min_one_batch=min_one_batch)

    def delete_old_records(self) -> None:
        """Delete what the topic's settings do not keep any longer; an error is logged, and met by the next request."""
        if self.is_deleted or self.log.is_offline:
            return
        if self._flusher:
            # Sealed segments are flushed apart from the flusher, too.
            self._expose(self.log.recovery_point)
        try:
            count = self.log.delete_old_segments()
        except (StorageError, CorruptBatchError) as error:
            log.warning("%s", error)
        else:
            if count:
                start = self.log.log_start_offset
                log.info("%s: deleted %d old segments; it begins with offset %d", self.topic_partition, count, start)

    def check_replicas(self) -> None:
        """Check that a message could be acknowledged by as many replicas as the topic asks for.

        :raises KafkaError: NOT_ENOUGH_REPLICAS.
        """
        if self.config.min_insync_replicas > 1:
            message = f"{self.topic_partition} has 1 replica, min.insync.replicas is {self.config.min_insync_replicas}"
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, message)

    def check_epoch(self, epoch: int) -> None:
        """Check the leader epoch that a client believes in (KIP-320); -1 says that it does not know.

        :raises KafkaError: FENCED_LEADER_EPOCH for an older one, UNKNOWN_LEADER_EPOCH for a newer one.
        """
        if epoch < 0 or epoch == self.leader_epoch:
            return
        older = epoch < self.leader_epoch
        code = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise KafkaError(code, f"{self.topic_partition} is at leader epoch {self.leader_epoch}, not {epoch}")

    def watch(self, on_readable: OnReadable) -> None:
        """Call `on_readable` whenever there is more to read, until `unwatch`."""
        self._on_readable.add(on_readable)

    def unwatch(self, on_readable: OnReadable) -> None:
        """Stop calling `on_readable`."""
        self._on_readable.discard(on_readable)

    def mark_deleted(self) -> None:
        """Called when the topic is deleted: those who wait are to look again."""
        self.is_deleted = True
        if self._flusher:
            self._flusher.stop()
        self._end_waiting(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic_partition} was deleted"))
        self._notify(GONE_BYTES)

    def _notify(self, size: int) -> None:
        for on_readable in tuple(self._on_readable):
            on_readable(size)

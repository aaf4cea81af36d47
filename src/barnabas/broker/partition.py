"""One partition that this broker leads: its log, its leader epoch, and who waits for more of it.

With one replica the log itself keeps the high watermark at its end: what is appended may be read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.errors import CorruptBatchError, ErrorCode, KafkaError, StorageError
from barnabas.model import FileRegion, TopicPartition
from barnabas.records.recompression import recompress

if TYPE_CHECKING:
    from barnabas.broker.topic_config import TopicConfig
    from barnabas.storage.log import AppendInfo, Log

log = logging.getLogger(__name__)

OnAppend = Callable[[int], None]
"""Called with the number of bytes that became readable, or with a huge one when the partition went away."""

GONE_BYTES = 2**62
"""Satisfies every waiting fetch, so that it looks again and finds the partition gone."""


class Partition:
    """A partition whose leader this broker is. Used from the event loop's thread only."""

    __slots__ = ("_on_append", "config", "is_deleted", "leader_epoch", "log", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, log: Log, leader_epoch: int, config: TopicConfig) -> None:
        self.topic_partition = topic_partition
        self.log = log
        self.leader_epoch = leader_epoch
        self.is_deleted = False
        self._on_append: set[OnAppend] = set()
        self.configure(config)

    def configure(self, config: TopicConfig) -> None:
        """Put settings into force."""
        self.config = config
        self.log.config = config.log

    def append(self, records: bytes | bytearray | memoryview) -> AppendInfo:
        """Append a produce request's batches and let those who wait know.

        :raises BarnabasError: the batches were refused, or the disk refused them.
        """
        if self.config.compression is not None:
            records = recompress(records, self.config.compression)
        info = self.log.append(records, self.leader_epoch)
        if self._on_append and not info.duplicate:
            self._notify(len(records))
        return info

    def read(self, offset: int, max_bytes: int, *, min_one_batch: bool) -> FileRegion | None:
        """Return whole batches from the one that holds `offset`, below the high watermark.

        :raises KafkaError: OFFSET_OUT_OF_RANGE.
        """
        return self.log.read(offset, max_bytes, self.log.high_watermark, min_one_batch=min_one_batch)

    def delete_old_records(self) -> None:
        """Delete what the topic's settings do not keep any longer; an error is logged, and met by the next request."""
        if self.is_deleted or self.log.is_offline:
            return
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

    def watch(self, on_append: OnAppend) -> None:
        """Call `on_append` after every append until `unwatch`."""
        self._on_append.add(on_append)

    def unwatch(self, on_append: OnAppend) -> None:
        """Stop calling `on_append`."""
        self._on_append.discard(on_append)

    def mark_deleted(self) -> None:
        """Called when the topic is deleted: those who wait are to look again."""
        self.is_deleted = True
        self._notify(GONE_BYTES)

    def _notify(self, size: int) -> None:
        for on_append in tuple(self._on_append):
            on_append(size)

"""One partition that this broker leads: its log, its leader epoch, and the readers that wait for more.

With one replica the log itself keeps the high watermark at its end: what is appended may be read. Where the topic
has `flush.messages` or `flush.ms`, the high watermark follows the flushes instead (paper, 3.1: "a message is only
exposed to the consumers after it is flushed"). The paper's broker acknowledges nothing; here

- acks=1 means, as in Kafka, that the message is in the log. The request that completes `flush.messages` is answered
  after the flush that it causes, so `flush.messages=1` means that all that is acknowledged is durable;
- acks=all means, as everywhere, that consumers can have the message: it waits for the flush, and does not leave it
  to `flush.messages` or `flush.ms` when that is.

The event loop never waits for the disk here. An append is carried out at once where the log can take it at once. Where
it must first be compressed anew, or the log needs a new segment, a thread does that. The append waits for it in line,
and later appends to this partition wait behind it. Other partitions are not held up.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from barnabas.broker.disk_work import DiskQueue, DiskWork
from barnabas.broker.flusher import Flusher
from barnabas.errors import BarnabasError, ErrorCode, KafkaError, StorageError
from barnabas.model import Acks, FileRegion, OffsetAndTimestamp, TopicPartition
from barnabas.records.header import COMPRESSION_MASK
from barnabas.records.recompression import recompress
from barnabas.storage.append import checked_batch
from barnabas.storage.replacement import SegmentReplacedError
from barnabas.storage.segment import IndexDamagedError, SealedSegment

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.settings.topic_config import TopicConfig
    from barnabas.records.header import Buffer
    from barnabas.storage.append import AppendInfo
    from barnabas.storage.append_group import Outcome
    from barnabas.storage.cleaner.planning import CleanableRange
    from barnabas.storage.log import Log

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

OnReadable = Callable[[int], None]
"""Called with the number of bytes that became readable, or with a huge number when the partition was deleted."""

ON_ANY_THREAD = DiskWork()

RECOMPRESSED_BYTES_MAX = 16 * 1024 * 1024
"""How much a request's batches may hold when decompressed, where they are compressed anew."""

AT_ONCE_BYTES_MAX = 2 * 1024 * 1024
"""Appends that are larger than this together are checked and written by a thread, so that they do not hold up the event
loop."""

ATTRIBUTES_END = 23
"""Where the attributes of a batch end; their last byte tells how it is compressed."""

GONE_BYTES = 2**62
"""Satisfies every waiting fetch, so that it looks again and finds the partition gone."""


class Partition:
    """A partition whose leader this broker is. Used from the event loop's thread only.

    :param work: runs work that may wait for the disk.
    """

    __slots__ = (
        "_disk",
        "_flusher",
        "_line",
        "_mending",
        "_moving",
        "_on_readable",
        "_unexposed_bytes",
        "_waiting",
        "config",
        "is_deleted",
        "leader_epoch",
        "log",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: Log,
        leader_epoch: int,
        config: TopicConfig,
        work: DiskWork = ON_ANY_THREAD,
    ) -> None:
        self.topic_partition = topic_partition
        self.log = log
        self.leader_epoch = leader_epoch
        self.is_deleted = False
        # There are thousands of partitions, and an empty set or deque takes more room than all else here.
        self._on_readable: dict[OnReadable, None] = {}
        self._flusher: Flusher | None = None
        self._unexposed_bytes = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._disk = DiskQueue(work)
        self._line: deque[Callable[[], Awaitable[None]]] | None = None
        self._moving: asyncio.Task[None] | None = None
        self._mending: dict[SealedSegment, asyncio.Task[None]] = {}
        self.configure(config)

    def configure(self, config: TopicConfig) -> None:
        """Use these settings from now on."""
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
            self._flusher = Flusher(self.log, self._on_flushed, self._disk)

    def append_all(self, requests: Sequence[Buffer]) -> list[Outcome] | asyncio.Future[list[Outcome]]:
        """Append the batches of several produce requests, each judged alone, in their order.

        `when_acknowledged` says what to wait for before a batch is acknowledged.

        :returns: the outcomes; or a future of them, where something has to be waited for.
        """
        outcomes: list[Outcome] = []
        is_hidden = self.config.log.is_compacted and any(map(_is_compressed, requests))
        if is_hidden or sum(map(len, requests)) > AT_ONCE_BYTES_MAX:
            return self._get_in_line(lambda: self._append_beside(requests))
        if not self._moving and self.config.compression is None:
            outcomes = self._append_ready(requests)
            if len(outcomes) == len(requests):
                return outcomes
        return self._get_in_line(lambda: self._append_in_turn(requests, outcomes))

    @property
    def acknowledges_at_once(self) -> bool:
        """Whether a batch is acknowledged as soon as it is in the log, so that `when_acknowledged` need not be
        asked."""
        return self._flusher is None

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
        while (group := self.log.begin_append(lambda group: group.take(view, checked), self.leader_epoch)) is None:
            await self._disk.do(self.log.roll)
        await self._disk.do(self.log.write, group)
        outcome = self.log.account(group)
        self._note_append([records], [outcome])
        return outcome

    def _append_ready(self, requests: Sequence[Buffer]) -> list[Outcome]:
        """Append up to the first request that needs a new segment."""
        outcomes = self.log.append_ready(requests, self.leader_epoch)
        self._note_append(requests, outcomes)
        return outcomes

    def _note_append(self, requests: Sequence[Buffer], outcomes: Sequence[Outcome]) -> None:
        """Notify the readers that wait for more."""
        if not self._flusher and not self._on_readable:
            return
        size = sum(
            len(records)
            for records, outcome in zip(requests, outcomes, strict=False)
            if not isinstance(outcome, BarnabasError) and not outcome.duplicate
        )
        if self._flusher:
            self._unexposed_bytes += size
            self._flusher.note_append()
        elif size:
            self._notify(size)

    def _get_in_line(self, step: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        """Run work during which nothing may be appended: after everything that is in line already, before all that
        comes later."""
        ended: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def take_turn() -> None:
            try:
                result = await step()
            except Exception as error:  # noqa: BLE001 - it is told to whoever asked
                if not ended.done():
                    ended.set_exception(error)
            else:
                if not ended.done():
                    ended.set_result(result)

        if self._line is None:
            self._line = deque()
        self._line.append(take_turn)
        if self._moving is None:
            self._moving = asyncio.get_running_loop().create_task(self._move_line(self._line))
        return ended

    async def _move_line(self, line: deque[Callable[[], Awaitable[None]]]) -> None:
        try:
            while line:
                await line[0]()
                line.popleft()
        finally:
            self._moving = None

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

    async def flush(self) -> None:
        """Make durable what is in the log.

        :raises StorageError: the disk refused.
        """
        await self._disk.do(self.log.flush)

    async def _roll(self) -> None:
        await self._get_in_line(lambda: self._disk.do(self.log.roll))

    def _recompressed(self, records: Buffer) -> Buffer:
        compression, limit = self.config.compression, self.config.log.max_message_bytes
        if compression is None:
            return records
        if len(records) > limit:
            message = f"{len(records)} bytes of batches, max.message.bytes is {limit}"
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, message)
        return recompress(records, compression, max(RECOMPRESSED_BYTES_MAX, limit))

    def _on_flushed(self, error: BarnabasError | None) -> None:
        if error is None:
            self._expose(self.log.recovery_point)
            return
        self._end_waiting(error)
        self._notify(GONE_BYTES)

    def _expose(self, offset: int) -> None:
        """Move the high watermark to `offset`: consumers can read what is below it."""
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

    def read(self, offset: int, max_bytes: int, *, min_one_batch: bool) -> FileRegion | bytearray | None:
        """Return whole batches from the first that ends at or after `offset`, below the high watermark; see `Log.read`.

        :returns: None where there is nothing; or where an index has to be rebuilt first; a thread does that, and then
            calls those who watch.
        :raises KafkaError: OFFSET_OUT_OF_RANGE.
        """
        try:
            return self.log.read(offset, max_bytes, self.log.high_watermark, min_one_batch=min_one_batch)
        except IndexDamagedError as error:
            if error.segment not in self._mending:
                log.warning("%s; the indexes are made anew", error)
                mending = asyncio.get_running_loop().create_task(self._mend_indexes(error.segment))
                self._mending[error.segment] = mending
            return None

    async def read_stored(self, offset: int, max_bytes: int) -> bytes:
        """Return whole batches for the broker itself, also from above the high watermark; read beside the event loop.

        :raises BarnabasError: as `read` does.
        """
        try:
            region = self.log.read(offset, max_bytes, self.log.log_end_offset)
        except IndexDamagedError as error:
            log.warning("%s; the indexes are made anew", error)
            await self._disk.do(error.segment.rebuild_indexes, store=True)
            region = self.log.read(offset, max_bytes, self.log.log_end_offset)
        if region is None:
            return b""
        data: bytes = await self._search(self.log.bytes_of, region)
        return data

    async def _mend_indexes(self, segment: SealedSegment) -> None:
        try:
            await self._disk.do(segment.rebuild_indexes, store=True)
        except OSError as error:
            log.warning("%s: the indexes cannot be made: %s", segment.paths.log, error)
        finally:
            del self._mending[segment]
            self._notify(GONE_BYTES)

    async def first_record_at(self, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """Return the first record with this timestamp or a later one; None if there is none.

        :raises BarnabasError: the disk refused, or the batches are damaged.
        """
        return await self._search(self.log.time_search().first_at, timestamp_ms)

    async def latest_record(self) -> OffsetAndTimestamp:
        """Return the first record with the greatest timestamp; (-1, -1) if there are no records.

        :raises BarnabasError: the disk refused, or the batches are damaged.
        """
        return await self._search(self.log.time_search().latest)

    async def _search(self, search: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        try:
            return await self._disk.beside(search, *arguments, **named)
        except SegmentReplacedError as error:
            raise StorageError(f"{self.topic_partition}: {error} meanwhile; search again") from error
        except OSError as error:
            raise StorageError(f"{self.topic_partition}: search failed: {error}") from error

    async def delete_records_before(self, offset: int) -> int:
        """Forget the records before `offset`; return where the log begins now. See `Log.delete_records_before`.

        :raises BarnabasError: as that does.
        """
        if self.log.log_start_offset < offset == self.log.log_end_offset == self.log.high_watermark:
            await self._roll()
        return self.log.delete_records_before(offset)

    async def delete_old_records(self) -> None:
        """Delete the records that the topic's settings no longer keep. Errors are logged; the next request meets them
        too."""
        if self.is_deleted or self.log.is_offline:
            return
        if self._flusher:
            # Sealed segments are also flushed by others than the flusher.
            self._expose(self.log.recovery_point)
        try:
            await self._delete_old_records()
        except SegmentReplacedError:
            return  # segments were compacted meanwhile; the next look finds what is there now
        except (BarnabasError, OSError) as error:
            log.warning("%s: old records cannot be deleted: %s", self.topic_partition, error)

    async def _delete_old_records(self) -> None:
        old = self.log.old_segments()
        if old is None:
            return
        if old.must_roll:
            await self._roll()
        end = await self._disk.beside(old.find)
        if end is None or self.is_deleted:
            return
        if end > self.log.active_base_offset:
            await self._roll()
        start = self.log.delete_records_before(end)
        log.info("%s: deleted old segments; it begins with offset %d", self.topic_partition, start)

    async def roll_if_due(self) -> None:
        """Begin a new segment if the settings say so: the active one is not compacted.

        :raises BarnabasError: the disk refused.
        """
        if self.log.must_roll:
            await self._roll()

    async def find_cleanable(self) -> CleanableRange | None:
        """Return the part of the log that can be compacted.

        :raises BarnabasError: the log is offline, damaged, or its segments were replaced meanwhile.
        :raises OSError: the disk refused.
        """
        search = self.log.cleaning_search()
        return None if search is None else await self._disk.beside(search.find)

    async def replace_segments(self, old: Sequence[SealedSegment], size: int) -> list[Path]:
        """Put a compacted segment in place of those it was made of. See `Log.replace_segments`.

        :raises BarnabasError: as that does.
        """
        return await self._disk.do(self.log.replace_segments, old, size)

    async def remove_cleaned(self) -> None:
        """Remove what a cleaner wrote and is not to be used.

        :raises StorageError: the disk refused.
        """
        await self._disk.do(self.log.remove_cleaned)

    def check_replicas(self) -> None:
        """Check that a message could be acknowledged by as many replicas as the topic asks for.

        :raises KafkaError: NOT_ENOUGH_REPLICAS.
        """
        if self.config.min_insync_replicas > 1:
            message = f"{self.topic_partition} has 1 replica, min.insync.replicas is {self.config.min_insync_replicas}"
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, message)

    def check_epoch(self, epoch: int) -> None:
        """Compare a client's leader epoch with this partition's (KIP-320); -1 means that the client does not know it.

        :raises KafkaError: FENCED_LEADER_EPOCH for an older one, UNKNOWN_LEADER_EPOCH for a newer one.
        """
        if epoch < 0 or epoch == self.leader_epoch:
            return
        older = epoch < self.leader_epoch
        code = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise KafkaError(code, f"{self.topic_partition} is at leader epoch {self.leader_epoch}, not {epoch}")

    def watch(self, on_readable: OnReadable) -> None:
        """Call `on_readable` whenever there is more to read, until `unwatch`."""
        self._on_readable[on_readable] = None

    def unwatch(self, on_readable: OnReadable) -> None:
        """Stop calling `on_readable`."""
        self._on_readable.pop(on_readable, None)

    def mark_deleted(self) -> None:
        """Called when the topic is deleted: waiting fetches look again, and find that it is gone."""
        self.is_deleted = True
        if self._flusher:
            self._flusher.stop()
        self._end_waiting(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic_partition} was deleted"))
        self._notify(GONE_BYTES)

    def _notify(self, size: int) -> None:
        for on_readable in tuple(self._on_readable):
            on_readable(size)


def _is_compressed(records: Buffer) -> bool:
    """Whether the keys in a batch can be seen only after it was decompressed, which takes long."""
    return len(records) > ATTRIBUTES_END and bool(records[ATTRIBUTES_END - 1] & COMPRESSION_MASK)

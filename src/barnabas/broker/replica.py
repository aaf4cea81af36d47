"""A partition's replica on this broker: what those that lead and those that follow have in common.

A replica's role in one leader epoch is one object: a `barnabas.broker.leader_replica.LeaderReplica` leads, a
`barnabas.broker.follower_replica.FollowerReplica` follows. When the epoch ends, so does the object (`resign`, then
`end`), and another one goes on with the same log.

The event loop never waits for the disk here. What changes files stands in line (`_get_in_line`): during such work
nothing is appended, and what is to be appended later waits behind it. Other partitions are not held up.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from barnabas.broker.acknowledgements import Acknowledgements
from barnabas.broker.disk_work import DiskQueue, DiskWork
from barnabas.broker.flusher import Flusher
from barnabas.errors import BarnabasError, ErrorCode, KafkaError, StorageError
from barnabas.log_lines import about
from barnabas.model import FileRegion, OffsetAndTimestamp, TopicPartition
from barnabas.storage.replacement import SegmentReplacedError
from barnabas.storage.segment import IndexDamagedError, SealedSegment

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.settings.topic_config import TopicConfig
    from barnabas.storage.cleaner.planning import CleanableRange
    from barnabas.storage.log import Log

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

OnReadable = Callable[[int], None]
"""Called with the number of bytes that became readable, or with a huge number when the replica's role has ended."""

ON_ANY_THREAD = DiskWork()

GONE_BYTES = 2**62
"""Satisfies every waiting fetch, so that it looks again and finds the partition gone."""

URGENT_BYTES = 2**40
"""Satisfies every waiting fetch of a follower: somebody waits until it has what was appended."""


class Replica:
    """A replica in its role. Used from the event loop's thread only.

    :param work: runs work that may wait for the disk.
    :param leader: the broker that leads in this epoch.
    """

    __slots__ = (
        "_disk",
        "_flushed",
        "_flusher",
        "_line",
        "_mending",
        "_moving",
        "_on_readable",
        "_refusal",
        "_swapping",
        "config",
        "is_being_moved",
        "is_deleted",
        "leader",
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
        *,
        leader: int = 0,
    ) -> None:
        self.topic_partition = topic_partition
        self.log = log
        self.leader_epoch = leader_epoch
        self.leader = leader
        self.is_deleted = False
        self._refusal: KafkaError | None = None
        # There are thousands of partitions, and an empty set or deque takes more room than all else here.
        self._on_readable: dict[OnReadable, None] = {}
        self._disk = DiskQueue(work)
        self._flusher: Flusher | None = None
        self._flushed = Acknowledgements()
        self._line: deque[Callable[[], Awaitable[None]]] | None = None
        self._moving: asyncio.Task[None] | None = None
        self._swapping: asyncio.Future[None] | None = None
        self.is_being_moved = False
        """Whether the log is copied to another data folder, and must not be compacted meanwhile."""
        self._mending: dict[SealedSegment, asyncio.Task[None]] = {}
        self.configure(config)

    def configure(self, config: TopicConfig) -> None:
        """Use these settings from now on."""
        self.config = config
        self.log.config = config.log
        if self._flusher and config.log.has_flush_policy:
            self._flusher.restart_timer()
        elif self._flusher:
            self._flusher.stop()
            self._flusher = None
            self._flushed.settle(self.log.log_end_offset)
        elif config.log.has_flush_policy:
            self._flusher = Flusher(self.log, self._on_flushed, self._disk)
            # What the role before had yet to flush, or what came before there was a policy: no more may come.
            self._flusher.note_append()

    # --- the end of the role ---

    @property
    def has_ended(self) -> bool:
        """Whether this object is of no use any longer: the topic was deleted, or the role has ended."""
        return self.is_deleted or self._refusal is not None

    def resign(self, error: KafkaError, *, leads_on: bool = False) -> None:
        """End the role: all that waits ends, and all that comes is refused, with this error. `end` must follow before
        another role goes on with the log.

        :param leads_on: the next role leads as well: who waits for what is in the log waits on, for that role.
        """
        self._stop_flushes()
        if not leads_on:
            self.end_waits(error)
        self._refusal = error
        self._notify(GONE_BYTES)

    async def end(self) -> None:
        """Return when nothing is under way any longer that changes the log."""
        while self._moving is not None:
            await asyncio.wait([self._moving])
        await self._disk.end()

    def mark_deleted(self) -> None:
        """Called when the topic is deleted: waiting fetches look again, and find that it is gone."""
        self._stop_flushes()
        self.end_waits(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic_partition} was deleted"))
        self.is_deleted = True
        self._notify(GONE_BYTES)

    def _stop_flushes(self) -> None:
        if self._flusher:
            self._flusher.stop()

    def end_waits(self, error: KafkaError) -> None:
        """End all that waits, and all that would."""
        self._flushed.close(error)

    # --- work during which nothing is appended ---

    def _get_in_line(
        self, step: Callable[[], Awaitable[T]], instead: Callable[[KafkaError], T] | None = None
    ) -> asyncio.Future[T]:
        """Run work during which nothing may be appended: after everything that is in line already, before all that
        comes later.

        :param instead: what comes out where the role has ended before; None: the error is raised.
        """
        ended: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def take_turn() -> None:
            try:
                result = await self._unless_ended(step, instead)
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

    async def _unless_ended(self, step: Callable[[], Awaitable[T]], instead: Callable[[KafkaError], T] | None) -> T:
        if self._refusal is None:
            return await step()
        if instead is None:
            raise self._refusal
        return instead(self._refusal)

    async def _move_line(self, line: deque[Callable[[], Awaitable[None]]]) -> None:
        try:
            while line:
                await line[0]()
                line.popleft()
        finally:
            self._moving = None

    async def flush(self) -> None:
        """Make durable what is in the log.

        :raises StorageError: the disk refused.
        """
        await self._disk.do(self.log.flush)

    def _on_flushed(self, error: BarnabasError | None) -> None:
        """Called after each flush that the topic's policy asks for."""
        if error is None:
            self._flushed.settle(self.log.recovery_point)
        else:
            self._flushed.end(error)

    async def exchange_log(self, complete: Callable[[], Awaitable[None]], swap: Callable[[], Log]) -> None:
        """Go on with another log that holds the same. Nothing is appended meanwhile, and reads go on.

        :param complete: gives the other log what it lacks.
        :param swap: returns it, durable up to its end; called on a thread.
        :raises BarnabasError: as those do, and it goes on with the log that it has; or the role has ended.
        """

        async def exchange() -> None:
            await complete()
            self._take_log(await self._disk.do(swap))

        self._swapping = self._get_in_line(exchange)
        try:
            await self._swapping
        finally:
            self._swapping = None

    def _take_log(self, new: Log) -> None:
        old, had_flusher = self.log, self._flusher
        if had_flusher:
            had_flusher.stop()
            self._flusher = None
        self.log = new
        self.configure(self.config)
        new.high_watermark = max(new.high_watermark, old.high_watermark)
        if self._flusher:
            self._on_flushed(None)

    async def _until_exchanged(self) -> None:
        """Wait while the log is exchanged: where it begins must not be told to the one that goes."""
        if self._swapping is not None:
            await asyncio.wait([self._swapping])

    async def _roll(self) -> None:
        await self._get_in_line(lambda: self._disk.do(self.log.roll))

    # --- reading ---

    def read(self, offset: int, max_bytes: int, *, min_one_batch: bool) -> FileRegion | bytearray | None:
        """Return whole batches from the first that ends at or after `offset`, below the high watermark; see `Log.read`.

        :returns: None where there is nothing; or where an index has to be rebuilt first; a thread does that, and then
            calls those who watch.
        :raises KafkaError: OFFSET_OUT_OF_RANGE.
        """
        return self._read(offset, max_bytes, self.log.high_watermark, min_one_batch=min_one_batch)

    def _read(
        self, offset: int, max_bytes: int, end_offset: int, *, min_one_batch: bool
    ) -> FileRegion | bytearray | None:
        try:
            return self.log.read(offset, max_bytes, end_offset, min_one_batch=min_one_batch)
        except IndexDamagedError as error:
            if error.segment not in self._mending:
                log.warning("%s; the indexes are made anew", error, extra=about(self.topic_partition))
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
            log.warning("%s; the indexes are made anew", error, extra=about(self.topic_partition))
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
            told = "%s: the indexes cannot be made: %s"
            log.warning(told, segment.paths.log, error, extra=about(self.topic_partition))
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

    # --- old records; compaction ---

    async def delete_records_before(self, offset: int) -> int:
        """Forget the records before `offset`; return where the log begins now. See `Log.delete_records_before`.

        :raises BarnabasError: as that does.
        """
        if self.log.log_start_offset < offset == self.log.log_end_offset == self.log.high_watermark:
            await self._roll()
        await self._until_exchanged()
        return self.log.delete_records_before(offset)

    async def delete_old_records(self) -> None:
        """Delete the records that the topic's settings no longer keep. Errors are logged; the next request meets them
        too."""
        if self.has_ended or self.log.is_offline:
            return
        try:
            await self._delete_old_records()
        except SegmentReplacedError:
            return  # segments were compacted meanwhile; the next look finds what is there now
        except (BarnabasError, OSError) as error:
            if not self.has_ended:
                log.warning("%s: old records cannot be deleted: %s", self.topic_partition, error)

    async def _delete_old_records(self) -> None:
        old = self.log.old_segments()
        if old is None:
            return
        if old.must_roll:
            await self._roll()
        end = await self._disk.beside(old.find)
        if end is None or self.has_ended:
            return
        if end > self.log.active_base_offset:
            await self._roll()
        await self._until_exchanged()
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

    # --- those who wait ---

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

    def _notify(self, size: int) -> None:
        for on_readable in tuple(self._on_readable):
            on_readable(size)

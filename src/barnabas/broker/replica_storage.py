"""The log of one replica in one leader epoch, and the log operations that leaders and followers share.

Used from the event loop's thread only. This thread never blocks on the disk here. Operations that change files run on a
separate thread (`DiskQueue`). Operations that exclude appends run in the replica's `AppendQueue`. Later appends to the
partition wait for them. Producers and administrators wait for offsets with `Acknowledgements`.

A replica calls its listeners on the event loop's thread, inside the call that caused the event. A listener must not
block, and must not raise.

Invariant: the next role begins after `end` has returned, so two roles never change a log at the same time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeAlias, TypeVar

from barnabas.broker.disk_work import DiskQueue, DiskWork
from barnabas.broker.flusher import Flusher
from barnabas.errors import ApiError, BarnabasError, ErrorCode, StorageError
from barnabas.log_lines import about
from barnabas.storage.log_reader import NO_BATCHES, ReadResult
from barnabas.storage.segment import IndexDamagedError, SealedSegment, SegmentReplacedError

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.flusher import OnFlushed
    from barnabas.broker.settings.topic_config import TopicConfig
    from barnabas.model import OffsetAndTimestamp, TopicPartition
    from barnabas.storage.cleaner.planning import CleanableRange
    from barnabas.storage.log import Log


log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")


class ReadListener(Protocol):
    """A listener that waits for new records below the high watermark."""

    def on_readable(self, size: int) -> None:
        """React to an increase of the high watermark.

        :param size: the number of bytes that became readable.
        """

    def on_reads_changed(self) -> None:
        """React to an event that may change the result of a read.

        Examples are resignation, fencing, deletion, a failed flush, a truncation, and rebuilt indexes. The high
        watermark may also have risen by an unknown number of bytes.
        """


class LogEndListener(Protocol):
    """A listener for appends to a leader's log, on behalf of a follower."""

    def on_appended(self, size: int, *, is_urgent: bool) -> None:
        """React to an append.

        :param size: the number of appended bytes.
        :param is_urgent: True if a consumer is waiting for the records, which followers must fetch first.
        """

    def on_fetch_awaited(self) -> None:
        """React to a request that waits for the next fetches of the followers."""

    def on_offsets_moved(self) -> None:
        """React to an increase of the high watermark or the log start offset without an append."""

    def on_leadership_lost(self) -> None:
        """React to the leader's resignation, fencing or deletion."""


class AppendQueue:
    """Runs steps one at a time, in the order of submission. Used from the event loop's thread only."""

    __slots__ = ("_steps", "_task", "is_busy")

    def __init__(self) -> None:
        # Create the deque only when it is needed: a broker has thousands of replicas, and an empty deque takes 600
        # bytes.
        self._steps: deque[Callable[[], Awaitable[None]]] | None = None
        self._task: asyncio.Task[None] | None = None
        self.is_busy = False
        """True while a step is running or queued. This is a plain attribute, because each append reads it."""

    def run(self, step: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        """Run a step after all earlier steps. Return a future of its result."""
        ended: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def take_turn() -> None:
            try:
                result = await step()
            except Exception as error:  # noqa: BLE001 - the future passes the error to the caller
                if not ended.done():
                    ended.set_exception(error)
            else:
                if not ended.done():
                    ended.set_result(result)

        if self._steps is None:
            self._steps = deque()
        self._steps.append(take_turn)
        if not self.is_busy:
            self.is_busy = True
            self._task = asyncio.get_running_loop().create_task(self._run_all(self._steps))
        return ended

    async def wait_until_idle(self) -> None:
        """Wait until no step is running or queued."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run_all(self, steps: deque[Callable[[], Awaitable[None]]]) -> None:
        try:
            while steps:
                await steps[0]()
                steps.popleft()
        finally:
            self._task = None
            self.is_busy = False


Waiter = asyncio.Future[None]
"""A future for which a request waits. It raises a BarnabasError if the request must fail."""


def refused(error: BarnabasError) -> Waiter:
    """Return a future that has already failed."""
    waiter: Waiter = asyncio.get_running_loop().create_future()
    waiter.set_exception(error)
    return waiter


class Acknowledgements:
    """The requests that wait until an offset of a partition is flushed, replicated or deleted."""

    __slots__ = ("_closed_with", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Waiter]] = []
        self._closed_with: BarnabasError | None = None

    def wait_for(self, last_offset: int) -> Waiter:
        """Return a future that completes when `settle` is called with an offset above `last_offset`."""
        if self._closed_with is not None:
            return refused(self._closed_with)
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._waiting.append((last_offset, waiter))
        return waiter

    def take_over(self, others: Acknowledgements) -> None:
        """Move the waiting requests of another object to this object."""
        waiting, others._waiting = others._waiting, []
        self._waiting += waiting

    def settle(self, end_offset: int, error: BarnabasError | None = None) -> None:
        """Complete the waits for offsets below `end_offset`. If `error` is not None, fail them with this error."""
        if not self._waiting:
            return
        still_waiting = []
        for last_offset, waiter in self._waiting:
            if waiter.done():
                continue
            if last_offset >= end_offset:
                still_waiting.append((last_offset, waiter))
            elif error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)
        self._waiting = still_waiting

    def end(self, error: BarnabasError) -> None:
        """Fail all current waits with an error."""
        waiting, self._waiting = self._waiting, []
        for _, waiter in waiting:
            if not waiter.done():
                waiter.set_exception(error)

    def close(self, error: BarnabasError) -> None:
        """Fail all current and later waits with an error."""
        self._closed_with = error
        self.end(error)


ConsumerRead: TypeAlias = ReadResult | Coroutine[Any, Any, ReadResult]
"""The result of a read. If the offset is in a remote segment, it is a coroutine that returns the result."""


UNEXPOSED_APPENDS_MAX = 1024
"""The maximum number of appends with separate entries. Further appends are added to the last entry."""


class UnexposedAppends:
    """The sizes of the appends above the high watermark, in log order."""

    __slots__ = ("_appends",)

    def __init__(self) -> None:
        # Use a list, because a broker has thousands of replicas, and an empty deque takes 760 bytes.
        self._appends: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._appends)

    def note(self, end_offset: int, size: int) -> None:
        """Add an append.

        :param end_offset: the log end offset after the append.
        :param size: the number of appended bytes.
        """
        if len(self._appends) >= UNEXPOSED_APPENDS_MAX:
            size += self._appends.pop()[1]
        self._appends.append((end_offset, size))

    def expose(self, high_watermark: int) -> int:
        """Remove the appends that end at or below the high watermark, and return their total size in bytes."""
        appends = self._appends
        size = count = 0
        for end_offset, size_of_append in appends:
            if end_offset > high_watermark:
                break
            size += size_of_append
            count += 1
        if count == len(appends):
            self._appends = []  # Create a new list, because `clear` and `del` may not free the memory of many entries.
        else:
            del appends[:count]
        return size

    def clear(self) -> None:
        """Remove all appends, because the log was truncated."""
        self._appends = []


def _ignore_flush(_error: BarnabasError | None) -> None:
    """Do nothing. This replaces the `on_flushed` callback of a role that has ended."""


class ReplicaStorage:
    """The log of a replica, with its flusher, its queues and its listeners.

    :param work: runs work that may block on the disk.
    :param on_flushed: called after each flush that the topic's flush policy causes.
    """

    __slots__ = (
        "_index_repairs",
        "_is_being_moved",
        "_on_flushed",
        "_swapping",
        "append_queue",
        "config",
        "disk",
        "flushed",
        "flusher",
        "is_deleted",
        "leader_epoch",
        "log",
        "readers",
        "refusal",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: Log,
        leader_epoch: int,
        config: TopicConfig,
        work: DiskWork,
        on_flushed: OnFlushed,
    ) -> None:
        self.topic_partition = topic_partition
        self.log = log
        self.leader_epoch = leader_epoch
        self.config = config
        self.disk = DiskQueue(work)
        """The queue of operations that change the log's files."""
        self.append_queue = AppendQueue()
        """The queue of operations that exclude appends."""
        self.flusher: Flusher | None = None
        """Flushes the log by the topic's flush policy; None if the topic has no flush policy."""
        self.flushed = Acknowledgements()
        """The waits for flushes."""
        self.refusal: ApiError | None = None
        """The error for all requests after the role has ended, or None."""
        self.is_deleted = False
        self._on_flushed = on_flushed
        # Use dicts, because a broker has thousands of replicas, and an empty set takes more memory.
        self.readers: dict[ReadListener, None] = {}
        self._index_repairs: dict[SealedSegment, asyncio.Task[None]] = {}
        self._swapping: asyncio.Future[None] | None = None
        self._is_being_moved = False

    def configure(self, config: TopicConfig) -> None:
        """Apply new settings of the topic."""
        self.config = config
        self.log.configure(config.log)
        if self.flusher and config.log.has_flush_policy:
            self.flusher.restart_timer()
        elif self.flusher:
            self.flusher.stop()
            self.flusher = None
            self.flushed.settle(self.log.log_end_offset)
        elif config.log.has_flush_policy:
            self.flusher = Flusher(self.log, self._note_flush, self.disk)
            # Schedule a flush now: earlier records may be unflushed, and there may be no later append that triggers a
            # flush.
            self.flusher.note_append()

    # --- the end of the role ---

    @property
    def has_ended(self) -> bool:
        """True if the topic was deleted, or the replica no longer has this role."""
        return self.is_deleted or self.refusal is not None

    def resign(self, error: ApiError) -> None:
        """Reject all later requests with this error. The caller must await `end` next."""
        self._stop_flushes()
        self.refusal = error
        self.reads_changed()

    async def end(self) -> None:
        """Wait until no work that changes the log is in progress."""
        await self.append_queue.wait_until_idle()
        await self.disk.end()
        # There are no more flushes. Break the reference cycle, so that the role is freed without a garbage collection.
        self._on_flushed = _ignore_flush

    def mark_deleted(self) -> None:
        """End the role of the replica, because the topic was deleted."""
        self._stop_flushes()
        self.is_deleted = True
        self.reads_changed()

    @property
    def deletion_error(self) -> ApiError:
        """The error for waiting requests if the topic is deleted."""
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic_partition} was deleted")

    def _stop_flushes(self) -> None:
        if self.flusher:
            self.flusher.stop()

    def check_epoch(self, epoch: int) -> None:
        """Compare a client's leader epoch with the replica's leader epoch (KIP-320).

        :param epoch: the client's leader epoch, or -1 if it is unknown.
        :raises ApiError: FENCED_LEADER_EPOCH for an older epoch, UNKNOWN_LEADER_EPOCH for a newer one.
        """
        if epoch < 0 or epoch == self.leader_epoch:
            return
        older = epoch < self.leader_epoch
        code = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise ApiError(code, f"{self.topic_partition} is at leader epoch {self.leader_epoch}, not {epoch}")

    # --- listeners for reads ---

    def watch(self, listener: ReadListener) -> None:
        """Add a listener for reads."""
        self.readers[listener] = None

    def unwatch(self, listener: ReadListener) -> None:
        """Remove a listener for reads."""
        self.readers.pop(listener, None)

    def readable(self, size: int) -> None:
        """Notify the listeners of a higher high watermark.

        :param size: the number of bytes that became readable, or 0 if it is unknown. The listeners must then read
            again.
        """
        if not size:
            self.reads_changed()
            return
        for each in tuple(self.readers):
            each.on_readable(size)

    def reads_changed(self) -> None:
        """Notify the listeners that the result of a read may have changed."""
        for each in tuple(self.readers):
            each.on_reads_changed()

    # --- operations that exclude appends ---

    def run_in_queue(
        self, step: Callable[[], Awaitable[T]], instead: Callable[[ApiError], T] | None = None
    ) -> asyncio.Future[T]:
        """Run an operation that excludes appends, after all operations in the queue.

        :param instead: returns the result if the role has ended before the operation. If None, the future raises
            `refusal`.
        """
        return self.append_queue.run(lambda: self._unless_ended(step, instead))

    async def _unless_ended(self, step: Callable[[], Awaitable[T]], instead: Callable[[ApiError], T] | None) -> T:
        if self.refusal is None:
            return await step()
        if instead is None:
            raise self.refusal
        return instead(self.refusal)

    async def flush(self) -> None:
        """Flush the log.

        :raises StorageError: the flush failed.
        """
        await self.disk.do(self.log.flush)

    def _note_flush(self, error: BarnabasError | None) -> None:
        if error is None:
            self.flushed.settle(self.log.recovery_point)
        else:
            self.flushed.end(error)
        self._on_flushed(error)

    async def _roll(self) -> None:
        await self.run_in_queue(lambda: self.disk.do(self.log.roll))

    # --- the move to another log directory ---

    @property
    def is_being_moved(self) -> bool:
        """True while the log is being copied to another log directory. It must not be compacted during the copy."""
        return self._is_being_moved

    def begin_move(self) -> None:
        """Mark the log as being copied to another log directory."""
        self._is_being_moved = True

    def end_move(self) -> None:
        """Mark the copy as ended."""
        self._is_being_moved = False

    async def exchange_log(
        self,
        complete: Callable[[], Awaitable[None]],
        swap: Callable[[], Log],
        configure: Callable[[TopicConfig], None],
    ) -> None:
        """Replace the log by a copy in another log directory. Appends wait during the exchange, and reads continue.

        :param complete: appends the missing batches to the copy.
        :param swap: returns the copy, which is durable up to its end. It is called on another thread.
        :param configure: applies the topic's settings to the replica after the exchange.
        :raises BarnabasError: `complete` or `swap` failed, or the role has ended. The old log is kept.
        """

        async def exchange() -> None:
            await complete()
            self._take_log(await self.disk.do(swap), configure)

        self._swapping = self.run_in_queue(exchange)
        try:
            await self._swapping
        finally:
            self._swapping = None

    def _take_log(self, new: Log, configure: Callable[[TopicConfig], None]) -> None:
        old, had_flusher = self.log, self.flusher
        if had_flusher:
            had_flusher.stop()
            self.flusher = None
        self.log = new
        configure(self.config)
        new.move_high_watermark(max(new.high_watermark, old.high_watermark))
        new.take_over_counts(old)
        if self.flusher:
            self._note_flush(None)

    async def _until_exchanged(self) -> None:
        """Wait until no log exchange is in progress, because a new log start offset must not go to the old log."""
        if self._swapping is not None:
            await asyncio.wait([self._swapping])

    # --- reading ---

    def read_for_consumer(self, offset: int, max_bytes: int, *, min_one_batch: bool, committed: bool) -> ConsumerRead:
        """Return whole batches below the high watermark, from the first batch that ends at or after `offset`.

        :param committed: True to read below the last stable offset instead.
        :returns: the same as `read`, or a coroutine that returns the result if the offset is in a remote segment.
        :raises ApiError: OFFSET_OUT_OF_RANGE.
        """
        offsets = self.log.offsets
        end = offsets.last_stable_offset if committed else offsets.high_watermark
        if offset < offsets.local_log_start_offset and offset >= offsets.log_start_offset:
            return self.log.read_remote(offset, max_bytes, end, min_one_batch)
        try:
            return self.log.read(offset, max_bytes, end, min_one_batch)
        except IndexDamagedError as error:
            return self._begin_repair(error)

    def read(self, offset: int, max_bytes: int, end_offset: int, *, min_one_batch: bool) -> ReadResult:
        """Return whole batches below `end_offset`, from the first batch that ends at or after `offset`. See `Log.read`.

        :returns: no batches if an index must be rebuilt first. After the rebuild, `on_reads_changed` is called.
        :raises ApiError: OFFSET_OUT_OF_RANGE.
        """
        try:
            return self.log.read(offset, max_bytes, end_offset, min_one_batch)
        except IndexDamagedError as error:
            return self._begin_repair(error)

    async def read_stored(self, offset: int, max_bytes: int) -> ReadResult:
        """Return whole batches up to the log end offset, for use inside the broker. The read runs on a separate thread.

        :raises BarnabasError: see `read`.
        """
        try:
            result = self.log.read(offset, max_bytes, self.log.log_end_offset)
        except IndexDamagedError as error:
            log.warning("%s; rebuilding the indexes", error, extra=about(self.topic_partition))
            await self.disk.do(error.segment.rebuild_indexes, store=True)
            result = self.log.read(offset, max_bytes, self.log.log_end_offset)
        if not result.batches:
            return result
        return result._replace(batches=await self._search(self.log.bytes_of, result.batches))

    def _begin_repair(self, error: IndexDamagedError) -> ReadResult:
        if error.segment not in self._index_repairs:
            log.warning("%s; rebuilding the indexes", error, extra=about(self.topic_partition))
            repair = asyncio.get_running_loop().create_task(self._repair_indexes(error.segment))
            self._index_repairs[error.segment] = repair
        return ReadResult(NO_BATCHES, self.log.offsets)

    async def _repair_indexes(self, segment: SealedSegment) -> None:
        try:
            await self.disk.do(segment.rebuild_indexes, store=True)
        except OSError as error:
            message = "cannot rebuild the indexes of %s: %s; the next read retries"
            log.warning(message, segment.paths.log, error, extra=about(self.topic_partition))
        finally:
            del self._index_repairs[segment]
            self.reads_changed()

    async def first_record_at(self, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """Return the offset and timestamp of the first record whose timestamp is at least `timestamp_ms`, or None.

        :raises BarnabasError: a read from the disk failed, or the batches are damaged.
        """
        return await self._search(self.log.time_search().first_at, timestamp_ms)

    async def latest_record(self) -> OffsetAndTimestamp:
        """Return the offset and timestamp of the first record with the highest timestamp, or (-1, -1) if the log is
        empty.

        :raises BarnabasError: a read from the disk failed, or the batches are damaged.
        """
        return await self._search(self.log.time_search().latest)

    async def _search(self, search: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        try:
            return await self.disk.beside(search, *arguments, **named)
        except SegmentReplacedError as error:
            raise StorageError(f"{self.topic_partition}: {error} during the search; search again") from error
        except OSError as error:
            raise StorageError(f"{self.topic_partition}: search failed: {error}") from error

    # --- retention ---

    async def delete_records_before(self, offset: int) -> int:
        """Raise the log start offset, and return it. See `Log.delete_records_before`.

        :raises BarnabasError: see `Log.delete_records_before`.
        """
        if self.log.log_start_offset < offset == self.log.log_end_offset == self.log.high_watermark:
            await self._roll()
        await self._until_exchanged()
        return self.log.delete_records_before(offset)

    async def delete_old_records(self) -> None:
        """Delete the segments that exceed the retention settings. Errors are logged, not raised."""
        if self.has_ended or self.log.is_offline:
            return
        try:
            await self._delete_old_records()
        except SegmentReplacedError:
            return  # Compaction replaced segments during the search. The next search uses the new segments.
        except (BarnabasError, OSError) as error:
            if not self.has_ended:
                log.warning(
                    "%s: cannot delete segments by retention: %s; retrying at the next check",
                    self.topic_partition,
                    error,
                )

    async def _delete_old_records(self) -> None:
        old = self.log.retention_search()
        if old is None:
            return
        if old.is_roll_due:
            await self._roll()
        end = await self.disk.beside(old.find)
        if end is None or self.has_ended:
            return
        if end > self.log.active_base_offset:
            await self._roll()
        await self._until_exchanged()
        start = self.log.delete_records_before(end)
        log.info("%s: deleted segments by retention; the log start offset is now %d", self.topic_partition, start)

    # --- compaction ---

    async def roll_if_due(self) -> None:
        """Roll the active segment if the settings require it, because compaction never cleans the active segment.

        :raises BarnabasError: a write to the disk failed.
        """
        if self.log.is_roll_due:
            await self._roll()

    async def find_cleanable(self) -> CleanableRange | None:
        """Return the offsets and segments that can be compacted, or None if there are none.

        :raises BarnabasError: the log is offline or damaged, or its segments were replaced.
        :raises OSError: a read from the disk failed.
        """
        search = self.log.cleaning_search()
        return None if search is None else await self.disk.beside(search.find)

    async def replace_segments(self, old: Sequence[SealedSegment], size: int) -> list[Path]:
        """Replace segments by one compacted segment. See `Log.replace_segments`.

        :raises BarnabasError: see `Log.replace_segments`.
        """
        return await self.disk.do(self.log.replace_segments, old, size)

    async def remove_cleaned(self) -> None:
        """Remove the files of an abandoned compaction.

        :raises StorageError: a file could not be removed.
        """
        await self.disk.do(self.log.remove_cleaned)

"""The log cleaner, which compacts the logs of topics with `cleanup.policy=compact`, the dirtiest log first.

A separate process reads the keys and rewrites the segments (`barnabas.storage.cleaner`). It is started when a log needs
compaction. The broker only exchanges messages with this process, and replaces the segment files itself, in the log's
disk queue. So only the broker changes the files of a log.

After a permanent error, the cleaner logs one line, and skips the log until its settings change or the broker restarts.
After other errors (a full disk, a killed process), the cleaner retries with exponential backoff.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.broker.cleaner_process import AnyCleaner
from barnabas.broker.disk_work import DiskWork
from barnabas.broker.replica import Replica
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import TopicConfig
from barnabas.clock import Clock
from barnabas.errors import BarnabasError, StorageError
from barnabas.log_lines import LogEvent, event
from barnabas.model import TopicPartition
from barnabas.storage.cleaner.job import (
    CleanedGroup,
    CleaningFailedError,
    CleaningJob,
    CleaningPlan,
    Message,
    SegmentRef,
    UncleanableError,
)
from barnabas.storage.cleaner.planning import CleanableRange
from barnabas.storage.cleaner.rewriting import MAP_BYTES_MIN
from barnabas.storage.data_folders import AnyLogs
from barnabas.storage.segment import SealedSegment, SegmentReplacedError

CLEANERS_MAX = 32
"""The maximum number of cleaner processes, even if `log.cleaner.threads` is larger."""

BACKOFF_S_MIN = 0.05
WATCH_S = 1.0
"""The interval in seconds between checks whether a cleaner process hangs or its log was deleted."""

SILENCE_S_MAX = 300.0
"""The time in seconds without a progress report after which the broker kills a cleaner process.

A healthy process reports every second, unless the disk hangs.
"""

RETRY_S_MAX = 3600.0
"""The maximum pause after a failure, in seconds. The first pause is `log.cleaner.backoff.ms`."""

LOAD_FACTOR_MAX = 0.9
"""The maximum load factor of the key map."""

DOUBLINGS_MAX = 20
"""The maximum number of times that the pause doubles after failures."""

PARTITIONS_AT_ONCE = 100
"""The number of partitions that are checked before other tasks run."""

log = logging.getLogger(__name__)


class _Chosen(NamedTuple):
    """A log that is due for compaction."""

    partition: Replica
    range: CleanableRange
    now_ms: int


class _PutOff(NamedTuple):
    """A log whose compaction failed, and which is not compacted again before `until_s`."""

    partition: Replica
    config: TopicConfig
    until_s: float
    failures: int


@dataclass(slots=True)
class CleaningCounts:
    """The compaction counters since the start of the broker."""

    cleanings: int = 0
    failures: int = 0
    bytes_read: int = 0
    bytes_removed: int = 0
    records_removed: int = 0


class LogCleaner:
    """Compacts logs. Used from the event loop's thread only.

    :param config: returns the effective settings of the broker.
    :param new_cleaner: creates an object that runs compaction jobs.
    :param work: runs the checkpoint writes.
    :param new_threads: creates a thread pool with a number of threads and a name. Its threads wait for cleaner
        processes.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        logs: AnyLogs,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        new_cleaner: Callable[[], AnyCleaner],
        work: DiskWork | None = None,
        new_threads: Callable[[int, str], Executor] = ThreadPoolExecutor,
    ) -> None:
        self._replicas = replicas
        self._logs = logs
        self._clock = clock
        self._config = config
        self._new_cleaner = new_cleaner
        self._work = work or DiskWork()
        self._threads = new_threads(CLEANERS_MAX, "cleaner")
        self._idle: list[AnyCleaner] = []
        self._busy: dict[TopicPartition, AnyCleaner] = {}
        self._put_off: dict[TopicPartition, _PutOff] = {}
        self._due: list[_Chosen] = []
        """The logs that were due for compaction at the last check, the dirtiest log last.

        They are kept because checking thousands of logs before each job would be too expensive.
        """
        self._due_until_s = 0.0
        self.counts = CleaningCounts()

    @property
    def busy_count(self) -> int:
        """The number of logs that are being compacted."""
        return len(self._busy)

    @property
    def uncleanable_count(self) -> int:
        """The number of logs that cannot be compacted until their settings change. Any thread may read it."""
        return sum(each.until_s == math.inf for each in self._put_off.copy().values())

    async def run(self) -> None:
        """Compact due logs until cancelled."""
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                running |= await self._begin_jobs(len(running))
                if not running:
                    self._end_idle()
                running = await _wait_for_any(running, self._backoff_s)
        finally:
            for task in running:
                task.cancel()
            for cleaner in (*self._busy.values(), *self._idle):
                cleaner.close()
            self._idle.clear()
            self._threads.shutdown(wait=False)

    @property
    def _backoff_s(self) -> float:
        return max(self._config().log_cleaner_backoff_ms / 1000, BACKOFF_S_MIN)

    async def clean_all(self) -> None:
        """Compact logs one by one until no log is due."""
        while (chosen := await self._choose()) is not None:
            await self._clean(chosen)

    async def _begin_jobs(self, running: int) -> set[asyncio.Task[None]]:
        begun: set[asyncio.Task[None]] = set()
        try:
            while running + len(begun) < min(self._config().log_cleaner_threads, CLEANERS_MAX):
                chosen = await self._choose()
                if chosen is None:
                    break
                begun.add(asyncio.get_running_loop().create_task(self._clean(chosen)))
                await asyncio.sleep(0)  # Let the new task start, so that it marks its log as busy.
        except Exception:
            log.exception("cannot compact logs because of an unexpected error; retrying later")
        return begun

    def _end_idle(self) -> None:
        for cleaner in self._idle:
            cleaner.end()
        self._idle.clear()

    # --- selection ---

    async def _choose(self) -> _Chosen | None:
        """Return the due log with the highest dirty ratio, or None if no log is due for compaction."""
        self._forget_deleted()
        if self._clock.monotonic() >= self._due_until_s:
            self._due.clear()
        while self._due:
            found = await self._if_due(self._due.pop().partition)
            if found is not None:
                return found
        self._due = await self._look_at_all()
        self._due_until_s = self._clock.monotonic() + self._backoff_s
        return self._due.pop() if self._due else None

    async def _look_at_all(self) -> list[_Chosen]:
        """Return the logs that are due for compaction, in ascending order of their dirty ratio."""
        due = []
        partitions = self._replicas.all()
        for number, partition in enumerate(partitions):
            if number % PARTITIONS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if (found := await self._if_due(partition)) is not None:
                due.append(found)
        return sorted(due, key=lambda each: each.range.dirty_ratio, reverse=True)[::-1]

    async def _if_due(self, partition: Replica) -> _Chosen | None:
        """Return a log with its current cleanable range, or None if the log is not due for compaction."""
        now_ms = self._clock.expiry_ms()
        if now_ms is None or not self._is_candidate(partition):
            return None
        found = await self._look_at(partition)
        return _Chosen(partition, found, now_ms) if found is not None and found.is_due(partition.config.log) else None

    def _is_candidate(self, partition: Replica) -> bool:
        if not partition.config.log.is_compacted or partition.is_deleted or partition.log.is_offline:
            return False
        if partition.topic_partition in self._busy or partition.storage.is_being_moved:
            return False
        found = self._put_off.get(partition.topic_partition)
        if found is None or found.partition is not partition or found.config != partition.config:
            return True
        return self._clock.monotonic() >= found.until_s

    async def _look_at(self, partition: Replica) -> CleanableRange | None:
        try:
            await partition.storage.roll_if_due()
            return await partition.storage.find_cleanable()
        except SegmentReplacedError:
            return None  # The segments have changed; the next check uses the new segments.
        except (BarnabasError, OSError) as error:
            self._note_failure(partition, CleaningFailedError(str(error)))
            return None

    def _forget_deleted(self) -> None:
        for where in [where for where, found in self._put_off.items() if found.partition.is_deleted]:
            del self._put_off[where]

    # --- one job ---

    async def _clean(self, chosen: _Chosen) -> None:
        partition = chosen.partition
        cleaner = self._idle.pop() if self._idle else self._new_cleaner()
        self._busy[partition.topic_partition] = cleaner
        began_s = self._clock.monotonic()
        try:
            summary = await self._do_job(cleaner, chosen)
        except (UncleanableError, CleaningFailedError) as error:
            await self._drop(partition, error)
        except SegmentReplacedError as error:
            # The log was truncated, or its records were deleted, during the job.
            log.info("%s: restarting compaction: %s", partition.topic_partition, error)
            await self._drop(partition, None)
        except Exception as error:
            if not isinstance(error, BarnabasError):
                log.exception("%s: compaction failed", partition.topic_partition)
            await self._drop(partition, CleaningFailedError(str(error) or repr(error)))
        else:
            self._put_off.pop(partition.topic_partition, None)
            log.info("%s: %s in %.2f s", partition.topic_partition, summary, self._clock.monotonic() - began_s)
        finally:
            del self._busy[partition.topic_partition]
            self._idle.append(cleaner)

    async def _do_job(self, cleaner: AnyCleaner, chosen: _Chosen) -> str:
        """Compact a log. Return a summary for the broker's log."""
        partition = chosen.partition
        truncations = partition.log.truncation_count
        old = partition.log.segments_before(chosen.range.end_offset)
        plan = await self._ask(cleaner, partition, self._job(chosen, old))
        if not isinstance(plan, CleaningPlan):
            raise CleaningFailedError(f"the cleaner process sent no plan, but {plan!r}")
        # Store the recovery points before compaction makes offset gaps. If compaction is disabled later, crash recovery
        # accepts gaps only below the recovery point.
        await self._work.for_all(self._logs.checkpoint_recovery_points)
        bytes_read = bytes_left = records_read = records_kept = 0
        while (group := await self._ask(cleaner, partition, None)) is not None:
            if not isinstance(group, CleanedGroup):
                raise CleaningFailedError(f"the cleaner process sent no group of segments, but {group!r}")
            if partition.log.truncation_count != truncations:
                # The process may have removed older records because of the truncated records.
                raise SegmentReplacedError("records were truncated")
            replaced, old = old[: len(group.base_offsets)], old[len(group.base_offsets) :]
            await self._swap(partition, replaced, group)
            bytes_read, bytes_left = bytes_read + group.bytes_read, bytes_left + group.size
            records_read, records_kept = records_read + group.records_read, records_kept + group.records_kept
        partition.log.mark_compacted(plan.end_offset, truncations)
        self.counts.cleanings += 1
        self.counts.bytes_read += bytes_read
        self.counts.bytes_removed += bytes_read - bytes_left
        self.counts.records_removed += records_read - records_kept
        await self._work.for_all(self._logs.checkpoint_first_dirty_offsets)
        return (
            f"compacted up to offset {plan.end_offset}: {records_kept} of {records_read} records,"
            f" {bytes_left} of {bytes_read} bytes are left,"
        )

    async def _swap(self, partition: Replica, replaced: Sequence[SealedSegment], group: CleanedGroup) -> None:
        if tuple(segment.base_offset for segment in replaced) != group.base_offsets:
            raise CleaningFailedError(f"the cleaner process rewrote segments {group.base_offsets}, not {replaced}")
        if partition.storage.is_being_moved:
            raise SegmentReplacedError("the log is moving to another log directory")
        try:
            renamed = await partition.storage.replace_segments(replaced, group.size)
        except SegmentReplacedError:
            if partition.log.log_start_offset < replaced[-1].next_offset:
                # Stop replacing segments after a failure. This segment contains records that make records of other
                # segments obsolete. If a later segment was replaced alone, an obsolete record could become visible
                # again.
                raise
            # The records of these segments were deleted. Remove the rewritten files now, because a restart with these
            # files would discard all later replacements.
            await partition.storage.remove_cleaned()
        else:
            self._logs.delete_later(renamed)

    def _job(self, chosen: _Chosen, old: Sequence[SealedSegment]) -> CleaningJob:
        partition, found, now_ms = chosen
        config, settings, cleaned = self._config(), partition.config.log, partition.log
        threads = max(1, config.log_cleaner_threads)
        load = min(config.log_cleaner_io_buffer_load_factor, LOAD_FACTOR_MAX) / LOAD_FACTOR_MAX
        last_offsets = {number: entry.batches[-1].last_offset for number, entry in cleaned.producers.items()}
        return CleaningJob(
            folder=str(cleaned.folder.absolute()),
            segments=tuple(SegmentRef(each.base_offset, each.next_offset, each.size) for each in old),
            first_dirty_offset=found.first_dirty_offset,
            now_ms=now_ms,
            delete_retention_ms=settings.delete_retention_ms,
            last_of_producers={key: last for key, last in last_offsets.items() if last < found.end_offset},
            segment_bytes=settings.segment_bytes,
            segment_index_bytes=settings.segment_index_bytes,
            index_interval_bytes=settings.index_interval_bytes,
            map_bytes=max(MAP_BYTES_MIN, int(config.log_cleaner_dedupe_buffer_size / threads * load)),
            buffer_bytes=config.log_cleaner_io_buffer_size // threads // 2,
            bytes_per_second=config.log_cleaner_io_max_bytes_per_second / threads,
        )

    async def _ask(self, cleaner: AnyCleaner, partition: Replica, message: Message) -> Message:
        """Send a message to a cleaner process, on a separate thread.

        Kill the process if it hangs or its log was deleted.

        :raises UncleanableError, CleaningFailedError: the response of the process.
        """
        answering = asyncio.get_running_loop().run_in_executor(self._threads, cleaner.ask, message)
        while not (await asyncio.wait({answering}, timeout=WATCH_S))[0]:
            if partition.is_deleted or partition.log.is_offline or cleaner.silent_s > SILENCE_S_MAX:
                cleaner.end()
        answer = answering.result()
        if isinstance(answer, BarnabasError):
            raise answer
        return answer

    # --- failures ---

    async def _drop(self, partition: Replica, error: UncleanableError | CleaningFailedError | None) -> None:
        """Record the failure of a job, and remove its files."""
        if partition.is_deleted or partition.log.is_offline:
            return
        if error is not None:
            self._note_failure(partition, error)
        try:
            await partition.storage.remove_cleaned()
        except StorageError as failure:
            log.warning("%s: cannot remove the files of a failed compaction: %s", partition.topic_partition, failure)

    def _note_failure(self, partition: Replica, error: UncleanableError | CleaningFailedError) -> None:
        self.counts.failures += 1
        where, now_s = partition.topic_partition, self._clock.monotonic()
        before = self._put_off.get(where)
        failures = before.failures + 1 if before and before.partition is partition else 1
        if isinstance(error, UncleanableError):
            until_s = math.inf
            message = "cannot compact %s, and it stays uncompacted until its settings change or the broker restarts: %s"
            log.error(message, where, error, extra=event(LogEvent.COMPACTION_IMPOSSIBLE))
        else:
            wait_s = min(self._backoff_s * 2.0 ** min(failures - 1, DOUBLINGS_MAX), RETRY_S_MAX)
            until_s = now_s + wait_s
            log.warning("%s: compaction failed: %s; retrying in %.0f s", where, error, wait_s)
        self._put_off[where] = _PutOff(partition, partition.config, until_s, failures)


async def _wait_for_any(running: set[asyncio.Task[None]], timeout_s: float) -> set[asyncio.Task[None]]:
    """Wait until one task has ended or the timeout has passed. Return the tasks that are still running."""
    if not running:
        await asyncio.sleep(timeout_s)
        return running
    _, left = await asyncio.wait(running, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    return left

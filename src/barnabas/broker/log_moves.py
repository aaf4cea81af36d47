"""Moves of logs between the log directories of this broker, one at a time (KIP-113).

A log stays in use during its move. The target directory stores the pending moves (`barnabas.storage.future_logs`).
After a restart, the broker resumes the moves, and begins each copy again from the first record.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from barnabas.broker.disk_work import DiskWork
from barnabas.broker.replica import Replica
from barnabas.broker.throttles import NO_LIMIT
from barnabas.broker.topics import Topics
from barnabas.errors import BarnabasError, ErrorCode, StorageError
from barnabas.model import TopicPartition
from barnabas.replication.quota import ReplicationQuota
from barnabas.shielded import completed
from barnabas.storage.data_folders import DataFolders
from barnabas.storage.future_logs import MOVES_MAX, LogMove
from barnabas.storage.log import Log

COPY_BYTES = 1024 * 1024
"""The maximum number of bytes that are copied in one step."""

NEARLY = 1_000
"""The maximum number of missing offsets at which appends are delayed to complete the copy."""

WAIT_S_MIN = 0.01
WAIT_S_MAX = 1.0
"""The minimum and maximum pause between checks of the quota, in seconds. The quota may change during a pause."""

CHOICES_MAX = 10_000
"""The number of stored log directory choices above which the choices for deleted partitions are removed."""

log = logging.getLogger(__name__)


class LogMoves:
    """Copies logs to other log directories. Used from the event loop's thread only.

    :param quota: limits the rate of the copies.
    """

    def __init__(
        self, topics: Topics, folders: DataFolders, work: DiskWork, quota: ReplicationQuota = NO_LIMIT
    ) -> None:
        self._topics = topics
        self._folders = folders
        self._work = work
        self._quota = quota
        self._wanted: dict[TopicPartition, Path] = {}
        self._are_wanted = asyncio.Event()
        self._is_noted = True

    def request(self, where: TopicPartition, folder: str) -> ErrorCode:
        """Request the move of a log to a log directory.

        If the log is already in this directory, cancel its pending move.

        If this broker has no replica of the partition yet, a replica is created in this log directory later.

        :param folder: the absolute path of the log directory.
        :returns: NONE, or the error: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR (the directory or the log is offline),
            REPLICA_NOT_AVAILABLE (no replica on this broker yet; the choice is stored), UNKNOWN_TOPIC_OR_PARTITION,
            POLICY_VIOLATION (too many moves).
        """
        state = next((each for each in self._folders.states() if str(each.path.absolute()) == folder), None)
        if state is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        replica = self._replica(where)
        if state.failure is not None or (replica is not None and replica.log.is_offline):
            return ErrorCode.KAFKA_STORAGE_ERROR
        if replica is None:
            return self._choose(where, state.path)
        return self._want(where, state.path)

    def _choose(self, where: TopicPartition, folder: Path) -> ErrorCode:
        exists = self._topics.image.partition
        if exists(where) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if len(self._folders.chosen) >= CHOICES_MAX:
            self._folders.forget_choices([each for each in self._folders.chosen if exists(each) is None])
        self._folders.choose(where, folder)
        return ErrorCode.REPLICA_NOT_AVAILABLE

    def _want(self, where: TopicPartition, folder: Path) -> ErrorCode:
        if self._folders.folder_of(where) == folder:
            if self._wanted.pop(where, None) is not None:
                self._is_noted = False
                self._are_wanted.set()
            return ErrorCode.NONE
        if len(self._wanted) >= MOVES_MAX and where not in self._wanted:
            return ErrorCode.POLICY_VIOLATION
        self._wanted[where] = folder
        self._is_noted = False
        self._are_wanted.set()
        return ErrorCode.NONE

    async def run(self) -> None:
        """Execute the requested moves until cancelled. Begin with the moves that were pending before the restart."""
        await self._resume_pending_moves()
        while True:
            await self._note()
            await self._are_wanted.wait()
            self._are_wanted.clear()
            await self._note()
            while self._wanted:
                where, folder = next(iter(self._wanted.items()))
                try:
                    await self._move(where, folder)
                except (BarnabasError, OSError) as error:
                    log.warning("cannot move the log of %s to %s: %s; the move is cancelled", where, folder, error)
                except Exception:
                    log.exception("cannot move the log of %s to %s; the move is cancelled", where, folder)
                if self._wanted.get(where) == folder:
                    del self._wanted[where]
                    self._is_noted = False

    async def _resume_pending_moves(self) -> None:
        wanted: dict[TopicPartition, Path] = await self._work.for_all(self._folders.pending_moves.read)
        for where, folder in wanted.items():
            replica = self._replica(where)
            if replica is not None and not replica.log.is_offline:
                self._want(where, folder)
        self._is_noted = False
        if self._wanted:
            log.info("resuming the moves of %d logs to other log directories", len(self._wanted))

    async def _note(self) -> None:
        """Store the pending moves if they have changed."""
        if not self._is_noted:
            self._is_noted = True
            await self._work.for_all(self._folders.pending_moves.store, dict(self._wanted))

    def _replica(self, where: TopicPartition) -> Replica | None:
        return self._topics.replicas.get(where)

    def _replica_of(self, move: LogMove, folder: Path) -> Replica:
        """Return the replica in its current role.

        :raises StorageError: the log was replaced, or its move was cancelled.
        """
        where = move.current.partition
        replica = self._replica(where)
        if replica is None or replica.is_deleted or replica.log is not move.current:
            raise StorageError(f"the log of {where} was replaced or deleted")
        if self._wanted.get(where) != folder:
            raise StorageError("the move was cancelled")
        replica.storage.begin_move()
        return replica

    async def _move(self, where: TopicPartition, folder: Path) -> None:
        run = self._work.for_all
        move: LogMove = await run(self._folders.begin_move, where, folder)
        is_done = False
        try:
            while not is_done:
                await self._wait_for_quota(move, folder)
                replica = self._replica_of(move, folder)
                if await self._copy_some(move, replica) > NEARLY:
                    continue
                is_done = await self._exchange(move, replica)
        finally:
            if (moved := self._replica(where)) is not None:
                moved.storage.end_move()
            await completed(run(self._end, move, is_done))
        log.info("moved the log of %s to %s", where, folder)

    async def _wait_for_quota(self, move: LogMove, folder: Path) -> None:
        """Wait until the quota allows more copying. Appends continue during this wait.

        :raises StorageError: the log was replaced, or its move was cancelled.
        """
        await self._note()
        while self._quota.is_exceeded:
            await asyncio.sleep(min(max(self._quota.wait_s, WAIT_S_MIN), WAIT_S_MAX))
            await self._note()
            self._replica_of(move, folder)

    def _end(self, move: LogMove, is_done: bool) -> None:
        self._folders.end_move(move, is_done=is_done)

    async def _exchange(self, move: LogMove, replica: Replica) -> bool:
        """Copy the missing batches while appends wait, and replace the log by the copy.

        Return whether the log was replaced.

        If the log was truncated, return False. The copy must begin again outside the append queue, because appends
        would wait too long.
        """

        async def complete() -> None:
            if move.is_truncated:
                raise StorageError(f"the log of {move.current.partition} was truncated during its move")
            while move.missing:
                await self._copy_some(move, replica)

        def swap() -> Log:
            new = self._folders.swap(move)
            move.transfer_state(new)
            return new

        try:
            await replica.storage.exchange_log(complete, swap, replica.configure)
        except BarnabasError:
            if replica.has_ended and not replica.is_deleted and replica.log is move.current:
                return False  # The replica has a new role. Continue the move with the new role.
            if replica.log is move.current:
                if move.is_truncated and not replica.is_deleted:
                    return False
                raise
        return replica.log is not move.current

    async def _copy_some(self, move: LogMove, replica: Replica) -> int:
        """Copy the next batches. Return the number of offsets that are still missing."""
        await self._work.for_all(move.prepare)
        if move.missing:
            data = (await replica.storage.read_stored(move.future.log_end_offset, COPY_BYTES)).batches
            if data:
                await self._work.for_all(move.append, data, replica.leader_epoch)
                self._quota.note(len(data))
        return move.missing

"""Moves logs to other data folders of this broker, one after the other (KIP-113); the logs are used meanwhile.

What is asked for is noted in the folder that it goes to (`barnabas.storage.future_logs`): a broker that starts again
goes on with it, each copy from its beginning.
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
from barnabas.storage.data_folders import DataFolders
from barnabas.storage.future_logs import MOVES_MAX, LogMove
from barnabas.storage.log import Log

COPY_BYTES = 1024 * 1024
"""So much is copied at a time."""

NEARLY = 1_000
"""While the copy lacks more offsets than these, appends go on beside it."""

WAIT_S_MIN = 0.01
WAIT_S_MAX = 1.0
"""After this time it is looked whether the rate is another one by now."""

CHOICES_MAX = 10_000
"""When there are more choices of where logs are to be made, those of partitions that do not exist any more are
forgotten."""

log = logging.getLogger(__name__)


class LogMoves:
    """Used from the event loop's thread only.

    :param quota: how fast logs may be copied.
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
        """Have a log moved to a folder, or made there when it is made; where it is there already, end its move.

        :returns: why it cannot be: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR (the folder or the log is offline),
            REPLICA_NOT_AVAILABLE (it is not here yet; the choice is remembered), UNKNOWN_TOPIC_OR_PARTITION,
            POLICY_VIOLATION (too many).
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
        """Move what is asked for, and what was when the last run ended."""
        await self._go_on_with_the_last_run()
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
                    log.warning("%s cannot be moved to %s: %s", where, folder, error)
                except Exception:
                    log.exception("%s cannot be moved to %s", where, folder)
                if self._wanted.get(where) == folder:
                    del self._wanted[where]
                    self._is_noted = False

    async def _go_on_with_the_last_run(self) -> None:
        wanted: dict[TopicPartition, Path] = await self._work.for_all(self._folders.pending_moves.read)
        for where, folder in wanted.items():
            replica = self._replica(where)
            if replica is not None and not replica.log.is_offline:
                self._want(where, folder)
        self._is_noted = False
        if self._wanted:
            log.info("%d logs are moved to other folders, as was asked for before the start", len(self._wanted))

    async def _note(self) -> None:
        """Note what is wanted, where that has changed."""
        if not self._is_noted:
            self._is_noted = True
            await self._work.for_all(self._folders.pending_moves.store, dict(self._wanted))

    def _replica(self, where: TopicPartition) -> Replica | None:
        return self._topics.replicas.get(where)

    def _replica_of(self, move: LogMove, folder: Path) -> Replica:
        """Return the replica, in the role that it has now.

        :raises StorageError: it is not to be moved there any more.
        """
        where = move.current.partition
        replica = self._replica(where)
        if replica is None or replica.is_deleted or replica.log is not move.current:
            raise StorageError(f"{where} is another log now")
        if self._wanted.get(where) != folder:
            raise StorageError("it is not wanted there any more")
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
            await asyncio.shield(asyncio.ensure_future(run(self._end, move, is_done)))
        log.info("%s is in %s now", where, folder)

    async def _wait_for_quota(self, move: LogMove, folder: Path) -> None:
        """Return when more may be copied; meanwhile note what is asked for. What appends wait for does not wait here.

        :raises StorageError: it is not to be moved there any more, however long the wait would be.
        """
        await self._note()
        while self._quota.is_exceeded:
            await asyncio.sleep(min(max(self._quota.wait_s, WAIT_S_MIN), WAIT_S_MAX))
            await self._note()
            self._replica_of(move, folder)

    def _end(self, move: LogMove, is_done: bool) -> None:
        self._folders.end_move(move, is_done=is_done)

    async def _exchange(self, move: LogMove, replica: Replica) -> bool:
        """Copy the rest, and let the copy take the log's place; return whether it has.

        A log that was cut before its turn in the line is copied anew outside of it: all appends would wait for that.
        """

        async def complete() -> None:
            if move.is_truncated:
                raise StorageError(f"{move.current.partition} was cut while it was moved")
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
                return False  # it has another role now, and is moved in that
            if replica.log is move.current:
                if move.is_truncated and not replica.is_deleted:
                    return False
                raise
        return replica.log is not move.current

    async def _copy_some(self, move: LogMove, replica: Replica) -> int:
        """Copy the next batches; return how many offsets are missing."""
        await self._work.for_all(move.prepare)
        if move.missing:
            data = (await replica.storage.read_stored(move.future.log_end_offset, COPY_BYTES)).batches
            if data:
                await self._work.for_all(move.append, data, replica.leader_epoch)
                self._quota.note(len(data))
        return move.missing

"""Writes the records of one partition of `__consumer_offsets`: what comes together is written together.

Everything that is to be written comes into the log in the order in which it came: offsets, groups, and that they are
gone. The first of a round of the event loop is written at once, and so are commits whose batch is there already, while
nothing waits. What arrives behind it in this round, or while a write is under way, from however many connections, makes
the next write. What was written takes effect, and is answered, when it is below the high watermark (acks=all).

A write that takes longer than `offsets.commit.timeout.ms` is answered with an error. It still takes effect once it is
done, as with any request that timed out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Self

from barnabas.broker.error_codes import error_code
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.clock import Clock
from barnabas.errors import ApiError, BarnabasError, ErrorCode, MalformedMessageError, StorageError
from barnabas.groups.records import Change, OffsetRecord, encode_change
from barnabas.model import Acks, TopicPartition
from barnabas.records import BatchBuilder
from barnabas.storage.append import AppendInfo
from barnabas.storage.append_group import Outcome

log = logging.getLogger(__name__)

Done = Callable[[BarnabasError | None], None]
"""Called once: with None when the changes are stored and have taken effect, else with the reason why not."""

BATCH_BYTES = 256 * 1024
"""A batch that has so much is complete."""
RECORD_OVERHEAD = 24
"""More than a record needs besides its key and value: its lengths, and its distance from the first one."""
BATCH_OVERHEAD = 100
QUEUE_BYTES_MAX = 16 * 1024 * 1024
"""So much may wait for the disk; what comes beyond is refused."""
ROUND_BYTES = 64 * 1024
"""So much is encoded and written in one turn of the event loop."""

CHECK_S = 0.5
"""How often it is looked whether somebody has waited too long, while a write does not come to its end."""


def coordinator_error(error: BarnabasError | None, too_large: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR) -> ErrorCode:
    """Return what a group's client is told of a write: codes that it knows for its request, as in Kafka.

    :param too_large: what it is told if the records were too large.
    """
    if error is None:
        return ErrorCode.NONE
    if isinstance(error, MalformedMessageError):
        return too_large
    code = error_code(error)
    if code in {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}:
        return too_large
    if code in {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_COORDINATOR}:
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.COORDINATOR_NOT_AVAILABLE


class _Entry:
    """Changes that are written together, and who waits for them."""

    __slots__ = ("changes", "done", "error", "queued_s", "records", "size")

    def __init__(self, changes: Sequence[Change], done: Done, queued_s: float) -> None:
        self.changes = changes
        self.records = [encode_change(change) for change in changes]
        self.size = sum(len(key) + len(value or b"") + RECORD_OVERHEAD for key, value in self.records)
        self.done: Done | None = done
        self.queued_s = queued_s
        self.error: BarnabasError | None = None

    def finish(self, error: BarnabasError | None) -> None:
        """Tell who waits, if nobody has yet."""
        done, self.done = self.done, None
        if done is None:
            return
        try:
            done(error)
        except Exception:
            # Whoever comes behind is told as well, and what waits is written.
            log.exception("a group could not take in what became of a write")


class _Batch:
    """Records that become one batch, and what they change."""

    __slots__ = ("builder", "changes", "entries", "size")

    def __init__(self) -> None:
        self.builder = BatchBuilder()
        self.changes: Sequence[Change] = []
        self.entries: Sequence[_Entry] = []
        self.size = BATCH_OVERHEAD

    def of(self, changes: Sequence[Change], entries: Sequence[_Entry]) -> Self:
        """Note what its records change, and whose they are."""
        self.changes, self.entries = changes, entries
        return self


class GroupLog:
    """Used from the event loop's thread only.

    :param apply: lets a change take effect; called in the order of the log.
    :param timeout_s: how long somebody waits for a write.
    """

    def __init__(
        self, partition: LeaderReplica, apply: Callable[[Change], None], clock: Clock, timeout_s: float
    ) -> None:
        self._partition = partition
        self._apply = apply
        self._clock = clock
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._queue: list[_Entry] = []
        self._queued_bytes = 0
        self._in_flight: list[_Entry] = []
        self._is_scheduled = False
        self._slow: asyncio.Task[None] | None = None
        self._is_closed = False

    def write(self, changes: Sequence[Change], done: Done) -> None:
        """Store changes, and let them take effect.

        :raises MalformedMessageError: one of them does not fit a record; none is stored.
        :raises ApiError: COORDINATOR_NOT_AVAILABLE: too much waits already; NOT_COORDINATOR: it is closed.
        """
        if self._is_closed:
            raise ApiError(ErrorCode.NOT_COORDINATOR, "this broker does not coordinate the group any more")
        entry = _Entry(changes, done, self._clock.monotonic())
        if self._queue and self._queued_bytes + entry.size > QUEUE_BYTES_MAX:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the disk does not keep up with what groups store")
        self._queue.append(entry)
        self._queued_bytes += entry.size
        if not self._is_scheduled:
            self._is_scheduled = True
            self._write_round()

    def write_at_once(self, batch: bytearray, changes: Sequence[Change]) -> bool:
        """Store changes, whose records a batch holds, and let them take effect, if both can be done now.

        To wait for others costs more than a write of a few bytes.

        :returns: False where nothing was done: `write` does it, or says why not.
        """
        if self._queue or self._in_flight or self._is_closed or not self._partition.append_made(batch):
            return False
        for change in changes:
            self._apply(change)
        return True

    def unsettled_offsets(self) -> set[tuple[str, TopicPartition]]:
        """Return, by group and partition, whose offsets are on their way to the log: what is known of them now will not
        be true for long."""
        return {
            (change.group_id, change.where)
            for entry in (*self._in_flight, *self._queue)
            for change in entry.changes
            if isinstance(change, OffsetRecord)
        }

    def close(self, error: BarnabasError) -> None:
        """Answer all who wait with an error. What is being written still comes into the log."""
        self._is_closed = True
        waiting, self._queue = [*self._in_flight, *self._queue], []
        for entry in waiting:
            entry.finish(error)

    def _write_queued(self) -> None:
        """Write what waits; `_is_scheduled` holds until nothing does."""
        if self._queue:
            self._write_round()
        else:
            self._is_scheduled = False

    def _write_round(self) -> None:
        """Write as much of what waits as one round of the event loop may, and come back with the next one."""
        self._in_flight = self._take_round()
        batches = _batches(self._in_flight, self._batch_bytes_max(), self._clock.time_ms())
        try:
            self._partition.check_replicas()
            outcomes = self._partition.append_all([batch.builder.build() for batch in batches])
        except BarnabasError as error:
            self._finish(batches, [error] * len(batches))
        except Exception as error:
            log.exception("%s: a write failed", self._partition.topic_partition)
            refusal = StorageError(f"{self._partition.topic_partition}: a write failed: {error!r}")
            self._finish(batches, [refusal] * len(batches))
        else:
            if not isinstance(outcomes, asyncio.Future) and self._partition.acknowledges_at_once(Acks.ALL):
                self._finish(batches, outcomes)
            else:
                self._slow = self._loop.create_task(self._finish_slowly(batches, outcomes))
                return
        self._loop.call_soon(self._write_queued)

    def _take_round(self) -> list[_Entry]:
        if len(self._queue) == 1:
            taken, self._queue, self._queued_bytes = self._queue, [], 0
            return taken
        size = count = 0
        for entry in self._queue:
            if count and size + entry.size > ROUND_BYTES:
                break
            size += entry.size
            count += 1
        taken, self._queue = self._queue[:count], self._queue[count:]
        self._queued_bytes -= size
        return taken

    def _batch_bytes_max(self) -> int:
        return min(BATCH_BYTES, self._partition.config.log.max_message_bytes)

    def _finish(self, batches: Sequence[_Batch], outcomes: Sequence[Outcome]) -> None:
        """Let what was stored take effect, then tell who waits."""
        for batch, outcome in zip(batches, outcomes, strict=True):
            if isinstance(outcome, AppendInfo):
                for change in batch.changes:
                    self._apply(change)
                continue
            for entry in batch.entries:
                entry.error = entry.error or outcome
        finished, self._in_flight = self._in_flight, []
        for entry in finished:
            entry.finish(entry.error)

    async def _finish_slowly(
        self, batches: Sequence[_Batch], outcomes: list[Outcome] | asyncio.Future[list[Outcome]]
    ) -> None:
        """Wait until the disk is done, and answer those meanwhile who have waited too long."""
        storing = asyncio.ensure_future(self._stored(outcomes))
        while not (await asyncio.wait([storing], timeout=CHECK_S))[0]:
            self._answer_overdue()
        try:
            stored: list[Outcome] = storing.result()
        except Exception as error:  # noqa: BLE001 - whoever waits is told
            stored = [StorageError(f"{self._partition.topic_partition}: {error!r}")] * len(batches)
        self._slow = None
        self._finish(batches, stored)
        self._write_queued()

    async def _stored(self, outcomes: list[Outcome] | asyncio.Future[list[Outcome]]) -> list[Outcome]:
        """Return what became of the batches when those that are in the log are below the high watermark."""
        found = await outcomes if isinstance(outcomes, asyncio.Future) else outcomes
        stored: list[Outcome] = []
        exposed = [
            self._partition.when_acknowledged(outcome, Acks.ALL) if isinstance(outcome, AppendInfo) else None
            for outcome in found
        ]
        for outcome, waiting in zip(found, exposed, strict=True):
            try:
                if waiting is not None:
                    await waiting
            except BarnabasError as error:
                stored.append(error)
            else:
                stored.append(outcome)
        return stored

    def _answer_overdue(self) -> None:
        overdue_s = self._clock.monotonic() - self._timeout_s
        for entry in [*self._in_flight, *self._queue]:
            if entry.queued_s <= overdue_s and entry.done is not None:
                message = f"not stored within {self._timeout_s:g} s; it may be later"
                entry.finish(ApiError(ErrorCode.REQUEST_TIMED_OUT, message))


def _batches(entries: Sequence[_Entry], bytes_max: int, now_ms: int) -> list[_Batch]:
    """Put records into batches, in their order."""
    batch = _Batch()
    if len(entries) == 1 and len(entries[0].changes) == 1:
        [(key, value)] = entries[0].records
        batch.builder.append(now_ms, key, value)
        batch.changes, batch.entries = entries[0].changes, entries
        return [batch]
    batches = []
    changes: list[Change] = []
    owners: list[_Entry] = []
    for entry in entries:
        for change, (key, value) in zip(entry.changes, entry.records, strict=True):
            size = len(key) + len(value or b"") + RECORD_OVERHEAD
            if changes and batch.size + size > bytes_max:
                batches.append(batch.of(changes, owners))
                batch, changes, owners = _Batch(), [], []
            batch.builder.append(now_ms, key, value)
            batch.size += size
            changes.append(change)
            if not owners or owners[-1] is not entry:
                owners.append(entry)
    return [*batches, batch.of(changes, owners)] if changes else batches

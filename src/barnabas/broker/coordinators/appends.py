"""Appends the records of one shard: appends that come together are written together.

Records come into the log in the order in which they were decided. The first append of a round of the event loop is
written at once, and so is a batch that is made already, while nothing waits. Appends behind it in this round, or while
a write is under way, from however many connections, make the next write. The records take effect, and their append is
answered, when they are below the high watermark (acks=all).

Each append has one outcome:

- appended: its records are in the log, and applied;
- failed: its records are not in the log. The machine rolls back.

Before its outcome an append may become unconfirmed: it took longer than its timeout, or it is in the log with too few
replicas in sync. Those that wait get an error, and the state stays, because the log may have the records.

If the machine cannot apply a record, or the shard is lost, the log closes: an append that waits becomes unconfirmed and
has no outcome. The next shard of the partition loads what is in the log.

An append without an order key whose records need several batches may come into the log in part, and has failed then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

from barnabas.broker.coordinators.led_replica import LedReplica
from barnabas.broker.error_codes import error_code, error_message
from barnabas.clock import Clock
from barnabas.errors import ApiError, BarnabasError, ErrorCode, MalformedMessageError, StorageError
from barnabas.model import Acks
from barnabas.records import BatchBuilder
from barnabas.state_machine import Append, RecordCodec
from barnabas.storage.log_appender import AppendInfo, Outcome


@dataclass(slots=True)
class CoordinatorCounters:
    """The counts since the start of the broker, over all its shards of one topic. `queue_bytes` is the present size."""

    loads: int = 0
    failed_loads: int = 0
    load_ms: int = 0
    """The sum of the times of all loads."""
    records_replayed: int = 0
    records_damaged: int = 0
    """Records and batches that loading skipped."""
    appends: int = 0
    failed_appends: int = 0
    rolled_back: int = 0
    """Failed appends, and the appends that failed because an earlier append failed."""
    timeouts: int = 0
    queue_bytes: int = 0
    ticks_due: int = 0
    """Ticks of shards whose deadline had passed; a tick may do several due things."""


log = logging.getLogger(__name__)

RecordT = TypeVar("RecordT")

BATCH_BYTES = 256 * 1024
"""A batch of this size is complete."""
RECORD_OVERHEAD = 24
"""More than a record needs besides its key and value: its lengths, and its distance from the first one."""
BATCH_OVERHEAD = 100
QUEUE_BYTES_MAX = 16 * 1024 * 1024
"""How much may wait for the disk; further appends fail."""
ROUND_BYTES = 64 * 1024
"""How much one turn of the event loop encodes and writes."""

CHECK_S = 0.5
"""How often the timeouts of appends are checked while a write is under way."""

_TOO_LARGE = {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}
_NOT_LEADER = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_COORDINATOR}


class Outcomes(Protocol[RecordT]):
    """Takes in what becomes of appends (`barnabas.broker.coordinators.shard`)."""

    def apply(self, record: RecordT) -> None: ...

    def appended(self, append: Append[RecordT]) -> None: ...

    def unconfirmed(self, append: Append[RecordT], error: ApiError) -> None: ...

    def failed(self, append: Append[RecordT], error: ApiError) -> None: ...

    def broken(self, error: ApiError) -> None:
        """Give up the state: `apply` has failed, so that a record of the log is missing in it. The log closes."""


def coordinator_error(error: BarnabasError) -> ApiError:
    """Return the error of an append in the codes that clients of coordinators know, as in Kafka."""
    if isinstance(error, MalformedMessageError) or error_code(error) in _TOO_LARGE:
        code = ErrorCode.MESSAGE_TOO_LARGE
    elif error_code(error) in _NOT_LEADER:
        code = ErrorCode.NOT_COORDINATOR
    else:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ApiError(code, error_message(error) or "")


class _Unconfirmed(NamedTuple):
    """A batch is in the log, and must not be acknowledged."""

    error: BarnabasError


class _Entry(Generic[RecordT]):
    """An append that waits or is being written."""

    __slots__ = ("append", "doubt", "error", "is_answered", "queued_s", "records", "size")

    def __init__(self, append: Append[RecordT], codec: RecordCodec[RecordT], queued_s: float, now_ms: int) -> None:
        self.append = append
        self.records = [codec.encode(record, now_ms) for record in append.records]
        self.size = sum(len(key) + len(value or b"") + RECORD_OVERHEAD for key, value in self.records)
        self.queued_s = queued_s
        self.is_answered = False
        self.error: BarnabasError | None = None
        """Why it is not in the log."""
        self.doubt: BarnabasError | None = None
        """Why it is in the log, and must not be acknowledged."""


class _Batch(Generic[RecordT]):
    """Records that become one batch, and the appends that they belong to."""

    __slots__ = ("builder", "entries", "records", "size")

    def __init__(self) -> None:
        self.builder = BatchBuilder()
        self.records: Sequence[RecordT] = []
        self.entries: Sequence[_Entry[RecordT]] = []
        self.size = BATCH_OVERHEAD

    def of(self, records: Sequence[RecordT], entries: Sequence[_Entry[RecordT]]) -> Self:
        """Note which records it has, and whose they are."""
        self.records, self.entries = records, entries
        return self


class ShardLog(Generic[RecordT]):
    """Used from the event loop's thread only.

    :param outcomes: called in the order of the log.
    :param timeout_s: how long those that wait for an append wait.
    """

    def __init__(
        self,
        replica: LedReplica,
        codec: RecordCodec[RecordT],
        outcomes: Outcomes[RecordT],
        clock: Clock,
        timeout_s: float,
        counters: CoordinatorCounters,
    ) -> None:
        self._replica = replica
        self._leader_epoch = replica.leader_epoch
        self._codec = codec
        self._outcomes = outcomes
        self._apply = outcomes.apply
        self._clock = clock
        self._timeout_s = timeout_s
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._queue: list[_Entry[RecordT]] = []
        self._queued_bytes = 0
        self._in_flight: list[_Entry[RecordT]] = []
        self._is_scheduled = False
        self._slow: asyncio.Task[None] | None = None
        self._closed: ApiError | None = None

    def write(self, append: Append[RecordT]) -> None:
        """Append records; the outcome follows, perhaps before this returns.

        :raises MalformedMessageError: one of them does not fit a record; none is appended.
        :raises ApiError: COORDINATOR_NOT_AVAILABLE: too much waits already; the error of `close`, once it is closed.
        """
        if self._closed is not None:
            raise ApiError(self._closed.code, self._closed.message)
        entry = _Entry(append, self._codec, self._clock.monotonic(), self._clock.stored_ms())
        if self._queue and self._queued_bytes + entry.size > QUEUE_BYTES_MAX:
            message = f"{self._replica.topic_partition}: {self._queued_bytes} bytes wait for the disk already"
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
        self._queue.append(entry)
        self._count_queued(entry.size)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._write_round()

    def write_at_once(self, batch: bytearray, records: Sequence[RecordT]) -> bool:
        """Append a batch that is made already, and let its records take effect, if both can be done now.

        To wait for others costs more than a write of a few bytes.

        :param records: those of the batch.
        :returns: False where nothing was done: `write` does it, or says why not.
        """
        if self._queue or self._in_flight or self._closed is not None:
            return False
        if self._replica.leader_epoch != self._leader_epoch or not self._replica.append_own_batch(batch):
            return False
        self._counters.appends += 1
        return self._take_effect(records)

    def close(self, error: ApiError) -> None:
        """Answer all that wait. Records that are being written still come into the log."""
        if self._closed is not None:
            return
        self._closed = error
        waiting, self._in_flight, self._queue = [*self._in_flight, *self._queue], [], []
        self._count_queued(-self._queued_bytes)
        for entry in waiting:
            self._answer_unconfirmed(entry, error)
        # The shard owns this log. Without this cycle, reference counting frees a lost shard and all of its state.
        del self._outcomes, self._apply

    def _take_effect(self, records: Sequence[RecordT]) -> bool:
        """Apply records that are in the log. If that fails, give the shard up, and return False."""
        try:
            for record in records:
                self._apply(record)
        except Exception:
            where = self._replica.topic_partition
            log.exception("%s: cannot apply a record that is in the log; loading the partition again", where)
            self._break()
            return False
        return True

    def _break(self) -> None:
        where = self._replica.topic_partition
        error = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{where}: a record could not be applied")
        try:
            self._outcomes.broken(error)
        finally:
            self.close(error)

    def _count_queued(self, size: int) -> None:
        self._queued_bytes += size
        self._counters.queue_bytes += size

    # -- rounds --------------------------------------------------------------------------------------------

    def _write_queued(self) -> None:
        """Write what waits; `_is_scheduled` holds until nothing does."""
        if self._queue:
            self._write_round()
        else:
            self._is_scheduled = False

    def _write_round(self) -> None:
        """Write as much of what waits as one round of the event loop may, and come back with the next one."""
        self._in_flight = self._take_round()
        self._counters.appends += len(self._in_flight)
        replica = self._replica
        try:
            batches = _batches(self._in_flight, self._batch_bytes_max(), self._clock.time_ms())
            self._check_epoch()
            replica.check_replicas()
            outcomes = replica.append_all([batch.builder.build() for batch in batches])
        except BarnabasError as error:
            self._fail_round(error)
        except Exception as error:
            log.exception("%s: an append failed; its clients get an error", replica.topic_partition)
            self._fail_round(StorageError(f"{replica.topic_partition}: an append failed: {error!r}"))
        else:
            if not isinstance(outcomes, asyncio.Future) and replica.acknowledges_at_once(Acks.ALL):
                self._finish(batches, outcomes)
            else:
                self._slow = self._loop.create_task(self._finish_slowly(batches, outcomes))
                return
        self._loop.call_soon(self._write_queued)

    def _check_epoch(self) -> None:
        found, expected = self._replica.leader_epoch, self._leader_epoch
        if found != expected:
            message = f"{self._replica.topic_partition} is at leader epoch {found}, not {expected}"
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, message)

    def _take_round(self) -> list[_Entry[RecordT]]:
        if len(self._queue) == 1:
            taken, self._queue = self._queue, []
            self._count_queued(-self._queued_bytes)
            return taken
        size = count = 0
        keys: set[Hashable] = set()
        for entry in self._queue:
            key = entry.append.order_key
            if count and (size + entry.size > ROUND_BYTES or key in keys):
                break
            if key is not None:
                keys.add(key)
            size += entry.size
            count += 1
        taken, self._queue = self._queue[:count], self._queue[count:]
        self._count_queued(-size)
        return taken

    def _batch_bytes_max(self) -> int:
        return min(BATCH_BYTES, self._replica.config.log.max_message_bytes)

    # -- outcomes ------------------------------------------------------------------------------------------

    def _fail_round(self, error: BarnabasError) -> None:
        for entry in self._in_flight:
            entry.error = error
        self._finish([], [])

    def _finish(self, batches: Sequence[_Batch[RecordT]], outcomes: Sequence[Outcome | _Unconfirmed]) -> None:
        """Let what is in the log take effect, then settle the appends."""
        if self._closed is not None:
            return  # all were answered, and the next coordinator loads what came into the log
        if not self._note_outcomes(batches, outcomes):
            return
        finished, self._in_flight = self._in_flight, []
        for entry in finished:
            self._settle(entry)

    def _note_outcomes(self, batches: Sequence[_Batch[RecordT]], outcomes: Sequence[Outcome | _Unconfirmed]) -> bool:
        for batch, outcome in zip(batches, outcomes, strict=True):
            if isinstance(outcome, BarnabasError):
                for entry in batch.entries:
                    entry.error = entry.error or outcome
                continue
            if not self._take_effect(batch.records):
                return False
            if isinstance(outcome, _Unconfirmed):
                for entry in batch.entries:
                    entry.doubt = entry.doubt or outcome.error
        return True

    def _settle(self, entry: _Entry[RecordT]) -> None:
        if entry.error is not None:
            self._fail(entry, coordinator_error(entry.error))
            return
        if entry.doubt is not None:
            self._answer_unconfirmed(entry, coordinator_error(entry.doubt))
        try:
            self._outcomes.appended(entry.append)
        except Exception:
            where = self._replica.topic_partition
            log.exception("%s: cannot take in an append; its client gets an error", where)
            self._answer_unconfirmed(entry, self._no_result())

    def _fail(self, entry: _Entry[RecordT], error: ApiError) -> None:
        """Fail an append, and before it those behind it that build on it."""
        self._counters.failed_appends += 1
        key = entry.append.order_key
        if key is not None and self._queue:
            behind = [each for each in self._queue if each.append.order_key == key]
            self._queue = [each for each in self._queue if each.append.order_key != key]
            self._count_queued(-sum(each.size for each in behind))
            for each in reversed(behind):
                self._roll_back(each, error)
            self._counters.rolled_back += len(behind)
        self._counters.rolled_back += 1
        self._roll_back(entry, error)

    def _roll_back(self, entry: _Entry[RecordT], error: ApiError) -> None:
        try:
            self._outcomes.failed(entry.append, error)
        except Exception:
            where = self._replica.topic_partition
            log.exception("%s: cannot take in a failed append; its client gets an error", where)
            self._answer_unconfirmed(entry, self._no_result())

    def _no_result(self) -> ApiError:
        return ApiError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self._replica.topic_partition}: an append has no result"
        )

    def _answer_unconfirmed(self, entry: _Entry[RecordT], error: ApiError) -> None:
        if entry.is_answered:
            return
        entry.is_answered = True
        try:
            self._outcomes.unconfirmed(entry.append, error)
        except Exception:
            log.exception("%s: cannot take in an unconfirmed append", self._replica.topic_partition)

    async def _finish_slowly(
        self, batches: Sequence[_Batch[RecordT]], outcomes: list[Outcome] | asyncio.Future[list[Outcome]]
    ) -> None:
        """Wait until the records are below the high watermark; answer those meanwhile that have waited too long."""
        waiting = asyncio.ensure_future(self._confirmed(outcomes))
        while not (await asyncio.wait([waiting], timeout=CHECK_S))[0]:
            self._answer_overdue()
        confirmed: Sequence[Outcome | _Unconfirmed]
        try:
            confirmed = waiting.result()
        except Exception as error:  # noqa: BLE001 - it is the outcome of each batch
            confirmed = [StorageError(f"{self._replica.topic_partition}: {error!r}")] * len(batches)
        self._slow = None
        self._finish(batches, confirmed)
        self._write_queued()

    async def _confirmed(self, outcomes: list[Outcome] | asyncio.Future[list[Outcome]]) -> list[Outcome | _Unconfirmed]:
        """Return what became of the batches when those in the log are below the high watermark, or cannot be."""
        found = await outcomes if isinstance(outcomes, asyncio.Future) else outcomes
        waits = [
            self._replica.when_acknowledged(outcome, Acks.ALL) if isinstance(outcome, AppendInfo) else None
            for outcome in found
        ]
        confirmed: list[Outcome | _Unconfirmed] = []
        for outcome, wait in zip(found, waits, strict=True):
            try:
                if wait is not None:
                    await wait
            except BarnabasError as error:
                confirmed.append(_Unconfirmed(error))
            else:
                confirmed.append(outcome)
        return confirmed

    def _answer_overdue(self) -> None:
        overdue_s = self._clock.monotonic() - self._timeout_s
        for entry in [*self._in_flight, *self._queue]:
            if entry.queued_s <= overdue_s and not entry.is_answered:
                self._counters.timeouts += 1
                message = f"not appended within {self._timeout_s:g} s; it may be later"
                self._answer_unconfirmed(entry, ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message))


def _batches(entries: Sequence[_Entry[RecordT]], bytes_max: int, now_ms: int) -> list[_Batch[RecordT]]:
    """Put records into batches, in their order. An append with an order key is in one batch, whatever its size."""
    batch: _Batch[RecordT] = _Batch()
    if len(entries) == 1 and len(entries[0].records) == 1:
        [(key, value)] = entries[0].records
        batch.builder.append(now_ms, key, value)
        batch.records, batch.entries = entries[0].append.records, entries
        return [batch]
    batches: list[_Batch[RecordT]] = []
    records: list[RecordT] = []
    owners: list[_Entry[RecordT]] = []
    for entry in entries:
        is_whole = entry.append.order_key is not None
        if is_whole and records and batch.size + entry.size > bytes_max:
            batches.append(batch.of(records, owners))
            batch, records, owners = _Batch(), [], []
        for record, (key, value) in zip(entry.append.records, entry.records, strict=True):
            size = len(key) + len(value or b"") + RECORD_OVERHEAD
            if records and not is_whole and batch.size + size > bytes_max:
                batches.append(batch.of(records, owners))
                batch, records, owners = _Batch(), [], []
            batch.builder.append(now_ms, key, value)
            batch.size += size
            records.append(record)
            if not owners or owners[-1] is not entry:
                owners.append(entry)
    return [*batches, batch.of(records, owners)] if records else batches

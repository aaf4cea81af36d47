"""The appends of a coordinator shard to its log.

Appends that arrive together are written together. Records are written in the order in which the state machine creates
them. The first append in an iteration of the event loop is written immediately. Later appends in the same iteration,
and appends during an unfinished write, form the next write, even if they belong to different connections. The shard
applies an append and answers its clients when its records are below the high watermark (acks=all).

Each append has one outcome:

- appended: its records are in the log and applied;
- failed: its records are not in the log, and the machine rolls back.

Before its outcome, an append may become unconfirmed because it timed out or because too few replicas are in sync. Its
waiting clients then get an error. The state does not change, because the log may contain the records.

If the machine cannot apply a record, or the shard resigns, the `ShardLog` closes. Waiting appends then become
unconfirmed and have no outcome. The next shard of the partition loads the records from the log.

An append without an order key may need several batches. If only some of these are written, the outcome is failed.
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
    """The counters of all shards of one internal topic since the start of the broker.

    `queue_bytes` is a current value.
    """

    loads: int = 0
    failed_loads: int = 0
    load_ms: int = 0
    """The total time for loading shards, in milliseconds."""
    records_replayed: int = 0
    records_damaged: int = 0
    """The number of damaged records and batches that were skipped during loading."""
    appends: int = 0
    failed_appends: int = 0
    rolled_back: int = 0
    """The number of failed appends, including those that failed because an earlier append failed."""
    timeouts: int = 0
    queue_bytes: int = 0
    ticks_due: int = 0
    """The number of shard ticks at which a deadline had passed. A tick may process several deadlines."""


log = logging.getLogger(__name__)

RecordT = TypeVar("RecordT")

BATCH_BYTES = 256 * 1024
"""The maximum size of a batch in bytes, unless `max.message.bytes` is smaller."""
RECORD_OVERHEAD = 24
"""An upper bound for the overhead of a record in bytes: all fields except key and value."""
BATCH_OVERHEAD = 100
QUEUE_BYTES_MAX = 16 * 1024 * 1024
"""The maximum total size of queued records in bytes. Further appends fail."""
ROUND_BYTES = 64 * 1024
"""The maximum total size in bytes of the records that are written in one iteration of the event loop."""

CHECK_S = 0.5
"""The interval in seconds between checks for timeouts during an unfinished write."""

_TOO_LARGE = {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}
_NOT_LEADER = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_COORDINATOR}


class Outcomes(Protocol[RecordT]):
    """Receives the outcomes of appends. Implemented by `barnabas.broker.coordinators.shard`."""

    def apply(self, record: RecordT) -> None: ...

    def appended(self, append: Append[RecordT]) -> None: ...

    def unconfirmed(self, append: Append[RecordT], error: ApiError) -> None: ...

    def failed(self, append: Append[RecordT], error: ApiError) -> None: ...

    def broken(self, error: ApiError) -> None:
        """Drop the state of the shard, because `apply` failed and the state lacks a record of the log."""


def coordinator_error(error: BarnabasError) -> ApiError:
    """Convert the error of an append to one of the error codes that Kafka's coordinators return to clients."""
    if isinstance(error, MalformedMessageError) or error_code(error) in _TOO_LARGE:
        code = ErrorCode.MESSAGE_TOO_LARGE
    elif error_code(error) in _NOT_LEADER:
        code = ErrorCode.NOT_COORDINATOR
    else:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ApiError(code, error_message(error) or "")


class _Unconfirmed(NamedTuple):
    """The outcome of a batch that is in the log but must not be acknowledged."""

    error: BarnabasError


class _Entry(Generic[RecordT]):
    """An append that is queued or being written."""

    __slots__ = ("append", "doubt", "error", "is_answered", "queued_s", "records", "size")

    def __init__(self, append: Append[RecordT], codec: RecordCodec[RecordT], queued_s: float, now_ms: int) -> None:
        self.append = append
        self.records = [codec.encode(record, now_ms) for record in append.records]
        self.size = sum(len(key) + len(value or b"") + RECORD_OVERHEAD for key, value in self.records)
        self.queued_s = queued_s
        self.is_answered = False
        self.error: BarnabasError | None = None
        """The reason why the append is not in the log."""
        self.doubt: BarnabasError | None = None
        """The reason why the append must not be acknowledged although it is in the log."""


class _Batch(Generic[RecordT]):
    """The records of one batch, and the appends that contain these records."""

    __slots__ = ("builder", "entries", "records", "size")

    def __init__(self) -> None:
        self.builder = BatchBuilder()
        self.records: Sequence[RecordT] = []
        self.entries: Sequence[_Entry[RecordT]] = []
        self.size = BATCH_OVERHEAD

    def of(self, records: Sequence[RecordT], entries: Sequence[_Entry[RecordT]]) -> Self:
        """Set the records of the batch and their appends. Return the batch."""
        self.records, self.entries = records, entries
        return self


class ShardLog(Generic[RecordT]):
    """The writer of a shard's records. Used by the event loop's thread only.

    :param outcomes: receives the outcomes of appends in log order.
    :param timeout_s: the time after which a waiting append becomes unconfirmed.
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
        """Queue an append. Its outcome is reported to `outcomes`, possibly before this method returns.

        :raises MalformedMessageError: a value does not fit into a record; nothing is appended.
        :raises ApiError: COORDINATOR_NOT_AVAILABLE if the queue is full; after `close`, the error of `close`.
        """
        if self._closed is not None:
            raise ApiError(self._closed.code, self._closed.message)
        entry = _Entry(append, self._codec, self._clock.monotonic(), self._clock.stored_ms())
        if self._queue and self._queued_bytes + entry.size > QUEUE_BYTES_MAX:
            message = (
                f"{self._replica.topic_partition}: the queue is full, {self._queued_bytes} bytes wait for the disk"
            )
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
        self._queue.append(entry)
        self._count_queued(entry.size)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._write_round()

    def write_at_once(self, batch: bytearray, records: Sequence[RecordT]) -> bool:
        """Append a complete batch and apply its records if this is possible without waiting and no other append is
        queued.

        A small batch is cheaper to write immediately than to combine with other appends.

        :param records: the records of the batch.
        :returns: False if nothing was written. The caller then calls `write`, which also reports errors.
        """
        if self._queue or self._in_flight or self._closed is not None:
            return False
        if self._replica.leader_epoch != self._leader_epoch or not self._replica.append_own_batch(batch):
            return False
        self._counters.appends += 1
        return self._take_effect(records)

    def close(self, error: ApiError) -> None:
        """Stop writing, and make all waiting appends unconfirmed.

        Records of an unfinished write may still reach the log.
        """
        if self._closed is not None:
            return
        self._closed = error
        waiting, self._in_flight, self._queue = [*self._in_flight, *self._queue], [], []
        self._count_queued(-self._queued_bytes)
        for entry in waiting:
            self._answer_unconfirmed(entry, error)
        # Break the reference cycle between the shard and this object, so that a dropped shard and its state are freed
        # immediately.
        del self._outcomes, self._apply

    def _take_effect(self, records: Sequence[RecordT]) -> bool:
        """Apply records from the log to the state machine. If this fails, drop the shard and return False."""
        try:
            for record in records:
                self._apply(record)
        except Exception:
            where = self._replica.topic_partition
            log.exception("%s: the coordinator cannot apply a record of its log; loading the partition again", where)
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
        """Write the next queued appends. `_is_scheduled` stays true until the queue is empty."""
        if self._queue:
            self._write_round()
        else:
            self._is_scheduled = False

    def _write_round(self) -> None:
        """Write the queued appends up to `ROUND_BYTES`, and schedule the next write."""
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
            log.exception("%s: a coordinator append failed; the waiting clients get an error", replica.topic_partition)
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
        """Apply the records of successful batches, and report the outcome of each append."""
        if self._closed is not None:
            return  # `close` has answered all appends. The next coordinator loads their records from the log.
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
            log.exception("%s: the coordinator cannot process a completed append; its client gets an error", where)
            self._answer_unconfirmed(entry, self._no_result())

    def _fail(self, entry: _Entry[RecordT], error: ApiError) -> None:
        """Fail an append. Roll back the later appends that depend on this append first."""
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
            log.exception("%s: the coordinator cannot roll back a failed append; its client gets an error", where)
            self._answer_unconfirmed(entry, self._no_result())

    def _no_result(self) -> ApiError:
        return ApiError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self._replica.topic_partition}: the result of an append is lost"
        )

    def _answer_unconfirmed(self, entry: _Entry[RecordT], error: ApiError) -> None:
        if entry.is_answered:
            return
        entry.is_answered = True
        try:
            self._outcomes.unconfirmed(entry.append, error)
        except Exception:
            log.exception("%s: the coordinator cannot process an unconfirmed append", self._replica.topic_partition)

    async def _finish_slowly(
        self, batches: Sequence[_Batch[RecordT]], outcomes: list[Outcome] | asyncio.Future[list[Outcome]]
    ) -> None:
        """Wait until the records are below the high watermark. During the wait, answer appends that time out."""
        waiting = asyncio.ensure_future(self._confirmed(outcomes))
        while not (await asyncio.wait([waiting], timeout=CHECK_S))[0]:
            self._answer_overdue()
        confirmed: Sequence[Outcome | _Unconfirmed]
        try:
            confirmed = waiting.result()
        except Exception as error:  # noqa: BLE001 - each batch gets the error as its outcome
            confirmed = [StorageError(f"{self._replica.topic_partition}: {error!r}")] * len(batches)
        self._slow = None
        self._finish(batches, confirmed)
        self._write_queued()

    async def _confirmed(self, outcomes: list[Outcome] | asyncio.Future[list[Outcome]]) -> list[Outcome | _Unconfirmed]:
        """Wait until each appended batch is below the high watermark or cannot be confirmed, and return the outcomes of
        all batches.
        """
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
                message = f"not appended within {self._timeout_s:g} s; it may still be appended later"
                self._answer_unconfirmed(entry, ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message))


def _batches(entries: Sequence[_Entry[RecordT]], bytes_max: int, now_ms: int) -> list[_Batch[RecordT]]:
    """Divide the records of appends into batches, in order.

    The records of an append with an order key stay in one batch.
    """
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

"""A coordinator shard: the state machine and the log of one partition of an internal topic, on the partition's
leader.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from barnabas.broker.coordinators.appends import ShardLog, coordinator_error
from barnabas.broker.pipeline.call import is_pause_due
from barnabas.errors import ApiError, BarnabasError, CorruptBatchError, ErrorCode, MalformedMessageError, StorageError
from barnabas.log_lines import LogEvent, event
from barnabas.records import check_batch, decompress, iter_headers
from barnabas.records.codec import decode_records
from barnabas.records.header import BATCH_HEADER_SIZE, BatchHeader
from barnabas.state_machine import StateMachine

if TYPE_CHECKING:
    from barnabas.broker.coordinators.appends import CoordinatorCounters
    from barnabas.broker.coordinators.led_replica import LedReplica
    from barnabas.broker.pipeline.call import Steps
    from barnabas.broker.pipeline.scheduler import CooperativeScheduler
    from barnabas.clock import Clock
    from barnabas.records import Record
    from barnabas.state_machine import Append, Effects, RecordCodec, Reply


log = logging.getLogger(__name__)

RecordT = TypeVar("RecordT")

_COMMIT_KEY = b"\0\0\0\1"
"""The key of a commit marker, the control record that commits a transaction: version and type (KIP-98)."""


class Replay(Generic[RecordT]):
    """Applies the records of batches in order. Records of aborted transactions are skipped."""

    def __init__(self, codec: RecordCodec[RecordT], apply: Callable[[RecordT], None]) -> None:
        self.records = 0
        self.damaged = 0
        """The number of skipped records and batches."""
        self.first_damage = ""
        self._decode = codec.decode
        self._apply = apply
        self._open: dict[int, list[RecordT]] = {}  # Decoded records of unfinished transactions, by producer id.

    def replay(self, data: bytes) -> Steps[int]:
        """Apply whole batches. Return the offset after the last batch, or -1 if no batch was readable."""
        view = memoryview(data)
        next_offset = -1
        try:
            for position, header in iter_headers(view, partial_ok=True):
                next_offset = header.next_offset
                try:
                    records = _records(view, position, header)
                except CorruptBatchError as error:
                    self._note_damage(f"the batch at offset {header.base_offset}: {error}")
                    continue
                yield from self._replay_batch(header, records)
        except CorruptBatchError as error:
            self._note_damage(str(error))
        return next_offset

    def _replay_batch(self, header: BatchHeader, records: list[Record]) -> Steps[None]:
        if header.is_control:
            ended = self._open.pop(header.producer_id, [])
            if records and records[0].key is not None and bytes(records[0].key)[:4] == _COMMIT_KEY:
                for each in ended:
                    self._apply(each)
            return
        self.records += len(records)
        for number, record in enumerate(records):
            if is_pause_due(number):
                yield
            try:
                change = self._decode(record.key, record.value)
            except MalformedMessageError as error:
                self._note_damage(f"the record at offset {record.offset}: {error}")
                continue
            if change is None:
                continue
            if header.is_transactional:
                self._open.setdefault(header.producer_id, []).append(change)
            else:
                self._apply(change)
        yield

    def _note_damage(self, what: str) -> None:
        self.damaged += 1
        self.first_damage = self.first_damage or what


def _records(view: memoryview, position: int, header: BatchHeader) -> list[Record]:
    """Decode the records of a batch.

    :raises CorruptBatchError: the batch is damaged.
    """
    check_batch(view, position, header)
    body = decompress(header.compression, view[position + BATCH_HEADER_SIZE : position + header.size])
    return decode_records(body, header, "", 0)


async def replay_log(
    replica: LedReplica,
    replay: Replay[RecordT],
    scheduler: CooperativeScheduler,
    buffer_bytes: int,
    is_given_up: Callable[[], bool],
) -> None:
    """Apply all records in the log of a replica. Stop early if `is_given_up` returns True.

    :raises BarnabasError: the log cannot be read.
    """
    if replica.log.is_offline:
        # The offsets of an offline log may be unknown. Do not treat an unreadable log as empty.
        raise StorageError(f"the log {replica.topic_partition} is offline")
    offset = replica.log.log_start_offset
    while offset < replica.log.log_end_offset and not is_given_up():
        batches = (await replica.read_stored(offset, buffer_bytes)).batches
        assert isinstance(batches, bytes)
        next_offset = await scheduler.finish(replay.replay(batches))
        if next_offset <= offset:
            where, reason = replica.topic_partition, replay.first_damage
            message = "%s: cannot read offset %d: %s; loading stops at this offset"
            log.error(message, where, offset, reason, extra=event(LogEvent.GROUPS_UNREADABLE))
            return
        offset = next_offset
    if replay.damaged:
        count, first = replay.damaged, replay.first_damage
        log.warning(
            "%s: the coordinator skipped %d damaged records while loading, beginning with %s",
            replica.topic_partition,
            count,
            first,
        )


MachineT = TypeVar("MachineT", bound=StateMachine[Any])

FAILURES_LOGGED_S = 10.0
"""The minimum time in seconds between two log lines about failed appends of a shard."""


class CoordinatorShard(Generic[MachineT, RecordT]):
    """A shard of an internal topic in one leader epoch. Used by the event loop's thread only.

    :param deliver: sends a result to a waiting request.
    :param arm: asks the runtime to call the machine at a deadline.
    :param give_up: drops the shard and loads its partition into a new shard.
    """

    def __init__(
        self,
        replica: LedReplica,
        machine: MachineT,
        codec: RecordCodec[RecordT],
        clock: Clock,
        counters: CoordinatorCounters,
        append_timeout_s: float,
        deliver: Callable[[Reply], None],
        arm: Callable[[float | None], None],
        give_up: Callable[[CoordinatorShard[MachineT, RecordT]], None],
    ) -> None:
        self.replica = replica
        self.leader_epoch = replica.leader_epoch
        self.machine = machine
        self.apply: Callable[[RecordT], None] = machine.apply
        self.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        """The error code if the shard is not available, or NONE if it is loaded."""
        self.fenced_s = float("-inf")
        """The monotonic time in seconds at which this broker may last have lost its leadership."""
        self.times_fenced = replica.times_fenced
        """The value of the replica's `times_fenced` at the runtime's last check."""
        self.log = ShardLog(replica, codec, self, clock, append_timeout_s, counters)
        self._codec = codec
        self._clock = clock
        self._counters = counters
        self._deliver = deliver
        self.arm = arm
        self._give_up = give_up
        self.is_closed = False
        self._failure_logged_s = float("-inf")

    @property
    def refusal(self) -> ErrorCode:
        """The error for clients, or NONE.

        A shard is not available if this broker may have lost its leadership, because another broker may have a newer
        state.
        """
        return self.error or (ErrorCode.NONE if self.replica.is_led else ErrorCode.NOT_COORDINATOR)

    def perform(self, effects: Effects[RecordT]) -> None:
        """Deliver replies, append records, and set the timer to the state machine's next deadline."""
        replies, appends = effects
        for reply in replies:
            self._deliver(reply)
        for number, append in enumerate(appends):
            try:
                self.log.write(append)
            except BarnabasError as error:
                # Fail this append before another event depends on it. Later appends in `appends` may also depend on it,
                # so fail them first.
                for each in reversed(appends[number:]):
                    self.failed(each, coordinator_error(error))
                break
        self.arm(self.machine.next_deadline())

    # -- loading and closing -------------------------------------------------------------------------------

    @property
    def must_read(self) -> bool:
        """True if the log may contain records to load."""
        stored = self.replica.log
        return stored.log_start_offset < stored.log_end_offset or stored.is_offline

    async def load(self, scheduler: CooperativeScheduler, buffer_bytes: int) -> int:
        """Apply the records of the partition. Stop if the shard resigns. This method does not set `error`.

        :returns: the number of records.
        :raises BarnabasError: the log cannot be read.
        """
        replay = Replay(self._codec, self.machine.apply)
        await replay_log(self.replica, replay, scheduler, buffer_bytes, lambda: self.is_closed)
        self._counters.records_replayed += replay.records
        self._counters.records_damaged += replay.damaged
        if not self.is_closed:
            await scheduler.finish(self.machine.loaded(self._clock.monotonic(), self._clock.expiry_ms()))
        return replay.records

    def begin_empty(self) -> None:
        """Make the shard available without loading, because the partition has no records."""
        for _ in self.machine.loaded(self._clock.monotonic(), self._clock.expiry_ms()):
            pass
        self.error = ErrorCode.NONE

    def resign(self, error: ErrorCode) -> None:
        """Stop serving and answer all waiting requests with `error`."""
        if self.is_closed:
            return
        self.error = error
        self.is_closed = True
        for reply in self.machine.close(error):
            self._deliver(reply)
        self.log.close(ApiError(error, f"{self.replica.topic_partition} has another coordinator"))

    def release(self) -> Iterator[None]:
        """Free the state after `resign`, in slices. Yield after each slice."""
        yield from self.machine.release()

    # -- append outcomes -------------------------------------------------------------------------------

    def appended(self, append: Append[RecordT]) -> None:
        self.perform(self.machine.appended(self._clock.monotonic(), append))

    def unconfirmed(self, append: Append[RecordT], error: ApiError) -> None:
        self._log_failure("unconfirmed", append, error)
        self.perform(self.machine.unconfirmed(self._clock.monotonic(), append, error))

    def failed(self, append: Append[RecordT], error: ApiError) -> None:
        self._log_failure("refused", append, error)
        self.perform(self.machine.failed(self._clock.monotonic(), append, error))

    def broken(self, error: ApiError) -> None:
        self._give_up(self)

    def _log_failure(self, what: str, append: Append[RecordT], error: ApiError) -> None:
        now_s = self._clock.monotonic()
        if self.error or now_s - self._failure_logged_s < FAILURES_LOGGED_S:
            return
        self._failure_logged_s = now_s
        where, count = self.replica.topic_partition, len(append.records)
        log.warning(
            "%s: coordinator append of %d records %s: %s; the waiting clients get %s",
            where,
            count,
            what,
            error,
            error.code.name,
        )

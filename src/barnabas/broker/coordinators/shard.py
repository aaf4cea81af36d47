"""One partition of an internal topic on the broker that leads it: a state machine, its log, and how far it is
loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from barnabas.broker.coordinators.appends import ShardLog, coordinator_error
from barnabas.broker.coordinators.loading import Replay, replay_log
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.state_machine import StateMachine

if TYPE_CHECKING:
    from barnabas.broker.cooperative_scheduler import CooperativeScheduler
    from barnabas.broker.coordinators.counters import CoordinatorCounters
    from barnabas.broker.coordinators.led_replica import LedReplica
    from barnabas.clock import Clock
    from barnabas.state_machine import Append, Effects, RecordCodec, Reply

MachineT = TypeVar("MachineT", bound=StateMachine[Any])
RecordT = TypeVar("RecordT")

FAILURES_LOGGED_S = 10.0
"""The shortest time between two log lines about failed appends of a shard."""

log = logging.getLogger(__name__)


class CoordinatorShard(Generic[MachineT, RecordT]):
    """Used from the event loop's thread only. One leader epoch: the next epoch has another shard.

    :param deliver: gives a waiter its result.
    :param arm: has the machine ticked at its deadline.
    :param give_up: drops the shard, and loads its partition into another one.
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
        """Why the shard is not served; NONE once it is loaded."""
        self.fenced_s = float("-inf")
        """When it was last in doubt that this broker leads."""
        self.times_fenced = replica.times_fenced
        """How often this had been in doubt when the runtime looked last."""
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
        """Why clients must ask again or elsewhere, or NONE: while another broker may lead, that one may know more."""
        return self.error or (ErrorCode.NONE if self.replica.is_led else ErrorCode.NOT_COORDINATOR)

    def perform(self, effects: Effects[RecordT]) -> None:
        """Deliver replies, append records, and have the machine ticked at its deadline."""
        replies, appends = effects
        for reply in replies:
            self._deliver(reply)
        for number, append in enumerate(appends):
            try:
                self.log.write(append)
            except BarnabasError as error:
                # At once, before another event builds on the append; and those behind it may build on it.
                for each in reversed(appends[number:]):
                    self.failed(each, coordinator_error(error))
                break
        self.arm(self.machine.next_deadline())

    # -- loading and closing -------------------------------------------------------------------------------

    @property
    def must_read(self) -> bool:
        """Whether there is something to load."""
        stored = self.replica.log
        return stored.log_start_offset < stored.log_end_offset or stored.is_offline

    async def load(self, scheduler: CooperativeScheduler, buffer_bytes: int) -> int:
        """Apply the records of the partition, until the shard resigns. `error` stays as it is.

        :returns: how many records there were.
        :raises BarnabasError: the disk refused.
        """
        replay = Replay(self._codec, self.machine.apply)
        await replay_log(self.replica, replay, scheduler, buffer_bytes, lambda: self.is_closed)
        self._counters.records_replayed += replay.records
        self._counters.records_damaged += replay.damaged
        if not self.is_closed:
            await scheduler.finish(self.machine.loaded(self._clock.monotonic(), self._clock.expiry_ms()))
        return replay.records

    def begin_empty(self) -> None:
        """Serve at once: the partition has no records."""
        for _ in self.machine.loaded(self._clock.monotonic(), self._clock.expiry_ms()):
            pass
        self.error = ErrorCode.NONE

    def resign(self, error: ErrorCode) -> None:
        """Serve no more, and answer everyone who waits."""
        if self.is_closed:
            return
        self.error = error
        self.is_closed = True
        for reply in self.machine.close(error):
            self._deliver(reply)
        self.log.close(ApiError(error, f"{self.replica.topic_partition} has another coordinator"))

    def release(self) -> Iterator[None]:
        """Free the state in slices, after `resign`."""
        yield from self.machine.release()

    # -- outcomes of appends -------------------------------------------------------------------------------

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
        log.warning("%s: append of %d records %s: %s; its clients get %s", where, count, what, error, error.code.name)

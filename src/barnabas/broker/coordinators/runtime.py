"""Runs a replicated state machine over the partitions of an internal topic: one shard on each partition's leader.

The runtime

- makes the topic when the first key is used, and finds the shard of a key;
- loads a shard when this broker begins to lead its partition, and drops it when that ends. A shard belongs to one
  leader epoch: it appends in no other, and another epoch has another shard;
- appends records, and has replies delivered when their records are below the high watermark; has the machine roll back
  where an append failed (`appends.py`). It loads a partition again if the machine cannot apply a record of it;
- wakes machines at their deadlines with one timer for all shards. A tick does a bounded amount of work. While it is in
  doubt whether this broker leads, nothing expires, because members may talk to another coordinator;
- counts (`CoordinatorCounters`).

The state machine decides everything else (`barnabas.state_machine`). Its owner calls the events of `shard.machine`, and
has their effects performed by `shard.perform`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from barnabas.broker.coordinators.appends import CoordinatorCounters
from barnabas.broker.coordinators.shard import CoordinatorShard
from barnabas.coordination.values import NO_LEADER
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.state_machine import RecordCodec, Reply, StateMachine

if TYPE_CHECKING:
    from barnabas.broker.coordinators.led_replica import InternalTopic, PlacedTopic
    from barnabas.broker.pipeline.scheduler import CooperativeScheduler
    from barnabas.clock import Clock

MachineT = TypeVar("MachineT", bound=StateMachine[Any])
RecordT = TypeVar("RecordT")

EVENTS_PER_TICK = 8
"""How many due things of a shard one turn of the event loop does, and of other shards while `TICK_S` is not over: all
sessions begin together when a shard is loaded, and may end together."""
TICK_S = 0.002

FENCED_CHECK_S = 1.0
"""How often a broker whose session is in doubt checks whether it leads again."""
GRACE_S = 5.0
"""How long nothing expires after that: clients could not reach this coordinator meanwhile."""

LOAD_RETRY_S = 60.0
"""The pause before a shard that could not be loaded is loaded again."""

_FREED = object()

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """:param append_timeout_s: how long those that wait for an append wait; `load_buffer_bytes`: how much of a log is
    read at a time."""

    append_timeout_s: float
    load_buffer_bytes: int


class CoordinatorRuntime(Generic[MachineT, RecordT]):
    """Every shard of one internal topic on this broker. Used from the event loop's thread only.

    :param new_machine: makes the state machine of a shard.
    :param deliver: gives a waiter its result.
    :param hash_key: returns the partition of a key, given how many there are.
    """

    def __init__(
        self,
        topic: InternalTopic,
        new_machine: Callable[[], MachineT],
        codec: RecordCodec[RecordT],
        config: CoordinatorConfig,
        clock: Clock,
        scheduler: CooperativeScheduler,
        deliver: Callable[[Reply], None],
        hash_key: Callable[[str, int], int],
    ) -> None:
        self.counters = CoordinatorCounters()
        self._topic = topic
        self._current = topic.current
        self._led = topic.led
        self._new_machine = new_machine
        self._codec = codec
        self._config = config
        self._clock = clock
        self._scheduler = scheduler
        self._deliver = deliver
        self._hash_key = hash_key
        self._loop = asyncio.get_running_loop()
        self._placed: PlacedTopic | None = None
        self._shards: dict[int, CoordinatorShard[MachineT, RecordT]] = {}
        self._leaving: deque[Iterator[None]] = deque()
        self._creating: asyncio.Task[None] | None = None
        self._logged_reason = ""
        """Why the topic could not be made, as it was logged last."""
        self._loading: set[asyncio.Task[None]] = set()
        self._may_load = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_deadline = 0.0
        self.is_closed = False

    # -- the topic -----------------------------------------------------------------------------------------

    @property
    def has_topic(self) -> bool:
        return self._current() is not None

    async def ensure_topic(self) -> None:
        """Make the topic if there is none.

        :raises ApiError: COORDINATOR_NOT_AVAILABLE: it could not be made.
        """
        if self.has_topic or self.is_closed:
            return
        if self._creating is None:
            self._creating = self._loop.create_task(self._create_topic())
            self._creating.add_done_callback(self._end_creating)
        await asyncio.shield(self._creating)

    async def _create_topic(self) -> None:
        try:
            await self._topic.create()
        except BarnabasError as error:
            if self.has_topic:
                return  # a client was faster
            # Where another broker was faster, news of that is on its way.
            is_there = isinstance(error, ApiError) and error.code == ErrorCode.TOPIC_ALREADY_EXISTS
            if not is_there and str(error) != self._logged_reason:  # clients ask again and again
                log.warning("cannot create %s: %s; clients retry", self._topic.name, error)
            self._logged_reason = str(error)
            message = f"{self._topic.name} cannot be created: {error}"
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message) from None

    def _end_creating(self, creating: asyncio.Task[None]) -> None:
        self._creating = None
        if not creating.cancelled():
            creating.exception()  # those that waited have it

    # -- shards --------------------------------------------------------------------------------------------

    def find(self, key: str) -> CoordinatorShard[MachineT, RecordT] | ErrorCode:
        """Return the shard of a key, or why clients must ask again or elsewhere: COORDINATOR_LOAD_IN_PROGRESS,
        COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
        placed = self._current()
        if placed is not self._placed:
            self.follow_topic()
        if self.is_closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if placed is None:
            return ErrorCode.NOT_COORDINATOR
        shard = self._shards.get(self._hash_key(key, len(placed.partitions)))
        if shard is None:
            return ErrorCode.NOT_COORDINATOR
        return shard.refusal or shard

    def coordinates(self, key: str) -> bool:
        """Whether this broker has the shard of a key, perhaps not loaded yet."""
        self.follow_topic()
        return self._placed is not None and self._hash_key(key, len(self._placed.partitions)) in self._shards

    def coordinator_of(self, key: str) -> int:
        """Return the broker that coordinates a key, perhaps once it is loaded there; `NO_LEADER` where none does."""
        self.follow_topic()
        placed = self._placed
        if placed is None or self.is_closed:
            return NO_LEADER
        number = self._hash_key(key, len(placed.partitions))
        shard = self._shards.get(number)
        if shard is not None and not shard.replica.is_led:
            return NO_LEADER
        return self._topic.leader_of(placed, number)

    def all_shards(self) -> list[CoordinatorShard[MachineT, RecordT]]:
        """Return every shard that this broker has.

        :raises ApiError: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE: not all are served.
        """
        self.follow_topic()
        if not self._may_load.is_set():
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self._topic.name} is not served yet")
        for shard in self._shards.values():
            if shard.error:
                raise ApiError(shard.error, f"{shard.replica.topic_partition} is not loaded")
            if shard.refusal:
                message = f"{shard.replica.topic_partition} may have another leader"
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
        return list(self._shards.values())

    @property
    def shards(self) -> Iterable[CoordinatorShard[MachineT, RecordT]]:
        """Every shard that this broker has, loaded or not."""
        return self._shards.values()

    def served_shards(self) -> list[CoordinatorShard[MachineT, RecordT]]:
        """Return the shards that are served now."""
        self.follow_topic()
        return [shard for shard in self._shards.values() if not shard.refusal]

    # -- leadership ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to load the partitions that this broker leads. Before that, clients get
        COORDINATOR_LOAD_IN_PROGRESS."""
        self._may_load.set()
        self.follow_topic()

    async def wait_until_loaded(self) -> None:
        """Return when no shard is being loaded."""
        while self._loading:
            await asyncio.wait(self._loading)

    def close(self) -> None:
        """Answer everyone who waits."""
        self.is_closed = True
        for task in (*self._loading, *([self._creating] if self._creating else [])):
            task.cancel()
        for shard in self._shards.values():
            shard.resign(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if self._timer:
            self._timer.cancel()

    def follow_topic(self) -> None:
        """Make a shard of each partition that this broker leads now, and drop the others.

        Another leader epoch has another shard.
        """
        placed = self._current()
        if placed is self._placed or self.is_closed:
            return
        self._placed = placed
        led = self._led()
        for number, shard in list(self._shards.items()):
            replica = led.get(number)
            if replica is not shard.replica or replica.leader_epoch != shard.leader_epoch:
                self._drop(number, shard, ErrorCode.NOT_COORDINATOR)
        added = []
        for number, replica in led.items():
            if number not in self._shards:
                shard = self._shards[number] = CoordinatorShard(
                    replica,
                    self._new_machine(),
                    self._codec,
                    self._clock,
                    self.counters,
                    self._config.append_timeout_s,
                    self._deliver,
                    self._arm,
                    self._give_up,
                )
                added.append(shard)
        self._load_all(added)

    def _drop(self, number: int, shard: CoordinatorShard[MachineT, RecordT], error: ErrorCode) -> None:
        del self._shards[number]
        shard.resign(error)
        self._let_go(shard)

    def _let_go(self, shard: CoordinatorShard[MachineT, RecordT]) -> None:
        """Free the state of a shard in slices, one slice in each turn of the event loop: it may have many objects."""
        if not self._leaving:
            self._loop.call_soon(self._free_some)
        self._leaving.append(shard.release())

    def _free_some(self) -> None:
        is_freed = next(self._leaving[0], _FREED) is _FREED
        if is_freed:
            self._leaving.popleft()
        if self._leaving:
            self._loop.call_soon(self._free_some)

    # -- loading -------------------------------------------------------------------------------------------

    def _load_all(self, shards: Sequence[CoordinatorShard[MachineT, RecordT]]) -> None:
        to_read = []
        for shard in shards:
            if shard.must_read or not self._may_load.is_set():
                to_read.append(shard)
            else:
                shard.begin_empty()
        if to_read:
            task = self._loop.create_task(self._load_one_by_one(to_read))
            self._loading.add(task)
            task.add_done_callback(self._loading.discard)

    async def _load_one_by_one(self, shards: Sequence[CoordinatorShard[MachineT, RecordT]]) -> None:
        await self._may_load.wait()
        for shard in shards:
            if shard.is_closed:
                continue
            try:
                await self._load(shard)
            except Exception as error:
                if shard.is_closed:
                    continue
                where = shard.replica.topic_partition
                if isinstance(error, BarnabasError):
                    log.warning("cannot load %s: %s; retrying in %g s", where, error, LOAD_RETRY_S)
                else:
                    log.exception("cannot load %s; retrying in %g s", where, LOAD_RETRY_S)
                self.counters.failed_loads += 1
                shard.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
                self._loop.call_later(LOAD_RETRY_S, self._load_again, shard)

    def _give_up(self, broken: CoordinatorShard[MachineT, RecordT]) -> None:
        """Refuse the clients of a shard whose state is wrong, answer those that wait, and load the partition again."""
        self._loop.call_soon(self._load_again, broken)
        broken.resign(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _load_again(self, failed: CoordinatorShard[MachineT, RecordT]) -> None:
        for number, shard in self._shards.items():
            if shard is failed and not self.is_closed:
                # The machine may have applied a part of the log.
                self._drop(number, failed, ErrorCode.NOT_COORDINATOR)
                self._placed = None
                self.follow_topic()
                return

    async def _load(self, shard: CoordinatorShard[MachineT, RecordT]) -> None:
        started_s = self._clock.monotonic()
        records = await shard.load(self._scheduler, self._config.load_buffer_bytes)
        if shard.is_closed:
            return
        shard.error = ErrorCode.NONE
        self._arm(shard.machine.next_deadline())
        took_ms = (self._clock.monotonic() - started_s) * 1000
        self.counters.loads += 1
        self.counters.load_ms += round(took_ms)
        log.info("%s: loaded %d records in %.0f ms", shard.replica.topic_partition, records, took_ms)

    # -- timers --------------------------------------------------------------------------------------------

    def _arm(self, deadline: float | None) -> None:
        """Have one timer run for the earliest deadline of all shards."""
        if deadline is None or (self._timer and self._timer_deadline <= deadline) or self.is_closed:
            return
        if self._timer:
            self._timer.cancel()
        self._timer_deadline = deadline
        self._timer = self._loop.call_later(max(0.0, deadline - self._clock.monotonic()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        for shard in list(self._shards.values()):
            # Due work that is left is done as soon as others have had their turn: the timer is armed for it.
            if shard.is_closed:
                continue
            if self._is_held(shard, now):
                self._arm(now + FENCED_CHECK_S)
            elif self._clock.monotonic() - now < TICK_S:
                deadline = shard.machine.next_deadline()
                if deadline is not None and deadline <= now:
                    self.counters.ticks_due += 1
                shard.perform(shard.machine.tick(now, EVENTS_PER_TICK))
            else:
                self._arm(shard.machine.next_deadline())

    def _is_held(self, shard: CoordinatorShard[MachineT, RecordT], now: float) -> bool:
        """Whether nothing of a shard expires for now: clients may be talking to another coordinator."""
        replica = shard.replica
        if not replica.is_led or replica.times_fenced != shard.times_fenced:
            shard.fenced_s, shard.times_fenced = now, replica.times_fenced
        return now < shard.fenced_s + GRACE_S

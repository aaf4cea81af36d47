"""Runs a replicated state machine for each partition of an internal topic, on the partition's leader.

The runtime

- creates the topic when the first key is used, and finds the shard of a key;
- loads a shard when this broker becomes the leader of its partition, and drops it when leadership ends. A shard belongs
  to one leader epoch. Each new leader epoch gets a new shard;
- appends records, delivers replies when their records are below the high watermark, and notifies the machine of failed
  appends (`appends.py`). If the machine cannot apply a record, the runtime loads the partition again;
- calls machines at their deadlines, with one timer for all shards and a bounded amount of work in each tick. While this
  broker may have lost its leadership, nothing expires, because members may use another coordinator;
- counts events (`CoordinatorCounters`).

The state machine makes all other decisions (`barnabas.state_machine`). The owner of the runtime calls the events of
`shard.machine` and passes the resulting effects to `shard.perform`.
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
from barnabas.shielded import completed
from barnabas.state_machine import RecordCodec, Reply, StateMachine

if TYPE_CHECKING:
    from barnabas.broker.coordinators.led_replica import InternalTopic, PlacedTopic
    from barnabas.broker.pipeline.scheduler import CooperativeScheduler
    from barnabas.clock import Clock

MachineT = TypeVar("MachineT", bound=StateMachine[Any])
RecordT = TypeVar("RecordT")

EVENTS_PER_TICK = 8
"""The number of deadlines per shard that one tick processes. A tick ends after `TICK_S`.

The number is limited because all sessions of a shard start when it is loaded, so they may also expire at the same time.
"""
TICK_S = 0.002

FENCED_CHECK_S = 1.0
"""The interval in seconds between checks whether a broker that may have lost its leadership still leads."""
GRACE_S = 5.0
"""The time in seconds during which nothing expires after this broker may have lost its leadership.

Clients first need time to reach this coordinator again.
"""

LOAD_RETRY_S = 60.0
"""The pause before loading a partition is retried after a failure, in seconds."""

_FREED = object()

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """The settings of a coordinator.

    :param append_timeout_s: the time after which a waiting append becomes unconfirmed.
    :param load_buffer_bytes: the size in bytes of one read during loading.
    """

    append_timeout_s: float
    load_buffer_bytes: int


class CoordinatorRuntime(Generic[MachineT, RecordT]):
    """All shards of one internal topic on this broker. Used by the event loop's thread only.

    :param new_machine: returns the state machine of a new shard.
    :param deliver: sends a result to a waiting request.
    :param hash_key: returns the partition number for a key and a number of partitions.
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
        """The last logged reason why the topic could not be created."""
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
        """Create the topic if it does not exist.

        :raises ApiError: COORDINATOR_NOT_AVAILABLE if the topic cannot be created.
        """
        if self.has_topic or self.is_closed:
            return
        if self._creating is None:
            self._creating = self._loop.create_task(self._create_topic())
            self._creating.add_done_callback(self._end_creating)
        await completed(self._creating, is_shared=True)

    async def _create_topic(self) -> None:
        try:
            await self._topic.create()
        except BarnabasError as error:
            if self.has_topic:
                return  # A client created the topic at the same time.
            # If another broker has created the topic, this broker will receive its metadata soon.
            is_there = isinstance(error, ApiError) and error.code == ErrorCode.TOPIC_ALREADY_EXISTS
            if (
                not is_there and str(error) != self._logged_reason
            ):  # Clients retry often, so log a reason only if it has changed.
                log.warning("cannot create topic %s: %s; clients will retry", self._topic.name, error)
            self._logged_reason = str(error)
            message = f"{self._topic.name} cannot be created: {error}"
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message) from None

    def _end_creating(self, creating: asyncio.Task[None]) -> None:
        self._creating = None
        if not creating.cancelled():
            creating.exception()  # Mark the exception as retrieved: the waiting callers have received it.

    # -- shards --------------------------------------------------------------------------------------------

    def find(self, key: str) -> CoordinatorShard[MachineT, RecordT] | ErrorCode:
        """Return the shard of a key, or the error for clients.

        The errors are COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR. Clients retry after
        each of them.
        """
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
        """Return whether this broker has the shard of a key. The shard may still be loading."""
        self.follow_topic()
        return self._placed is not None and self._hash_key(key, len(self._placed.partitions)) in self._shards

    def coordinator_of(self, key: str) -> int:
        """Return the id of the broker that coordinates a key, or `NO_LEADER`.

        The broker may still be loading the shard.
        """
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
        """Return all shards of this broker.

        :raises ApiError: COORDINATOR_LOAD_IN_PROGRESS or COORDINATOR_NOT_AVAILABLE if a shard is not available.
        """
        self.follow_topic()
        if not self._may_load.is_set():
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self._topic.name} is not loaded yet")
        for shard in self._shards.values():
            if shard.error:
                raise ApiError(shard.error, f"{shard.replica.topic_partition} is not loaded")
            if shard.refusal:
                message = f"{shard.replica.topic_partition} may have another leader"
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
        return list(self._shards.values())

    @property
    def shards(self) -> Iterable[CoordinatorShard[MachineT, RecordT]]:
        """All shards of this broker, including shards that are not loaded."""
        return self._shards.values()

    def served_shards(self) -> list[CoordinatorShard[MachineT, RecordT]]:
        """Return the available shards."""
        self.follow_topic()
        return [shard for shard in self._shards.values() if not shard.refusal]

    # -- leadership ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to load the partitions that this broker leads.

        Before this call, clients get COORDINATOR_LOAD_IN_PROGRESS.
        """
        self._may_load.set()
        self.follow_topic()

    async def wait_until_loaded(self) -> None:
        """Wait until no shard is loading."""
        while self._loading:
            await asyncio.wait(self._loading)

    def close(self) -> None:
        """Close all shards and answer all waiting requests."""
        self.is_closed = True
        for task in (*self._loading, *([self._creating] if self._creating else [])):
            task.cancel()
        for shard in self._shards.values():
            shard.resign(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if self._timer:
            self._timer.cancel()

    def follow_topic(self) -> None:
        """Create a shard for each partition that this broker leads now, and drop all other shards.

        A new leader epoch of a partition gets a new shard.
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
        """Free the state of a shard in slices, one per iteration of the event loop, because the state may have many
        objects.
        """
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
                    log.warning(
                        "cannot load coordinator partition %s: %s; retrying in %g s", where, error, LOAD_RETRY_S
                    )
                else:
                    log.exception("cannot load coordinator partition %s; retrying in %g s", where, LOAD_RETRY_S)
                self.counters.failed_loads += 1
                shard.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
                self._loop.call_later(LOAD_RETRY_S, self._load_again, shard)

    def _give_up(self, broken: CoordinatorShard[MachineT, RecordT]) -> None:
        """Drop a shard whose state is wrong. Its clients get an error, and its partition is loaded again."""
        self._loop.call_soon(self._load_again, broken)
        broken.resign(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _load_again(self, failed: CoordinatorShard[MachineT, RecordT]) -> None:
        for number, shard in self._shards.items():
            if shard is failed and not self.is_closed:
                # The machine may have applied a part of the log, so load the log into a new machine.
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
        log.info("%s: the coordinator loaded %d records in %.0f ms", shard.replica.topic_partition, records, took_ms)

    # -- timers --------------------------------------------------------------------------------------------

    def _arm(self, deadline: float | None) -> None:
        """Set the timer of all shards to this deadline if it is earlier than the current one."""
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
            # If work remains, `_arm` sets the timer, so that other events run first.
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
        """Return whether the deadlines of a shard are suspended, because clients may be using another coordinator."""
        replica = shard.replica
        if not replica.is_led or replica.times_fenced != shard.times_fenced:
            shard.fenced_s, shard.times_fenced = now, replica.times_fenced
        return now < shard.fenced_s + GRACE_S

"""An internal topic in memory, with replicas whose disks and followers a test controls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from barnabas.broker.coordinators.led_replica import InternalTopic
from barnabas.broker.coordinators.runtime import CoordinatorConfig, CoordinatorRuntime
from barnabas.broker.coordinators.shard import CoordinatorShard
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import topic_config
from barnabas.clock import ManualClock
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.groups.hashing import partition_of
from barnabas.model import NO_TIMESTAMP, TopicPartition
from barnabas.records import BatchBuilder, read_records
from barnabas.records.header import Buffer, iter_headers, stamp
from barnabas.state_machine import Reply
from barnabas.storage.log_appender import AppendInfo
from barnabas.storage.log_reader import ReadResult
from tests.support.counter_machine import COUNTERS, CounterMachine, CounterRecord, decode, encode

TOPIC = "__counters"

Shard = CoordinatorShard[CounterMachine, CounterRecord]


class FakeLog:
    """Batches one behind the other."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.is_offline = False

    def append(self, batch: Buffer, leader_epoch: int = 0) -> AppendInfo:
        copy = bytearray(batch)
        stamp(copy, 0, self.log_end_offset, leader_epoch)
        [(_, header)] = iter_headers(memoryview(copy))
        self.data += copy
        first, self.log_end_offset = self.log_end_offset, header.next_offset
        return AppendInfo(first, header.next_offset - 1, NO_TIMESTAMP, 0, duplicate=False)

    def append_records(self, *records: CounterRecord) -> None:
        builder = BatchBuilder()
        for record in records:
            builder.append(1_000, *encode(record, 0))
        self.append(builder.build())

    def records(self) -> list[CounterRecord]:
        """What the log holds, in its order."""
        found = [decode(each.key, each.value) for each in read_records(self.data, TOPIC, 0)]
        return [each for each in found if each is not None]


class FakeReplica:
    """The replica of one leader epoch (`LedReplica`).

    `errors` are the outcomes of the next batches; while `disk` is a future, appends wait for it; while `holds_back`,
    what is appended stays above the high watermark until `expose`.
    """

    def __init__(self, number: int = 0, log: FakeLog | None = None, leader_epoch: int = 0) -> None:
        self.topic_partition = TopicPartition(TOPIC, number)
        self.leader_epoch = leader_epoch
        self.log = log or FakeLog()
        self.is_led = True
        self.times_fenced = 0
        self.config = topic_config(BrokerConfig(), {})
        self.errors: list[BarnabasError | None] = []
        self.disk: asyncio.Future[None] | None = None
        self.holds_back = False
        self.batches: list[int] = []
        """How many batches each write had."""
        self._exposed: list[asyncio.Future[None]] = []

    async def read_stored(self, offset: int, max_bytes: int) -> ReadResult:
        await asyncio.sleep(0)
        offsets: Any = None
        for position, header in iter_headers(memoryview(self.log.data)):
            if header.next_offset > offset:
                return ReadResult(bytes(self.log.data[position : position + max(max_bytes, header.size)]), offsets)
        return ReadResult(b"", offsets)

    def check_replicas(self) -> None:
        error = self.errors[0] if self.errors else None
        if isinstance(error, ApiError) and error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
            del self.errors[0]
            raise error

    def append_all(self, requests: Sequence[Buffer]) -> list[Any] | asyncio.Future[list[Any]]:
        self.batches.append(len(requests))
        if self.disk is None:
            return [self._append(each) for each in requests]
        return asyncio.ensure_future(self._append_slowly([bytes(each) for each in requests]))

    async def _append_slowly(self, requests: Sequence[Buffer]) -> list[Any]:
        assert self.disk is not None
        await self.disk
        return [self._append(each) for each in requests]

    def _append(self, batch: Buffer) -> AppendInfo | BarnabasError:
        error = self.errors.pop(0) if self.errors else None
        return error or self.log.append(batch, self.leader_epoch)

    def append_own_batch(self, batch: bytearray) -> bool:
        if self.disk is not None or self.holds_back:
            return False
        self.log.append(batch, self.leader_epoch)
        return True

    def acknowledges_at_once(self, _acks: int) -> bool:
        return self.disk is None and not self.holds_back

    def when_acknowledged(self, _info: AppendInfo, _acks: int) -> asyncio.Future[None] | None:
        if not self.holds_back:
            return None
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._exposed.append(waiter)
        return waiter

    def expose(self, error: BarnabasError | None = None) -> None:
        """Move the high watermark to the end of the log; or end the waits with an error."""
        waiting, self._exposed = self._exposed, []
        for each in waiting:
            if error is None:
                each.set_result(None)
            else:
                each.set_exception(error)


class FakePlacement:
    """The topic as it is at one moment."""

    def __init__(self, count: int, led: Iterable[FakeReplica]) -> None:
        self.partitions = [None] * count
        self.led = {each.topic_partition.partition: each for each in led}


class Scene:
    """A runtime of counters over an internal topic of one broker."""

    def __init__(
        self, *led: FakeReplica, count: int = 1, timeout_s: float = 5.0, load_buffer_bytes: int = 4096
    ) -> None:
        self.clock = ManualClock()
        self.placement: FakePlacement | None = FakePlacement(count, led) if led else None
        self.create: Callable[[], Coroutine[Any, Any, None]] = self._create
        self.created = 0
        self.runtime: CoordinatorRuntime[CounterMachine, CounterRecord] = CoordinatorRuntime(
            InternalTopic(
                TOPIC,
                lambda: self.placement,
                self._do_create,
                lambda: self.placement.led if self.placement else {},
                lambda _topic, number: 100 + number,
            ),
            CounterMachine,
            COUNTERS,
            CoordinatorConfig(timeout_s, load_buffer_bytes),
            self.clock,
            CooperativeScheduler(self.clock.monotonic),
            self.deliver,
            partition_of,
        )

    async def _do_create(self) -> None:
        await self.create()

    async def _create(self) -> None:
        self.created += 1
        await asyncio.sleep(0)
        self.placement = FakePlacement(1, [FakeReplica()])

    @staticmethod
    def deliver(reply: Reply) -> None:
        waiter, result = reply
        assert not waiter.done(), "a waiter was answered twice"
        if isinstance(result, ApiError):
            waiter.set_exception(result)
        else:
            waiter.set_result(result)

    async def begin(self) -> Scene:
        self.runtime.start()
        await self.runtime.wait_until_loaded()
        return self

    def shard(self, name: str = "a") -> Shard:
        found = self.runtime.find(name)
        assert not isinstance(found, ErrorCode), found
        return found

    def add(self, name: str = "a", amount: int = 1) -> asyncio.Future[int]:
        shard = self.shard(name)
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        shard.perform(shard.machine.add(self.clock.monotonic(), waiter, name, amount))
        return waiter


async def code_of(waiter: asyncio.Future[int]) -> ErrorCode:
    """Return the error that a waiter got, or NONE."""
    try:
        await waiter
    except ApiError as error:
        return ErrorCode(error.code)
    return ErrorCode.NONE


async def settle() -> None:
    """Let all that can be done now be done."""
    for _ in range(20):
        await asyncio.sleep(0)

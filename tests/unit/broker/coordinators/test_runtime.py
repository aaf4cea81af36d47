"""The runtime: makes its topic, follows leadership, loads shards, and wakes machines at their deadlines."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import weakref

import pytest

from barnabas.broker.coordinators.runtime import EVENTS_PER_TICK, FENCED_CHECK_S, GRACE_S
from barnabas.coordination.values import NO_LEADER
from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.groups.hashing import partition_of
from barnabas.storage.log_reader import ReadResult
from tests.support.counter_machine import IDLE_S, CounterMachine, CounterRecord
from tests.support.fake_internal_topic import TOPIC, FakePlacement, FakeReplica, Scene, code_of, settle

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NOT_HERE = ErrorCode.NOT_COORDINATOR
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


def with_records(*records: CounterRecord, number: int = 0) -> FakeReplica:
    replica = FakeReplica(number)
    for record in records:
        replica.log.append_records(record)
    return replica


# --- the topic ---


def test_the_topic_is_made_once_when_it_is_needed() -> None:
    async def scenario() -> None:
        scene = await Scene().begin()
        assert scene.runtime.find("a") is NOT_HERE
        assert scene.runtime.coordinator_of("a") == NO_LEADER
        await asyncio.gather(*(scene.runtime.ensure_topic() for _ in range(3)))
        await scene.runtime.ensure_topic()
        assert scene.created == 1
        assert await scene.add("a") == 1

    asyncio.run(scenario())


def test_a_topic_that_cannot_be_made_is_logged_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        scene = await Scene().begin()
        make = scene.create

        async def refuse() -> None:
            raise StorageError("no space left")

        scene.create = refuse
        for _ in range(3):
            with pytest.raises(ApiError) as caught:
                await scene.runtime.ensure_topic()
            assert caught.value.code is NOT_AVAILABLE
        assert len([each for each in caplog.records if f"cannot create topic {TOPIC}" in each.getMessage()]) == 1
        scene.create = make
        await scene.runtime.ensure_topic()
        assert await scene.add("a") == 1

    asyncio.run(scenario())


def test_a_topic_that_another_broker_makes_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        scene = await Scene().begin()

        async def refuse() -> None:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, "it is in the tree")

        scene.create = refuse
        with pytest.raises(ApiError) as caught:
            await scene.runtime.ensure_topic()
        assert caught.value.code is NOT_AVAILABLE

    asyncio.run(scenario())
    assert not caplog.records


def test_keys_are_spread_over_the_partitions_and_found_on_their_leaders() -> None:
    async def scenario() -> None:
        scene = await Scene(FakeReplica(0), FakeReplica(1), count=3).begin()
        for name in "abcdef":
            number = partition_of(name, 3)
            assert scene.runtime.coordinator_of(name) == 100 + number
            assert scene.runtime.coordinates(name) == (number < 2)
            if number < 2:
                assert scene.shard(name).replica.topic_partition.partition == number
            else:
                assert scene.runtime.find(name) is NOT_HERE

    asyncio.run(scenario())


# --- loading and failover ---


def test_a_shard_is_loaded_before_it_is_served() -> None:
    async def scenario() -> None:
        replica = with_records(CounterRecord("a", 7), CounterRecord("b", 1), CounterRecord("b", None))
        scene = Scene(replica, load_buffer_bytes=1)
        assert scene.runtime.find("a") is LOADING
        scene.runtime.start()
        assert scene.runtime.find("a") is LOADING
        await scene.runtime.wait_until_loaded()
        assert await scene.add("a", 1) == 8
        assert await scene.add("b", 1) == 1
        counters = scene.runtime.counters
        assert (counters.loads, counters.records_replayed, counters.records_damaged) == (1, 3, 0)

    asyncio.run(scenario())


def test_a_shard_that_is_being_loaded_keeps_no_other_from_being_served() -> None:
    async def scenario() -> None:
        names = {partition_of(name, 2): name for name in "abcdef"}
        loading = with_records(CounterRecord("x", 7), number=0)
        scene = Scene(loading, FakeReplica(1), count=2)
        scene.runtime.start()
        assert scene.runtime.find(names[0]) is LOADING
        assert await scene.add(names[1]) == 1
        assert [each.replica.topic_partition.partition for each in scene.runtime.served_shards()] == [1]
        with pytest.raises(ApiError) as caught:
            scene.runtime.all_shards()
        assert caught.value.code is LOADING
        await scene.runtime.wait_until_loaded()
        assert len(scene.runtime.all_shards()) == 2

    asyncio.run(scenario())


def test_a_shard_whose_log_cannot_be_read_is_loaded_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        replica = with_records(CounterRecord("a", 7))
        replica.log.is_offline = True
        scene = await Scene(replica).begin()
        assert scene.runtime.find("a") is NOT_AVAILABLE
        assert scene.runtime.counters.failed_loads == 1
        replica.log.is_offline = False
        (failed,) = scene.runtime.shards
        scene.runtime._load_again(failed)
        assert scene.runtime.find("a") is LOADING
        await scene.runtime.wait_until_loaded()
        assert await scene.add("a", 1) == 8

    asyncio.run(scenario())
    assert "is offline; retrying in 60 s" in caplog.text


def test_the_next_leader_goes_on_with_what_is_in_the_log() -> None:
    async def scenario() -> None:
        replica = FakeReplica()
        first = await Scene(replica).begin()
        assert await first.add("a", 5) == 5
        second = await Scene(FakeReplica(log=replica.log, leader_epoch=1)).begin()
        assert await second.add("a", 1) == 6

    asyncio.run(scenario())


def test_a_broker_that_leads_no_more_answers_those_that_wait_and_forgets() -> None:
    async def scenario() -> None:
        replica = FakeReplica()
        scene = await Scene(replica).begin()
        machine = scene.shard().machine
        replica.holds_back = True
        waiting = [scene.add("a"), scene.add("a")]
        scene.placement = FakePlacement(1, [])
        assert scene.runtime.find("a") is NOT_HERE
        assert [await code_of(each) for each in waiting] == [NOT_HERE] * 2
        assert machine.is_closed
        replica.expose()
        await settle()
        assert machine.values == {}, "the next leader has it"

    asyncio.run(scenario())


def test_another_leader_epoch_has_another_shard_also_on_the_same_broker() -> None:
    async def scenario() -> None:
        replica = FakeReplica(leader_epoch=1)
        scene = await Scene(replica).begin()
        assert await scene.add("a", 5) == 5
        first = scene.shard()
        first.machine.latest["a"] = 100  # not in the log
        replica.leader_epoch = 2
        scene.placement = FakePlacement(1, [replica])
        assert scene.runtime.find("a") is LOADING
        await scene.runtime.wait_until_loaded()
        assert scene.shard() is not first
        assert await scene.add("a", 1) == 6

    asyncio.run(scenario())


def test_a_shard_that_is_dropped_while_it_is_loaded_is_not_served() -> None:
    async def scenario() -> None:
        replica = with_records(CounterRecord("a", 7))
        scene = Scene(replica)
        scene.runtime.start()
        scene.placement = FakePlacement(1, [])
        assert scene.runtime.find("a") is NOT_HERE
        await scene.runtime.wait_until_loaded()
        assert scene.runtime.find("a") is NOT_HERE
        assert scene.runtime.counters.loads == 0

    asyncio.run(scenario())


def test_a_runtime_that_stops_answers_everyone() -> None:
    async def scenario() -> None:
        replica = FakeReplica()
        scene = await Scene(replica).begin()
        replica.holds_back = True
        waiting = scene.add("a")
        scene.runtime.close()
        assert await code_of(waiting) is NOT_AVAILABLE
        assert scene.runtime.find("a") is NOT_AVAILABLE

    asyncio.run(scenario())


def test_shards_that_are_lost_while_others_load_are_not_read(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        replicas = [with_records(CounterRecord("a", 7), CounterRecord("b", 7), number=number) for number in range(2)]
        scene = Scene(*replicas, count=2, load_buffer_bytes=1)
        reads = [0, 0]

        async def read(number: int, offset: int, max_bytes: int) -> ReadResult:
            reads[number] += 1
            await asyncio.sleep(0)
            scene.placement = FakePlacement(2, [])
            scene.runtime.follow_topic()
            if replicas[number].log.is_offline:
                raise StorageError("the disk is gone")
            return await FakeReplica.read_stored(replicas[number], offset, max_bytes)

        for number, replica in enumerate(replicas):
            replica.read_stored = functools.partial(read, number)  # type: ignore[method-assign]
        scene.runtime.start()
        await scene.runtime.wait_until_loaded()
        assert reads == [1, 0], "the load ends when the shard is lost"
        scene.placement = FakePlacement(2, replicas[:1])
        scene.runtime.follow_topic()
        await asyncio.sleep(0)
        replicas[0].log.is_offline = True
        await scene.runtime.wait_until_loaded()
        assert scene.runtime.counters.failed_loads == 0

    asyncio.run(scenario())
    assert not caplog.records


def test_a_shard_whose_record_cannot_be_applied_is_loaded_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original = CounterMachine.apply
    is_bad = True

    def apply(machine: CounterMachine, record: CounterRecord) -> None:
        nonlocal is_bad
        if is_bad and record.name == "bad":
            is_bad = False
            raise ZeroDivisionError("nobody foresaw this")
        original(machine, record)

    monkeypatch.setattr(CounterMachine, "apply", apply)

    async def scenario(is_slow: bool) -> None:
        nonlocal is_bad
        replica = FakeReplica()
        scene = await Scene(replica).begin()
        replica.holds_back, is_bad = is_slow, True
        # Without a slow disk, the first append is written at once, and the others in the next turn.
        waiting = [scene.add(name) for name in ("bad" if is_slow else "first", "bad", "bad", "good")]
        await settle()
        replica.expose()
        first = NOT_AVAILABLE if is_slow else ErrorCode.NONE
        assert [await code_of(each) for each in waiting] == [first, *[NOT_AVAILABLE] * 3]
        assert scene.runtime.counters.queue_bytes == 0
        replica.holds_back = False
        await settle()
        await scene.runtime.wait_until_loaded()
        assert await scene.add("bad") == 2, "the record is in the log"

    for is_slow in (False, True):
        asyncio.run(scenario(is_slow))
        assert f"{TOPIC}-0: the coordinator cannot apply a record" in caplog.text


def test_a_made_batch_that_cannot_be_applied_gives_up_the_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        replica = FakeReplica()
        scene = await Scene(replica).begin()
        with monkeypatch.context() as patch:
            shard = scene.shard()
            patch.setattr(shard.log, "_apply", lambda _record: 1 / 0)
            made = with_records(CounterRecord("a", 7)).log.data
            assert not shard.log.write_at_once(made, [CounterRecord("a", 7)])
        assert scene.runtime.find("a") is NOT_AVAILABLE
        await settle()
        assert await scene.add("a") == 8

    asyncio.run(scenario())


def test_a_lost_shard_is_freed_without_a_garbage_collection() -> None:
    async def scenario() -> None:
        scene = await Scene(with_records(*(CounterRecord(f"c{number}", 1) for number in range(8)))).begin()
        await scene.add("a")
        shard = weakref.ref(scene.shard())
        scene.placement = FakePlacement(1, [])
        scene.runtime.follow_topic()
        await asyncio.sleep(0)
        assert shard() is not None, "its state is freed in slices"
        await settle()
        assert shard() is None

    gc.disable()
    try:
        asyncio.run(scenario())
    finally:
        gc.enable()


def test_the_log_line_of_a_load_counts_its_own_records(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        first, second = with_records(CounterRecord("a", 7)), with_records(CounterRecord("b", 7), number=1)
        scene = Scene(first, count=2, load_buffer_bytes=1)
        scene.runtime.start()
        scene.placement = FakePlacement(2, [first, second])
        scene.runtime.follow_topic()
        await scene.runtime.wait_until_loaded()

    asyncio.run(scenario())
    assert len([each for each in caplog.messages if "loaded 1 records" in each]) == 2


# --- fencing ---


def test_a_shard_is_not_served_while_another_broker_may_lead() -> None:
    async def scenario() -> None:
        replica = FakeReplica()
        scene = await Scene(replica).begin()
        replica.is_led = False
        assert scene.runtime.find("a") is NOT_HERE
        assert scene.runtime.coordinator_of("a") == NO_LEADER
        assert scene.runtime.served_shards() == []
        with pytest.raises(ApiError) as caught:
            scene.runtime.all_shards()
        assert caught.value.code is NOT_AVAILABLE
        replica.is_led = True
        assert await scene.add("a") == 1

    asyncio.run(scenario())


# --- timers ---


def test_a_timer_ends_a_counter_with_a_tombstone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def scenario() -> None:
        replica = FakeReplica()
        scene = await Scene(replica).begin()
        assert await scene.add("a", 5) == 5
        scene.clock.advance(IDLE_S - 1)
        scene.runtime._tick()
        assert scene.shard().machine.values == {"a": 5}
        scene.clock.advance(1)
        scene.runtime._tick()
        await settle()
        assert scene.shard().machine.values == {}
        assert replica.log.records() == [CounterRecord("a", 5), CounterRecord("a", None)]
        assert scene.runtime.counters.ticks_due == 1
        assert await scene.add("a", 1) == 1

    asyncio.run(scenario())
    assert not caplog.records


def test_a_timer_goes_on_with_the_next_leader() -> None:
    async def scenario() -> None:
        scene = await Scene(with_records(CounterRecord("a", 5))).begin()
        scene.clock.advance(IDLE_S)
        scene.runtime._tick()
        await settle()
        assert scene.shard().machine.values == {}

    asyncio.run(scenario())


def test_timers_that_are_due_together_are_spread_over_turns_of_the_loop() -> None:
    async def scenario() -> None:
        count = 3 * EVENTS_PER_TICK
        scene = await Scene(FakeReplica()).begin()
        await asyncio.gather(*(scene.add(f"c{number}") for number in range(count)))
        machine = scene.shard().machine
        scene.clock.advance(IDLE_S)
        scene.runtime._tick()
        assert len(machine.deadlines) == count - EVENTS_PER_TICK
        while machine.deadlines:
            before = len(machine.deadlines)
            await asyncio.sleep(0)
            assert before - len(machine.deadlines) <= EVENTS_PER_TICK

    asyncio.run(scenario())


def test_nothing_expires_while_another_broker_may_lead_nor_soon_after() -> None:
    async def scenario() -> None:
        replica = FakeReplica()
        scene = await Scene(replica).begin()
        assert await scene.add("a") == 1
        machine = scene.shard().machine

        def is_there() -> bool:
            scene.runtime._tick()
            return "a" in machine.latest

        replica.is_led = False
        scene.clock.advance(10 * IDLE_S)
        assert is_there()
        assert scene.runtime._timer_deadline <= scene.clock.monotonic() + FENCED_CHECK_S
        replica.is_led = True
        scene.clock.advance(GRACE_S / 2)
        assert is_there()
        scene.clock.advance(GRACE_S)
        assert not is_there()

    asyncio.run(scenario())


def test_nothing_expires_soon_after_a_doubt_between_two_ticks() -> None:
    async def scenario() -> None:
        replica = FakeReplica()
        scene = await Scene(replica).begin()
        assert await scene.add("a") == 1
        machine = scene.shard().machine
        replica.times_fenced += 1
        scene.clock.advance(10 * IDLE_S)
        scene.runtime._tick()
        assert "a" in machine.latest
        scene.clock.advance(GRACE_S)
        scene.runtime._tick()
        assert "a" not in machine.latest

    asyncio.run(scenario())

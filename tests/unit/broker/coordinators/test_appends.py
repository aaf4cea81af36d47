"""Appends of a shard: written together, answered below the high watermark, rolled back where they fail."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.coordinators import appends
from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.state_machine import Append, Effects
from tests.support.counter_machine import CounterMachine, CounterRecord
from tests.support.fake_internal_topic import FakeReplica, Scene, code_of, settle

NO_ROOM = StorageError("no space left")
TOO_FEW = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, "1 replica in sync")


def test_a_reply_comes_when_its_record_is_in_the_log() -> None:
    async def scenario() -> None:
        replica = FakeReplica()
        scene = await Scene(replica).begin()
        assert [await scene.add("a", 2), await scene.add("a", 3)] == [2, 5]
        assert replica.log.records() == [CounterRecord("a", 2), CounterRecord("a", 5)]
        assert scene.shard().machine.values == {"a": 5}
        counters = scene.runtime.counters
        assert (counters.appends, counters.failed_appends, counters.queue_bytes) == (2, 0, 0)

    asyncio.run(scenario())


def test_a_reply_waits_for_the_high_watermark() -> None:
    async def scenario() -> None:
        replica = FakeReplica()
        scene = await Scene(replica).begin()
        replica.holds_back = True
        waiting = scene.add("a", 2)
        await settle()
        assert replica.log.records() == [CounterRecord("a", 2)]
        assert not waiting.done()
        assert scene.shard().machine.values == {}
        replica.expose()
        assert await waiting == 2
        assert scene.shard().machine.values == {"a": 2}

    asyncio.run(scenario())


def test_appends_that_come_together_are_written_together() -> None:
    async def scenario() -> None:
        replica = FakeReplica()
        scene = await Scene(replica).begin()
        await asyncio.gather(*(scene.add(f"c{number}") for number in range(100)))
        assert replica.batches == [1, 1], "the first append, and all others in one batch"

    asyncio.run(scenario())


def test_appends_that_build_on_each_other_are_written_one_by_one() -> None:
    async def scenario() -> None:
        replica = FakeReplica()
        scene = await Scene(replica).begin()
        assert await asyncio.gather(*(scene.add("a") for _ in range(4)), scene.add("b")) == [1, 2, 3, 4, 1]
        assert [each for each in replica.log.records() if each.name == "a"] == [
            CounterRecord("a", number) for number in (1, 2, 3, 4)
        ]
        assert replica.batches == [1] * 4, "b is written with the second of a"

    asyncio.run(scenario())


@pytest.mark.parametrize("is_slow", [False, True], ids=["at once", "slow disk"])
@pytest.mark.parametrize("error", [NO_ROOM, TOO_FEW], ids=["disk", "replicas"])
def test_a_failed_append_is_rolled_back(error: StorageError | ApiError, is_slow: bool) -> None:
    async def scenario() -> None:
        replica = FakeReplica()
        scene = await Scene(replica).begin()
        assert await scene.add("a", 5) == 5
        if is_slow:
            replica.disk = asyncio.get_running_loop().create_future()
        replica.errors = [error]
        failing = scene.add("a", 100)
        if replica.disk is not None:
            replica.disk.set_result(None)
        assert await code_of(failing) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await scene.add("a", 1) == 6
        assert replica.log.records() == [CounterRecord("a", 5), CounterRecord("a", 6)]
        counters = scene.runtime.counters
        assert (counters.failed_appends, counters.rolled_back) == (1, 1)

    asyncio.run(scenario())


def test_appends_that_build_on_a_failed_one_fail_too_and_others_do_not() -> None:
    async def scenario() -> None:
        replica = FakeReplica()
        scene = await Scene(replica).begin()
        assert await scene.add("a", 5) == 5
        replica.disk = asyncio.get_running_loop().create_future()
        replica.errors = [NO_ROOM]
        failing = [scene.add("a", 1), scene.add("a", 2), scene.add("a", 3)]
        other = scene.add("b", 1)
        assert scene.shard().machine.latest["a"] == 11
        replica.disk.set_result(None)
        assert [await code_of(each) for each in failing] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
        assert await other == 1
        assert scene.shard().machine.latest == {"a": 5, "b": 1}
        assert scene.runtime.counters.rolled_back == 3
        assert await scene.add("a", 1) == 6

    asyncio.run(scenario())


def test_one_batch_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appends, "BATCH_BYTES", 1_000)

    async def scenario() -> None:
        replica = FakeReplica()
        scene = await Scene(replica).begin()
        first = scene.add("first")
        replica.errors = [NO_ROOM]
        large = [scene.add("x" * 800), scene.add("y" * 800)]
        assert await first == 1
        assert [await code_of(each) for each in large] == [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE]

    asyncio.run(scenario())


def test_an_append_that_the_machine_did_not_foresee_fails_and_the_next_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        replica = FakeReplica()
        scene = await Scene(replica).begin()
        with monkeypatch.context() as patch:
            patch.setattr(replica, "append_all", lambda _requests: 1 / 0)
            assert await code_of(scene.add("a")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await scene.add("a") == 1

    asyncio.run(scenario())


def test_a_record_that_does_not_fit_fails_with_what_builds_on_it() -> None:
    async def scenario() -> None:
        replica = FakeReplica()
        scene = await Scene(replica).begin()
        assert await code_of(scene.add("x" * 1_000_001)) is ErrorCode.MESSAGE_TOO_LARGE
        assert replica.log.records() == []
        assert scene.shard().machine.latest == {}

    asyncio.run(scenario())


def test_appends_beyond_what_may_wait_fail_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appends, "QUEUE_BYTES_MAX", 1_000)

    async def scenario() -> None:
        replica = FakeReplica()
        scene = await Scene(replica).begin()
        replica.disk = asyncio.get_running_loop().create_future()
        waiting = [scene.add("in flight"), scene.add("x" * 900)]
        refused = scene.add("y" * 900)
        assert await code_of(refused) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "y" * 900 not in scene.shard().machine.latest
        assert scene.runtime.counters.queue_bytes > 900
        replica.disk.set_result(None)
        assert [await each for each in waiting] == [1, 1]
        assert scene.runtime.counters.queue_bytes == 0

    asyncio.run(scenario())


def test_an_append_that_takes_too_long_is_answered_and_takes_effect_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appends, "CHECK_S", 0.0)

    async def scenario() -> None:
        replica = FakeReplica()
        scene = await Scene(replica, timeout_s=1.0).begin()
        replica.disk = asyncio.get_running_loop().create_future()
        slow, queued = scene.add("a", 2), scene.add("b", 1)
        scene.clock.advance(2.0)
        codes = [await code_of(slow), await code_of(queued)]
        assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
        assert scene.runtime.counters.timeouts == 2
        replica.disk.set_result(None)
        assert await scene.add("a", 1) == 3, "the state was not rolled back"
        assert replica.log.records()[-1] == CounterRecord("a", 3)
        assert scene.shard().machine.values == {"a": 3, "b": 1}

    asyncio.run(scenario())


def test_an_append_that_fails_after_its_timeout_is_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appends, "CHECK_S", 0.0)

    async def scenario() -> None:
        replica = FakeReplica()
        scene = await Scene(replica, timeout_s=1.0).begin()
        replica.disk = asyncio.get_running_loop().create_future()
        replica.errors = [NO_ROOM]
        slow = scene.add("a", 2)
        scene.clock.advance(2.0)
        assert await code_of(slow) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        replica.disk.set_result(None)
        assert await scene.add("b") == 1
        assert scene.shard().machine.latest == {"b": 1}

    asyncio.run(scenario())


def test_a_record_in_the_log_with_too_few_replicas_is_not_rolled_back() -> None:
    async def scenario() -> None:
        replica = FakeReplica()
        scene = await Scene(replica).begin()
        replica.holds_back = True
        waiting = scene.add("a", 2)
        await settle()
        replica.expose(ApiError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        assert await code_of(waiting) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        replica.holds_back = False
        assert await scene.add("a", 1) == 3
        assert scene.shard().machine.values == {"a": 3}

    asyncio.run(scenario())


def test_a_machine_that_fails_over_an_outcome_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original = CounterMachine.appended

    def fail(machine: CounterMachine, now: float, append: Append[CounterRecord]) -> Effects[CounterRecord]:
        if append.records[0].name == "bad":
            raise ZeroDivisionError("nobody foresaw this")
        return original(machine, now, append)

    monkeypatch.setattr(CounterMachine, "appended", fail)

    async def scenario(is_slow: bool) -> None:
        replica = FakeReplica()
        scene = await Scene(replica).begin()
        replica.holds_back = is_slow
        bad, waiting = scene.add("bad"), scene.add("good")
        for _ in range(3):
            await settle()
            replica.expose()
        assert await waiting == 1
        assert await code_of(bad) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "nobody foresaw this" in caplog.text

    asyncio.run(scenario(is_slow=False))
    asyncio.run(scenario(is_slow=True))


def test_an_append_is_answered_if_the_machine_cannot_roll_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CounterMachine, "roll_back", lambda *_arguments: 1 / 0)

    async def scenario() -> None:
        replica = FakeReplica()
        scene = await Scene(replica).begin()
        replica.errors = [NO_ROOM]
        assert await code_of(scene.add("a")) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    asyncio.run(scenario())


def test_appends_whose_batches_cannot_be_made_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        scene = await Scene(FakeReplica()).begin()
        with monkeypatch.context() as patch:
            patch.setattr(appends, "_batches", lambda *_arguments: 1 / 0)
            assert await code_of(scene.add("a")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await scene.add("a") == 1

    asyncio.run(scenario())


def test_a_shard_appends_in_its_own_leader_epoch_alone() -> None:
    async def scenario() -> None:
        replica = FakeReplica(leader_epoch=3)
        scene = await Scene(replica).begin()
        shard = scene.shard()
        assert await scene.add("a") == 1
        replica.leader_epoch = 4
        assert await code_of(scene.add("a")) is ErrorCode.NOT_COORDINATOR
        assert not shard.log.write_at_once(bytearray(), [])
        assert replica.log.records() == [CounterRecord("a", 1)]

    asyncio.run(scenario())


def test_a_batch_that_is_made_already_is_appended_while_nothing_waits() -> None:
    async def scenario() -> None:
        replica = FakeReplica()
        scene = await Scene(replica).begin()
        shard, other = scene.shard(), FakeReplica()
        other.log.append_records(CounterRecord("a", 7))
        made = other.log.data
        assert shard.log.write_at_once(made, [CounterRecord("a", 7)])
        assert shard.machine.values == {"a": 7}
        replica.holds_back = True
        scene.add("b")
        assert not shard.log.write_at_once(made, [CounterRecord("a", 7)])

    asyncio.run(scenario())

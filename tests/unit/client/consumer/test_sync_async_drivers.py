"""How applications wait: on a thread that blocks, and on an event loop."""

from __future__ import annotations

import asyncio
import queue
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvloop

from barnabas.client.client_lifecycle import LoopThread
from barnabas.client.config import ConsumerConfig
from barnabas.client.consumer.async_consumer import AsyncConsumer
from barnabas.client.consumer.call_steps import FOREVER_S, ListenerCall, Wait
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.consumer.state import ConsumerState
from barnabas.client.consumer.sync_async_drivers import AsyncDriver, BlockingDriver, LoopGuard, ThreadGuard
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ClosedError
from barnabas.model import TopicPartition

HERE = [TopicPartition("t", 0)]


async def yield_to_loop():
    for _ in range(20):
        await asyncio.sleep(0)


def make_loop_shell():
    guard = LoopGuard()
    return AsyncDriver(ConsumerState(ConsumerConfig(), guard, SYSTEM_CLOCK), guard)


def run(test):
    async def main():
        async with asyncio.timeout(60):
            await test(make_loop_shell())

    asyncio.run(main())


@pytest.fixture
def thread():
    thread = LoopThread("test")
    yield thread
    thread.stop()


@pytest.fixture
def guard(thread):
    return ThreadGuard(thread)


@pytest.fixture
def blocking(guard):
    return BlockingDriver(ConsumerState(ConsumerConfig(), guard, SYSTEM_CLOCK), guard)


def waiting(guard, ended, until_s=FOREVER_S):
    """A call that waits for news once."""
    try:
        yield Wait(until_s, guard.wake_count)
        return "went on"
    finally:
        ended.append(True)


def telling(change="assigned"):
    """A call that tells the application something, and returns what came of it."""
    tell = ListenerCall(change, HERE)
    yield tell
    assert tell.done
    return tell.error


def test_a_thread_that_waits_is_woken_or_wakes_in_time(blocking, guard, thread):
    def notify():
        with guard.lock:
            guard.wake_application()

    call = waiting(guard, [])
    wait = next(call)
    thread.call_soon(notify)
    guard.wait_for_wake(wait)
    assert blocking.run(waiting(guard, [], SYSTEM_CLOCK.monotonic() + 0.001)) == "went on"


def test_all_who_wait_are_woken_by_one_word(guard):
    def wait_until_all_wait() -> None:
        deadline_s = SYSTEM_CLOCK.monotonic() + 20
        while len(guard._waiting) < 3 and SYSTEM_CLOCK.monotonic() < deadline_s:
            SYSTEM_CLOCK.sleep(0.001)

    wait = Wait(SYSTEM_CLOCK.monotonic() + 60, guard.wake_count)
    with ThreadPoolExecutor(3) as others:
        waits = [others.submit(guard.wait_for_wake, wait) for _ in range(3)]
        wait_until_all_wait()
        with guard.lock:
            guard.wake_application()
        for each in waits:
            each.result(20)
    assert SYSTEM_CLOCK.monotonic() < wait.until_s


def test_who_has_waited_in_vain_or_was_interrupted_is_forgotten(guard):
    guard.wait_for_wake(Wait(SYSTEM_CLOCK.monotonic() + 0.001, guard.wake_count))
    assert not guard._waiting
    ended = threading.Event()
    interrupts = iter([KeyboardInterrupt()])

    def interrupt(_number, _frame):
        for once in interrupts:
            raise once

    def signal_who_waits():
        # A signal between the last look for one and the system's wait interrupts nothing: the next one does.
        while not ended.wait(0.001):
            if guard._waiting:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    other = threading.Thread(target=signal_who_waits)
    other.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            guard.wait_for_wake(Wait(FOREVER_S, guard.wake_count))
    finally:
        ended.set()
        other.join()
        signal.signal(signal.SIGUSR1, before)
    assert not guard._waiting


def test_news_that_came_before_the_wait_ends_it_at_once(blocking, guard):
    wait = Wait(FOREVER_S, guard.wake_count)
    with guard.lock:
        guard.wake_application()
    guard.wait_for_wake(wait)


def test_the_background_is_woken_on_its_own_thread(guard, thread):
    rung_on = queue.Queue()

    async def listen():
        guard.waker.listen(lambda: rung_on.put(threading.current_thread().name))

    guard.wake_background()
    thread.call(listen(), 20)
    assert rung_on.get(timeout=20) == "test", "it hears of what was wanted before it listened"
    guard.wake_background()
    assert rung_on.get(timeout=20) == "test"


def test_a_forked_child_does_not_wait_for_a_lock_that_a_thread_of_its_parent_holds(thread):
    guard = ThreadGuard(thread)
    guard.lock.acquire()
    guard.after_fork()
    with ThreadPoolExecutor(1) as another:
        assert another.submit(guard.lock.acquire, blocking=False).result(20)


def test_a_consumer_that_cannot_be_made_leaves_no_thread_behind():
    before = threading.active_count()
    with pytest.raises(TypeError, match="value_deserializer"):
        Consumer("localhost:1", value_deserializer="utf-8")
    assert threading.active_count() == before


def test_many_calls_for_the_background_of_a_loop_are_one():
    async def main():
        guard, rung = LoopGuard(), []
        guard.waker.listen(lambda: rung.append(None))
        for _ in range(3):
            guard.wake_background()
        assert not rung, "not within the call"
        await asyncio.sleep(0)
        assert len(rung) == 1
        guard.wake_background()
        await asyncio.sleep(0)
        assert len(rung) == 2

    asyncio.run(main())


def test_a_call_before_the_loop_runs_is_heard_later():
    guard, rung = LoopGuard(), []
    guard.wake_background()
    guard.waker.listen(lambda: rung.append(None))
    assert rung


def test_listeners_are_called_by_the_thread_that_polls(blocking):
    told = []

    def listen(tps):
        told.append((tps, threading.current_thread(), blocking.inside_listener))

    blocking.listeners = {"assigned": listen}
    assert blocking.run(telling()) is None
    assert told == [(HERE, threading.current_thread(), True)]
    assert not blocking.inside_listener


def test_what_a_listener_raises_is_for_the_core_to_raise(blocking):
    def fail(_tps):
        raise KeyboardInterrupt

    blocking.listeners = {"assigned": fail}
    assert isinstance(blocking.run(telling()), KeyboardInterrupt)


def test_a_listener_that_is_gone_is_not_missed(blocking):
    assert blocking.run(telling("lost")) is None
    run_loop = make_loop_shell()
    assert asyncio.run(run_loop.run(telling("lost"))) is None


def test_a_call_that_is_interrupted_is_ended(blocking, guard):
    ended = []

    def interrupted(_wait):
        raise KeyboardInterrupt

    guard.wait_for_wake = interrupted
    with pytest.raises(KeyboardInterrupt):
        blocking.run(waiting(guard, ended))
    assert ended


def test_a_task_that_waits_is_woken_or_wakes_in_time():
    async def test(driver):
        tasks = [asyncio.create_task(driver.run(waiting(driver.guard, []))) for _ in range(2)]
        await yield_to_loop()
        assert not any(task.done() for task in tasks)
        driver.guard.wake_application()
        assert await asyncio.gather(*tasks) == ["went on"] * 2
        await driver.run(waiting(driver.guard, [], SYSTEM_CLOCK.monotonic() + 0.001))

    run(test)


def test_who_is_cancelled_while_waiting_is_not_woken_later():
    async def test(driver):
        ended = []
        task = asyncio.create_task(driver.run(waiting(driver.guard, ended)))
        await yield_to_loop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert ended
        driver.guard.wake_application()

    run(test)


def test_a_listener_goes_on_when_who_polls_is_cancelled():
    async def test(driver):
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def listen(_tps):
            assert driver.inside_listener
            begun.set()
            await go_on.wait()

        driver.listeners = {"assigned": listen}
        tell = ListenerCall("assigned", HERE)
        caller = asyncio.create_task(driver.run(step for step in [tell]))
        await begun.wait()
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        assert caller.cancelled()
        assert not tell.done
        go_on.set()
        await yield_to_loop()
        assert tell.error is None

    run(test)


def test_a_listener_that_closing_ends_is_told_so():
    async def test(driver):
        async def listen(_tps):
            await asyncio.sleep(1_000)

        driver.listeners = {"assigned": listen}
        tell = ListenerCall("assigned", HERE)
        caller = asyncio.create_task(driver.run(step for step in [tell]))
        await yield_to_loop()
        await driver.stop()
        await asyncio.gather(caller, return_exceptions=True)
        assert not caller.cancelled(), "nobody has cancelled the task that polls"
        assert isinstance(tell.error, ClosedError)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(test)


def test_listeners_may_be_functions_or_coroutine_functions():
    async def test(driver):
        told = []

        async def listen(tps):
            await asyncio.sleep(0)
            told.append(("awaited", tps))

        driver.listeners = {"assigned": listen, "revoked": lambda tps: told.append(("called", tps))}
        await driver.run(telling())
        await driver.run(telling("revoked"))
        assert told == [("awaited", HERE), ("called", HERE)]

    run(test)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_application_that_only_takes_what_is_at_hand_lets_others_have_their_turn(new_loop):
    async def main():
        driver = make_loop_shell()
        turns = 0

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(other())
        while turns < 2:  # else it runs until the time limit of tests
            await driver.yield_to_loop()
        task.cancel()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


class HeldBackground:
    """Ends when the test lets it."""

    def __init__(self):
        self.may_end = asyncio.Event()
        self.ended = False

    async def start(self):
        pass

    async def close(self, deadline_s):
        await self.may_end.wait()
        self.ended = True


def test_who_is_not_the_first_to_close_waits_until_it_is_done():
    async def main():
        consumer = AsyncConsumer("a:1")
        consumer._background = background = HeldBackground()
        await consumer.start()
        first, second = (asyncio.create_task(consumer.close()) for _ in range(2))
        await yield_to_loop()
        assert not second.done()
        background.may_end.set()
        await second
        assert background.ended
        await first
        await consumer.close()

    asyncio.run(main())


def test_a_listener_may_close_a_consumer_that_is_being_closed():
    async def main():
        consumer = AsyncConsumer("a:1")
        consumer._background = background = HeldBackground()
        background.may_end.set()
        await consumer.start()
        go_on = asyncio.Event()

        async def listen(_tps):
            await go_on.wait()
            await consumer.close()

        consumer._driver.listeners = {"assigned": listen}
        caller = asyncio.create_task(consumer._driver.run(step for step in [ListenerCall("assigned", HERE)]))
        await yield_to_loop()
        go_on.set()
        async with asyncio.timeout(60):
            await consumer.close()
            await caller

    asyncio.run(main())

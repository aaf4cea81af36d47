"""Waiting and having things done: on a thread that blocks, and on an event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest
import uvloop

from barnabas.client.consumer.shells import BlockingShell, LoopShell, run_to_its_end
from barnabas.errors import ClosedError
from barnabas.model import TopicPartition

HERE = [TopicPartition("t", 0)]


async def give_way():
    for _ in range(20):
        await asyncio.sleep(0)


def run(test):
    async def main():
        async with asyncio.timeout(20):
            await test(LoopShell())

    asyncio.run(main())


@pytest.fixture
def blocking():
    shell = BlockingShell("test", lambda error: None)
    yield shell
    run_to_its_end(shell.stop())


def test_what_awaits_an_event_loop_cannot_be_run_on_a_thread():
    waits = asyncio.sleep(0)
    with pytest.raises(AssertionError, match="without an event loop"):
        run_to_its_end(waits)
    waits.close()


def test_errors_come_out_as_they_are(blocking):
    async def fail():
        raise ClosedError("as it is")

    with pytest.raises(ClosedError, match="as it is"):
        run_to_its_end(blocking.run(fail()))


def test_coroutines_run_on_the_background_thread_and_listeners_on_the_callers(blocking):
    async def where():
        return threading.current_thread().name

    told = []
    assert run_to_its_end(blocking.run(where())) == "test"
    outcome = blocking.start(where())
    run_to_its_end(blocking.wait_for(outcome, 20))
    assert outcome.result() == "test"
    run_to_its_end(blocking.tell(lambda tps: told.append((tps, threading.current_thread())), HERE))
    assert told == [(HERE, threading.current_thread())]


def test_a_thread_that_waits_is_woken_or_wakes_in_time(blocking):
    async def notify():
        with blocking.guard:
            blocking.guard.notify_all()

    with blocking.guard:
        outcome = blocking.start(notify())
        run_to_its_end(blocking.wait_for_news(None))
        run_to_its_end(blocking.wait_for_news(0.001))
    assert outcome.result() is None


def test_a_task_that_waits_is_woken_or_wakes_in_time():
    async def test(shell):
        tasks = [asyncio.create_task(shell.wait_for_news(None)) for _ in range(2)]
        await give_way()
        assert not any(task.done() for task in tasks)
        shell.guard.notify_all()
        await asyncio.gather(*tasks)
        await shell.wait_for_news(0.001)

    run(test)


def test_who_is_cancelled_while_waiting_is_not_woken_later():
    async def test(shell):
        task = asyncio.create_task(shell.wait_for_news(None))
        await give_way()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        shell.guard.notify_all()

    run(test)


def test_what_must_be_alone_runs_one_at_a_time_and_may_run_something_within():
    async def test(shell):
        log = []

        async def inner(name):
            log.append(name)

        async def outer(name):
            log.append(name + " begins")
            await asyncio.sleep(0)
            await shell.alone(inner(name + " within"))
            log.append(name + " ends")

        await asyncio.gather(shell.alone(outer("a")), shell.alone(outer("b")))
        assert log == ["a begins", "a within", "a ends", "b begins", "b within", "b ends"]

    run(test)


def test_what_must_be_alone_goes_on_when_who_waits_for_it_is_cancelled():
    async def test(shell):
        begun, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def work():
            begun.set()
            await go_on.wait()
            ended.set()

        caller = asyncio.create_task(shell.alone(work()))
        await begun.wait()
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        assert caller.cancelled()
        go_on.set()
        await ended.wait()

    run(test)


def test_who_waits_for_something_that_closing_ends_is_told_so():
    async def test(shell):
        caller = asyncio.create_task(shell.alone(asyncio.sleep(1_000)))
        await give_way()
        await shell.stop()
        with pytest.raises(ClosedError):
            await caller
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(test)


def test_listeners_may_be_functions_or_coroutine_functions():
    async def test(shell):
        told = []

        async def listen(tps):
            await asyncio.sleep(0)
            told.append(("awaited", tps))

        await shell.tell(listen, HERE)
        await shell.tell(lambda tps: told.append(("called", tps)), HERE)
        assert told == [("awaited", HERE), ("called", HERE)]

    run(test)


def test_nothing_is_done_on_the_loop_before_the_consumer_runs():
    async def test(shell):
        done = []
        shell.soon(lambda: done.append("early"))
        shell.runs = True
        shell.soon(lambda: done.append("now"))
        assert done == ["now"]

    run(test)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_application_that_only_takes_what_is_at_hand_lets_others_have_their_turn(new_loop):
    async def main():
        shell = LoopShell()
        turns = 0

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(other())
        while turns < 2:  # else it runs until the time limit of tests
            await shell.give_way()
        task.cancel()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())

"""The background thread of the synchronous clients."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import sys
import threading

import pytest

from barnabas.client import client_lifecycle
from barnabas.client.client_lifecycle import LoopThread
from barnabas.errors import ClosedError, TimedOutError


@pytest.fixture
def thread():
    made = LoopThread("test")
    yield made
    made.stop()


async def ident():
    return threading.get_ident()


def test_coroutines_run_on_the_thread(thread):
    assert thread.call(ident()) != threading.get_ident()
    assert thread.call(ident()) == thread.call(ident())


def test_errors_come_back(thread):
    async def fail():
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        thread.call(fail())


def test_waiting_for_oneself_is_refused(thread):
    async def inner():
        thread.call(ident())

    with pytest.raises(ClosedError, match="callback"):
        thread.call(inner())


def test_stopping_cancels_what_runs_and_ends_the_thread(thread):
    endless = thread.start(asyncio.sleep(3600))
    thread.stop()
    assert endless.cancelled()
    with pytest.raises(ClosedError, match="closed"):
        thread.call(ident())
    thread.call_soon(lambda: None)
    thread.stop()


def test_thread_whose_making_is_interrupted_is_not_waited_for_at_the_end_of_the_program(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    before = set(client_lifecycle._lifecycles)
    with pytest.raises(KeyboardInterrupt):
        LoopThread("test", interrupted)
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        LoopThread("test")
    assert client_lifecycle._lifecycles <= before


def test_forked_child_notifies_the_owner(thread):
    async def finish():
        pass

    told = []
    thread.end_with(thread, finish, "a Client", after_fork=told.append)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            thread.call(ident())
        except ClosedError as error:
            code = 0 if "fork" in str(error) and len(told) == 1 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not told
    assert thread.call(ident())


class Client:
    """As small as one can be: it has a thread, and what is done at its end."""

    def __init__(self, finish):
        self.thread = LoopThread("test")
        self.thread.end_with(self, finish, "a Client")


def test_a_client_that_nobody_holds_is_told_to_finish_and_its_thread_ends():
    finished = []

    async def finish():
        await asyncio.sleep(0)
        finished.append(threading.current_thread())

    client = Client(finish)
    thread = client.thread
    with pytest.warns(ResourceWarning, match="a Client was dropped without close"):
        del client
    assert thread.join(30)
    assert [each.name for each in finished] == ["test"]
    with pytest.raises(ClosedError, match="closed"):
        thread.call(ident())


def test_a_client_that_was_closed_goes_without_a_word(recwarn):
    finished = []

    async def finish():
        finished.append(1)

    client = Client(finish)
    client.thread.stop()
    del client
    gc.collect()
    assert not finished
    assert not recwarn


def test_a_client_that_cannot_finish_ends_all_the_same(caplog):
    async def finish():
        raise KeyError("broken")

    client = Client(finish)
    thread = client.thread
    thread.end_soon()
    assert thread.join(30)
    assert "did not shut down cleanly" in caplog.text
    del client


def test_what_interrupts_the_end_is_told_to_who_finishes():
    begun, cut_short = threading.Event(), threading.Event()

    async def finish():
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            cut_short.set()

    client = Client(finish)
    client.thread.end_soon()
    assert begun.wait(30)
    client.thread.interrupt_end()
    assert client.thread.join(30)
    assert cut_short.is_set()


def test_an_end_that_is_interrupted_before_it_has_begun_comes_all_the_same():
    async def finish():
        await asyncio.sleep(3600)

    client, go_on = Client(finish), threading.Event()
    client.thread.call_soon(lambda: go_on.wait(30))
    client.thread.end_soon()
    client.thread.interrupt_end()
    go_on.set()
    assert client.thread.join(30)


def test_stopping_waits_for_an_end_that_is_under_way():
    begun, finished = threading.Event(), []

    async def finish():
        begun.set()
        await asyncio.sleep(0.01)
        finished.append(True)

    client = Client(finish)
    client.thread.end_soon()
    assert begun.wait(30)
    client.thread.stop()
    assert finished == [True]


def test_what_comes_after_the_last_turn_of_the_loop_is_cancelled():
    thread, go_on = LoopThread("test"), threading.Event()
    thread.call_soon(lambda: (thread._loop.stop(), go_on.wait(30)))
    late = thread.start(asyncio.sleep(3600))
    go_on.set()
    with pytest.raises(concurrent.futures.CancelledError):
        late.result(60)
    assert thread.join(30)


def test_who_is_not_the_first_to_close_waits_until_it_is_done():
    thread, order = LoopThread("test"), []
    assert thread.begin_close()
    assert not thread.begin_close(), "a signal handler must not wait for the closing that it interrupts"
    started = threading.Event()

    def close_too():
        started.set()
        assert not thread.begin_close()
        order.append("the other")

    other = threading.Thread(target=close_too)
    other.start()
    assert started.wait(30)

    async def finish():
        order.append("the first")

    thread.stop(finish)
    other.join(30)
    assert order == ["the first", "the other"]


def test_who_is_not_the_first_to_close_waits_no_longer_than_it_says(thread):
    assert thread.claim_end()
    with pytest.raises(TimedOutError, match=r"still being closed after 0\.01 s"):
        thread.begin_close(0.01)


def test_a_forked_child_drops_its_copy_without_a_word():
    async def finish():
        sys.stderr.write("finished")

    client = Client(finish)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert client.thread.is_forked_copy
            client.thread.end_soon()
            del client
            gc.collect()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client.thread.call(ident())
    client.thread.stop()


def test_who_waits_for_a_client_that_another_thread_closes_is_told_so():
    thread, began, errors = LoopThread("test"), threading.Event(), []

    async def wait():
        began.set()
        await asyncio.sleep(3600)

    def call():
        try:
            thread.call(wait())
        except ClosedError as error:
            errors.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    assert began.wait(60)
    thread.stop()
    caller.join(60)
    assert len(errors) == 1

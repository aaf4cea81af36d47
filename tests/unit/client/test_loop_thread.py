"""The background thread of the synchronous clients."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from barnabas.client.loop_thread import LoopThread
from barnabas.errors import ClosedError


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
    thread.soon(lambda: None)
    thread.stop()


def test_a_forked_child_is_told(thread):
    told = []
    thread.after_fork = told.append
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

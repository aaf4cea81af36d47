"""The thread for calls that block: in order, whatever becomes of who waits."""

from __future__ import annotations

import threading

import pytest

from barnabas.client.consumer.zookeeper_group_session import SerialThread


@pytest.fixture
def thread():
    made = SerialThread("test-serial")
    yield made
    made.stop()


def test_calls_are_made_one_after_the_other_on_one_thread(thread):
    made = []
    calls = [thread.submit(lambda number=number: made.append((number, threading.get_ident()))) for number in range(50)]
    for call in calls:
        call.result(60)
    assert [number for number, _ in made] == list(range(50))
    assert len({ident for _, ident in made}) == 1


def test_error_is_for_who_waits_and_the_thread_goes_on(thread):
    with pytest.raises(ZeroDivisionError):
        thread.submit(lambda: 1 // 0).result(60)
    assert thread.submit(lambda: 5).result(60) == 5


def test_call_that_is_cancelled_before_its_turn_is_left_out(thread):
    gate, made = threading.Event(), []
    first = thread.submit(lambda: gate.wait(60))
    second = thread.submit(lambda: made.append("second"))
    assert second.cancel()
    gate.set()
    assert first.result(60)
    thread.submit(lambda: made.append("third")).result(60)
    assert made == ["third"]


def test_thread_is_a_daemon_and_ends_after_what_it_was_given(thread):
    found = thread.submit(threading.current_thread)
    last = thread.submit(lambda: "last")
    thread.stop()
    assert last.result(60) == "last"
    assert found.result(60).daemon
    found.result().join(60)
    assert not found.result().is_alive()

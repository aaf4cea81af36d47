"""What clients may cost: memory and connections are counted, and given back."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from barnabas.net.limits import ConnectionCount, Limits, RequestMemory


def test_a_request_may_begin_while_anything_is_left() -> None:
    memory = RequestMemory(100)
    assert memory.reserve(60)
    assert memory.reserve(60)
    assert not memory.reserve(1)


def test_who_waits_is_called_in_turn_when_there_is_memory_again() -> None:
    memory = RequestMemory(100)
    called: list[str] = []

    def waiter(name: str) -> Callable[[], None]:
        def again() -> None:
            called.append(name)
            assert memory.reserve(100)

        return again

    memory.reserve(100)
    memory.wait(waiter("first"))
    memory.wait(waiter("second"))
    memory.release(100)
    assert called == ["first"]
    memory.release(100)
    assert called == ["first", "second"]


def test_who_gave_up_is_not_called() -> None:
    memory = RequestMemory(100)
    called: list[int] = []
    again = lambda: called.append(1)  # noqa: E731 - the same object must be given up
    memory.reserve(100)
    memory.wait(again)
    memory.give_up(again)
    memory.give_up(again)
    memory.release(100)
    assert called == []


@given(st.lists(st.integers(1, 80), max_size=30))
def test_memory_exceeds_the_bound_by_one_request_at_most(sizes: list[int]) -> None:
    memory = RequestMemory(100)
    taken = [size for size in sizes if memory.reserve(size)]
    assert memory.used_bytes == sum(taken) < 100 + 80
    for size in taken:
        memory.release(size)
    assert memory.used_bytes == 0


def test_connections_are_counted_in_all_and_by_address() -> None:
    count = ConnectionCount(Limits(connections_max=3, connections_per_host_max=2))
    assert [count.admit("a"), count.admit("a")] == [None, None]
    assert count.admit("a") == "a has 2 connections open (max.connections.per.ip)"
    assert count.admit("b") is None
    assert count.admit("b") == "3 connections are open (max.connections)"
    count.leave("a")
    assert count.admit("a") is None

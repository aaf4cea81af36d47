"""What clients may cost: memory and connections are counted, and given back."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.net.limits import ConnectionCount, Limits, RequestMemory


def test_memory_is_full_when_the_bound_is_exceeded() -> None:
    memory = RequestMemory(100)
    memory.change(100)
    assert not memory.is_full
    memory.change(1)
    assert memory.is_full


def test_who_waits_goes_on_in_turn_when_there_is_room_again() -> None:
    memory = RequestMemory(100)
    called: list[str] = []

    def waiter(name: str) -> Callable[[], None]:
        def go_on() -> None:
            called.append(name)
            memory.change(150)

        return go_on

    memory.change(150)
    memory.wait(waiter("first"))
    memory.wait(waiter("second"))
    memory.change(-10)
    assert called == [], "still full"
    memory.change(-140)
    assert called == ["first"]
    memory.change(-150)
    assert called == ["first", "second"]


def test_who_waits_twice_is_called_once_and_who_gave_up_never() -> None:
    memory = RequestMemory(100)
    called: list[str] = []

    def patient() -> None:
        called.append("patient")

    def impatient() -> None:
        called.append("impatient")

    memory.change(101)
    for go_on in (patient, patient, impatient):
        memory.wait(go_on)
    memory.give_up(impatient)
    memory.give_up(impatient)
    memory.change(-101)
    assert called == ["patient"]


def test_connections_are_counted_in_all_and_by_address() -> None:
    count = ConnectionCount(Limits(connections_max=3, connections_per_host_max=2))
    assert [count.admit("a"), count.admit("a")] == [None, None]
    assert count.admit("a") == "a has 2 connections open (max.connections.per.ip)"
    assert count.admit("b") is None
    assert count.admit("b") == "3 connections are open (max.connections)"
    count.leave("a")
    assert count.admit("a") is None

"""What clients may cost: memory and connections are counted, and given back."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.net.listener import ConnectionCount
from barnabas.net.server_connection import Limits, RequestMemory

TOTAL = 6_400
LARGE = 1_000
MEDIUM = TOTAL // RequestMemory.MEDIUM_PARTS
KEPT = TOTAL // RequestMemory.KEPT_PARTS


class Requests:
    """Large requests that want memory, by name; `going` are those that have it."""

    def __init__(self) -> None:
        self.memory = RequestMemory(TOTAL)
        self.going: list[str] = []
        self.waiters: dict[str, Callable[[int], None]] = {}

    def begin(self, name: str, size: int, held: int = 0) -> None:
        self.waiters[name] = lambda _: self.going.append(name)
        if self.memory.reserve(size, self.waiters[name], held=held):
            self.going.append(name)

    def end(self, size: int) -> None:
        """One came whole, and was carried out."""
        self.memory.arrived()
        self.memory.change(-size)


def test_memory_is_full_when_the_bound_is_exceeded() -> None:
    memory = RequestMemory(100)
    memory.change(100)
    assert not memory.is_full
    memory.change(1)
    assert memory.is_full


def test_large_requests_begin_as_long_as_all_of_them_fit_and_the_others_in_their_turn() -> None:
    requests = Requests()
    for number in range(8):
        requests.begin(str(number), LARGE)
    assert requests.going == list("01234")
    assert requests.memory.used_bytes == 5 * LARGE <= TOTAL - KEPT
    for expected in ("012345", "0123456", "01234567"):
        requests.end(LARGE)
        assert requests.going == list(expected)
    assert not requests.memory.is_waited_for


def test_a_request_that_would_fit_does_not_pass_one_of_its_like() -> None:
    requests = Requests()
    for name, size in (("a", 3_000), ("b", 2_000), ("c", 2_000), ("d", 200)):
        requests.begin(name, size)
    assert requests.going == ["a", "b"]
    requests.end(2_000)
    assert requests.going == ["a", "b", "c", "d"]


def test_who_announces_much_is_in_the_way_of_his_like_only() -> None:
    requests = Requests()
    for number in range(10):
        requests.begin(f"large {number}", LARGE)
    for number in range(KEPT // MEDIUM):
        requests.begin(f"medium {number}", MEDIUM)
        assert requests.going[-1] == f"medium {number}"


def test_one_that_is_nearly_as_large_as_all_there_is_begins_when_it_is_alone() -> None:
    requests = Requests()
    requests.begin("first", LARGE)
    requests.begin("all", TOTAL)
    assert requests.going == ["first"]
    requests.end(LARGE)
    assert requests.going == ["first", "all"]


def test_what_has_come_of_those_in_line_does_not_keep_them_there() -> None:
    requests = Requests()
    for number in range(20):
        requests.memory.change(500)
        requests.begin(str(number), LARGE, held=500)
    assert requests.memory.used_bytes > TOTAL
    for _ in range(20):
        requests.end(LARGE + 500)
    assert len(requests.going) == 20
    assert requests.memory.used_bytes == 0


def test_who_wants_no_more_than_that_there_is_room_waits_until_the_bound_is_kept() -> None:
    requests = Requests()
    requests.memory.change(TOTAL + 1)
    requests.begin("a", 0)
    assert requests.going == []
    requests.memory.change(-1)
    assert requests.going == ["a"]


def test_who_gave_up_is_not_called() -> None:
    requests = Requests()
    requests.begin("all", TOTAL)
    for name in "ab":
        requests.begin(name, LARGE, held=10)
    requests.memory.give_up(requests.waiters["a"])
    requests.memory.give_up(requests.waiters["a"])
    requests.end(TOTAL)
    assert requests.going == ["all", "b"]


def test_connections_are_counted_in_all_and_by_address() -> None:
    count = ConnectionCount(Limits(connections_max=lambda: 3, connections_per_host_max=lambda: 2))
    assert [count.admit("a"), count.admit("a")] == [None, None]
    assert count.admit("a") == "a has 2 connections open (max.connections.per.ip)"
    assert count.admit("b") is None
    assert count.admit("b") == "3 connections are open (max.connections, or the limit of open files)"
    count.leave("a")
    assert count.admit("a") is None

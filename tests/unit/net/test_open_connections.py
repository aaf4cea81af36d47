"""The limits of the open connections of an HTTP server."""

from __future__ import annotations

import asyncio

from barnabas.net.open_connections import Deadline, OpenConnections


class Connection:
    """A connection that notes its end."""

    def __init__(self, *, is_waiting: bool = True) -> None:
        self.is_waiting = is_waiting
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


def test_address_at_its_limit_loses_its_own_oldest_connection() -> None:
    opened: OpenConnections[Connection] = OpenConnections(10, 2)
    all_of = [Connection() for _ in range(4)]
    for key, address in enumerate(["a", "b", "a", "a"]):
        assert opened.admit(key, address, all_of[key])
    assert [each.is_aborted for each in all_of] == [True, False, False, False]
    assert (len(opened), opened.find(0), opened.find(3)) == (3, None, all_of[3])


def test_limit_of_all_takes_from_the_address_with_the_most_connections() -> None:
    opened: OpenConnections[Connection] = OpenConnections(3)
    all_of = [Connection(is_waiting=key != 1) for key in range(4)]
    for key, address in enumerate(["few", "many", "many", "new"]):
        assert opened.admit(key, address, all_of[key])
    assert [each.is_aborted for each in all_of] == [False, False, True, False]


def test_busy_connections_keep_their_places() -> None:
    opened: OpenConnections[Connection] = OpenConnections(2)
    busy = [Connection(is_waiting=False) for _ in range(2)]
    for key, each in enumerate(busy):
        opened.admit(key, "", each)
    assert not opened.admit(2, "", Connection())
    assert list(opened) == busy


def test_connection_that_waits_again_is_closed_last() -> None:
    opened: OpenConnections[Connection] = OpenConnections(2)
    first, second = Connection(), Connection()
    opened.admit(1, "", first)
    opened.admit(2, "", second)
    opened.begin_to_wait(1)
    opened.begin_to_wait(9)  # not admitted
    opened.admit(3, "", Connection())
    assert (first.is_aborted, second.is_aborted) == (False, True)


def test_late_end_of_a_connection_leaves_its_successor() -> None:
    opened: OpenConnections[Connection] = OpenConnections(2)
    first, second = Connection(), Connection()
    opened.admit(1, "a", first)
    opened.forget(1, first)
    opened.admit(1, "a", second)
    opened.forget(1, first)
    assert opened.find(1) is second
    opened.forget(1, second)
    assert (len(opened), list(opened)) == (0, [])


def test_deadline_expires_once_unless_it_is_stopped() -> None:
    async def main() -> None:
        expired = asyncio.Event()
        deadline = Deadline(asyncio.get_running_loop(), expired.set)
        deadline.start(60)
        deadline.start(0)
        assert deadline.is_set
        async with asyncio.timeout(60):
            await expired.wait()
        expired.clear()
        deadline.start(0)
        deadline.stop()
        assert not deadline.is_set
        await asyncio.sleep(0.01)
        assert not expired.is_set()

    asyncio.run(main())

"""Reading until a condition holds, with any of the clients; and members of groups, each on a thread of its own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import barnabas
from tests.interop.clients.neutral import Client, Consumer, Membership, Received

TIMEOUT_S = 90.0
"""For machines that are slow and busy: longer than the clients' own timeouts, which tell more."""
POLL_S = 0.1
LOOK_AGAIN_S = 0.01


def wait_until(condition: Callable[[], object], what: str | Callable[[], str], timeout_s: float = TIMEOUT_S) -> None:
    """Wait until `condition()` is true; fail with `what`, or what it then returns, when it is not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(LOOK_AGAIN_S)


def read(consumer: Consumer, count: int, timeout_s: float = TIMEOUT_S) -> list[Received]:
    """Poll until there are `count` records, and return them."""
    received: list[Received] = []
    deadline = time.monotonic() + timeout_s
    while len(received) < count:
        assert time.monotonic() < deadline, f"{len(received)} of {count} records within {timeout_s:g} s"
        received += consumer.poll(POLL_S)
    return received


def read_topic(client: Client, bootstrap: str, topic: str, count: int) -> list[Received]:
    """Read `count` records with a fresh consumer, all partitions, from the beginning."""
    with contextlib.closing(client.consumer(bootstrap, topic)) as consumer:
        return read(consumer, count)


def gaps(bootstrap: str, topic: str) -> int:
    """Return how many offsets of a topic have no record any more: compaction has taken them away."""
    with barnabas.Admin(bootstrap) as admin:
        (description,) = admin.describe_topics([topic])
        places = [(topic, each.partition) for each in description.partitions]
        ends, beginnings = admin.end_offsets(places), admin.beginning_offsets(places)
    records = 0
    with barnabas.Consumer(bootstrap) as consumer:
        for place, end in ends.items():
            consumer.assign([place])
            consumer.seek(place, beginnings[place])
            while consumer.position(place) < end:
                records += len(consumer.poll(timeout_s=POLL_S))
    return sum(ends.values()) - sum(beginnings.values()) - records


class Member:
    """A member of a group that polls on its own thread, as applications do, and keeps what it gets.

    A client is made, polled and closed on that thread alone. What went wrong there is raised by `close`.
    """

    def __init__(self, client: Client, bootstrap: str, topic: str, membership: Membership) -> None:
        self.received: list[Received] = []
        self.assigned: set[int] = set()
        self._make = lambda: client.consumer(bootstrap, topic, membership)
        self._ends = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"member with {client.name}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the client and wait for it. May be called again."""
        self._ends.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), f"{self._thread.name} does not end"
        if self._failure:
            failure, self._failure = self._failure, None
            raise failure

    def _run(self) -> None:
        try:
            with contextlib.closing(self._make()) as consumer:
                while not self._ends.is_set():
                    self.received += consumer.poll(POLL_S)
                    self.assigned = consumer.assigned()
            self.assigned = set()
        except BaseException as failure:  # noqa: BLE001 - it is raised where the test sees it
            self._failure = failure

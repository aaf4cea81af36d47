"""The threads of a broker: which work may keep which other work waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from barnabas.broker.disk_work import DISK_THREADS, SEARCH_THREADS, BrokerThreads

TIMEOUT_S = 60


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Work of clients that does not come to its end before this is set."""
    made = threading.Event()
    yield made
    made.set()


def test_no_work_of_clients_keeps_the_broker_from_asking_whether_the_tree_answers(gate: threading.Event) -> None:
    async def scenario() -> None:
        threads = BrokerThreads()
        work = threads.work()
        async with asyncio.timeout(TIMEOUT_S):
            busy = [asyncio.ensure_future(work.in_any_order(gate.wait)) for _ in range(2 * SEARCH_THREADS)]
            busy += [asyncio.ensure_future(work.in_order(gate.wait)) for _ in range(2 * DISK_THREADS)]
            busy.append(asyncio.ensure_future(threads.in_metadata_thread(gate.wait)))
            await asyncio.sleep(0)
            assert await threads.beside_metadata(lambda: "answers") == "answers"
            assert not any(each.done() for each in busy)
            gate.set()
            await asyncio.gather(*busy)
        threads.close_disk()
        threads.close_metadata()

    asyncio.run(scenario())

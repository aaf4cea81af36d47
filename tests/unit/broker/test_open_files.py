"""How the broker gets along with a limited number of open files."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.broker import Broker, _limits
from barnabas.broker.config import BrokerConfig
from barnabas.broker.main import _raise_open_files_limit


@pytest.fixture
def hard_limit() -> Iterator[int]:
    """Lower what the process is allowed, below what it may allow itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_broker_allows_itself_all_the_files_that_it_may(hard_limit: int) -> None:
    _raise_open_files_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard_limit


@pytest.mark.parametrize(("open_files_max", "connections_max"), [(1_024, 768), (1_000_000, 5_000)])
def test_connections_leave_files_for_the_logs(open_files_max: int, connections_max: int) -> None:
    config = BrokerConfig(max_connections=5_000)
    assert _limits(config, open_files_max).connections_max == connections_max


def test_sealed_segments_are_flushed_when_they_pile_up() -> None:
    class Logs:
        def __init__(self, flushed: asyncio.Event) -> None:
            self.flush_sealed = lambda: loop.call_soon_threadsafe(flushed.set)
            self.on_flush_due = lambda: None

    async def pile_up() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        flushed = asyncio.Event()
        logs: Any = Logs(flushed)
        task = asyncio.create_task(Broker(BrokerConfig())._flush_sealed(logs))
        await asyncio.sleep(0)
        logs.on_flush_due()
        async with asyncio.timeout(10):
            await flushed.wait()
        task.cancel()

    loop: asyncio.AbstractEventLoop
    asyncio.run(pile_up())

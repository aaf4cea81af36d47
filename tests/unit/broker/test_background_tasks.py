"""What a broker does now and then goes on after an error that nobody foresaw."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from barnabas.broker import background_tasks as background_module
from barnabas.broker.background_tasks import BackgroundTasks
from barnabas.broker.broker_events import Events
from barnabas.broker.disk_work import DiskWork
from barnabas.broker.settings.static import BrokerConfig
from barnabas.clock import ManualClock

CONFIG = BrokerConfig(
    offsets_retention_check_interval_ms=1,
    log_retention_check_interval_ms=1,
    file_delete_delay_ms=1,
    replica_high_watermark_checkpoint_interval_ms=1,
    leader_imbalance_check_interval_seconds=0,
)


class Failing:
    """Fails at first; tells when it was called again."""

    def __init__(self) -> None:
        self.calls = 0
        self.again = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __call__(self) -> int:
        self.calls += 1
        if self.calls > 1:
            self._loop.call_soon_threadsafe(self.again.set)
            return 0
        raise ValueError("bug")

    async def later(self, *_arguments: object) -> int:
        return self()


LOOPS = [
    "takeovers",
    "changes",
    "offline",
    "preferred leaders",
    "deletions",
    "offsets",
    "records",
    "deleted files",
    "reserve",
    "high watermarks",
    "flushes",
]
"""In the order in which they are listed."""


@pytest.mark.parametrize("which", LOOPS)
def test_work_goes_on_after_a_bug_and_the_log_has_its_traceback(
    monkeypatch: pytest.MonkeyPatch, which: str, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background_module, "INTERVAL_MS_MIN", 1)
    for what in ("CLAIM", "PURGE", "DELETION", "RESERVE"):
        monkeypatch.setattr(background_module, f"{what}_INTERVAL_MS", 1)

    async def scenario() -> None:
        failing = Failing()
        topics: Any = SimpleNamespace(
            replicas=SimpleNamespace(delete_old_records=failing.later, leaders=failing),
            election=SimpleNamespace(next_deadline=0.0),
            elect_due=failing.later,
            image=SimpleNamespace(controller_id=CONFIG.broker_id, brokers={}),
            end_deletions=failing.later,
        )
        offsets: Any = SimpleNamespace(expire=failing.later)
        watch: Any = SimpleNamespace(purge=failing.later)
        logs: Any = SimpleNamespace(purge_deleted=failing, flush_sealed=failing, checkpoint_high_watermarks=failing)
        reserve: Any = SimpleNamespace(make=failing)
        groups: Any = None
        flush_due = asyncio.Event()
        background = BackgroundTasks(
            lambda: CONFIG, topics, groups, offsets, watch, ManualClock(), DiskWork(), Events(), flush_due
        )
        loops = background.all(logs, reserve)
        task = asyncio.create_task(loops.pop(LOOPS.index(which)))
        for other in loops:
            other.close()
        async with asyncio.timeout(60):
            while not failing.again.is_set():
                await asyncio.sleep(0)
                if which == "flushes":
                    flush_due.set()
        task.cancel()

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert "ValueError: bug" in caplog.text


class Due(asyncio.Event):
    """Tells when somebody waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_awaited = asyncio.Event()

    async def wait(self) -> Any:
        self.is_awaited.set()
        return await super().wait()


@pytest.mark.parametrize("rounds", range(4))
def test_flush_that_becomes_due_at_the_stop_does_not_prevent_the_end(
    monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    """The cancellation arrives in each iteration of the event loop between the event and the task that waits for it."""
    monkeypatch.setattr(background_module, "INTERVAL_MS_MIN", 1)
    idle: Any = MagicMock()

    async def scenario() -> None:
        due = Due()
        background = BackgroundTasks(lambda: CONFIG, idle, idle, idle, idle, ManualClock(), DiskWork(), Events(), due)
        loops = background.all(idle, idle)
        task = asyncio.create_task(loops.pop(LOOPS.index("flushes")))
        for other in loops:
            other.close()
        await due.is_awaited.wait()
        await asyncio.sleep(0)
        due.set()
        for _ in range(rounds):
            await asyncio.sleep(0)
        task.cancel()
        async with asyncio.timeout(20):
            await asyncio.wait([task])

    asyncio.run(scenario())

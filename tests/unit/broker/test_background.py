"""What a broker does now and then goes on after an error that nobody foresaw."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker import broker as broker_module
from barnabas.broker.broker import Broker
from barnabas.broker.settings.static import BrokerConfig


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Broker:
    monkeypatch.setattr(broker_module, "INTERVAL_MS_MIN", 0)
    settings = {"offsets_retention_check_interval_ms": 1, "log_retention_check_interval_ms": 1}
    return Broker(BrokerConfig(data=str(tmp_path), **settings))  # type: ignore[arg-type]


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


async def no_groups() -> list[str]:
    return []


@pytest.mark.parametrize("which", ["action", "offsets", "records"])
def test_work_goes_on_after_a_bug_and_the_log_has_its_traceback(
    broker: Broker, which: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        failing = Failing()
        anything: Any = broker
        anything.offsets = SimpleNamespace(expire=failing.later, group_ids=no_groups)
        anything.groups = SimpleNamespace(empty_for_ms=None, forget_unused=lambda _used: None)
        anything.topics = SimpleNamespace(delete_old_records=failing.later)
        action: Any = failing.__call__
        work = {
            "action": lambda: broker._now_and_then(1, action),
            "offsets": broker._expire_offsets,
            "records": broker._delete_old_records,
        }[which]
        task = asyncio.create_task(work())
        async with asyncio.timeout(10):
            await failing.again.wait()
        task.cancel()

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert "ValueError: bug" in caplog.text

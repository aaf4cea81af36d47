"""The end of a producer's engine where its interceptors do not end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client.producer.engine import ProducerEngine


def test_cancelled_close_ends_connections_and_tasks() -> None:
    async def scenario() -> None:
        closed: list[bool] = []
        never = asyncio.Event()

        async def last_push(_timeout_s: float | None) -> None:
            await never.wait()

        engine: Any = object.__new__(ProducerEngine)
        engine.accumulator = SimpleNamespace(unfinished_records=lambda: 0)
        engine.last_error_suffix = str
        engine._send_loop = SimpleNamespace(settle_all=lambda _error: None)
        engine._interceptors = SimpleNamespace(close=last_push)
        engine._cluster = SimpleNamespace(close=lambda: closed.append(True))
        task = asyncio.create_task(asyncio.Event().wait())
        engine._tasks = {task}
        closing = asyncio.create_task(engine.give_up())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert closed == [True]
        assert task.cancelled()

    asyncio.run(scenario())

"""A broker that stops and cannot hand over what it leads: its log line says why."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas.broker import broker as module
from tests.support.in_process_broker import Caller, run_with_broker


class Endless:
    def __init__(self, *_: object) -> None:
        pass

    async def transfer_all(self) -> None:
        await asyncio.Event().wait()


def test_a_hand_over_that_takes_too_long_has_a_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ControlledShutdown", Endless)

    async def scenario(caller: Caller) -> None:
        metadata = caller.broker.topics.metadata
        (own,) = metadata.image.brokers.values()
        metadata.put_brokers({0: own, 1: own})
        await caller.broker._shut_down_leadership()
        metadata.put_brokers({0: own})  # the stop of the broker hands nothing over

    run_with_broker(tmp_path, scenario, controlled_shutdown_timeout_ms=1)
    (line,) = [each for each in caplog.messages if "controlled shutdown" in each]
    assert "incomplete: not done within controlled.shutdown.timeout.ms=1" in line
